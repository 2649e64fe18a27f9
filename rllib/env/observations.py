"""How observations of one environment are stored as rows of one column."""

from abc import ABC, abstractmethod

import numpy as np
from gymnasium import spaces

CONCATENATED_ROWS = 12


class ObservationColumn(ABC):
    """Writes observations into rows of an array [N, *shape] of the given dtype.

    | space                                    | shape             | dtype                                     |
    |------------------------------------------|-------------------|-------------------------------------------|
    | Box                                      | that of the space | that of the space; float64 becomes float32 |
    | Discrete                                 | ()                | int64; the environment's own number       |
    | Dict, Tuple, MultiDiscrete, MultiBinary  | [K]               | float32, as gymnasium.spaces.flatten      |
    """

    shape: tuple[int, ...]
    dtype: np.dtype

    @abstractmethod
    def write_rows(self, rows: list, out: np.ndarray) -> None:
        """Writes N observations, as the environments gave them, into out [N, *shape].

        They have been seen to have the right shape: this is the hot path, and where numpy can, it broadcasts.

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
    """Box observations."""

    def __init__(self, space: spaces.Box):
        self.shape = space.shape
        self.dtype = np.dtype(np.float32) if space.dtype == np.float64 else space.dtype
        self._joined = (-1, *self.shape[1:])

    def write_rows(self, rows, out):
        # Assigning the list looks at each row twice; concatenate costs more to call, less a row.
        if len(rows) > CONCATENATED_ROWS and out.flags.c_contiguous:
            np.concatenate(rows, out=out.reshape(self._joined), casting="unsafe")
        else:
            out[:] = rows

    def write_batch(self, batch, out):
        out[...] = batch


class NumberColumn(ObservationColumn):
    """Discrete observations, and Box observations of shape ()."""

    shape = ()

    def __init__(self, dtype):
        self.dtype = np.dtype(dtype)

    def write_rows(self, rows, out):
        out[:] = rows

    def write_batch(self, batch, out):
        out[...] = batch


class FlatColumn(ObservationColumn):
    """Every other space, flattened in gymnasium's order: the parts one after the other, Discrete parts one-hot."""

    dtype = np.dtype(np.float32)

    def __init__(self, space: spaces.Space):
        self._space = space
        self.shape = (spaces.flatdim(space),)

    def write_rows(self, rows, out):
        for index, observation in enumerate(rows):
            out[index] = spaces.flatten(self._space, observation)

    def row(self, observation):
        return np.asarray(spaces.flatten(self._space, observation), self.dtype)

    def write_batch(self, batch, out):
        np.concatenate(list(_flat_parts(self._space, batch)), axis=1, out=out, casting="unsafe")


def observation_column(space: spaces.Space) -> ObservationColumn:
    """The way observations of `space` are stored."""
    if isinstance(space, spaces.Discrete):
        return NumberColumn(np.int64)
    if isinstance(space, spaces.Box):
        column = ArrayColumn(space)
        return column if space.shape else NumberColumn(column.dtype)
    return FlatColumn(space)


def _flat_parts(space: spaces.Space, batch):
    """The parts [N, k] of a batched observation, in the order of gymnasium.spaces.flatten."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _flat_parts(part, batch[key])
    elif isinstance(space, spaces.Tuple):
        for part, values in zip(space.spaces, batch):
            yield from _flat_parts(part, values)
    elif isinstance(space, spaces.Discrete):
        yield _one_hot(np.asarray(batch) - space.start, int(space.n))
    elif isinstance(space, spaces.MultiDiscrete):
        chosen = (np.asarray(batch) - space.start).reshape(len(batch), -1)
        for index, size in enumerate(space.nvec.ravel()):
            yield _one_hot(chosen[:, index], int(size))
    else:
        yield np.asarray(batch).reshape(len(batch), -1)


def _one_hot(chosen: np.ndarray, size: int) -> np.ndarray:
    return (chosen[:, None] == np.arange(size)).astype(np.float32)
