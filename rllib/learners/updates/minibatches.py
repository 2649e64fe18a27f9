"""Partition of a batch into minibatches, and of a minibatch into the parts of several learners."""

import functools

import numpy as np


class Cuts:
    """Positions at which ordered rows may be divided, and the rows that count in the means of the loss.

    Args:
        seq_lens: int [S], lengths of the sequences that the rows form. None: a sequence ends with a row that does not
            count; if all rows count, the rows are independent.
        mask: bool [rows], rows that count; None: all do.
    """

    def __init__(self, seq_lens: np.ndarray | None = None, mask: np.ndarray | None = None):
        self._seq_lens, self._mask = seq_lens, mask

    @functools.cached_property
    def ends(self) -> np.ndarray | None:
        """int [n], row numbers at which sequences end, which stay whole; None: the rows are independent."""
        if self._seq_lens is not None:
            return np.cumsum(self._seq_lens)
        return None if self._mask is None else np.flatnonzero(~self._mask) + 1

    @functools.cached_property
    def _counted(self) -> np.ndarray:
        """int [rows + 1], number of counting rows before each row."""
        return np.concatenate(([0], np.cumsum(self._mask)))

    def parts(self, start: int, stop: int, size: int) -> list[slice]:
        """The rows from `start` to `stop` in parts of `size` rows; the last part may be smaller.

        Sequences stay whole: a part has the fewest sequences that together have that number of rows.
        """
        if start < stop <= start + size:
            return [slice(start, stop)]
        if self.ends is None:
            return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]
        parts = []
        for end in self.ends[(self.ends > start) & (self.ends <= stop)].tolist():
            if end - start >= size or end == stop:
                parts.append(slice(start, end))
                start = end
        return parts if start == stop else [*parts, slice(start, stop)]

    def share(self, part: slice, whole: slice) -> float:
        """Share of the counting rows of `whole` that lie in `part`."""
        if self._mask is None:
            return (part.stop - part.start) / (whole.stop - whole.start)
        counted = self._counted[[part.start, part.stop, whole.start, whole.stop]].tolist()
        return (counted[1] - counted[0]) / max(counted[3] - counted[2], 1)

    def part_of(self, rows: slice, rank: int, size: int) -> tuple[slice, float]:
        """Rows that learner `rank` of `size` computes, and their weight in the sum.

        A learner without rows computes the first part at weight 0, so that all learners call the loss equally often.
        """
        parts = self.parts(rows.start, rows.stop, -(-(rows.stop - rows.start) // size))
        if rank < len(parts):
            return parts[rank], self.share(parts[rank], rows)
        return parts[0], 0.0
