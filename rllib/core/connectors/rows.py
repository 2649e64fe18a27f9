"""Batches of one row, as connectors get them, and the values that they give back."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces


def batched(tree: Any) -> Any:
    """A batch of one row."""
    if isinstance(tree, Mapping):
        return {key: batched(part) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map(batched, tree))
    return np.asarray(tree)[None]


def first_row(tree: Any) -> Any:
    """The only row of a batch; the newest item where a piece has put items by episode."""
    if isinstance(tree, Mapping):
        if tree and all(isinstance(key, tuple) for key in tree):
            return next(iter(tree.values()))[-1]
        return {key: first_row(part) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map(first_row, tree))
    return tree[-1] if isinstance(tree, list) else tree[0]


def in_space(space: spaces.Space | None, value: Any) -> Any:
    """The value in the dtype of its space, as long as its form is that of the space."""
    if isinstance(space, spaces.Box):
        return np.asarray(value, space.dtype)
    if isinstance(space, spaces.Dict) and isinstance(value, Mapping):
        return {key: in_space(space.spaces.get(key), part) for key, part in value.items()}
    if isinstance(space, spaces.Discrete):
        return int(value)
    return value
