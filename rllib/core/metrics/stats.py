"""Logged values of one key, and how they become one number of a result."""

import math
import operator
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Coefficient of an exponential mean where none is given.
EMA_COEFF = 0.01
# Percentages where `percentiles=True`.
PERCENTILES = (0, 50, 75, 90, 95, 99, 100)


@dataclass(frozen=True)
class Reduction:
    """Way in which the values of a key become one.

    Attributes:
        kind: one of KINDS.
        window: number of newest values that count, those of earlier results included; None: all since the last result.
        ema_coeff: weight of a new value in an exponential mean.
        percentiles: percentages that "percentiles" reports.
        with_throughput: whether the sum of a result is divided by the seconds since the one before, as KEY_throughput.
    """

    kind: str = "ema"
    window: int | None = None
    ema_coeff: float = EMA_COEFF
    percentiles: tuple[float, ...] = PERCENTILES
    with_throughput: bool = False

    @property
    def is_kept(self) -> bool:
        """Whether the value of a result counts in the next one as well."""
        return self.window is not None or self.kind == "ema" or self.kind in OF_ALL_TIMES.values()


# Reduction of the values since the last result -> that of those of all times.
OF_ALL_TIMES = {"sum": "lifetime_sum", "min": "lifetime_min", "max": "lifetime_max", "mean": "lifetime_mean"}
KINDS = ("ema", "mean", "min", "max", "sum", *OF_ALL_TIMES.values(), "item", "item_series", "percentiles")


class Stats:
    """The values of one key.

    Args:
        how: their reduction.
    """

    def __init__(self, how: Reduction):
        self.how = how
        self._values: deque = deque(maxlen=how.window)
        self._kept: float | None = None  # the exponential mean; sum, minimum, maximum or mean of all times
        self._count = 0  # values in a mean of all times
        self._newest: Any = math.nan  # what the last result had
        self._since_result = 0.0  # sum of the values since the last result
        self._result_at = time.perf_counter()

    def add(self, value: Any) -> None:
        """Adds one value."""
        kind = self.how.kind
        if self.how.with_throughput:
            self._since_result += value
        if kind == "ema":
            before, weight = self._kept, self.how.ema_coeff
            self._kept = value if before is None else (1 - weight) * before + weight * value
        elif kind == "lifetime_mean":
            self._count += 1
            self._kept = (self._kept or 0.0) + (value - (self._kept or 0.0)) / self._count
        elif kind in OF_ALL_TIMES.values():
            combine = {"lifetime_sum": operator.add, "lifetime_min": min, "lifetime_max": max}[kind]
            self._kept = value if self._kept is None else combine(self._kept, value)
        elif kind == "item":
            self._values = deque([value], maxlen=1)
        else:
            self._values.append(value)

    def replace(self, value: Any) -> None:
        """Forgets all values but this one."""
        self._values.clear()
        self._kept, self._count = None, 0
        self.add(value)

    def peek(self) -> Any:
        """The present reduced value; that of the last result where nothing was logged since."""
        if self._kept is not None:
            return self._kept
        return reduced(self._values, self.how) if self._values else self._newest

    def throughput(self) -> float:
        """Sum of the values since the last result, by the seconds since then."""
        seconds = time.perf_counter() - self._result_at
        return self._since_result / seconds if seconds > 0 else math.nan

    def close(self) -> None:
        """Ends the period of a result; only values in a window, exponential means and those of all times stay."""
        self._newest = self.peek()
        self._since_result, self._result_at = 0.0, time.perf_counter()
        if not self.how.is_kept:
            self._values.clear()

    @property
    def has_news(self) -> bool:
        """Whether a result has something to report of this key."""
        return self._kept is not None or bool(self._values)

    def get_state(self) -> dict[str, Any]:
        """The part that a checkpoint keeps, JSON-able: numbers alone."""
        values = [float(value) for value in self._values if isinstance(value, int | float)]
        how = vars(self.how) | {"percentiles": list(self.how.percentiles)}
        return {"how": how, "values": values, "kept": self._kept, "count": self._count}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Stats":
        """The values from the result of `get_state`."""
        how = dict(state["how"])
        stats = cls(Reduction(**how | {"percentiles": tuple(how["percentiles"])}))
        stats._values.extend(state["values"])
        stats._kept, stats._count = state["kept"], state.get("count", 0)  # earlier checkpoints are without it
        return stats


def reduced(values: Sequence, how: Reduction) -> Any:
    """One value from some; a list for "item_series", {percentage: value} for "percentiles"."""
    if how.kind == "item_series":
        return list(values)
    if how.kind == "percentiles":
        ordered = sorted(values)
        return {f"p{percent:g}": _percentile(ordered, percent) for percent in how.percentiles}
    if how.kind == "item":
        return values[-1]
    total = {"mean": lambda numbers: sum(numbers) / len(numbers), "sum": sum, "min": min, "max": max}[how.kind]
    return total(values)


def _percentile(ordered: list, percent: float) -> float:
    """The percentile with linear interpolation between the two nearest values."""
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
