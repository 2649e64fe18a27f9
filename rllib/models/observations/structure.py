"""Restores the structure of an observation space from stored rows, for networks written by users."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional

from rllib.models.observations.flat_spaces import Leaf, flat_leaves, parts


class Structure:
    """Reads rows as the dicts and tuples of a space, with a tensor for each leaf.

    | leaf          | tensor                                  | with one_hot             |
    |---------------|-----------------------------------------|--------------------------|
    | Box           | [B, *shape], its dtype; floats float32  | float32                  |
    | Discrete      | [B] int64, the environment's own number | [B, n] float32           |
    | MultiDiscrete | [B, *shape] int64                       | [B, sum of n] float32    |
    | MultiBinary   | [B, *shape] int8                        | float32                  |

    Args:
        space: space of one observation.
        one_hot: all numbers are floats, and choices one-hot, as RLlib's models get them.
        filtered: an observation filter has made floats of the numbers of Box leaves.
    """

    def __init__(self, space: spaces.Space, one_hot: bool = False, filtered: bool = False):
        self._floats, self._one_hot = one_hot or filtered, one_hot
        if isinstance(space, spaces.Box):
            self.of_rows = Tensor.float if self._floats else _unchanged
        elif isinstance(space, spaces.Discrete):
            start, n = int(space.start), int(space.n)
            self.of_rows = (lambda rows: functional.one_hot(rows - start, n).float()) if one_hot else _unchanged
        else:
            self.of_rows = self._reader(space, iter(flat_leaves(space)))

    # Set by the constructor: rows [B, ...] as batches store them -> the structure.
    of_rows: Callable[[Tensor], object]

    def _reader(self, space: spaces.Space, leaves: Iterator[Leaf]) -> Callable[[Tensor], object]:
        inner = parts(space)
        if inner is None:
            return self._leaf_reader(next(leaves))
        readers = [(key, self._reader(part, leaves)) for key, part in inner]
        if isinstance(space, spaces.Tuple):
            return lambda rows: tuple(read(rows) for _, read in readers)
        return lambda rows: {key: read(rows) for key, read in readers}

    def _leaf_reader(self, leaf: Leaf) -> Callable[[Tensor], Tensor]:
        start, stop, shape = leaf.start, leaf.stop, leaf.shape
        if leaf.choices is None or self._one_hot:
            shape = (stop - start,) if leaf.choices is not None else shape
            dtype = torch.float32 if self._floats or leaf.space.dtype.kind == "f" else _torch_dtype(leaf.space.dtype)
            return lambda rows: rows[:, start:stop].reshape(rows.shape[0], *shape).to(dtype)
        ends = (leaf.start + np.cumsum(leaf.choices)).tolist()
        numbers = list(zip([start, *ends], ends, np.ravel(leaf.space.start).tolist()))
        return lambda rows: torch.stack(
            [rows[:, first:last].argmax(1) + lowest for first, last, lowest in numbers], dim=1
        ).reshape(rows.shape[0], *shape)


def _unchanged(rows: Tensor) -> Tensor:
    return rows


def _torch_dtype(dtype: np.dtype) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


def sampled_rows(space: spaces.Space, count: int, filtered: bool) -> np.ndarray:
    """Rows of random observations, the same in each call, as batches store them.

    Numbers of unbounded Box spaces lie within -1 ... 1.
    """
    rng = np.random.default_rng(0)
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.n, size=count) + int(space.start)
    if isinstance(space, spaces.Box):
        rows = np.stack([_sampled(space, rng) for _ in range(count)])
        return rows.astype(np.float32) if filtered or rows.dtype == np.float64 else rows
    rows = np.zeros((count, spaces.flatdim(space)), np.float32)
    leaves = flat_leaves(space)
    for leaf in leaves:
        columns = rows[:, leaf.start : leaf.stop]
        if leaf.choices is None:
            columns[:] = [np.ravel(_sampled(leaf.space, rng)) for _ in range(count)]
            continue
        firsts = np.cumsum(leaf.choices) - leaf.choices
        for row in columns:
            row[firsts + rng.integers(leaf.choices)] = 1
    are_bytes = all(leaf.fits_bytes for leaf in leaves) and not filtered
    return rows.astype(np.uint8) if are_bytes else rows


def _sampled(space: spaces.Space, rng: np.random.Generator) -> np.ndarray:
    if not isinstance(space, spaces.Box):
        return rng.integers(2, size=space.shape)
    if space.dtype.kind == "f":
        return np.clip(rng.uniform(-1, 1, space.shape), space.low, space.high).astype(space.dtype)
    low, high = np.maximum(space.low.astype(float), -100), np.minimum(space.high.astype(float), 100)
    return np.clip(np.round(rng.uniform(np.minimum(low, high), high)), space.low, space.high).astype(space.dtype)
