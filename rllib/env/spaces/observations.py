"""Storage of observations as rows of one column."""

import math
from abc import ABC, abstractmethod

import numpy as np
from gymnasium import spaces

from rllib.models.observations.flat_spaces import flat_leaves, parts

ASSIGNED_ROWS = 12


class ObservationColumn(ABC):
    """The storage of a space's observations as rows of an array [N, *shape].

    | space                                    | shape             | dtype                                     |
    |------------------------------------------|-------------------|-------------------------------------------|
    | Box                                      | that of the space | that of the space; float64 becomes float32 |
    | Discrete                                 | ()                | int64; the environment's own number       |
    | Dict, Tuple, MultiDiscrete, MultiBinary  | [K], in the order | uint8 where every part consists of bytes, |
    |                                          | of gymnasium's    | bits or choices, else float32; choices    |
    |                                          | spaces.flatten    | are one-hot                               |
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    # Fills rows that hold no observation: networks read them with the others, and refuse numbers outside of Discrete.
    filler = 0

    @abstractmethod
    def write_rows(self, rows: list, out: np.ndarray) -> None:
        """Writes N observations, as the environments gave them, into out [N, *shape].

        Shapes are not checked, since this is the hot path: numpy broadcasts where it can.

        Raises:
            ValueError: if numpy cannot make the rows fit.
        """

    @abstractmethod
    def write_batch(self, batch, out: np.ndarray) -> None:
        """Writes a batched observation of a VectorEnv into out [N, *shape]."""

    def row(self, observation) -> np.ndarray:
        """A new array [*shape] with one observation."""
        return np.array(observation, self.dtype)


class ArrayColumn(ObservationColumn):
    """Box observations, and Discrete ones, which are single numbers."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, filler: int = 0):
        self.shape, self.filler = shape, filler
        self.dtype = np.dtype(np.float32) if dtype == np.float64 else np.dtype(dtype)
        self._joined = (-1, *shape[1:])
        self._assigned_rows = ASSIGNED_ROWS if shape else math.inf

    def write_rows(self, rows, out):
        # Assigning a list reads each row twice; concatenate costs more per call and less per row.
        if len(rows) > self._assigned_rows and out.flags.c_contiguous:
            np.concatenate(rows, out=out.reshape(self._joined), casting="unsafe")
        else:
            out[:] = rows

    def write_batch(self, batch, out):
        out[...] = batch


class FlatColumn(ObservationColumn):
    """Every other space, flattened in gymnasium's order: the parts one after the other, Discrete parts one-hot.

    The leaves of all rows are gathered first and written leaf by leaf, so that numpy is called once per leaf, not
    once per leaf and row.
    """

    def __init__(self, space: spaces.Space):
        leaves = flat_leaves(space)
        self.shape = (spaces.flatdim(space),)
        self.dtype = np.dtype(np.uint8 if all(leaf.fits_bytes for leaf in leaves) else np.float32)
        self._tree = _tree(space)
        self._leaves = [(leaf.start, leaf.stop, leaf.shape, leaf.choices is not None) for leaf in leaves]
        chosen = [leaf for leaf in leaves if leaf.choices is not None]
        # For each number stored one-hot: its number of values, the least value, and the column of that value.
        self._counts = np.concatenate([leaf.choices for leaf in chosen] or [np.empty(0, np.int64)])
        lowest = [np.ravel(leaf.space.start).astype(np.int64) for leaf in chosen]
        self._lowest = np.concatenate(lowest or [np.empty(0, np.int64)])
        self._firsts = np.concatenate(
            [leaf.start + np.cumsum(leaf.choices) - leaf.choices for leaf in chosen] or [np.empty(0, np.int64)]
        )

    def write_rows(self, rows, out):
        self._write(_of_rows(self._tree, rows), out)

    def write_batch(self, batch, out):
        self._write(_of_batch(self._tree, batch), out)

    def row(self, observation):
        out = np.empty((1, *self.shape), self.dtype)
        self.write_rows([observation], out)
        return out[0]

    def _write(self, values_of_leaves, out: np.ndarray) -> None:
        """Writes the values of each leaf (a list or an array of N values) into out [N, K]."""
        rows, chosen = len(out), []
        for (start, stop, shape, is_chosen), values in zip(self._leaves, values_of_leaves, strict=True):
            columns = out[:, start:stop]
            if is_chosen:
                columns[...] = 0
                chosen.append(np.asarray(values, np.int64).reshape(rows, -1))
            else:
                columns.reshape(rows, *shape)[...] = values  # a view: only the last axis is split
        if chosen:
            numbers = np.concatenate(chosen, axis=1) - self._lowest
            if (numbers < 0).any() or (numbers >= self._counts).any():
                raise ValueError(
                    "a number of a Discrete or MultiDiscrete part of an observation lies outside its space"
                )
            out[np.arange(rows)[:, None], self._firsts + numbers] = 1


def are_finite(stored: np.ndarray) -> bool:
    """Whether observations, as stored, have no NaN and no infinity.

    A float64 number beyond float32's is infinite once it is stored.
    """
    return stored.dtype.kind != "f" or bool(np.isfinite(stored).all())


def observation_column(space: spaces.Space) -> ObservationColumn:
    """The ObservationColumn for observations of `space`."""
    if isinstance(space, spaces.Discrete):
        return ArrayColumn((), np.int64, int(space.start))
    return ArrayColumn(space.shape, space.dtype) if isinstance(space, spaces.Box) else FlatColumn(space)


def _tree(space: spaces.Space):
    """[(key, tree of the part), ...] for a Dict or Tuple, None for a leaf."""
    inner = parts(space)
    return inner and [(key, _tree(part)) for key, part in inner]


def _of_rows(tree, rows: list):
    """For each leaf, the list of its values in N observations."""
    if tree is None:
        yield rows
        return
    for key, part in tree:
        yield from _of_rows(part, [row[key] for row in rows])


def _of_batch(tree, batch):
    """For each leaf, its values [N, ...] in a batched observation."""
    if tree is None:
        yield batch
        return
    for key, part in tree:
        yield from _of_batch(part, batch[key])
