"""Rings of independent rows in contiguous columns, sampled uniformly or by priority.

A row holds all that learning needs of it, n-step returns included, so rows may come from any worker, in any order:
there is no seam to cross. Rows are numbered from the first one ever added, so that news of a row that was overwritten
meanwhile can be told from news of the one that lies there now.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rllib import sample_batch as sb
from rllib.replay.memory import check_memory
from rllib.replay.priorities import Priorities
from rllib.replay.sum_tree import SumTree
from rllib.sample_batch import Column, SampleBatch


class ReplayBuffer:
    """A ring of rows, sampled uniformly with replacement.

    Args:
        columns: name, shape of one row, dtype.
        capacity: rows; the oldest make room for new ones.

    Raises:
        ValueError: if capacity is below 1, or takes more memory than is free.
    """

    def __init__(self, columns: Sequence[Column], capacity: int):
        if capacity < 1:
            raise ValueError(f"capacity={capacity} must be at least 1")
        self.capacity = capacity
        self._table = tuple(columns)
        self._shapes = [(column.name, column.shape) for column in columns]
        check_memory(capacity, self.bytes_for(columns, capacity))
        # Zeros cost nothing until they are written to.
        self._columns = {column.name: np.zeros((capacity, *column.shape), column.dtype) for column in self._table}
        self._added = 0
        self._out: dict[str, np.ndarray] = {}

    @staticmethod
    def bytes_for(columns: Sequence[Column], capacity: int) -> int:
        """What `size_bytes` would be."""
        return capacity * sum(math.prod(column.shape) * np.dtype(column.dtype).itemsize for column in columns)

    def __len__(self) -> int:
        """Rows that can be sampled."""
        return min(self._added, self.capacity)

    @property
    def size_bytes(self) -> int:
        """Memory of the full buffer."""
        return sum(column.nbytes for column in self._columns.values())

    # ------------------------------------------------------------------ adding

    def add(self, batch: Mapping[str, np.ndarray], td_errors: np.ndarray | None = None) -> range:
        """Copies rows in.

        Args:
            batch: at least the columns of the table, as rows [B, ...] or time-major [T, N, ...] (B = T N).
            td_errors: [B] that the priorities of the rows come from; None: the largest priority so far.

        Returns:
            the numbers of the rows. Of more than `capacity` rows the newest are kept.

        Raises:
            ValueError: if a column is missing, or has another shape; if a TD error is not finite. Nothing changes then.
        """
        if td_errors is not None:
            td_errors = np.asarray(td_errors).reshape(-1)
        rows, given = self._checked(batch, td_errors)
        count = min(given, self.capacity)
        start = (self._added + given - count) % self.capacity
        stop = start + count
        self._note_added(start, count, None if td_errors is None else td_errors[given - count :])
        if count == given and stop <= self.capacity:
            place = slice(start, stop)
            for column, new in zip(self._columns.values(), rows):
                column[place] = new
        else:
            before_end = self.capacity - start
            for column, new in zip(self._columns.values(), rows):
                new = new[given - count :]
                column[start:stop] = new[:before_end]
                column[: max(stop - self.capacity, 0)] = new[before_end:]
        self._added += given
        return range(self._added - given, self._added)

    def _checked(self, batch: Mapping[str, np.ndarray], td_errors: np.ndarray | None) -> tuple[list[np.ndarray], int]:
        """The columns of the table as rows, and how many there are."""
        rows, given = [], -1 if td_errors is None else len(td_errors)
        for name, shape in self._shapes:
            new = batch.get(name)
            if type(new) is not np.ndarray or new.shape[1:] != shape:
                new = _as_rows(batch, name, shape)
            if len(new) != given:
                if given >= 0:
                    raise ValueError(
                        f"the columns of a batch and its TD errors must have equal lengths, but {name} has {len(new)} "
                        f"rows and what comes before it {given}"
                    )
                given = len(new)
            rows.append(new)
        return rows, given

    def _note_added(self, start: int, count: int, td_errors: np.ndarray | None) -> None:
        """For buffers that keep more of a row than its columns."""

    # ------------------------------------------------------------------ sampling

    def sample(self, batch_size: int, rng: np.random.Generator, beta: float = 0.0) -> SampleBatch:
        """Draws rows with replacement.

        Args:
            batch_size: B.
            rng: draws them.
            beta: exponent of the importance weights (see PrioritizedReplayBuffer).

        Returns:
            the columns of the table, "weights" [B] float32, and "batch_indexes" [B] int64, the numbers of the rows. The
            next call for as many rows overwrites the columns and the weights: copy what has to last.

        Raises:
            ValueError: if there are no rows.
        """
        if not self._added:
            raise ValueError("there is nothing to sample: the replay is empty. Call add() first.")
        out = self._outputs(batch_size)
        places = self._draw(batch_size, rng, beta, out[sb.WEIGHTS])
        for name, column in self._columns.items():
            # Without mode="clip" numpy gathers into memory of its own first, to leave `out` alone on errors.
            column.take(places, axis=0, out=out[name], mode="clip")
        return SampleBatch({**out, sb.INDICES: numbers_of(places, self._added, self.capacity)})

    def _outputs(self, batch_size: int) -> dict[str, np.ndarray]:
        if not self._out or len(self._out[sb.WEIGHTS]) != batch_size:
            self._out = {column.name: np.empty((batch_size, *column.shape), column.dtype) for column in self._table}
            self._out[sb.WEIGHTS] = np.ones(batch_size, np.float32)
        return self._out

    def _draw(self, batch_size: int, rng: np.random.Generator, beta: float, weights: np.ndarray) -> np.ndarray:
        """Places [B] int64; fills `weights`, which are 1 unless somebody changes them."""
        return uniform_draw(len(self), batch_size, rng)

    def update_priorities(self, indexes: np.ndarray, td_errors: np.ndarray) -> None:
        """Takes new TD errors of sampled rows; they make no difference here."""

    # ------------------------------------------------------------------ checkpoints

    def get_state(self) -> dict[str, np.ndarray]:
        """Named arrays: the rows (views), where the ring stands, and how rows are chosen."""
        state = {f"columns.{name}": column[: len(self)] for name, column in self._columns.items()}
        return {**state, "added": np.array(self._added), "capacity": np.array(self.capacity)}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over what `get_state` gave.

        Raises:
            ValueError: if it is of a buffer with other columns or another capacity.
        """
        saved = {
            (name.removeprefix("columns."), column.shape[1:], str(column.dtype))
            for name, column in state.items()
            if name.startswith("columns.")
        }
        own = {(name, column.shape[1:], str(column.dtype)) for name, column in self._columns.items()}
        if saved != own or int(state["capacity"]) != self.capacity:
            raise ValueError(
                f"the saved replay has capacity {int(state['capacity'])} and the columns {sorted(saved)}, but this one "
                f"{self.capacity} and {sorted(own)}"
            )
        self._added = int(state["added"])
        for name, column in self._columns.items():
            column[: len(self)] = state[f"columns.{name}"]


