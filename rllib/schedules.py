"""Values that change over the run: functions of the number of sampled environment steps."""

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Container, Mapping, Sequence
from numbers import Real
from typing import Any

Points = Sequence[Sequence[float]]
# Type of a setting that changes over the run.
OverTime = Points | Mapping[str, Any] | Callable[[int], float]

# The keys of each type of schedule, without "type".
TYPES = {
    "linear": ("initial", "final", "timesteps"),
    "exponential": ("initial", "decay_rate", "timesteps"),
    "piecewise": ("points",),
}
# A learning rate with this type follows the KL instead of the time (learners/updates/adaptive_rate.py).
KL_ADAPTIVE = "kl_adaptive"
_KL_ADAPTIVE_KEYS = ("initial", "desired_kl", "min_lr", "max_lr")


class Schedule:
    """A function of the timestep, from a setting that is one of

    | given as                                                                       | value at timestep t            |
    |--------------------------------------------------------------------------------|--------------------------------|
    | a number                                                                       | that number                    |
    | points [[timestep, value], ...]                                                | on the lines that join them    |
    | {"type": "piecewise", "points": [[timestep, value], ...]}                      | the same                       |
    | {"type": "linear", "initial": 1e-3, "final": 0, "timesteps": 10_000}           | on the line from 0 to 10,000   |
    | {"type": "exponential", "initial": 1e-3, "decay_rate": .1, "timesteps": 10_000} | 1e-3 * .1 ^ (t / 10,000)      |
    | a function                                                                     | function(t), a number          |

    The value stays constant after the last point and after the timesteps of a line; an exponential continues. So
    `Schedule(0.1)(t)` and `Schedule([[0, 0.1], [1000, 0.0]])(t)` both work, and callers treat all forms alike.

    Args:
        value: one of the above; points have strictly increasing timesteps, the first of them 0.
        name: name of the setting, for messages.
        allowed: what its values must be in, with words for it (a Range); None: any numbers.

    Raises:
        ValueError: if it is none of them.
    """

    __slots__ = ("_allowed", "_function", "_name", "_value")

    def __init__(self, value: float | OverTime, name: str = "", allowed: Container[float] | None = None):
        problem = schedule_problem(value)
        if problem:
            raise ValueError(f"a schedule {problem}, but {value!r} was given")
        self._value, self._function = value, _function_of(value)
        self._name, self._allowed = name, allowed

    def __call__(self, timestep: float) -> float:
        """The value at this number of environment steps; negative numbers count as 0.

        Raises:
            ValueError: if a function of the user's returns no number, or one that is not allowed.
        """
        value = self._function(max(timestep, 0))
        if not _is_number(value) or (self._allowed is not None and value not in self._allowed):
            given = f"{self._name}={self._value!r}" if self._name else f"the schedule {self._value!r}"
            rule = "" if self._allowed is None else f" {self._allowed}"
            raise ValueError(
                f"{given} must return a number{rule}, but gave {value!r} at {timestep} environment steps. Let the "
                "function end at a number that is allowed, or give points [[timestep, value], ...]: the last one stays."
            )
        return float(value)

    def __repr__(self):
        return f"Schedule({self._value!r})"

    @property
    def is_zero(self) -> bool:
        """Whether the value is 0 at all timesteps; a function of the user's may return other numbers."""
        return not callable(self._value) and not any(values_of(self._value))


class _Lines:
    """The straight lines through points."""

    def __init__(self, points: Points):
        self._timesteps = [point[0] for point in points]
        self._values = [float(point[1]) for point in points]

    def __call__(self, timestep: float) -> float:
        after = bisect_right(self._timesteps, timestep)
        if after == len(self._timesteps):
            return self._values[-1]
        start, end = self._timesteps[after - 1 : after + 1]
        low, high = self._values[after - 1 : after + 1]
        return low + (high - low) * (timestep - start) / (end - start)


def _function_of(value: float | OverTime) -> Callable[[float], float]:
    if callable(value):
        return value
    if isinstance(value, Real):
        return lambda timestep: value
    if not isinstance(value, Mapping):
        return _Lines(value)
    if value["type"] == "piecewise":
        return _Lines(value["points"])
    initial, timesteps = value["initial"], value["timesteps"]
    if value["type"] == "linear":
        return _Lines([[0, initial], [timesteps, value["final"]]])
    return lambda timestep: initial * value["decay_rate"] ** (timestep / timesteps)


