"""Rows of all batches so far, of which updates draw uniformly: DAgger's aggregated data set (arXiv:1011.0686).

Of a policy with a memory a stored row is a sequence of steps, with the state in which the policy has acted before the
first of them. That state is of earlier weights, as those of R2D2's stored states are.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from rllib.replay.disk import MEMORY
from rllib.replay.replay_buffer import ReplayBuffer
from rllib.sample_batch import SEQ_LENS, STATE_IN, Column, SampleBatch


class AggregatedRows:
    """A store of steps, or of sequences of steps.

    Args:
        columns: of one step.
        capacity: steps; the oldest make room for new ones.
        storage: as for ReplayBuffer: "memory", "disk", or a directory.
        max_seq_len: longest sequence, of a policy with a memory; None: rows are single steps.
        state_size: numbers of the memory's state.

    Raises:
        ValueError, OSError: as for ReplayBuffer.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        capacity: int,
        storage: str = MEMORY,
        *,
        max_seq_len: int | None = None,
        state_size: int = 0,
    ):
        self._names, self._length = [column.name for column in columns], max_seq_len
        if max_seq_len is not None:
            columns = [Column(each.name, (max_seq_len, *each.shape), each.dtype) for each in columns]
            columns += [Column(SEQ_LENS, (), "int64"), Column(STATE_IN, (state_size,))]
            capacity = max(capacity // max_seq_len, 1)
        self._buffer = ReplayBuffer(columns, capacity, storage=storage)

    def __len__(self) -> int:
        """Number of rows: steps, or sequences."""
        return len(self._buffer)

    def add(self, batch: SampleBatch) -> None:
        """Copies the steps of a batch in, in whose sequences they stand if there are some."""
        if self._length is None:
            self._buffer.add(batch)
            return
        lengths = batch[SEQ_LENS]
        is_step = np.arange(self._length) < lengths[:, None]
        rows = {SEQ_LENS: lengths, STATE_IN: batch[STATE_IN]}
        for name in self._names:
            rows[name] = np.zeros((len(lengths), self._length, *batch[name].shape[1:]), batch[name].dtype)
            rows[name][is_step] = batch[name]
        self._buffer.add(rows)

    def draw(self, batch: SampleBatch, times: int, rng: np.random.Generator) -> SampleBatch:
        """As many rows, or sequences, as this number of batches like `batch` has, drawn with replacement.

        Args:
            batch: the newest one, whose policy version the drawn rows get.
            times: see above.
            rng: draws them.
        """
        count = len(batch[SEQ_LENS]) if self._length is not None else batch.count
        drawn = self._buffer.sample(times * count, rng)
        if self._length is None:
            columns = {name: drawn[name] for name in self._names}
        else:
            is_step = np.arange(self._length) < drawn[SEQ_LENS][:, None]
            columns = {name: drawn[name][is_step] for name in self._names}
            columns |= {name: drawn[name] for name in (SEQ_LENS, STATE_IN)}
        return SampleBatch(columns, policy_version=batch.policy_version)

    # ------------------------------------------------------------------ checkpoints

    def get_state(self) -> dict[str, np.ndarray]:
        """The rows, and where the ring stands."""
        return self._buffer.get_state()

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores a state of `get_state`."""
        self._buffer.set_state(state)

    def refuse_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Refuses rows of another form; raises as ReplayBuffer.refuse_state."""
        self._buffer.refuse_state(state)
