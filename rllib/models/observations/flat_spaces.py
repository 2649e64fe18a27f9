"""Leaves of Dict and Tuple spaces, and their columns in the flat row that gymnasium.spaces.flatten makes."""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

# Kinds of leaves that observations and actions may have.
SUPPORTED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Dict, spaces.Tuple)


def unsupported(space, path: str) -> str | None:
    """The reason why a space is not supported, and what to do; None if it is.

    Args:
        space: space of observations or actions.
        path: its name in the message.
    """
    if isinstance(space, spaces.Box) and positive_floats(space).any():
        return (
            f"{path} is {space}: its lower bound is the smallest positive number of its dtype, which C++ calls min(). "
            "That leaves out 0 and all negative numbers. Where it means that there is no bound, give -inf and inf."
        )
    if isinstance(space, SUPPORTED):
        problems = (unsupported(part, f"{path}[{key!r}]") for key, part in parts(space) or ())
        return next(filter(None, problems), None)
    if not isinstance(space, spaces.Space):
        return f"{path} must be a space of gymnasium.spaces, but it is {space!r}."
    names = ", ".join(kind.__name__ for kind in SUPPORTED)
    return (
        f"{path} is {space}, and {type(space).__name__} spaces are not supported. Supported are {names}; "
        "let the environment, or a gymnasium wrapper around it, encode the value as one of these."
    )


def without_numbers(space, path: str) -> str | None:
    """The reason why a space of nothing is not supported, such as Dict() or a Box of shape (0,); None for others."""
    if spaces.flatdim(space) > 0:
        return None
    return (
        f"{path} is {space}, which holds no number. Where there is nothing to see or to choose, give a space of one "
        "value, Discrete(1)."
    )


def positive_floats(space: spaces.Box) -> np.ndarray:
    """Where a Box of floats has the bounds of C++'s numeric_limits, min() and max(): all positive floats. [*shape]."""
    found = np.zeros(space.shape, bool)
    for dtype in (np.float32, np.float64):
        limits = np.finfo(dtype)
        found |= (space.low == limits.tiny) & (space.high == limits.max)
    return found


@dataclass(frozen=True)
class Leaf:
    """A space without parts, and its columns in the flat row.

    Attributes:
        space: Box, Discrete, MultiDiscrete or MultiBinary.
        start, stop: the columns; one-hot for Discrete and each number of MultiDiscrete.
        path: the keys that lead to it, as in "['camera'][0]".
    """

    space: spaces.Space
    start: int
    stop: int
    path: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one value."""
        return self.space.shape

    @property
    def choices(self) -> np.ndarray | None:
        """Number of values that each of its numbers can take, [numbers]; None if the numbers are no choices."""
        if isinstance(self.space, spaces.Discrete):
            return np.array([self.space.n])
        is_multi = isinstance(self.space, spaces.MultiDiscrete)
        return self.space.nvec.ravel().astype(np.int64) if is_multi else None

    @property
    def fits_bytes(self) -> bool:
        """Whether unsigned bytes can hold its columns without loss."""
        return not isinstance(self.space, spaces.Box) or self.space.dtype in (np.uint8, np.bool_)


def are_pixels(space: spaces.Space) -> bool:
    """Whether a space holds pixels: bytes 0 to 255 of an image; one-dimensional bytes are plain numbers."""
    is_bytes = isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1
    return is_bytes and bool((space.low == 0).all() and (space.high == 255).all())


def flat_leaves(space: spaces.Space) -> list[Leaf]:
    """The leaves in the order of gymnasium.spaces.flatten: depth first, a Dict's keys in the order of its space."""
    leaves, start = [], 0
    for leaf, path in _leaves(space, ""):
        stop = start + spaces.flatdim(leaf)
        leaves.append(Leaf(leaf, start, stop, path))
        start = stop
    return leaves


def parts(space: spaces.Space) -> list[tuple] | None:
    """(key, space) of each part of a Dict or Tuple; None for every other space."""
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    return list(enumerate(space.spaces)) if isinstance(space, spaces.Tuple) else None


def values_of_leaves(space: spaces.Space, values) -> Iterator:
    """The parts of a value of the space, or of a batch of values, in the order of `flat_leaves`."""
    inner = parts(space)
    if inner is None:
        yield values
    for key, part in inner or ():
        yield from values_of_leaves(part, values[key])


def _leaves(space: spaces.Space, path: str) -> Iterator[tuple[spaces.Space, str]]:
    inner = parts(space)
    if inner is None:
        yield space, path
        return
    for key, part in inner:
        yield from _leaves(part, f"{path}[{key!r}]")


def is_under(leaf: Leaf, keys: Collection[str]) -> bool:
    """Whether a leaf belongs to one of these keys of an environment's Dict observation.

    An adapter may have put the whole of it under the key "observations" (env/factories/masks.py).
    """
    return leaf.path.startswith(tuple(f"{outer}[{key!r}]" for outer in ("", "['observations']") for key in keys))


def next_to_zero(space: spaces.Space):
    """The value of a space that is next to zero."""
    if (inner := parts(space)) is not None:
        values = {key: next_to_zero(part) for key, part in inner}
        return values if isinstance(space, spaces.Dict) else tuple(values.values())
    if isinstance(space, spaces.Box):
        return np.zeros(space.shape, space.dtype).clip(space.low, space.high)
    return np.zeros(space.shape, space.dtype) if isinstance(space, spaces.MultiBinary) else space.start


def action_form(space: spaces.Space) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of an action as batches store it: int64 for choices, float32 for numbers.

    A Tuple or Dict is stored as one row, the numbers of its leaves side by side; float32 where any leaf is of floats.
    """
    leaves = flat_leaves(space)
    is_continuous = any(np.issubdtype(leaf.space.dtype, np.floating) for leaf in leaves)
    shape = space.shape if parts(space) is None else (sum(math.prod(leaf.shape) for leaf in leaves),)
    return tuple(shape), np.dtype(np.float32 if is_continuous else np.int64)
