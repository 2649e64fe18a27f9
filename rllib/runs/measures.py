"""Measures that compare algorithms over few runs, with bootstrap intervals (Agarwal et al., arXiv:2108.13264).

The scores of an algorithm are one array [N] float64 for each task, its N runs there; tasks may have different numbers
of runs. Scores of several tasks must be on one scale before they are averaged (the paper's normalised scores).

Whether two algorithms differ is asked of a permutation test. Colas et al., arXiv:1904.06979, recommend Welch's t-test,
which presumes normal scores; the permutation of its statistic (Chung and Romano, arXiv:1304.5939) has the level that it
states for any distribution, with two runs too, if the algorithms are equal.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

Scores = Sequence[np.ndarray]
RESAMPLES = 2000
# Divisions of the runs that are all tried; of more, some are drawn.
_MOST_DIVISIONS, _DRAWN_DIVISIONS = 200_000, 20_000
# Rounding of standardised scores.
_ROUNDING = 1e-9


def iqm(values: np.ndarray) -> np.ndarray:
    """Interquartile mean along the first axis: the mean without the lowest and highest quarter, rounded down.

    Args:
        values: [N, ...] float64.
    """
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


def interval(values: np.ndarray, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Percentile bootstrap interval of the IQM over the first axis, runs drawn with replacement.

    Args:
        values: [N, P] float64, N runs at P points.

    Returns:
        [2, P]: low and high.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(values), size=(len(values), resamples))
    return np.stack([np.percentile(iqm(column[drawn]), _tails(confidence)) for column in values.T], axis=1)


def _tails(confidence: float) -> list[float]:
    return [50 * (1 - confidence), 50 * (1 + confidence)]


def iqm_of_scores(scores: Scores) -> float:
    """Interquartile mean of the scores of all runs and tasks together (section 4.3)."""
    return float(iqm(np.concatenate(scores)))


def mean_of_scores(scores: Scores) -> float:
    """Mean over tasks of the mean over runs."""
    return float(np.mean([task.mean() for task in scores]))


def median_of_scores(scores: Scores) -> float:
    """Median over tasks of the mean over runs."""
    return float(np.median([task.mean() for task in scores]))


def probability_of_improvement(scores: Scores, others: Scores) -> float:
    """Probability that a run scores higher than a run of another algorithm, averaged over tasks (section 4.3).

    For each task it is the Mann-Whitney statistic U / (N K) of N runs against K: ties count one half.

    Raises:
        ValueError: if the numbers of tasks differ.
    """
    if len(scores) != len(others):
        raise ValueError(f"both algorithms need scores of the same tasks, but got {len(scores)} and {len(others)}")
    signs = [np.sign(task[:, None] - other[None, :]).mean() for task, other in zip(scores, others)]
    return float(0.5 + 0.5 * np.mean(signs))


def performance_profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """Share of runs above each threshold, averaged over tasks (eq. 1: the score distribution).

    Args:
        thresholds: [P] float64.

    Returns:
        [P] float64 in [0, 1].
    """
    return np.mean([(task[:, None] > thresholds[None, :]).mean(axis=0) for task in scores], axis=0)


def stratified_interval(
    measure: Callable[..., float | np.ndarray],
    *scores: Scores,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile bootstrap interval of a measure: runs are drawn with replacement within each task (section 4.1).

    Args:
        measure: function of as many Scores as are given, whose value is a number or an array [P].

    Returns:
        low and high, of the shape of the measure's value.
    """
    rng = np.random.default_rng(seed)
    values = [
        measure(*([task[rng.integers(len(task), size=len(task))] for task in each] for each in scores))
        for _ in range(resamples)
    ]
    low, high = np.percentile(values, _tails(confidence), axis=0)
    return low, high


def standardised_difference(scores: Scores, others: Scores) -> float:
    """Difference of the means in standard deviations, averaged over tasks: Hedges' g, Cohen's d without its bias.

    The standard deviation is pooled over both; the bias of d with few runs is removed by 1 - 3 / (4 df - 1), df = N + K
    - 2 (Hedges 1981, eq. 6e).

    Returns:
        inf or -inf where runs of different means have no spread; NaN with one run of each.
    """
    return float(np.mean([_hedges_g(task, other) for task, other in zip(scores, others)]))


def _hedges_g(scores: np.ndarray, others: np.ndarray) -> float:
    freedom = len(scores) + len(others) - 2
    difference = scores.mean() - others.mean()
    if not freedom:
        return math.nan
    spread = math.sqrt((((scores - scores.mean()) ** 2).sum() + ((others - others.mean()) ** 2).sum()) / freedom)
    if not spread:
        return math.copysign(math.inf, difference) if difference else 0.0
    return difference / spread * (1 - 3 / (4 * freedom - 1))