def schedule_problem(value) -> str | None:
    """The rule that `value` breaks, as the end of a sentence ("must ..."); None if it is a schedule."""
    if _is_number(value):
        return None
    if isinstance(value, Mapping):
        return _mapping_problem(value)
    if callable(value):
        return _function_problem(value)
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence) or not value:
        return "must be a number or points [[timestep, value], ...], or {'type': 'linear', ...}, or a function"
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


def kl_adaptive_problem(value: Mapping) -> str | None:
    """As `schedule_problem`, for {"type": "kl_adaptive", "initial": 1e-3, "desired_kl": 0.01}."""
    given = {name: number for name, number in value.items() if name != "type"}
    if unknown := set(given) - set(_KL_ADAPTIVE_KEYS):
        return f"of type {KL_ADAPTIVE!r} must have {', '.join(_KL_ADAPTIVE_KEYS)}, not {sorted(map(str, unknown))[0]}"
    if missing := [name for name in ("initial", "desired_kl") if name not in given]:
        return f"of type {KL_ADAPTIVE!r} must have {missing[0]}"
    wrong = [name for name, number in given.items() if not _is_number(number) or number <= 0]
    if wrong:
        return f"must have a positive number as its {wrong[0]!r}, not {given[wrong[0]]!r}"
    low, high = given.get("min_lr", 1e-5), given.get("max_lr", 1e-2)
    if not low <= given["initial"] <= high:
        return f"must have its initial={given['initial']:g} between min_lr={low:g} and max_lr={high:g}"
    return None


def _mapping_problem(value: Mapping) -> str | None:
    kind = value.get("type")
    if kind == KL_ADAPTIVE:
        return f"cannot be of type {KL_ADAPTIVE!r}: only the lr of PPO follows the KL. Use a number or points"
    if kind not in TYPES:
        return f"must have as its 'type' one of {', '.join(TYPES)}, not {kind!r}"
    keys = TYPES[kind]
    if set(value) != {"type", *keys}:
        given = ", ".join(str(key) for key in value if key != "type") or "nothing"
        return f"of type {kind!r} must have {', '.join(keys)}, not {given}"
    if kind == "piecewise":
        return schedule_problem(list(value["points"])) if isinstance(value["points"], Sequence) else "must have points"
    wrong = [key for key in keys if not _is_number(value[key])]
    if wrong:
        return f"must have a number as its {wrong[0]!r}, not {value[wrong[0]]!r}"
    positive = [key for key in ("timesteps", "decay_rate") if key in keys and value[key] <= 0]
    if positive:
        return f"must have a positive number as its {positive[0]!r}, not {value[positive[0]]!r}"
    return None


def _function_problem(function: Callable) -> str | None:
    try:
        first = function(0)
    except Exception as error:
        return f"must be a function of the timestep, but at 0 it raised {type(error).__name__}: {error}"
    if not _is_number(first):
        return f"must return a number for each timestep, not {first!r}"
    return _REMAINING_SHARE if _is_of_remaining_share(function, abs(first)) else None


_REMAINING_SHARE = (
    "must be a function of the number of sampled steps, but this one changes most between 0 and 1, as one of the share "
    "of the run that remains does (Stable-Baselines3). Give points, such as [[0, 1e-3], [TOTAL_STEPS, 0]]"
)


def _is_of_remaining_share(function: Callable, first: float) -> bool:
    """Whether this is a function of the remaining share, 1 ... 0: it changes by more than half from step 0 to step 1.

    A warm-up changes as much, but later rises far above its value at step 1. A function of a share grows without
    bound, or rises no further.
    """
    try:
        second = abs(function(1))
        largest = max(first, second)
        if abs(second - first) <= largest / 2:
            return False
        far, further = (abs(function(timestep)) for timestep in (10**9, 10**10))
        return further > 2 * far or max(far, further) <= 2 * largest
    except OverflowError:
        return True
    except Exception:  # it need not have values so far away
        return False


def values_of(value: float | OverTime) -> list[float]:
    """The numbers by which a schedule is given; for a function its value at 0."""
    if callable(value):
        return [value(0)]
    if isinstance(value, Mapping):
        if "points" in value:
            return values_of(value["points"])
        return [value[name] for name in ("initial", "final") if name in value]
    return [value] if isinstance(value, Real) else [point[1] for point in value]


def _is_number(value) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int beyond the largest float
        return False
