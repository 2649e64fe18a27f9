"""Coefficients of directions in the gradient, from the returns of antithetic pairs.

n pairs: returns[k] = (f(theta + sigma * eps_k), f(theta - sigma * eps_k)). The gradient to ascend is
sum_k coefficients[k] * eps_k.
"""

import numpy as np


def centred_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks among all values, scaled to [-0.5, 0.5]; equal values get the mean of their ranks.

    Args:
        values: any shape, at least two numbers; all of them are ranked together.

    Returns:
        float64 of the same shape, with sum 0.

    Raises:
        ValueError: for fewer than two values, or one that is not finite.
    """
    if values.size < 2 or not np.isfinite(values).all():
        raise ValueError(f"at least two finite numbers are needed for ranks, but got {values!r}")
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts + 1) / 2
    return (ranks / (values.size - 1) - 0.5)[place].reshape(values.shape)


def es_coefficients(shaped: np.ndarray, noise_stdev: float) -> np.ndarray:
    """The antithetic estimator of evolution strategies (arXiv:1703.03864, algorithm 2).

    Args:
        shaped: [n, 2] returns, or shaped returns such as ranks.
        noise_stdev: sigma.

    Returns:
        float64 [n], (f+ - f-) / (2 n sigma). For a linear f and directions with sum(eps eps^T) = n I, the gradient is
        exact.

    Raises:
        ValueError: if the shape differs.
    """
    _check(shaped)
    return (shaped[:, 0] - shaped[:, 1]) / (2 * len(shaped) * noise_stdev)


def ars_coefficients(returns: np.ndarray, num_used: int) -> np.ndarray:
    """Augmented random search (arXiv:1803.07055, algorithm 2, lines 6 and 7).

    Args:
        returns: [n, 2].
        num_used: b, number of directions that count: those with the largest max(r+, r-).

    Returns:
        float64 [n], (r+ - r-) / (b * std of the 2b used returns), 0 for directions that are not used; zeros where all
        used returns are equal.

    Raises:
        ValueError: if the shape differs, or num_used is not 1 ... n.
    """
    _check(returns)
    if not 1 <= num_used <= len(returns):
        raise ValueError(f"of {len(returns)} directions, 1 to {len(returns)} can be used, but got {num_used}")
    used = np.argsort(-returns.max(1), kind="stable")[:num_used]
    spread = returns[used].std()
    coefficients = np.zeros(len(returns))
    if spread > 0:
        coefficients[used] = (returns[used, 0] - returns[used, 1]) / (num_used * spread)
    return coefficients


def _check(returns: np.ndarray) -> None:
    if returns.ndim != 2 or returns.shape[1] != 2 or not len(returns):
        raise ValueError(f"returns of pairs have the shape [n, 2], but got {list(returns.shape)}")
