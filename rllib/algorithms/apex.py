"""Ape-X (Horgan et al., arXiv:1803.00933): Q-learning, or DDPG (section 4.2), from a distributed prioritised replay.

Workers explore by amounts of their own, from large to nearly none: epsilons in ApexDQN, scales of noise in ApexDDPG.
families/distributed_replay.py has the workers, the shards and the fragments between them, and says how a restored run
continues. families/q_learning.py has the network of action values, its loss and its targets. Actor, critics and losses
of ApexDDPG are in td3.py, so `twin_q`, `policy_delay` and `smooth_target_policy` make it an Ape-X TD3. Workers of
ApexDDPG get the critics' weights with the actor's, to compute the TD errors of their rows.

Departure from the paper: Adam instead of centred RMSprop in ApexDQN. Departure from RLlib: worker i's scale of noise is
what the paper has for epsilons, 0.4^(1 + 7 i / (N - 1)), with i from 0 on; RLlib's begin with i = 1, so that the first
worker explores less.
"""

import dataclasses
from typing import ClassVar, Self

from rllib.algorithms.families.distributed_replay import DistributedReplay, DistributedReplayConfig
from rllib.algorithms.families.off_policy_actor_critic import CRITICS
from rllib.algorithms.families.q_learning import QLearning, QLearningConfig
from rllib.algorithms.td3 import DDPG, DDPGConfig
from rllib.config.sections import section
from rllib.evaluation.postprocess.td_errors import ErrorsOfCritics, ErrorsOfValues
from rllib.losses.offline.value_penalty import ValuePenalty
from rllib.policy import Snapshot
from rllib.sample_batch import DEFAULT_POLICY


class ApexDQNConfig(DistributedReplayConfig, QLearningConfig):
    """Settings of Ape-X DQN; the defaults are RLlib's, except those in departures.py."""

    default_exploration: ClassVar[dict] = {"type": "PerWorkerEpsilonGreedy"}

    @section
    def training(self, *, target_network_update_freq=500_000) -> Self: ...

    @section
    def exploration(self, *, exploration_config=default_exploration) -> Self: ...


class ApexDQN(DistributedReplay, QLearning):
    """DQN with distributed prioritised replay."""

    config_class = ApexDQNConfig

    def worker_errors(self, policy_id: str) -> ErrorsOfValues:
        loss = self.make_loss(policy_id)
        while isinstance(loss, ValuePenalty):  # penalties are no part of TD errors
            loss = loss.loss
        return ErrorsOfValues(loss, self.config_of(policy_id).munchausen)

    def training_step(self) -> dict[str, dict[str, float]]:
        rates = {policy_id: self.scheduled("lr", policy_id=policy_id) for policy_id in self.replays}
        self.take_in_fragments()
        for policy_id, lr in rates.items():
            if self.an_update_is_due(policy_id):
                self.update_from_shards(policy_id, **lr)
                self.update_target(policy_id)
        return dict(self._stats)


class ApexDDPGConfig(DistributedReplayConfig, DDPGConfig):
    """Settings of Ape-X DDPG; the defaults are RLlib's, except those in departures.py."""

    not_custom: ClassVar[dict] = dict.fromkeys(
        ("policy_model_config", "q_model_config"),
        "workers compute the errors of their rows by the library's own layers, in numpy",
    )
    reads_images: ClassVar[bool] = False  # workers compute the errors of rows in numpy
    for_other_actions: ClassVar[str] = "ApexDQN for Discrete actions, PPO for all others, integer Boxes too"
    without_memory: ClassVar[str] = "its shards keep single rows, with priorities that workers compute"
    default_exploration: ClassVar[dict] = {"type": "PerWorkerOrnsteinUhlenbeckNoise"}
    without_residual: ClassVar[str] = "workers of Ape-X DDPG compute by critics in numpy"
    refuses: ClassVar[dict[str, str]] = {
        "param_resets": "priorities of rows in Ape-X DDPG come from workers with older networks"
    }

    @section
    def training(self, *, target_network_update_freq=500_000) -> Self: ...

    @section
    def exploration(self, *, exploration_config=default_exploration) -> Self: ...


class ApexDDPG(DistributedReplay, DDPG):
    """DDPG with distributed prioritised replay."""

    config_class = ApexDDPGConfig

    def worker_errors(self, policy_id: str) -> ErrorsOfCritics:
        return ErrorsOfCritics(CRITICS, self.critic_module(policy_id))

    def snapshot(self, policy_id: str = DEFAULT_POLICY) -> Snapshot:
        if policy_id not in self.learners or not self.workers_give_priorities(policy_id):
            return super().snapshot(policy_id)
        critics = {CRITICS: self.learners[policy_id].vector[CRITICS]}
        return dataclasses.replace(super().snapshot(policy_id), modules=critics)

    def training_step(self) -> dict[str, dict[str, float]]:
        rates = {policy_id: self.learning_rates(policy_id) for policy_id in self.replays}
        self.take_in_fragments()
        for policy_id, own_rates in rates.items():
            if self.an_update_is_due(policy_id):
                self.update_from_shards(policy_id, rates=own_rates)
        return dict(self._stats)
