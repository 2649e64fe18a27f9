"""Values that change over the run: constant, or piecewise linear in the number of sampled environment steps."""

import itertools
import sys
from bisect import bisect_right
from collections.abc import Sequence
from numbers import Real

Points = Sequence[Sequence[float]]


class Schedule:
    """A value per timestep: a number, or straight lines through points [[timestep, value], ...].

    After the last point the value stays. `Schedule(0.1)(t)` and `Schedule([[0, 0.1], [1000, 0.0]])(t)` both work, so
    callers treat the two alike.

    Args:
        value: a number, or points with strictly increasing timesteps, the first of them 0.

    Raises:
        ValueError: if it is neither.
    """

    __slots__ = ("_timesteps", "_values")

    def __init__(self, value: float | Points):
        problem = schedule_problem(value)
        if problem:
            raise ValueError(f"a schedule {problem}, but {value!r} was given")
        points = [(0, value)] if isinstance(value, Real) else value
        self._timesteps = [point[0] for point in points]
        self._values = [float(point[1]) for point in points]

    def __call__(self, timestep: float) -> float:
        """The value at this number of environment steps; before 0 that of 0."""
        after = bisect_right(self._timesteps, timestep)
        if after == 0:
            return self._values[0]
        if after == len(self._timesteps):
            return self._values[-1]
        start, end = self._timesteps[after - 1 : after + 1]
        low, high = self._values[after - 1 : after + 1]
        return low + (high - low) * (timestep - start) / (end - start)

    def __repr__(self):
        if len(self._values) == 1:
            return f"Schedule({self._values[0]})"
        return f"Schedule({[list(point) for point in zip(self._timesteps, self._values)]})"


def schedule_problem(value) -> str | None:
    """Why `value` is not a schedule, as the end of a sentence ("must ..."); None if it is one."""
    if _is_number(value):
        return None
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence) or not value:
        return "must be a number or points [[timestep, value], ...]"
    for point in value:
        is_pair = isinstance(point, Sequence) and not isinstance(point, (str, bytes)) and len(point) == 2
        if not is_pair or not all(map(_is_number, point)):
            return f"must have points of two numbers [timestep, value], not {point!r}"
    timesteps = [point[0] for point in value]
    if timesteps[0] != 0:
        return f"must start at timestep 0, not at {timesteps[0]}"
    for earlier, later in itertools.pairwise(timesteps):
        if later <= earlier:
            return f"must have increasing timesteps, but {later} follows {earlier}"
    return None


def _is_number(value) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
