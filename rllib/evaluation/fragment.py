"""The columns a rollout worker writes: T steps of N environments, time-major, in one block of memory.

The block comes from the allocator that the worker was handed. In a worker process that is the object store's, so the
columns are born in shared memory and returning them costs one small message and no copy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rllib import sample_batch as sb
from rllib.sample_batch import SampleBatch

_ALIGNMENT = 64  # bytes; a cache line, and what vector instructions like


@dataclass(frozen=True)
class Column:
    """Name, shape of one row and dtype of a column."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Fragment:
    """Preallocated columns of shape [T, N, ...]; the observations have one step more, for the bootstrap.

    Attributes:
        observations: [T + 1, N, *observation], row t + 1 is what followed action t (after an automatic reset).
        final_observations: (t, i, observation) for each episode of environment i that was truncated after action t (and
            for those that terminated there, where the postprocess asks for them).
        valid: [T, N] bool, False for rows that are no transitions; None when all are.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        num_steps: int,
        num_envs: int,
        allocate: Callable[..., np.ndarray] = np.empty,
    ):
        shapes = {}
        offset = 0
        for column in columns:
            steps = num_steps + (column.name == sb.OBS)
            dtype = np.dtype(column.dtype)
            shape = (steps, num_envs, *column.shape)
            shapes[column.name] = (offset, shape, dtype)
            nbytes = int(np.prod(shape)) * dtype.itemsize
            offset += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        block = allocate((offset,), dtype=np.uint8)
        self.num_steps = num_steps
        self.num_envs = num_envs
        self.columns = {name: np.ndarray(shape, dtype, block, start) for name, (start, shape, dtype) in shapes.items()}
        self.observations = self.columns[sb.OBS]
        self.final_observations: list[tuple[int, int, np.ndarray]] = []
        self.valid: np.ndarray | None = None

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def mark_invalid(self, step: int, environments) -> None:
        """Says that these environments' rows at this step are no transitions."""
        if self.valid is None:
            self.valid = np.ones((self.num_steps, self.num_envs), bool)
        self.valid[step, environments] = False

    @staticmethod
    def join(parts: "list[Fragment]", columns: Sequence[Column], allocate: Callable[..., np.ndarray]) -> "Fragment":
        """Fragments of the same environments, one after the other in time, as one."""
        if len(parts) == 1:
            return parts[0]
        joined = Fragment(columns, sum(part.num_steps for part in parts), parts[0].num_envs, allocate)
        start = 0
        for part in parts:
            stop = start + part.num_steps
            for name, column in part.columns.items():
                joined.columns[name][start : start + len(column)] = column
            joined.final_observations += [(start + t, i, final) for t, i, final in part.final_observations]
            if part.valid is not None:
                for t, valid in enumerate(part.valid):
                    joined.mark_invalid(start + t, ~valid)
            start = stop
        return joined

    def to_batch(self, policy_version: int) -> SampleBatch:
        """The rows [T * N], views of the block unless rows have to be dropped."""
        rows = {}
        for name, column in self.columns.items():
            column = column[: self.num_steps]
            rows[name] = column.reshape(self.num_steps * self.num_envs, *column.shape[2:])
        batch = SampleBatch(rows, policy_version=policy_version)
        return batch if self.valid is None else batch.rows(self.valid.reshape(-1))
