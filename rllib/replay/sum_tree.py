"""Sums over ranges of weights, and draws in proportion to the weights, all vectorised.

A binary tree in an array: node i has the children 2i and 2i + 1, the leaves stand last. Instead of going down from the
root, a draw begins at the level of TOP nodes, where a binary search in their running sums finds the node in one call,
and goes down level by level from there. The levels above do not exist, so changes stop there too. A node's sum is
always computed from its children, never updated by a difference: rounding errors do not accumulate.
"""

import numpy as np

TOP = 2048


class SumTree:
    """Weights >= 0 in float64, all 0 at first.

    Args:
        capacity: number of weights; it need not be a power of two.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self._first = 1 << (capacity - 1).bit_length()  # number of the first leaf
        self._top = min(self._first, TOP)
        # The whole last level, so that no path leads out of the array. Zeros take no memory until they are written to.
        self._sums = np.zeros(2 * self._first)
        self._ends = np.zeros(self._top + 1)

    @staticmethod
    def bytes_for(capacity: int) -> int:
        """Memory of the nodes."""
        return 16 * (1 << (capacity - 1).bit_length())

    def __getitem__(self, indexes) -> np.ndarray:
        """The weights at these places."""
        return self._sums[self._first : self._first + self.capacity][indexes]

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._running_sums()[-1])

    def set(self, indexes: np.ndarray, weights: np.ndarray | float) -> None:
        """Replaces the weights at `indexes` [B]; where one comes twice, the last counts."""
        nodes = indexes + self._first
        sums = self._sums
        sums[nodes] = weights
        level = self._first
        while level > self._top:
            level >>= 1
            left = nodes & -2
            nodes = nodes >> 1
            sums[nodes] = sums.take(left) + sums.take(left + 1)

    def set_range(self, start: int, weights: np.ndarray) -> None:
        """Replaces the weights of `len(weights)` places from `start` on; they must not wrap at the end."""
        if not len(weights):
            return
        sums = self._sums
        first, last = self._first + start, self._first + start + len(weights) - 1
        sums[first : last + 1] = weights
        level = self._first
        while level > self._top:
            level >>= 1
            first, last = first >> 1, last >> 1
            children = sums[2 * first : 2 * last + 2].reshape(-1, 2)
            np.add(children[:, 0], children[:, 1], out=sums[first : last + 1])

    def draw(self, fractions: np.ndarray) -> np.ndarray:
        """The places [B] on which these fractions [B] of the total weight, in [0, 1), fall; never one of weight 0.

        Raises:
            ValueError: if all weights are 0.
        """
        ends, sums = self._running_sums(), self._sums
        total = ends[-1]
        if not total > 0:
            raise ValueError("there is nothing to draw from: every weight is 0")
        # A product may be rounded up to the total itself, which lies beyond the last place.
        rest = np.minimum(fractions * total, np.nextafter(total, 0.0))
        nodes = ends[1:].searchsorted(rest, side="right")
        rest -= ends.take(nodes)
        nodes += self._top
        tops = nodes
        level = self._top
        while level < self._first:
            nodes = nodes << 1
            left = sums.take(nodes)
            goes_right = rest >= left
            rest -= left * goes_right
            nodes += goes_right
            level <<= 1
        astray = sums.take(nodes) <= 0
        if astray.any():
            nodes[astray] = self._last_weight_below(tops[astray])
        return nodes - self._first

    def _last_weight_below(self, nodes: np.ndarray) -> np.ndarray:
        """The last leaf below each node whose weight is above 0, for draws that rounding has moved past it."""
        while (nodes < self._first).all():
            nodes = 2 * nodes
            nodes += self._sums[nodes + 1] > 0
        return nodes

    def _running_sums(self) -> np.ndarray:
        """[TOP + 1]: 0 and the sums up to each node of the top level."""
        np.cumsum(self._sums[self._top : 2 * self._top], out=self._ends[1:])
        return self._ends
