"""SQIL: soft Q imitation learning (Reddy et al., arXiv:1905.11108).

SAC, or DQN, on batches of which one half is demonstrated steps with the reward 1, and the other half the policy's own
with the reward 0. There is no discriminator: values that lead back to demonstrated states are learned from the ones.
Departure from the paper's algorithm 1: the weight of both halves is 1, as in its experiments.
"""

import functools
import os
from typing import Any, ClassVar

import numpy as np

from rllib import sample_batch as sb
from rllib.algorithms.base.recorded.settings import SAMPLER, OfflineDataConfig, no_source
from rllib.algorithms.dqn import DQN, DQNConfig
from rllib.algorithms.families.off_policy import OffPolicyTrainee
from rllib.algorithms.families.q_learning import QTrainee
from rllib.algorithms.sac import SAC, SACConfig, SACTrainee
from rllib.config.config_object import relation
from rllib.config.conflicts import Mistake
from rllib.config.io_context import IOContext
from rllib.evaluation.offline.rows import transitions
from rllib.notices import shortened
from rllib.offline.dataset import Dataset
from rllib.offline.stream import Unread
from rllib.sample_batch import SampleBatch


class _Demonstrations(OfflineDataConfig):
    """`input_` has the demonstrations; half of each batch is the policy's own."""

    needs_data: ClassVar[bool] = True
    refuses: ClassVar[dict[str, str]] = dict.fromkeys(
        ("reward_scale", "reward_shift"), "demonstrated steps have the reward 1"
    )

    def shares(self) -> dict[Any, float]:
        is_source = self.has_data and no_source(self.input_) is None and not isinstance(self.input_, Unread)
        if super().shares() or not is_source:
            return super().shares()
        return {SAMPLER: 0.5, _as_key(self.input_): 0.5}

    @relation("input_")
    def _check_halves(self) -> Mistake | None:
        """`input_` has demonstrations, which are mixed with steps of the policy."""
        if not super().shares() or SAMPLER in super().shares():
            return None
        return Mistake(
            f"input_={shortened(self.input_)}: {self.algorithm_name} also learns from its own steps.",
            ("input_",),
            ({"input_": {SAMPLER: 0.5, **{source: share / 2 for source, share in super().shares().items()}}},),
        )


def _as_key(source: Any) -> Any:
    """The source as a key of a mixture: arrays, tables and lists have no hash, but a function that returns them has."""
    is_key = isinstance(source, str | os.PathLike | Dataset) or callable(source)
    return source if is_key else functools.partial(_given, source)


def _given(source: Any, _: IOContext) -> Any:
    return source


class _SQILTrainee(OffPolicyTrainee):
    """A policy whose replay has rewards of 1 in demonstrated rows and 0 in its own."""

    def recorded_columns(self, dataset: Dataset) -> dict[str, np.ndarray]:
        config = self.config
        ones = np.ones(len(dataset), np.float32)
        return transitions(dataset, self.policy, config, ones, config.gamma, config.n_step)

    def store(self, rows: SampleBatch) -> None:
        super().store(SampleBatch({**rows, sb.REWARDS: np.zeros(rows.count, np.float32)}))


class SQILConfig(_Demonstrations, SACConfig):
    """Settings of SQIL on SAC, for continuous and discrete actions."""


class SQILTrainee(_SQILTrainee, SACTrainee):
    """A policy that learns by SQIL on SAC."""


class SQIL(SAC):
    """Soft actor-critic with rewards of 1 for demonstrated steps, and 0 for its own."""

    config_class = SQILConfig
    trainee_class = SQILTrainee
    trains_several = False


class SQILDQNConfig(_Demonstrations, DQNConfig):
    """Settings of SQIL on DQN, for discrete actions."""


class SQILDQNTrainee(_SQILTrainee, QTrainee):
    """A policy that learns by SQIL on DQN."""


class SQILDQN(DQN):
    """Deep Q-learning with rewards of 1 for demonstrated steps, and 0 for its own."""

    config_class = SQILDQNConfig
    trainee_class = SQILDQNTrainee
    trains_several = False
