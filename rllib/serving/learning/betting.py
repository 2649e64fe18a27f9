"""A test of two means that holds for any returns within a range, however they are distributed, and at any time.

It bets against the hypothesis (Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting,
Journal of the Royal Statistical Society B 86, 2024). Each pair of returns multiplies a capital by 1 + b d, where d is
the first return minus the second and b a stake. If d is not positive on average, no stake makes the capital grow on
average, so with probability 1 - p it never reaches 1 / p (Ville): neither the number of looks nor the shape of the
distribution matters. A t-test needs variances that the samples show; where failures are rare, a few returns show none.
"""

from collections.abc import Iterable, Sequence

import numpy as np

# Shares of the largest stake with which no capital can be lost altogether; the capital is their mean.
_STAKES = 0.9 * 0.5 ** np.arange(8)


class Pairs:
    """Returns of two policies, paired in the order in which they come: independent differences of their means.

    Where one policy plays more episodes, the mean of those since the last pair counts.
    """

    def __init__(self):
        self._waiting: tuple[list[float], list[float]] = [], []
        self._pairs: list[tuple[float, float]] = []

    def add(self, value: float, is_first: bool) -> None:
        """Adds a return of the first policy, or of the second."""
        self._waiting[0 if is_first else 1].append(value)
        if all(self._waiting):
            self._pairs.append(tuple(sum(each) / len(each) for each in self._waiting))
            self._waiting = [], []

    def differences(self) -> np.ndarray:
        """float64 [pairs], the first minus the second."""
        pairs = np.array(self._pairs, np.float64).reshape(-1, 2)
        return pairs[:, 0] - pairs[:, 1]


def p_not_above(differences: Sequence[float] | np.ndarray, width: float, shift: float = 0.0) -> float:
    """Bounds the probability of such differences if their mean plus the shift were not above 0, at most 1.

    Args:
        differences: of independent pairs, one after the other.
        width: of the range in which both values lie; 0: nothing is known, and the answer is 1.
        shift: added to each difference.
    """
    if not width > 0:
        return 1.0
    shifted = np.asarray(differences, np.float64) + shift
    with np.errstate(over="ignore"):
        factors = 1 + np.multiply.outer(_STAKES / width, shifted)
        capital = np.prod(np.maximum(factors, 0.0), axis=1).mean()
    return min(1.0, 1.0 / capital) if capital > 0 else 1.0


def width_of(*values: Iterable[float]) -> float:
    """Width of the range of all these values; 0 without any."""
    together = [value for each in values for value in each]
    return max(together) - min(together) if together else 0.0
