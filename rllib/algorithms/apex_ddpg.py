"""Ape-X DDPG (Horgan et al., arXiv:1803.00933, section 4.2): DDPG from a distributed prioritised replay.

Workers add noise of scales of their own, from large to nearly none. They get the critics' weights with the actor's, to
compute the TD errors of their rows. Workers, shards and what is on the way between them, with departures and what a
restored run goes on with, are those of distributed_replay.py; actor, critics and losses those of td3.py, so `twin_q`,
`policy_delay` and `smooth_target_policy` make it an Ape-X TD3.

Departure from RLlib: worker i's scale is what the paper has for epsilons, 0.4^(1 + 7 i / (N - 1)), with i from 0 on;
RLlib's begin with i = 1, so that the first worker explores less.
"""

import dataclasses
from typing import ClassVar, Self

from rllib.algorithms.families.distributed_replay import DistributedReplay, DistributedReplayConfig
from rllib.algorithms.families.off_policy_actor_critic import CRITICS
from rllib.algorithms.td3 import DDPG, DDPGConfig
from rllib.config.sections import section
from rllib.evaluation.postprocess.td_errors import ErrorsOfCritics
from rllib.policy import Snapshot


class ApexDDPGConfig(DistributedReplayConfig, DDPGConfig):
    """Settings of Ape-X DDPG; the defaults are RLlib's, except those in departures.py."""

    default_exploration: ClassVar[dict] = {"type": "PerWorkerOrnsteinUhlenbeckNoise"}

    @section
    def training(self, *, target_network_update_freq=500_000) -> Self: ...

    @section
    def exploration(self, *, exploration_config=default_exploration) -> Self: ...


class ApexDDPG(DistributedReplay, DDPG):
    """The algorithm; see the module's docstring."""

    config_class = ApexDDPGConfig
    for_other_actions = "ApexDQN for Discrete actions, PPO for all others, integer Boxes too"

    def worker_errors(self) -> ErrorsOfCritics:
        return ErrorsOfCritics(CRITICS, self.critic_module(self.policy))

    def snapshot(self) -> Snapshot:
        if not self.workers_give_priorities:
            return super().snapshot()
        return dataclasses.replace(super().snapshot(), modules={CRITICS: self.learner.vector[CRITICS]})

    def training_step(self) -> dict[str, float]:
        rates = self.learning_rates()
        self.take_in_fragments()
        if self.an_update_is_due:
            self.update_from_shards(rates=rates)
        return dict(self._stats)
