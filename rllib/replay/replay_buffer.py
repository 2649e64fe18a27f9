"""Rings of independent rows in contiguous columns, sampled uniformly or by priority.

A row holds all that learning needs of it, n-step returns included, so rows may come from any worker, in any order:
there is no seam to cross. Rows are numbered from the first one ever added, so that a late priority of an
overwritten row is not taken for one of the row that replaced it.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rllib import sample_batch as sb
from rllib.replay.disk import MEMORY, check_disk, directory_of, zeros_in
from rllib.replay.form import STACKS, Form, made_by
from rllib.replay.frame_stacks import SPARE, FrameStacks
from rllib.replay.gpu import GPU, GpuArray, check_gpu
from rllib.replay.memory import check_memory
from rllib.replay.priorities import Priorities, check_count, check_draw, updates
from rllib.replay.sum_tree import SumTree
from rllib.sample_batch import Column, SampleBatch


class ReplayBuffer:
    """A ring of rows, sampled with replacement: uniformly, or in proportion to (|TD error| + epsilon)^alpha.

    Prioritised sampling (arXiv:1511.05952) gives importance weights, uniform sampling weights of 1.

    Args:
        columns: name, shape of one row, dtype.
        capacity: rows; the oldest make room for new ones.
        frame_axis: 0 or -1 for observations that are stacks of frames along this axis: each frame is then stored once
            (frame_stacks.py). If many short episodes fill the room for frames, the oldest rows are dropped early. None:
            observations are stored whole.
        alpha: exponent of the priorities; 0 makes all rows alike. None: there are no priorities.
        storage: where the rows lie: "memory", "disk" (of a temporary directory), or a directory; see disk.py. Or "gpu";
            then the columns of sampled batches are tensors there (gpu.py). What finds the rows, such as the priorities,
            is in memory in any case. Sampled rows are the same bits.
        epsilon: added to every |TD error|, so that every row can be drawn.
        spare_frames: room for frames of stacks beyond one a row, as a share of the rows.
        stratified: one row from each of B equal parts of the priorities' sum; False draws independently, which with
            alpha 0 gives the very rows of uniform sampling.

    Attributes:
        size_bytes: size in bytes of the full buffer, in memory, on the disk and on the GPU.
        new_rows: makes the arrays of sampled batches from a shape and a dtype; such as `Learner.new_rows`.

    Raises:
        ValueError: if capacity is no integer >= 1, or takes more memory, or more of the disk or of the GPU, than is
            free; if an exponent or epsilon is out of its bounds.
        OSError: if the disk cannot reserve the room.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        capacity: int,
        frame_axis: int | None = None,
        alpha: float | None = None,
        storage: str = MEMORY,
        *,
        epsilon: float = 1e-6,
        stratified: bool = True,
        spare_frames: float = SPARE,
    ):
        check_count("capacity", capacity)
        self.capacity = capacity
        self.new_rows: Callable[..., np.ndarray] = np.empty
        self._shapes = [(column.name, column.shape) for column in columns]
        self.size_bytes = self.check_room(columns, capacity, frame_axis, alpha, storage, spare_frames=spare_frames)
        # Zeros take no memory until they are written to.
        zeros = GpuArray if storage == GPU else zeros_in(directory_of(storage))
        self._columns = {
            column.name: zeros((capacity, *column.shape), column.dtype) for column in _stored(columns, frame_axis)
        }
        self._stacks = None
        if frame_axis is not None:
            self._stacks = FrameStacks(*_observation(columns), frame_axis, capacity, zeros, spare_frames)
        self._priorities = None if alpha is None else Priorities(capacity, alpha, epsilon, stratified)
        # With stacks: for each row the least position that its frames can have.
        self._least = np.zeros(0 if self._stacks is None else capacity, np.int64)
        self._added = 0
        self._oldest = 0  # number of the oldest row that can be sampled
        self._out: dict[str, np.ndarray] = {}

    @classmethod
    def like(cls, batch: Mapping[str, np.ndarray], capacity: int, **more) -> "ReplayBuffer":
        """A buffer for rows with the columns of a batch.

        Args:
            batch: columns with their rows first; the buffer does not get them.
            capacity, more: as for the constructor.
        """
        columns = [Column(name, column.shape[1:], str(column.dtype)) for name, column in batch.items()]
        return cls(columns, capacity, **more)

    @staticmethod
    def check_room(
        columns: Sequence[Column],
        capacity: int,
        frame_axis: int | None = None,
        alpha: float | None = None,
        storage: str = MEMORY,
        copies: int = 1,
        spare_frames: float = SPARE,
        setting_of: Callable[[int], int] = int,
        promised: int = 0,
        replays: int = 1,
    ) -> int:
        """The `size_bytes` of such buffers, after a check that there is room for them; nothing is allocated.

        Args:
            columns, capacity, frame_axis, alpha, storage, spare_frames: as for the constructor.
            copies: number of these buffers.
            setting_of, promised, replays: as for `check_memory`.

        Raises:
            ValueError: if there is not.
        """
        rows = capacity * sum(
            math.prod(column.shape) * np.dtype(column.dtype).itemsize for column in _stored(columns, frame_axis)
        )
        finding = 0 if alpha is None else SumTree.bytes_for(capacity)
        if frame_axis is not None:
            rows += FrameStacks.bytes_for(*_observation(columns), frame_axis, capacity, spare_frames)
            finding += 8 * capacity
        rows, finding = copies * rows, copies * finding
        if storage == GPU:
            check_gpu(copies * capacity, rows, setting_of)
        elif directory := directory_of(storage):
            check_disk(copies * capacity, rows, directory, setting_of)
        else:
            finding, rows = rows + finding, 0
        check_memory(copies * capacity, finding, setting_of, promised, replays)
        return rows + finding

    def __len__(self) -> int:
        """Rows that can be sampled."""
        return self._added - self._oldest

    @property
    def is_full(self) -> bool:
        """Whether the oldest rows make room for new ones."""
        return self._oldest > 0

    # ------------------------------------------------------------------ adding

    def add(self, batch: Mapping[str, np.ndarray], td_errors: np.ndarray | None = None) -> range:
        """Copies rows in.

        Args:
            batch: at least the columns of the table, rows [B, ...] each.
            td_errors: [B] that the priorities of the rows come from; None: the largest priority so far.

        Returns:
            the numbers of the rows. Of more than `capacity` rows the newest are kept.

        Raises:
            ValueError: if a column is missing, or has another shape; if a TD error is not finite. Nothing changes then.
        """
        if td_errors is not None:
            td_errors = np.asarray(td_errors).reshape(-1)
        rows, given = self._checked(batch, td_errors)
        if not given:
            return range(self._added, self._added)
        count = min(given, self.capacity)
        start = (self._added + given - count) % self.capacity
        stop = start + count
        if self._priorities is not None:
            self._priorities.add(start, count, None if td_errors is None else td_errors[given - count :])
        if self._stacks is not None:
            rows = self._with_positions([new[given - count :] for new in rows], start)
        if count == given and stop <= self.capacity:
            place = slice(start, stop)
            for column, new in zip(self._columns.values(), rows):
                column[place] = new
        else:
            before_end = self.capacity - start
            for column, new in zip(self._columns.values(), rows):
                new = new[len(new) - count :]
                column[start:stop] = new[:before_end]
                column[: max(stop - self.capacity, 0)] = new[before_end:]
        self._added += given
        self._oldest = max(self._oldest, self._added - self.capacity)
        if self._stacks is not None:
            self._drop_rows_without_frames()
        return range(self._added - given, self._added)

    def _with_positions(self, rows: list[np.ndarray], start: int) -> list[np.ndarray]:
        """The columns with positions of frames [B, k] instead of stacks; writes new frames."""
        stacks, names = self._stacks, list(self._columns)
        observations, following = (names.index(name) for name in STACKS)
        count = len(rows[0])
        positions = np.empty((2, count, stacks.length), np.int64)
        for row in range(count):
            self._least[(start + row) % self.capacity] = stacks.least_next
            positions[0, row] = stacks.append(rows[observations][row])
            positions[1, row] = stacks.append(rows[following][row])
        rows[observations], rows[following] = positions
        return rows

    def _drop_rows_without_frames(self) -> None:
        first = self._oldest
        while self._oldest < self._added and self._least[self._oldest % self.capacity] < self._stacks.oldest:
            self._oldest += 1
        if self._priorities is not None:
            self._priorities.drop(first % self.capacity, self._oldest - first)

    def _checked(self, batch: Mapping[str, np.ndarray], td_errors: np.ndarray | None) -> tuple[list[np.ndarray], int]:
        """The columns of the table, and the number of rows."""
        rows, given = [], -1 if td_errors is None else len(td_errors)
        for name, shape in self._shapes:
            new = batch.get(name)
            if new is None:
                raise ValueError(f"the replay stores the column {name!r}, but the batch has {sorted(batch)}")
            if new.shape[1:] != shape:
                raise ValueError(f"{name} must have the shape [B, *{shape}], but has {new.shape}")
            if len(new) != given:
                if given >= 0:
                    raise ValueError(
                        f"the columns of a batch and its TD errors must have equal lengths, but {name} has {len(new)} "
                        f"rows and what comes before it {given}"
                    )
                given = len(new)
            rows.append(new)
        return rows, given

    # ------------------------------------------------------------------ sampling

    def sample(self, batch_size: int, rng: np.random.Generator, beta: float = 0.0) -> SampleBatch:
        """Draws rows with replacement.

        Args:
            batch_size: B.
            rng: draws them.
            beta: exponent of the importance weights, 0 or more.

        Returns:
            the columns of the table, "weights" [B] float32, and "batch_indexes" [B] int64, the numbers of the rows. The
            next call for as many rows overwrites arrays of columns, and the weights: copy what has to last.

        Raises:
            ValueError: if there are no rows, or for a `batch_size` or `beta` that is out of its bounds.
        """
        if self._added == self._oldest:
            raise ValueError("there is nothing to sample: the replay is empty. Call add() first.")
        check_draw(batch_size, beta)
        out = self._outputs(batch_size)
        if self._priorities is None:
            places = self._drawn(batch_size, rng)
        else:
            places, out[sb.WEIGHTS][:] = self._priorities.sample(batch_size, rng, beta)
        # Without mode="clip" numpy gathers into temporary memory first, to leave `out` alone on errors.
        columns = {
            name: column.take(places, axis=0, out=out.get(name), mode="clip") for name, column in self._columns.items()
        }
        if self._stacks is not None:
            columns.update({name: self._stacks.take(columns[name]) for name in STACKS})
        newest = self._added - 1
        columns |= {sb.WEIGHTS: out[sb.WEIGHTS], sb.INDICES: newest - (newest - places) % self.capacity}
        return SampleBatch(columns)

    def log_largest_weight(self, indexes: np.ndarray, beta: float) -> float:
        """Logarithm of the number by which `sample` has divided the weights of the rows that it has just drawn.

        Args:
            indexes: [B], the rows.
            beta: as for `sample`.
        """
        if self._priorities is None:
            return 0.0
        return self._priorities.log_largest_weight(indexes % self.capacity, len(self), beta)

    def _outputs(self, batch_size: int) -> dict[str, np.ndarray]:
        if not self._out or len(self._out[sb.WEIGHTS]) != batch_size:
            self._out = {
                name: self.new_rows((batch_size, *column.shape[1:]), column.dtype)
                for name, column in self._columns.items()
                if isinstance(column, np.ndarray)
            }
            self._out[sb.WEIGHTS] = np.ones(batch_size, np.float32)
        return self._out

    def _drawn(self, batch_size: int, rng: np.random.Generator) -> np.ndarray:
        """Places [B] int64, all rows being equally likely."""
        rows = self._added - self._oldest
        drawn = (rng.random(batch_size) * rows).astype(np.int64)
        # The product may be rounded up to the number of rows itself.
        np.minimum(drawn, rows - 1, out=drawn)
        return drawn if not self._oldest or rows == self.capacity else (drawn + self._oldest) % self.capacity

    def update_priorities(self, indexes: np.ndarray, td_errors: np.ndarray) -> None:
        """Sets new TD errors [B] of the rows with these numbers [B]; rows that were overwritten are left out.

        They make no difference where there are no priorities.

        Raises:
            ValueError: as `priorities_of`. Nothing changes then.
        """
        self.set_priorities_of(*self.priorities_of(indexes, td_errors))

    def priorities_of(self, indexes: np.ndarray, td_errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows [B] that new TD errors [B] are for, and their p [B]; none if there are no priorities. Changes nothing.

        Raises:
            ValueError: if indexes and TD errors are not equally many; if there are priorities, also if there never was
                such a row, or a TD error is not finite, or too large for the exponent of the priorities.
        """
        indexes, td_errors = updates(indexes, td_errors)
        if self._priorities is None or not len(indexes):
            return np.empty(0, np.int64), np.empty(0)
        least, most = int(indexes.min()), int(indexes.max())
        if least < 0 or most >= self._added:
            raise ValueError(f"rows 0 to {self._added - 1} have been added, but rows {least} to {most} are meant")
        values = self._priorities.values(td_errors)
        if least >= self._oldest:
            return indexes, values
        there = indexes >= self._oldest
        return indexes[there], values[there]

    def set_priorities_of(self, indexes: np.ndarray, values: np.ndarray) -> None:
        """Sets p of rows, as `priorities_of` gives them, before anything is added."""
        if self._priorities is not None:
            self._priorities.update(indexes % self.capacity, values)

    # ------------------------------------------------------------------ checkpoints

    def get_state(self) -> dict[str, np.ndarray]:
        """Named arrays: the rows (views), where the ring stands, and how rows are chosen."""
        filled = min(self._added, self.capacity)
        state = {f"columns.{name}": column[:filled] for name, column in self._columns.items()}
        state |= {"added": np.array(self._added), "capacity": np.array(self.capacity)}
        state |= self.get_priorities()
        if self._stacks is not None:
            state |= {"oldest": np.array(self._oldest), "least": self._least[:filled]}
            state |= {f"stacks.{name}": array for name, array in self._stacks.get_state().items()}
        return state

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores a state of `get_state`.

        Raises:
            Unfit, DamagedFileError: (ValueErrors) as `refuse_state`.
        """
        self.refuse_state(state)
        self._added = int(state["added"])
        self._oldest = int(state.get("oldest", max(self._added - self.capacity, 0)))
        for name, column in self._columns.items():
            column[: len(state[f"columns.{name}"])] = state[f"columns.{name}"]
        if self._priorities is not None:
            self._load_priorities(state)
        if self._stacks is not None:
            self._least[: len(state["least"])] = state["least"]
            self._stacks.set_state({name: state[f"stacks.{name}"] for name in ("frames", "written")})

    def get_priorities(self) -> dict[str, np.ndarray]:
        """How rows are chosen, without the rows, which are there already when it is restored; {} if uniformly."""
        if self._priorities is None:
            return {}
        filled = min(self._added, self.capacity)
        return {
            "priorities": self._priorities.tree[:filled],
            "largest_priority": np.array(self._priorities.largest),
            "alpha": np.array(self._priorities.alpha),
            "epsilon": np.array(self._priorities.epsilon),
        }

    def set_priorities(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores a state of `get_priorities`; of another number of rows, or {}, all rows start again, alike."""
        if self._priorities is None:
            return
        filled = min(self._added, self.capacity)
        if self._are_of_these_rows(state):
            self._load_priorities(state)
            return
        values = np.ones(filled)
        values[np.arange(self._added - filled, self._oldest) % self.capacity] = 0  # they have lost their frames
        self._priorities.load(values, 1.0)

    def _load_priorities(self, state: Mapping[str, np.ndarray]) -> None:
        by = made_by(state, self._priorities.alpha, self._priorities.epsilon)
        self._priorities.load(state["priorities"], float(state["largest_priority"]), *by)

    def _are_of_these_rows(self, state: Mapping[str, np.ndarray]) -> bool:
        """Whether a state of `get_priorities` has the number of rows that are here."""
        return np.shape(state.get("priorities"))[:1] == (min(self._added, self.capacity),)

    @property
    def form(self) -> Form:
        """What a state has to be of, to be restored here."""
        columns = {(name, column.shape[1:], str(column.dtype)) for name, column in self._columns.items()}
        priorities = None if self._priorities is None else (self._priorities.alpha, self._priorities.epsilon)
        return Form(frozenset(columns), self.capacity, priorities, self._stacks and self._stacks.form)

    def refuse_state(self, state: Mapping[str, np.ndarray], setting_of: Callable[[int], int] | None = None) -> None:
        """Refuses a state that `set_state` cannot restore; see `Form.refuse`."""
        self.form.refuse(state, setting_of)

    def refuse_priorities(self, state: Mapping[str, np.ndarray]) -> None:
        """Refuses a state that `set_priorities` cannot restore; see `Form.refuse_priorities`."""
        if self._are_of_these_rows(state):
            self.form.refuse_priorities(state, self._added, self._oldest)


def _stored(columns: Sequence[Column], frame_axis: int | None) -> list[Column]:
    """The columns as they are stored: with `frame_axis`, positions of frames instead of stacks."""
    if frame_axis is None:
        return list(columns)
    length = _observation(columns)[0][frame_axis]
    return [Column(c.name, (length,), "int64") if c.name in STACKS else c for c in columns]


def _observation(columns: Sequence[Column]) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of an observation."""
    return next((column.shape, column.dtype) for column in columns if column.name == sb.OBS)
