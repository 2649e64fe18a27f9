"""Buffers kept by the number of rows that they hold."""

from collections.abc import Callable


class BuffersByRows(dict):
    """A dict of number of rows -> buffers, made on first access; from then on `self[rows]` costs one lookup.

    Batches have few sizes as a rule, but a remainder may have any; beyond `limit` sizes the oldest buffers are dropped.

    Args:
        make: builds the buffers for a number of rows.
        limit: number of sizes to keep.
    """

    def __init__(self, make: Callable[[int], object], limit: int = 8):
        super().__init__()
        self._make = make
        self._limit = limit

    def __missing__(self, rows: int):
        if len(self) >= self._limit:
            del self[next(iter(self))]
        buffers = self[rows] = self._make(rows)
        return buffers