def permutation_p_value(scores: Scores, others: Scores, seed: int = 0) -> float:
    """Two-sided p-value of the hypothesis that the scores of both algorithms have one distribution on each task.

    The runs of each task are divided again in all ways, or in 20,000 drawn ones where there are more than 200,000, into
    as many as there are of each algorithm. The p-value is the share of divisions whose statistic is at least as far
    from 0 as that of the runs as they are. The statistic is Welch's: the sum over tasks of the differences of the
    means, over its standard error. Scores of a task are first divided by their standard deviation over both.

    Returns:
        the p-value; NaN if an algorithm has one run on a task.
    """
    if any(len(task) < 2 for task in (*scores, *others)):
        return math.nan
    pairs = list(zip(scores, others))
    if math.prod(_num_divisions(task, other) for task, other in pairs) <= _MOST_DIVISIONS:
        found = [_of_divisions(task, other, _all_divisions(len(task), len(other))) for task, other in pairs]
        differences = _sums([difference for difference, _ in found])
        variances = _sums([variance for _, variance in found])
    else:
        rng = np.random.default_rng(seed)
        found = [_of_divisions(task, other, _drawn_divisions(len(task), len(other), rng)) for task, other in pairs]
        differences, variances = (np.sum(parts, axis=0) for parts in zip(*found))
    # The first division is that of the runs as they are, also among drawn ones (Phipson and Smyth, arXiv:1603.05766).
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = np.abs(np.where(np.abs(differences) < _ROUNDING, 0.0, differences / np.sqrt(variances)))
    return float(np.mean(sizes >= sizes[0] * (1 - _ROUNDING)))


def least_p_value(scores: Scores, others: Scores) -> float:
    """The smallest value that `permutation_p_value` can have for these numbers of runs."""
    # With equal numbers, exchanging both algorithms gives the same size.
    mirrored = all(len(task) == len(other) for task, other in zip(scores, others))
    return (1 + mirrored) / math.prod(_num_divisions(task, other) for task, other in zip(scores, others))


def corrected(p_values: Sequence[float]) -> list[float]:
    """The p-values of several comparisons, corrected so that all together keep the level (Holm 1979). NaN stays."""
    order = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    raised, adjusted = 0.0, list(p_values)
    for rank, (p, index) in enumerate(order):
        raised = max(raised, min(1.0, (len(order) - rank) * p))
        adjusted[index] = raised
    return adjusted


def _num_divisions(task: np.ndarray, other: np.ndarray) -> int:
    return math.comb(len(task) + len(other), len(task))


def _all_divisions(count: int, others: int) -> np.ndarray:
    """[D, N + K] float64: 1 for the runs of the first algorithm in each division; at first those as they are."""
    chosen = np.array(list(itertools.combinations(range(count + others), count)))
    divisions = np.zeros((len(chosen), count + others))
    np.put_along_axis(divisions, chosen, 1.0, axis=1)
    return divisions


def _drawn_divisions(count: int, others: int, rng: np.random.Generator) -> np.ndarray:
    """The same of drawn divisions."""
    as_they_are = np.repeat([1.0, 0.0], [count, others])
    drawn = rng.permuted(np.tile(as_they_are, (_DRAWN_DIVISIONS, 1)), axis=1)
    return np.concatenate([as_they_are[None], drawn])


def _of_divisions(task: np.ndarray, other: np.ndarray, divisions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Difference of the means, and its variance, of each division: [D] float64 each."""
    values = np.concatenate([task, other])
    spread = values.std()
    values = (values - values.mean()) / spread if spread else np.zeros_like(values)
    parts = [(divisions, len(task)), (1 - divisions, len(other))]
    (own, own_variance), (rest, rest_variance) = (_mean_and_variance(values, part, count) for part, count in parts)
    return own - rest, own_variance + rest_variance


def _mean_and_variance(values: np.ndarray, part: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the runs in a part of each division, and the variance of that mean."""
    mean = part @ values / count
    variance = (part @ values**2 / count - mean**2) / (count - 1)
    return mean, np.where(variance < _ROUNDING, 0.0, variance)


def _sums(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The sum of one number of each part, in all combinations; at first that of their first numbers."""
    total = np.zeros(1)
    for part in parts:
        total = np.add.outer(total, part).ravel()
    return total
