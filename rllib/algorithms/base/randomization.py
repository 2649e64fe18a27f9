"""Ranges of the environments' parameters that grow with the return: "adapt" of the setting disturbances."""

import operator
from collections.abc import Mapping
from typing import Any

from rllib.algorithms.base.sources import Source
from rllib.env.disturbances.adaptive import SIDES, AdaptiveBounds
from rllib.env.disturbances.settings import Adaptation
from rllib.evaluation.settings import RolloutSettings
from rllib.result import Result

_FILE = "disturbances.json"


class Randomization:
    """Adapts the parameter ranges of all training environments after every iteration.

    Args:
        adaptation: the rule by which ranges change.
        samples_here: whether the local worker samples.
        workers: the environments' workers.
        settings: settings of the workers, to which the present ranges are written for workers that replace others.
    """

    def __init__(self, adaptation: Adaptation, samples_here: bool, workers: Source, settings: RolloutSettings):
        self._bounds = AdaptiveBounds(adaptation)
        self._samples_here, self._workers, self._settings = samples_here, workers, settings

    def summary(self) -> dict[str, dict[str, float]]:
        """The present ranges, and the newest mean returns at their bounds, for a result."""
        means = self._bounds.means
        return {
            name: {
                **{side: getattr(interval, side) for side in SIDES},
                **{f"return_mean_at_{side}": means[name, side] for side in SIDES},
            }
            for name, interval in self._bounds.ranges.items()
        }

    def choose_next(self, result: Result) -> None:
        """Adapts the bounds by the episodes of an iteration; new episodes use them."""
        of_workers = self._ask("take_bound_returns")
        returns = [each for _, of_environments in sorted(of_workers) for each in of_environments]
        if self._bounds.take_in(returns):
            self._send()

    def _send(self) -> None:
        self._settings.disturbance_ranges.update(self._bounds.ranges)
        self._ask("set_disturbance_ranges", self._bounds.ranges)

    def _ask(self, method: str, *args) -> list:
        # With remote workers, the local one is left out, as it does not sample.
        return self._workers.foreach_worker(operator.methodcaller(method, *args), local_worker=self._samples_here)

    def get_state(self) -> dict[str, Any]:
        """The file of a checkpoint."""
        return {_FILE: self._bounds.get_state()}

    def set_state(self, files: Mapping[str, Any]) -> None:
        """Continues with the ranges of `get_state`, before the workers' episodes start again."""
        if saved := files.get(_FILE):
            self._bounds.set_state(saved)
            self._send()
