"""When a run stops: thresholds on keys of its results."""

import math
from collections.abc import Mapping

from rllib.algorithms.settings import nearest


def lookup(result: Mapping, key: str):
    """The value under a key or an "a/b" path; None where there is none."""
    try:
        return result[key]
    except KeyError:
        pass
    value = result
    for part in key.split("/"):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


class StopCriterion:
    """Stops a run as soon as one result key reaches its threshold.

    Args:
        thresholds: result key or "a/b" path -> the value at which to stop; empty: never.

    Raises:
        ValueError: if a threshold is no finite number.
    """

    def __init__(self, thresholds: Mapping[str, float]):
        for key, threshold in thresholds.items():
            if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not math.isfinite(threshold):
                raise ValueError(f"stop: {key} needs a number to be reached, but got {threshold!r}")
        self.thresholds = dict(thresholds)
        self._first: dict[str, float] = {}

    def __str__(self):
        return " or ".join(f"{key} >= {threshold:,.10g}" for key, threshold in self.thresholds.items())

    def check_keys(self, result: Mapping) -> None:
        """Refuses keys that the results will never have.

        Keys below `evaluation` and `info` may appear later, so only their first part is looked at.

        Raises:
            ValueError: naming the nearest key there is.
        """
        for key in self.thresholds:
            root, value = key.split("/")[0], lookup(result, key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise ValueError(f"stop: {key} must be a number in the results, but it is {value!r:.60}")
            if value is None and root not in ("evaluation", "info", "custom_metrics"):
                near = nearest(key, result)
                hint = f" Did you mean {near[0]}?" if near else ""
                raise ValueError(f"stop: the results have no {key}.{hint} They have: {', '.join(sorted(result))}.")

    def reached(self, result: Mapping) -> str | None:
        """Which threshold was reached, as a sentence; None if none was. NaN reaches nothing."""
        for key, threshold in self.thresholds.items():
            value = lookup(result, key)
            if value is not None and value >= threshold:
                return f"{key} {value:,.6g} >= {threshold:,.10g}"
        return None

    def progress(self, result: Mapping) -> float:
        """How far the run has come towards the nearest threshold, in [0, 1].

        Returns are measured from the first that was seen, all else (steps, iterations, seconds) from 0.
        """
        return max((self._fraction(result, *item) for item in self.thresholds.items()), default=0.0)

    def _fraction(self, result: Mapping, key: str, threshold: float) -> float:
        value = lookup(result, key)
        if value is None or math.isnan(value):
            return 0.0
        start = self._first.setdefault(key, value if "return" in key or "reward" in key else 0.0)
        if value >= threshold:
            return 1.0
        return max(0.0, (value - start) / (threshold - start)) if threshold > start else 0.0
