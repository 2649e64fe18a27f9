"""A test of two means that holds for any returns within a range, however they are distributed, and at any time.

It bets against the hypothesis (Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting,
Journal of the Royal Statistical Society B 86, 2024). If the first mean is not above the second, some level m lies
between them. One capital bets that the first returns are above m: each return x multiplies it by 1 + b (x - m). Another
capital bets that the second returns are below m. If both bets are wrong, no stake makes the product of the capitals
grow on average, so with probability 1 - p it never reaches 1 / p (Ville): neither the number of looks nor the shape of
the distribution matters. The result is the smallest product over all levels. A t-test would have to estimate variances
from the samples; where failures are rare, a few returns do not show them.
"""

from collections.abc import Iterable, Sequence

import numpy as np

# Stakes, as shares of the largest one with which the capital cannot become negative; the capital is the mean over them.
_STAKES = 0.9 * 0.4 ** np.arange(6)
# Number of cells into which the range of levels is divided.
_CELLS = 256
# Number of returns that are processed at once, to limit the memory.
_BLOCK = 4096


def p_not_above(
    first: Sequence[float], second: Sequence[float], bounds: tuple[float, float], shift: float = 0.0
) -> float:
    """p-value against "the first mean plus the shift is not above the second"; at most 1.

    Args:
        first, second: independent returns, in any order.
        bounds: (least, greatest) value of all returns; if they are equal, nothing is known, and the result is 1.
        shift: added to the first returns, at least 0.
    """
    low, high = bounds
    if not high > low or not (len(first) and len(second)):
        return 1.0
    lowest = low + shift
    if lowest >= high:
        return 0.0
    part = np.linspace(0, 1, _CELLS + 1)
    # In units of the part of the range in which the level can lie: between 0 and 1, or above.
    above = (np.asarray(first, np.float64) + shift - lowest) / (high - lowest)
    below = (high - np.asarray(second, np.float64)) / (high - lowest)
    # The first capital decreases with the level, the second one increases: within a cell, the first is least at the
    # upper end, the second at the lower end.
    product = _log_capital(above, part[1:]) + _log_capital(below, 1 - part[:-1])
    return float(np.exp(-max(product.min(), 0.0)))


def _log_capital(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Logarithm of the capital, starting at 1, of bets that values (at least 0) are above levels: float64 [levels]."""
    capital = np.zeros((len(_STAKES), len(levels)))
    for start in range(0, len(values), _BLOCK):
        ratios = np.divide.outer(values[start : start + _BLOCK], levels)
        for row, share in zip(capital, _STAKES):
            row += np.log1p(share * (ratios - 1)).sum(axis=0)
    return np.logaddexp.reduce(capital) - np.log(len(_STAKES))


def bounds_of(*values: Iterable[float]) -> tuple[float, float]:
    """The least and the greatest of all these values; (0, 0) without any."""
    together = [value for each in values for value in each]
    return (min(together), max(together)) if together else (0.0, 0.0)
