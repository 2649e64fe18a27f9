"""Checks that spaces are supported, and that values lie in their space."""

from collections.abc import Iterator, Mapping

import numpy as np
from gymnasium import spaces

from rllib.models.observations.flat_spaces import parts, unsupported, without_numbers


def check_spaces(observation_space, action_space, name: str) -> None:
    """Checks that models support both spaces.

    Raises:
        ValueError: naming the space, its place, and the supported kinds.
    """
    problem = (
        unsupported(observation_space, "observation_space")
        or unsupported(action_space, "action_space")
        or without_numbers(observation_space, "observation_space")
        or without_numbers(action_space, "action_space")
        or _stretched_too_far(action_space, "action_space")
    )
    if problem:
        raise ValueError(f"environment {name}: {problem}{_hint_to_ignore(observation_space)}")


def _stretched_too_far(space, path: str) -> str | None:
    """Names a space of actions with finite bounds that no action can have; None if there is none."""
    if (inner := parts(space)) is not None:
        return next(filter(None, (_stretched_too_far(part, f"{path}[{key!r}]") for key, part in inner)), None)
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        bounds = np.concatenate([space.low.ravel(), space.high.ravel()])
        if (np.isfinite(bounds) & (np.abs(bounds) >= np.finfo(np.float32).max)).any():
            return (
                f"{path} is {space}, whose bounds are the largest floats. Policies act in [-1, 1], which is stretched "
                "to the bounds. Give those that actions have, or -inf and inf, which are not stretched to."
            )
    return None


def _hint_to_ignore(space) -> str:
    """Advice to ignore the unsupported keys of a Dict space, where it has others."""
    if not isinstance(space, spaces.Dict):
        return ""
    unread = [key for key, part in space.spaces.items() if unsupported(part, key)]
    if not 0 < len(unread) < len(space.spaces):
        return ""
    return f" Or let the policy do without: .environment(ignore_observation_keys={unread!r})."


def mismatch(space, value, path: str = "observation", *, bounded: bool = True) -> str | None:
    """Explains why `value` does not lie in `space`; None if it does, or if a lossless cast takes it there.

    Lists, Python numbers and other number types are accepted if nothing is lost; float64 is rounded to float32. Unless
    `bounded`, finite numbers of a Box may lie outside its bounds.
    """
    if (inner := parts(space)) is not None:
        problems = (mismatch(part, value[key], f"{path}[{key!r}]", bounded=bounded) for key, part in inner)
        return structure_problem(space, value, path) or next(filter(None, problems), None)
    try:
        array = np.asarray(value)
    except ValueError:
        return f"{path} is a ragged list, {_short(value)}; {_line(space)} needs one array of shape {space.shape}"
    if array.dtype.kind not in "biuf":
        return f"{path} is {_short(value)} ({type(value).__name__}), but {_line(space)} needs numbers"
    if array.shape != space.shape:
        return f"{path} has shape {array.shape}, but {_line(space)} needs shape {space.shape}"
    return _number_mismatch(space, array, path, bounded)


def fits_at_once(space, value, *, bounded: bool = True) -> bool:
    """Whether a value of the usual form lies in a space, and is not too large: a quick check before `mismatch`.

    Such values are arrays and lists for a Box of floats, arrays of the space's dtype for a Box of integers, and an int
    for a Discrete. If the result is False, only `mismatch` can tell.
    """
    if type(space) is spaces.Discrete:
        return type(value) is int and space.start <= value < space.start + space.n
    if bounded or type(space) is not spaces.Box:
        return False
    try:
        array = np.asarray(value)
    except ValueError:
        return False
    if array.shape != space.shape:
        return False
    if space.dtype.kind != "f":
        return array.dtype == space.dtype
    if space.dtype.itemsize < 4:  # float16 holds less than LARGEST
        return False
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)  # squares of integers overflow
    return array.dtype.kind == "f" and float(np.vdot(array, array)) < SQUARES  # not for NaN, either


# Largest numbers that are taken from outside where a space has no bound that holds them. Losses square sums of rewards,
# and gradients products of observations or actions, in float32, of which the largest is 3e38.
LARGEST = 1e9
LARGEST_ACTION = 1e6
# Numbers whose squares have a smaller sum are no larger.
SQUARES = LARGEST**2


def all_fit(space, values: np.ndarray, *, bounded: bool = True) -> bool:
    """Whether all of N values [N, *shape] lie in a space that is no Dict or Tuple, as `mismatch` says it of one."""
    is_batch = values.dtype.kind in "biuf" and values.shape[1:] == space.shape
    return is_batch and _number_mismatch(space, values, "", bounded) is None


def _number_mismatch(space, array: np.ndarray, path: str, bounded: bool) -> str | None:
    with np.errstate(all="ignore"):  # NaN and overflow are reported below
        cast = array.astype(space.dtype)
    if (position := _first(np.isnan(array) if array.dtype.kind == "f" else None)) is not None:
        return f"{path}{_index(position)} is nan"
    if space.dtype.kind != "f" and (position := _first(cast != array)) is not None:
        return f"{path}{_index(position)} = {array[position]} cannot be stored as {space.dtype} without loss"
    low, high = _bounds(space)
    if not bounded and isinstance(space, spaces.Box):
        cast = np.where(np.isfinite(cast), np.clip(cast, low, high), cast)
    for outside, word, bound in ((cast < low, "below the lower", low), (cast > high, "above the upper", high)):
        if (position := _first(outside)) is not None:
            limit = np.broadcast_to(bound, array.shape)[position]
            return f"{path}{_index(position)} = {array[position]} lies {word} bound {limit} of {_line(space)}"
    return None


