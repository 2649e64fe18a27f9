"""Sums over the steps of episodes of different lengths, all episodes at once.

Steps stand one after the other, episode after episode; `starts` [episodes + 1] has the first step of each episode and
the number of steps N.
"""

from collections.abc import Iterator

import numpy as np


def step_by_step(starts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Steps 0, 1, 2, ... of all episodes that have them: (indices of the episodes, rows of their steps)."""
    lengths = np.diff(starts)
    order = np.argsort(-lengths, kind="stable")
    firsts, descending = starts[:-1][order], -lengths[order]
    for step in range(int(lengths.max(initial=0))):
        count = np.searchsorted(descending, -step)  # episodes of more than `step` steps
        yield order[:count], firsts[:count] + step


def linear_sums(summands: np.ndarray, factors: np.ndarray, starts: np.ndarray, after: np.ndarray) -> np.ndarray:
    """x_t = summand_t + factor_t x_{t+1}, backwards through each episode from what comes after its last step.

    Args:
        summands, factors: [N].
        starts: as above.
        after: [episodes].

    Returns:
        float64 [N].
    """
    sums, present = np.empty(len(summands)), after.astype(np.float64)
    ends = starts[:1] + starts[-1] - starts[::-1]  # the same episodes, mirrored: their steps are counted from the end
    last_row, last_episode = starts[-1] - 1, len(starts) - 2
    for mirrored, places in step_by_step(ends):
        episodes, rows = last_episode - mirrored, last_row - places
        present[episodes] = summands[rows] + factors[rows] * present[episodes]
        sums[rows] = present[episodes]
    return sums
