"""Automatic domain randomisation (arXiv:1910.07113, appendix B, algorithm 1): bounds of ranges that follow the return.

A bound moves by its step when a number of episodes at it, `episodes`, has a mean return: outwards from `high` on, back
up to `low`. Unlike the paper's, a range always contains the one that it began with, and stays within its limits.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rllib.env.disturbances.channel import drawn
from rllib.env.disturbances.settings import Adaptation, Interval

SIDES = ("low", "high")


class BoundReturn(NamedTuple):
    """Return of an episode that had a parameter at one of its bounds.

    Attributes:
        parameter, side: which bound; `side` is one of SIDES.
        value: the return.
    """

    parameter: str
    side: str
    value: float


class AdaptiveBounds:
    """The ranges of all parameters, as episodes move them.

    Args:
        adaptation: see there.
    """

    def __init__(self, adaptation: Adaptation):
        self._asked = adaptation
        bounds = [(name, side) for name in adaptation.start for side in SIDES]
        # Steps by which each bound lies outside of where it began: no rounding adds up. Whole ones, unless a restored
        # bound lies between those of other settings.
        self._steps: dict[tuple[str, str], float] = dict.fromkeys(bounds, 0)
        self._returns: dict[tuple[str, str], list[float]] = {bound: [] for bound in bounds}
        self._means = dict.fromkeys(bounds, math.nan)

    @property
    def ranges(self) -> dict[str, Interval]:
        """Parameter -> its present range."""
        return {name: Interval(self._bound(name, "low"), self._bound(name, "high")) for name in self._asked.start}

    @property
    def means(self) -> dict[tuple[str, str], float]:
        """(parameter, side) -> newest mean return at this bound; NaN before there is one."""
        return dict(self._means)

    def take_in(self, returns: Iterable[BoundReturn]) -> bool:
        """Moves bounds by further returns; whether one has moved."""
        before = self.ranges
        for parameter, side, value in returns:
            held = self._returns[parameter, side]
            held.append(value)
            if len(held) >= self._asked.episodes:
                self._means[parameter, side] = float(np.mean(held))
                held.clear()
                self._move(parameter, side)
        return self.ranges != before

    def _move(self, parameter: str, side: str) -> None:
        mean, bound = self._means[parameter, side], (parameter, side)
        if mean >= self._asked.high and self._bound(*bound) != getattr(self._asked.limits[parameter], side):
            self._steps[bound] += 1
        elif mean <= self._asked.low and self._steps[bound]:
            self._steps[bound] = max(self._steps[bound] - 1, 0)

    def _bound(self, parameter: str, side: str) -> float:
        limit, way = self._asked.limits[parameter], -1 if side == "low" else 1
        moved = getattr(self._asked.start[parameter], side)
        moved += way * self._steps[parameter, side] * self._asked.delta[parameter]
        return max(moved, limit.low) if side == "low" else min(moved, limit.high)

    def _steps_to(self, parameter: str, side: str, bound: float) -> float:
        """Steps from where a bound began to another place, as far outwards as its limit."""
        limit, way = self._asked.limits[parameter], -1 if side == "low" else 1
        moved = min(max(bound, limit.low), limit.high) - getattr(self._asked.start[parameter], side)
        return max(way * moved / self._asked.delta[parameter], 0)

    def get_state(self) -> dict[str, Any]:
        """JSON-able state, for checkpoints."""
        return {
            f"{parameter} {side}": {
                "bound": self._bound(parameter, side),
                "steps": self._steps[parameter, side],
                "returns": list(self._returns[parameter, side]),
                "mean": None if math.isnan(mean := self._means[parameter, side]) else mean,
            }
            for parameter, side in self._steps
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes `get_state` back; parameters that it does not have stay as they are.

        Ranges continue where they were, also with other steps, limits, and ranges to begin with, as far as these allow.
        """
        for parameter, side in self._steps:
            if saved := state.get(f"{parameter} {side}"):
                self._steps[parameter, side] = saved["steps"]
                bound = saved.get("bound")  # checkpoints of 2026-11 and before have steps alone
                if bound is not None and self._bound(parameter, side) != bound:
                    self._steps[parameter, side] = self._steps_to(parameter, side, bound)
                self._returns[parameter, side] = list(saved["returns"])
                self._means[parameter, side] = math.nan if saved["mean"] is None else float(saved["mean"])


def drawn_values(
    rng: np.random.Generator, ranges: Mapping[str, Interval], at_bounds: float
) -> tuple[dict[str, float], tuple[str, str] | None]:
    """The parameters of an episode, and the bound (parameter, side) that one of them is at, if one is.

    Args:
        rng: draws them.
        ranges: ranges of all parameters.
        at_bounds: probability with which one of them is at one of its bounds.
    """
    values = {name: drawn(rng, each) for name, each in ranges.items()}
    if rng.random() >= at_bounds:
        return values, None
    parameter = list(ranges)[rng.integers(len(ranges))]
    side = SIDES[rng.integers(len(SIDES))]
    values[parameter] = getattr(ranges[parameter], side)
    return values, (parameter, side)