class PrioritizedReplayBuffer(ReplayBuffer):
    """Rows drawn in proportion to (|TD error| + epsilon)^alpha (arXiv:1511.05952), with importance weights.

    Args:
        columns, capacity: see ReplayBuffer.
        alpha: exponent of the priorities; 0 samples uniformly.
        epsilon: added to every |TD error|, so that no row is out of play for ever.
        stratified: one row from each of B equal parts of the priorities' sum; False draws independently, which with
            alpha 0 gives the very rows of ReplayBuffer.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        capacity: int,
        alpha: float = 0.6,
        epsilon: float = 1e-6,
        stratified: bool = True,
    ):
        super().__init__(columns, capacity)
        self.priorities = Priorities(capacity, alpha, epsilon, stratified)

    @staticmethod
    def bytes_for(columns: Sequence[Column], capacity: int) -> int:
        return ReplayBuffer.bytes_for(columns, capacity) + SumTree.bytes_for(capacity)

    @property
    def size_bytes(self) -> int:
        return super().size_bytes + self.priorities.tree.size_bytes

    def _note_added(self, start: int, count: int, td_errors: np.ndarray | None) -> None:
        self.priorities.add(start, count, td_errors)

    def _draw(self, batch_size: int, rng: np.random.Generator, beta: float, weights: np.ndarray) -> np.ndarray:
        indexes, weights[:] = self.priorities.sample(batch_size, rng, beta)
        return indexes

    def update_priorities(self, indexes: np.ndarray, td_errors: np.ndarray) -> None:
        """Takes the new TD errors [B] of the rows with these numbers [B]; those of rows that are gone are left out.

        Raises:
            ValueError: if there never was such a row, or a TD error is not finite.
        """
        indexes, td_errors = np.asarray(indexes), np.asarray(td_errors)
        there = rows_still_there(indexes, self._added - len(self), self._added)
        self.priorities.update(indexes[there] % self.capacity, td_errors[there])

    def get_state(self) -> dict[str, np.ndarray]:
        priorities = {
            "priorities": self.priorities.tree[: len(self)],
            "largest_priority": np.array(self.priorities.largest),
        }
        return {**super().get_state(), **priorities}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        if "priorities" not in state:
            raise ValueError("the saved replay has no priorities: it was sampled uniformly, this one is not")
        super().set_state(state)
        self.priorities.load(state["priorities"], float(state["largest_priority"]))


def uniform_draw(rows: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers [count] int64 below `rows`: those that priorities that are all alike would draw."""
    drawn = (rng.random(count) * rows).astype(np.int64)
    # The product may be rounded up to `rows` itself.
    return np.minimum(drawn, rows - 1, out=drawn)


def numbers_of(places: np.ndarray, added: int, capacity: int) -> np.ndarray:
    """The numbers [B] of the rows that lie at these places of a ring, the newest of which has the number added - 1."""
    return added - 1 - (added - 1 - places) % capacity


def rows_still_there(numbers: np.ndarray, oldest: int, added: int) -> np.ndarray | slice:
    """Which of these rows have not been overwritten: a mask [B], or a slice of all.

    Raises:
        ValueError: if one was never there.
    """
    if not len(numbers):
        return slice(0)
    least, most = int(numbers.min()), int(numbers.max())
    if least < 0 or most >= added:
        raise ValueError(f"rows 0 to {added - 1} have been added, but rows {least} to {most} are meant")
    return slice(None) if least >= oldest else numbers >= oldest


def _as_rows(batch: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The column as [B, *shape]."""
    if name not in batch:
        raise ValueError(f"the replay stores the column {name!r}, but the batch has {sorted(batch)}")
    given = np.asarray(batch[name])
    own = given.ndim - len(shape)
    if own not in (1, 2) or given.shape[own:] != shape:
        raise ValueError(f"{name} must have the shape [B, *{shape}] or [T, N, *{shape}], but has {given.shape}")
    return given if own == 1 else given.reshape(-1, *shape)
