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
    """Moves the ranges of all environments that are sampled from, after every iteration.

    Args:
        adaptation: how they move.
        samples_here: whether the local worker samples.
        workers: the environments' workers.
        settings: of the workers; workers that replace others get the present ranges from there.
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
        """Moves bounds by the episodes of an iteration, for those that begin from now on."""
        of_workers = self._ask("take_bound_returns")
        returns = [each for _, of_environments in sorted(of_workers) for each in of_environments]
        if self._bounds.take_in(returns):
            self._send()

    def _send(self) -> None:
        self._settings.disturbance_ranges.update(self._bounds.ranges)
        self._ask("set_disturbance_ranges", self._bounds.ranges)

    def _ask(self, method: str, *args) -> list:
        # Not a local worker in addition to remote ones, which takes no part in sampling.
        return self._workers.foreach_worker(operator.methodcaller(method, *args), local_worker=self._samples_here)

    def get_state(self) -> dict[str, Any]:
        """The file of a checkpoint."""
        return {_FILE: self._bounds.get_state()}

    def set_state(self, files: Mapping[str, Any]) -> None:
        """Continues with the ranges of `get_state`, before the workers' episodes start again."""
        if saved := files.get(_FILE):
            self._bounds.set_state(saved)
            self._send()
