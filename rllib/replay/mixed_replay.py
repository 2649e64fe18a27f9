"""A replay of several parts, from each of which a batch has its share: recorded steps, and new ones."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rllib import sample_batch as sb
from rllib.errors import DamagedFileError
from rllib.replay.priorities import check_draw, updates
from rllib.replay.replay_buffer import ReplayBuffer
from rllib.sample_batch import SampleBatch


class MixedReplay:
    """Buffers with the same columns, of which each batch has fixed shares (RLPD, arXiv:2302.02948: half and half).

    The column recorded says of each row whether it is of a part that was filled before.

    A share of a batch that is no whole number of rows is carried over to the next batch. Until a part has rows, the
    others give its share.

    Args:
        parts: (buffer, share), with shares that sum up to 1.
        takes_new_rows: whether the last part gets the rows of `add`; the others were filled before.
    """

    def __init__(self, parts: Sequence[tuple[ReplayBuffer, float]], takes_new_rows: bool):
        self._buffers = [buffer for buffer, _ in parts]
        self._shares = np.array([share for _, share in parts])
        self._takes_new_rows = takes_new_rows
        self._owed = np.zeros(len(parts))
        # Rows of each buffer have numbers from here on: number of the row times the buffers, and the buffer's own.
        self._stride = len(parts)

    @property
    def newest(self) -> ReplayBuffer:
        """The part that gets new rows."""
        return self._buffers[-1]

    @property
    def recorded(self) -> list[ReplayBuffer]:
        """The parts that were filled before."""
        return self._buffers[:-1] if self._takes_new_rows else self._buffers

    @property
    def size_bytes(self) -> int:
        """Size of all parts."""
        return sum(buffer.size_bytes for buffer in self._buffers)

    def __len__(self) -> int:
        return sum(map(len, self._buffers))

    def add(self, batch: Mapping[str, np.ndarray], td_errors: np.ndarray | None = None) -> range:
        """Adds new rows; see ReplayBuffer.

        Raises:
            ValueError: if all parts were filled before.
        """
        if not self._takes_new_rows:
            raise ValueError("all rows of this replay are recorded ones: it takes no new ones")
        added = self.newest.add(batch, td_errors)
        last = len(self._buffers) - 1
        return range(added.start * self._stride + last, added.stop * self._stride + last, self._stride)

    def sample(self, batch_size: int, rng: np.random.Generator, beta: float = 0.0) -> SampleBatch:
        """Draws each part's share, in the order of the parts; see ReplayBuffer.

        Importance weights are (N P)^-beta with N and P of a row's part, whose rows are to count alike. Divided by the
        largest of the batch, not of the part: parts whose priorities differ more would count less than their shares.
        """
        check_draw(batch_size, beta)
        counts = self._counts(batch_size)
        drawn, divided_by = [], []
        for index, (buffer, count) in enumerate(zip(self._buffers, counts)):
            if count:
                part = buffer.sample(int(count), rng, beta)
                divided_by.append(buffer.log_largest_weight(part[sb.INDICES], beta))
                part[sb.INDICES] = part[sb.INDICES] * self._stride + index
                is_new = self._takes_new_rows and index == self._stride - 1
                part[sb.RECORDED] = np.full(len(part), not is_new, np.float32)
                drawn.append(part)
        for part, logarithm in zip(drawn, divided_by):
            part[sb.WEIGHTS] = part[sb.WEIGHTS] * np.float32(math.exp(logarithm - max(divided_by)))
        return SampleBatch({name: np.concatenate([part[name] for part in drawn]) for name in drawn[0]})

    @property
    def owed(self) -> list[float]:
        """Rows that each part has to give in addition to its share of the next batch; settable, for checkpoints.

        Raises:
            DamagedFileError: (a ValueError) where it is set, for more rows than can be owed.
        """
        return self._owed.tolist()

    @owed.setter
    def owed(self, rows: Sequence[float]) -> None:
        if len(rows) != len(self._owed):  # it is of a run with other data
            return
        owed = np.array(rows, float)
        # Less than a row of each part: what is above goes into the batch.
        if not (np.abs(owed) <= len(owed)).all():
            raise DamagedFileError(f"the parts of a replay owe at most {len(owed)} rows each, but owe {rows!r:.80}")
        self._owed[:] = owed

    def _counts(self, batch_size: int) -> np.ndarray:
        """Rows of each part in a batch, int64 [parts]."""
        has_rows = np.array([len(buffer) > 0 for buffer in self._buffers])
        if not has_rows.any():
            raise ValueError("there is nothing to sample: the replay is empty. Call add() first.")
        shares = self._shares * has_rows
        owed = self._owed * has_rows + batch_size * shares / shares.sum()
        # Below 0 is a part that has given rows in advance.
        counts = np.maximum(np.floor(owed + 1e-9), 0).astype(np.int64)
        while (missing := batch_size - counts.sum()) > 0:
            counts[np.where(has_rows, owed - counts, -np.inf).argmax()] += 1
        for _ in range(-missing):
            counts[np.where(counts > 0, counts - owed, -np.inf).argmax()] -= 1
        self._owed = owed - counts
        return counts

    def update_priorities(self, indexes: np.ndarray, td_errors: np.ndarray) -> None:
        """Sets new TD errors of rows, of all parts or of none; see ReplayBuffer."""
        indexes, td_errors = updates(indexes, td_errors)
        of_parts = indexes % self._stride
        parts = [
            buffer.priorities_of(indexes[of_parts == index] // self._stride, td_errors[of_parts == index])
            for index, buffer in enumerate(self._buffers)
        ]
        for buffer, part in zip(self._buffers, parts):
            buffer.set_priorities_of(*part)
