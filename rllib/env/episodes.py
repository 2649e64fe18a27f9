"""Returns and lengths of episodes, computed from the environments' raw rewards."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Episode:
    """One finished episode: its undiscounted return, its length in steps, and which of the environments ran it.

    The last three hold what callbacks have put into the running episode (evaluation/episode_hooks.py).
    """

    episode_return: float
    length: int
    env_index: int = 0
    custom_metrics: dict[str, float | list[float]] = field(default_factory=dict)
    hist_data: dict[str, list[float]] = field(default_factory=dict)
    media: dict[str, Any] = field(default_factory=dict)


class EpisodeTracker:
    """Tracks the running episode of each of N environments across fragments.

    It must be given the rewards before any clipping or scaling: reported returns are those of the task.
    """

    def __init__(self, num_envs: int):
        self._returns = np.zeros(num_envs, np.float64)
        self._lengths = np.zeros(num_envs, np.int64)
        self._finished: list[Episode] = []

    def add_fragment(
        self,
        rewards: np.ndarray,
        ended: np.ndarray,
        valid: np.ndarray | None = None,
        void: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Counts T steps of every environment.

        Args:
            rewards: [T, N] raw rewards; 0 where not valid.
            ended: [T, N] bool, terminated or truncated with this step.
            valid: [T, N] bool, False in rows that were no steps (`EnvironmentStream.reset_rows`), or None.
            void: (t, i) where environment i failed in step t: the episode that it was in is not counted.

        Raises:
            ValueError: if a shape is not [T, N].
        """
        shapes = {np.shape(column) for column in (rewards, ended, valid) if column is not None}
        if len(shapes) != 1 or rewards.ndim != 2 or rewards.shape[1] != len(self._returns):
            raise ValueError(f"columns of shape [T, {len(self._returns)}] are needed, but got {sorted(shapes)}")
        starts = np.zeros(len(self._returns), np.int64)  # first row of the running episode
        ends = [(t, index, True) for t, index in zip(*(positions.tolist() for positions in np.nonzero(ended)))]
        if void:
            ends = sorted(ends + [(t, index, False) for t, index in void])
        for t, index, is_whole in ends:
            rows = slice(starts[index], t + 1)
            self._returns[index] += rewards[rows, index].sum(dtype=np.float64)
            self._lengths[index] += t + 1 - starts[index] if valid is None else valid[rows, index].sum()
            if is_whole:
                self._finished.append(Episode(float(self._returns[index]), int(self._lengths[index]), index))
            self._returns[index], self._lengths[index], starts[index] = 0.0, 0, t + 1
        running = np.arange(len(rewards))[:, None] >= starts
        self._returns += (rewards * running).sum(axis=0, dtype=np.float64)
        self._lengths += (running if valid is None else running & valid).sum(axis=0)

    def pop_finished(self) -> list[Episode]:
        """The episodes that have ended since the last call, in the order of their ends."""
        finished, self._finished = self._finished, []
        return finished

    @property
    def longest_running(self) -> int:
        """Steps of the longest episode that has not ended."""
        return int(self._lengths.max())

    def reset(self) -> None:
        """Drops the running episodes; to be called after the environments have been reset."""
        self._returns[:] = 0.0
        self._lengths[:] = 0