def too_large(space, value, path: str, largest: float = LARGEST) -> str | None:
    """Names a number of a value of the space that networks cannot compute with; None if there is none.

    That is one that is infinite as its dtype stores it, or larger than `largest` and outside the bounds of its space.
    """
    if (inner := parts(space)) is not None:
        problems = (too_large(part, value[key], f"{path}[{key!r}]", largest) for key, part in inner)
        return next(filter(None, problems), None)
    if space.dtype is None or space.dtype.kind != "f":
        return None
    given = np.asarray(value)
    with np.errstate(over="ignore"):
        stored = given.astype(space.dtype)
        is_large = np.abs(stored) > largest
    if (position := _first(~np.isfinite(stored))) is not None:
        return f"{path}{_index(position)} is not a finite number in {space.dtype}"
    within = np.isfinite(space.low) & np.isfinite(space.high) & (space.low <= stored) & (stored <= space.high)
    if (position := _first(is_large & ~within)) is not None:
        return (
            f"{path}{_index(position)} = {given[position]:g} is larger than {largest:g}, the most without a bound: "
            "scale it, or give the space the bounds within which it lies"
        )
    return None


def stored(space, value):
    """A value that `mismatch` accepts, in the form and the dtypes of its space, as `space.contains` wants it.

    Programs in languages with one kind of number, and JSON, write 1.0 for the second choice of a Discrete.
    """
    if (inner := parts(space)) is not None:
        of_parts = {key: stored(part, value[key]) for key, part in inner}
        return of_parts if isinstance(space, spaces.Dict) else tuple(of_parts.values())
    array = np.asarray(value).astype(space.dtype)
    return int(array) if isinstance(space, spaces.Discrete) else array


def logged_action(space, action, path: str = "action"):
    """An action that the policy has not chosen, as `stored`.

    Raises:
        ValueError: if it does not lie in the space.
    """
    if problem := mismatch(space, action, path) or too_large(space, action, path, LARGEST_ACTION):
        raise ValueError(problem)
    return stored(space, action)


# From here on, float32 numbers are 1/8 or more apart.
_COARSE = 2.0**20


class Rounding:
    """Notes which float64 numbers of observations change, but by less than the float32 that they are stored in shows.

    Args:
        space: space of the observations that it is called with.
    """

    def __init__(self, space: spaces.Space):
        self._space = space
        # Path of a leaf -> its first value; where it has changed since; where its float32 has.
        self._seen: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def __call__(self, observation) -> None:
        for path, values in _float64(self._space, observation, "observation"):
            nothing = np.zeros(values.shape, bool)
            first, changed, shown = self._seen.setdefault(path, (values.copy(), nothing, nothing.copy()))
            changed |= values != first
            shown |= values.astype(np.float32) != first.astype(np.float32)

    def problem(self) -> str | None:
        """A number that the policy would see standing still; None if there is none."""
        for path, (first, changed, shown) in self._seen.items():
            position = _first(changed & ~shown & (np.abs(first) >= _COARSE))
            if position is not None:
                value, distance = first[position], np.spacing(np.float32(abs(first[position])))
                return (
                    f"{path}{_index(position)} near {value:.10g} changes by less than {distance:g}, the distance "
                    "of float32 numbers there, which observations are stored in: the policy would see it standing "
                    "still. Subtract an offset, such as the start of the episode, in the environment or a "
                    "wrapper"
                )
        return None


def _float64(space, value, path: str) -> Iterator[tuple[str, np.ndarray]]:
    """(path, array) of each Box of float64 in an observation, or a batch of them, that lies in the space."""
    for key, part in parts(space) or ():
        yield from _float64(part, value[key], f"{path}[{key!r}]")
    if isinstance(space, spaces.Box) and space.dtype == np.float64:
        yield path, np.asarray(value, np.float64)


def _bounds(space) -> tuple:
    """Lowest and highest value, inclusive; arrays or numbers."""
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return 0, 1  # MultiBinary


def structure_problem(space: spaces.Dict | spaces.Tuple, value, path: str) -> str | None:
    """Explains why `value` does not have the parts of a space; None if it has them."""
    return _dict_problem(space, value, path) if isinstance(space, spaces.Dict) else _tuple_problem(space, value, path)


def _dict_problem(space, value, path: str) -> str | None:
    if not isinstance(value, Mapping):
        return f"{path} is {_short(value)}, but its space needs a dict with the keys {sorted(space.spaces)}"
    missing = [key for key in space.spaces if key not in value]
    unknown = [key for key in value if key not in space.spaces]
    if missing or unknown:
        problems = [f"lacks the key {key!r}" for key in missing] + [f"has the key {key!r}" for key in unknown]
        return f"{path} {' and '.join(problems)}; its space has the keys {sorted(space.spaces)}"
    return None


def _tuple_problem(space, value, path: str) -> str | None:
    if not isinstance(value, (tuple, list)) or len(value) != len(space.spaces):
        return f"{path} is {_short(value)}, but its space needs a tuple of {len(space.spaces)} parts"
    return None


def _first(mask) -> tuple | None:
    """Position of the first True; None if there is none."""
    if mask is None or not np.any(mask):
        return None
    return tuple(int(index) for index in np.argwhere(np.asarray(mask))[0])


def _index(position: tuple) -> str:
    return f"[{', '.join(map(str, position))}]" if position else ""


def _short(value) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _line(space) -> str:
    """A space in one line: arrays of bounds are printed with columns of blanks, and line breaks."""
    return " ".join(str(space).split())
