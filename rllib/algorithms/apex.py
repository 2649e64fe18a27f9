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

from typing import ClassVar, Self

import numpy as np

from rllib.algorithms.families.critic_networks import critics_of
from rllib.algorithms.families.distributed_replay import DistributedReplay, DistributedReplayConfig, ShardedTrainee
from rllib.algorithms.families.off_policy_actor_critic import CRITICS
from rllib.algorithms.families.q_learning import QLearning, QLearningConfig, QTrainee, td_loss
from rllib.algorithms.td3 import DDPG, DDPGConfig, DDPGTrainee
from rllib.config.sections import section
from rllib.evaluation.postprocess.td_errors import ErrorsOfCritics, ErrorsOfValues


class ApexDQNConfig(DistributedReplayConfig, QLearningConfig):
    """Settings of Ape-X DQN; the defaults are RLlib's, except those in default_differences.py."""

    default_exploration: ClassVar[dict] = {"type": "PerWorkerEpsilonGreedy"}

    @section
    def training(self, *, target_network_update_freq=500_000) -> Self: ...

    @section
    def exploration(self, *, exploration_config=default_exploration) -> Self: ...


class ApexDQNTrainee(ShardedTrainee, QTrainee):
    """A policy that learns by Ape-X DQN."""


class ApexDQN(DistributedReplay, QLearning):
    """DQN with distributed prioritised replay."""

    config_class = ApexDQNConfig
    trainee_class = ApexDQNTrainee

    def worker_errors(self, policy_id: str) -> ErrorsOfValues:
        config = self.config_of(policy_id)
        return ErrorsOfValues(td_loss(config), config.munchausen)  # penalties are no part of TD errors


class ApexDDPGConfig(DistributedReplayConfig, DDPGConfig):
    """Settings of Ape-X DDPG; the defaults are RLlib's, except those in default_differences.py."""

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
    def training(self, *, target_network_update_freq=500_000, tau=1.0) -> Self: ...

    @section
    def exploration(self, *, exploration_config=default_exploration) -> Self: ...


class ApexDDPGTrainee(ShardedTrainee, DDPGTrainee):
    """A policy that learns by Ape-X DDPG."""

    def modules_of_workers(self) -> dict[str, np.ndarray]:
        return {CRITICS: self.learner.vector[CRITICS]} if self.workers_give_priorities else {}


class ApexDDPG(DistributedReplay, DDPG):
    """DDPG with distributed prioritised replay."""

    config_class = ApexDDPGConfig
    trainee_class = ApexDDPGTrainee

    def worker_errors(self, policy_id: str) -> ErrorsOfCritics:
        critics = critics_of(self.config_of(policy_id), self.policies[policy_id], ("observation", "action"))
        return ErrorsOfCritics(CRITICS, critics)
