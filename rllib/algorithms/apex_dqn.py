"""Ape-X DQN (Horgan et al., arXiv:1803.00933): Q-learning from a distributed prioritised replay.

Workers act with epsilons of their own, from large to nearly none. Workers, shards and what is on the way between them,
with departures and what a restored run goes on with, are those of distributed_replay.py; the network of action values,
its loss and its targets those of q_learning.py.

Departure from the paper: Adam instead of centred RMSprop.
"""

from typing import ClassVar, Self

from rllib.algorithms.families.distributed_replay import DistributedReplay, DistributedReplayConfig
from rllib.algorithms.families.q_learning import QLearning, QLearningConfig
from rllib.config.sections import section
from rllib.evaluation.postprocess.td_errors import ErrorsOfValues


class ApexDQNConfig(DistributedReplayConfig, QLearningConfig):
    """Settings of Ape-X DQN; the defaults are RLlib's, except those in departures.py."""

    default_exploration: ClassVar[dict] = {"type": "PerWorkerEpsilonGreedy"}

    @section
    def training(self, *, target_network_update_freq=500_000) -> Self: ...

    @section
    def exploration(self, *, exploration_config=default_exploration) -> Self: ...


class ApexDQN(DistributedReplay, QLearning):
    """The algorithm; see the module's docstring."""

    config_class = ApexDQNConfig

    def worker_errors(self) -> ErrorsOfValues:
        return ErrorsOfValues(self.make_loss())

    def training_step(self) -> dict[str, float]:
        lr = self.scheduled("lr")["lr"]
        self.take_in_fragments()
        if self.an_update_is_due:
            self.update_from_shards(lr=lr)
            self.update_target()
        return dict(self._stats)
