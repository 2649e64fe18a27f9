"""Measures that compare algorithms over few runs, with bootstrap intervals (Agarwal et al., arXiv:2108.13264).

The scores of an algorithm are one array [N] float64 for each task, its N runs there; tasks may have different numbers
of runs. Scores of several tasks must be on one scale before they are averaged (the paper's normalised scores).
"""

from collections.abc import Callable, Sequence

import numpy as np

Scores = Sequence[np.ndarray]
RESAMPLES = 2000


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
