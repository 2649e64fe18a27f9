"""Actions that are legal by a mask, of all spaces: random ones, and the legal values of each number."""

from typing import Any

import numpy as np
from gymnasium import Space, spaces

# Name of the part of a Dict observation that has the mask, unless a setting gives another.
MASK_KEY = "action_mask"


def legal_action(space: Space, mask: Any) -> Any:
    """A random action, drawn by the space's generators, in which each choice is legal.

    Args:
        space: space of the actions.
        mask: a number for each choice of the action, part by part in the order of the row that batches hold, 0 where it
            is illegal. None, or a mask of another length, which is no mask of this space: any action. Where no choice
            of a part is legal, the first one is taken.
    """
    flat = None if mask is None else np.asarray(mask).ravel() != 0
    if flat is None or len(flat) != count_choices(space):
        return space.sample()
    if isinstance(space, spaces.Discrete):
        return space.sample(mask=flat.astype(np.int8))
    return _drawn(space, flat)


def legal_values(space: Space, mask: Any) -> list[np.ndarray] | None:
    """The legal values of each number of an action.

    Args:
        space: space of the actions, without parts.
        mask: as for `legal_action`.

    Returns:
        an array for each number; None where all values of the space are legal.
    """
    flat = None if mask is None else np.asarray(mask).ravel() != 0
    counts, lowest = choices_of(space)
    if flat is None or not len(counts) or len(flat) != counts.sum():
        return None
    parts = np.split(flat, np.cumsum(counts)[:-1])
    return [np.flatnonzero(part) + low for part, low in zip(parts, lowest)]


def count_choices(space: Space) -> int:
    """Number of choices of an action, over all of its parts; 0 for floats."""
    return sum(map(count_choices, _parts(space))) + int(choices_of(space)[0].sum())


def choices_of(space: Space) -> tuple[np.ndarray, np.ndarray]:
    """(number of choices, least value) of each number of a space that has no parts; both empty for floats."""
    if isinstance(space, spaces.Discrete):
        return np.array([space.n]), np.array([space.start])
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.ravel(), space.start.ravel()
    if isinstance(space, spaces.MultiBinary):
        count = int(np.prod(space.shape))
        return np.full(count, 2), np.zeros(count, int)
    if isinstance(space, spaces.Box) and space.dtype.kind in "iu":
        low = space.low.ravel().astype(np.int64)
        return space.high.ravel().astype(np.int64) - low + 1, low
    return np.empty(0, int), np.empty(0, int)


def _parts(space: Space) -> list[Space]:
    if isinstance(space, spaces.Dict):
        return list(space.spaces.values())
    return list(space.spaces) if isinstance(space, spaces.Tuple) else []


def _drawn(space: Space, mask: np.ndarray) -> Any:
    if parts := _parts(space):
        ends = np.cumsum([count_choices(part) for part in parts])
        values = [_drawn(part, own) for part, own in zip(parts, np.split(mask, ends[:-1]))]
        return dict(zip(space.spaces, values)) if isinstance(space, spaces.Dict) else tuple(values)
    counts, lowest = choices_of(space)
    if not len(counts):
        return space.sample()
    of_numbers = [np.flatnonzero(part) for part in np.split(mask, np.cumsum(counts)[:-1])]
    chosen = [space.np_random.choice(legal) if len(legal) else 0 for legal in of_numbers]
    action = (np.array(chosen) + lowest).astype(space.dtype).reshape(space.shape)
    return action[()] if isinstance(space, spaces.Discrete) else action
