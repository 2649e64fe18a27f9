"""Sampling the next round of fragments while the learner is at this one, for algorithms with the setting sample_async.

A round is asked for as soon as the one before has been taken in, so that its actions come from the weights before the
updates that follow. The weights are as far behind in every round, so runs repeat to the bit.
"""

from collections.abc import Callable
from typing import Annotated, Any, Self

import numpy as np

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.config.conflicts import needs
from rllib.config.sections import section
from rllib.evaluation.rollout_worker import SampleReport
from rllib.sample_batch import SampleBatch


class SamplingAheadConfig(AlgorithmConfig):
    """The setting sample_async."""

    @section
    def rollouts(
        self,
        *,
        sample_async: Annotated[
            bool, "workers sample the next round while the learner is at this one, by the weights before its updates"
        ] = False,
    ) -> Self: ...

    conflicts = (
        needs(
            "sample_async",
            "num_rollout_workers",
            why="workers sample meanwhile",
            remedies=[{"num_rollout_workers": 1}, {"sample_async": False}],
        ),
    )


class SamplingAhead(Algorithm):
    """Base of the algorithms with the setting sample_async."""

    # Waits for the round that was asked for ahead; None: there is none.
    _collect: Callable[[], list] | None = None

    def sample(self, num_steps: int) -> SampleBatch:
        batch = super().sample(num_steps)
        if self.config.sample_async:
            self._collect = self.workers.begin_sampling(self.snapshots())
        return batch

    def _sample_round(self) -> list[tuple[SampleBatch, SampleReport]]:
        collect, self._collect = self._collect, None
        return collect() if collect else super()._sample_round()

    def set_weights(self, weights: dict[str, np.ndarray]) -> None:
        """Sets the weights, and drops a round that other weights are sampling."""
        super().set_weights(weights)
        self._collect = None

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._collect = None
