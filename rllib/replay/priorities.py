"""Proportional prioritisation of experience replay (Schaul et al., arXiv:1511.05952, section 3.3)."""

import math
from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np

from rllib.config.sections import at_least
from rllib.errors import DamagedFileError
from rllib.replay.sum_tree import SumTree

# p of rows without error where epsilon is 0: they are drawn where all others have none either.
LEAST = 1e-200
# Largest p: the sum of all of them is finite.
MOST = 1e290

NOT_NEGATIVE = at_least(0, finite=True)
# How far priorities and their bounds may differ, since powers are rounded.
_ROUNDED = 1e-6


class Priorities:
    """p = (|TD error| + epsilon)^alpha of each row, and draws with P(i) = p_i / sum p.

    Args:
        rows: largest number of rows.
        alpha: exponent, at least 0, which gives all rows the same priority.
        epsilon: added to |TD error|, so that rows without error can be drawn; at least 0.
        stratified: a draw of B rows takes one from each of B equal parts of the total (the paper's appendix B.2.1);
            False draws them independently, which with alpha 0 is exactly what uniform replay draws.

    Attributes:
        largest: the largest p so far, which new rows get; 1 before there is any.

    Raises:
        ValueError: for an exponent or an `epsilon` that is out of its bounds.
    """

    def __init__(self, rows: int, alpha: float, epsilon: float, stratified: bool = False):
        _check("alpha", alpha)
        _check("epsilon", epsilon)
        self.alpha, self.epsilon, self.stratified = alpha, epsilon, stratified
        self.tree = SumTree(rows)
        self.largest = 1.0

    def add(self, start: int, count: int, td_errors: np.ndarray | None = None) -> None:
        """Sets p of `count` rows from `start` on, wrapping at the end: from TD errors, or the largest p so far."""
        values = np.full(count, self.largest) if td_errors is None else self.values(td_errors)
        self._note_largest(values)
        self._set_range(start, values)

    def drop(self, start: int, count: int) -> None:
        """Sets p of `count` rows from `start` on to 0: they are not drawn any more."""
        self._set_range(start, np.zeros(count))

    def update(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Sets p of the rows [B] to these values [B] of `values`."""
        self._note_largest(values)
        self.tree.set(rows, values)

    def sample(self, count: int, rng: np.random.Generator, beta: float) -> tuple[np.ndarray, np.ndarray]:
        """Draws rows with replacement.

        Args:
            count: how many.
            rng: draws them.
            beta: exponent of the weights, 0 or more, which `check_draw` has checked.

        Returns:
            rows: [count] int64.
            weights: [count] float64, (N P(i))^-beta, divided by the largest of them; so N and the sum of all p, the
                same for every row, cancel out.

        Raises:
            ValueError: if p is 0 for all rows.
        """
        fractions = rng.random(count)
        if self.stratified:
            fractions += np.arange(count)
            fractions /= count
        rows = self.tree.draw(fractions)
        values = self.tree[rows]
        return rows, (values / values.min()) ** -beta

    def log_largest_weight(self, rows: np.ndarray, num_rows: int, beta: float) -> float:
        """Logarithm of the largest (N P(i))^-beta of drawn rows, by which `sample` has divided their weights.

        Args:
            rows: [count] int64, as `sample` has drawn them.
            num_rows: N, the rows that can be drawn.
            beta: as for `sample`.
        """
        return -beta * (math.log(self.tree[rows].min()) + math.log(num_rows) - math.log(self.tree.total))

    def load(
        self, values: np.ndarray, largest: float, alpha: float | None = None, epsilon: float | None = None
    ) -> None:
        """Sets p of the first rows to these values [B], and of all others to 0.

        Args:
            values, largest: p of the rows, and the largest so far.
            alpha, epsilon: by which they were made; None: the same. Of an exponent of 0 nothing is known but that rows
                can be drawn.

        Raises:
            ValueError: if p is too large by this exponent.
        """
        alpha, epsilon = (self.alpha if alpha is None else alpha), (self.epsilon if epsilon is None else epsilon)
        if alpha and (alpha, epsilon) != (self.alpha, self.epsilon):
            given = np.append(values, largest)
            refuse_made_by(given, (alpha, epsilon), (self.alpha, self.epsilon))
            updated = _errors(given, alpha, epsilon, self.epsilon) ** self.alpha
            updated = np.where(given > 0, np.maximum(updated, LEAST), 0.0)
            values, largest = updated[:-1], float(updated[-1])
        # A new tree takes no memory for rows without priority.
        self.tree = SumTree(self.tree.capacity)
        self.tree.set_range(0, values)
        self.largest = largest

    def values(self, td_errors: np.ndarray) -> np.ndarray:
        """p [B] float64 of rows with these TD errors [B]; changes nothing.

        Raises:
            ValueError: if one is no number, NaN or infinite, or its p too large: it would spoil every later draw.
        """
        td_errors = np.asarray(td_errors)
        if len(td_errors) and td_errors.dtype.kind not in "biuf":
            raise ValueError(f"TD errors must be numbers, but got {td_errors[:3]} (dtype {td_errors.dtype})")
        values = np.abs(td_errors, dtype=np.float64)
        # A maximum is NaN if any of the numbers is. Before the power: with alpha 0 that makes 1 even of NaN.
        largest = float(values.max(initial=0.0))
        if not math.isfinite(largest):
            raise ValueError(f"TD errors must be finite, but got {td_errors[~np.isfinite(td_errors)][:3]}")
        _refuse_too_large(largest + self.epsilon, self.alpha)
        values += self.epsilon
        values **= self.alpha
        np.maximum(values, LEAST, out=values)
        return values

    def _note_largest(self, values: np.ndarray) -> None:
        self.largest = max(self.largest, float(values.max(initial=0.0)))

    def _set_range(self, start: int, values: np.ndarray) -> None:
        before_end = self.tree.capacity - start
        self.tree.set_range(start, values[:before_end])
        self.tree.set_range(0, values[before_end:])


def refuse_made_by(values: np.ndarray, made_by: tuple[float, float], used: tuple[float, float]) -> None:
    """Refuses priorities that `load` cannot set.

    Args:
        values: p of rows, at least one.
        made_by, used: (alpha, epsilon) by which they were made, and of the priorities that are to load them.

    Raises:
        ValueError: if one is too large by the exponent of these.
    """
    (made_alpha, made_epsilon), (alpha, epsilon) = made_by, used
    if made_alpha and made_by != used:
        _refuse_too_large(float(_errors(values.max(), made_alpha, made_epsilon, epsilon)), alpha)


def refuse_damaged(values: np.ndarray, largest: float, made_by: tuple[float, float]) -> None:
    """Refuses saved priorities that no `Priorities` has.

    Args:
        values, largest: p of rows, and the largest so far.
        made_by: (alpha, epsilon) of the priorities that were saved.

    Raises:
        DamagedFileError: (a ValueError) if one is NaN, negative or too large, none is above 0, or alpha or epsilon is
            out of its bounds.
    """
    most = MOST * (1 + _ROUNDED)
    wrong = values[~((values >= 0) & (values <= most))]
    if len(wrong):
        raise DamagedFileError(f"priorities of a replay must be from 0 to {MOST}, but there are {wrong[:3].tolist()}")
    greatest = float(values.max(initial=0.0))
    if len(values) and not greatest:
        raise DamagedFileError(f"of a replay of {len(values)} rows the priorities are all 0, so that none can be drawn")
    if not max(greatest * (1 - _ROUNDED), LEAST) <= largest <= most:
        raise DamagedFileError(
            f"the largest_priority of a replay must be from {max(greatest, LEAST)}, that of a row, to {MOST}, but is "
            f"{largest!r}"
        )
    for name, value in zip(("alpha", "epsilon"), made_by):
        if value not in NOT_NEGATIVE:
            raise DamagedFileError(f"{name} of a replay's priorities must be a number {NOT_NEGATIVE}, but is {value!r}")


def _errors(values: np.ndarray, alpha: float, epsilon: float, other: float) -> np.ndarray:
    """|TD error| + another epsilon, of priorities that were made by alpha and epsilon."""
    with np.errstate(over="ignore"):
        return np.maximum(values ** (1 / alpha) - epsilon + other, 0)


def _refuse_too_large(error: float, alpha: float) -> None:
    # By logarithms, since the power itself overflows.
    if alpha * math.log(max(error, 1.0)) > math.log(MOST):
        raise ValueError(
            f"priorities, (|TD error| + epsilon)^alpha, must be at most {MOST}, but that of {error:.4g} with "
            f"alpha={alpha} is larger. Use a smaller alpha (prioritized_replay_alpha of replay_buffer_config)."
        )


def updates(indexes: Sequence | np.ndarray, td_errors: Sequence | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and their new TD errors as arrays [B]; ValueError where they are not equally many, or rows no integers."""
    indexes, td_errors = np.asarray(indexes), np.asarray(td_errors)
    if indexes.ndim != 1 or indexes.shape != td_errors.shape:
        raise ValueError(
            "indexes and td_errors must be arrays [B] of equal lengths, but have the shapes "
            f"{indexes.shape} and {td_errors.shape}"
        )
    if len(indexes) and indexes.dtype.kind not in "iu":
        raise ValueError(f"indexes must be integers, but got {indexes[:3]} (dtype {indexes.dtype})")
    return indexes, td_errors


def check_draw(batch_size: int, beta: float) -> None:
    """Raises ValueError for a number of rows to draw, or an exponent of their weights, that is out of its bounds."""
    check_count("batch_size", batch_size)
    _check("beta", beta)


def check_count(name: str, value: int) -> None:
    """Raises ValueError for anything but an integer >= 1."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be an integer >= 1, but got {value!r}")


def _check(name: str, value: float) -> None:
    """Raises ValueError for anything but a finite number >= 0."""
    if not isinstance(value, Real) or value not in NOT_NEGATIVE:
        raise ValueError(f"{name} must be a number {NOT_NEGATIVE}, but got {value!r}")
