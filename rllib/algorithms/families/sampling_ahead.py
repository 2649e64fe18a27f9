"""Sampling the next round of fragments while the learner is at this one, for algorithms with the setting sample_async.

A round is asked for as soon as the one before has arrived, so that its actions come from the weights before the
updates that follow. The weights are as far behind in every round, so runs repeat to the bit.
"""

from typing import Annotated, Self

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.config.conflicts import needs
from rllib.config.sections import section


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

    @property
    def samples_ahead(self) -> bool:
        return self.sample_async

    conflicts = (
        needs(
            "sample_async",
            "num_rollout_workers",
            why="workers sample meanwhile",
            remedies=[{"num_rollout_workers": 1}, {"sample_async": False}],
        ),
    )
