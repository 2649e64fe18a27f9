"""Returns and lengths of episodes, computed from the environments' raw rewards."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Episode:
    """One finished episode: its undiscounted return, its length in steps, and the index of its environment.

    Where the loss of a life ends an episode, this is the whole game. custom_metrics, hist_data and media hold what
    callbacks have put into the running episode (evaluation/episode_hooks.py); custom_metrics has a game's lives, too:
    life_reward and life_len.

    episode_cost is its undiscounted cost, where the environment gives costs (cost_column), else None.

    Where several agents act, episode_return is the sum over them, and agent_returns and agent_lengths have the return
    and the number of steps of each (agent id, policy id). Both are empty where there is one agent.

    The last episode of a worker's part of an evaluation brings what hooks have logged in all of them.
    """

    episode_return: float
    length: int
    env_index: int = 0
    custom_metrics: dict[str, float | list[float]] = field(default_factory=dict)
    hist_data: dict[str, list[float]] = field(default_factory=dict)
    media: dict[str, Any] = field(default_factory=dict)
    agent_returns: dict[tuple[str, str], float] = field(default_factory=dict)
    agent_lengths: dict[tuple[str, str], int] = field(default_factory=dict)
    logged: list = field(default_factory=list)
    episode_cost: float | None = None


class EpisodeTracker:
    """Tracks the running episode of each of N environments across fragments.

    It must be given the rewards before any clipping or scaling: reported returns are the task's.
    """

    def __init__(self, num_envs: int):
        self._returns = np.zeros(num_envs, np.float64)
        self._lengths = np.zeros(num_envs, np.int64)
        self._costs = np.zeros(num_envs, np.float64)
        self._finished: list[Episode] = []
        # (return, length) of each running game when it lost a life.
        self._lives: list[list[tuple[float, int]]] = [[] for _ in range(num_envs)]

    def add_fragment(
        self,
        rewards: np.ndarray,
        ended: np.ndarray,
        valid: np.ndarray | None = None,
        void: Sequence[tuple[int, int]] = (),
        lives_lost: Sequence[tuple[int, int]] = (),
        costs: np.ndarray | None = None,
    ) -> None:
        """Counts T steps of every environment.

        Args:
            rewards: [T, N] raw rewards; 0 where not valid.
            ended: [T, N] bool, terminated or truncated with this step.
            valid: [T, N] bool, False in rows that were no steps (`EnvironmentStream.reset_rows`), or None.
            void: (t, i) where environment i failed in step t: its episode is not counted.
            lives_lost: (t, i) where a life ends, and the game continues.
            costs: [T, N]; 0 where not valid. None: there are none.

        Raises:
            ValueError: if a shape is not [T, N].
        """
        shapes = {np.shape(column) for column in (rewards, ended, valid, costs) if column is not None}
        if len(shapes) != 1 or rewards.ndim != 2 or rewards.shape[1] != len(self._returns):
            raise ValueError(f"columns of shape [T, {len(self._returns)}] are needed, but got {sorted(shapes)}")
        if valid is None and costs is None and not void and not ended.any():  # most fragments of a few steps
            self._returns += rewards.sum(axis=0, dtype=np.float64)
            self._lengths += len(rewards)
            return
        starts = np.zeros(len(self._returns), np.int64)  # first row of the running episode
        ends = [(t, index, True) for t, index in zip(*(positions.tolist() for positions in np.nonzero(ended)))]
        if void:
            ends = sorted(ends + [(t, index, False) for t, index in void])
        for t, index, is_whole in ends:
            rows = slice(starts[index], t + 1)
            self._returns[index] += rewards[rows, index].sum(dtype=np.float64)
            self._lengths[index] += t + 1 - starts[index] if valid is None else valid[rows, index].sum()
            if costs is not None:
                self._costs[index] += costs[rows, index].sum(dtype=np.float64)
            starts[index] = t + 1
            if is_whole:
                so_far = float(self._returns[index]), int(self._lengths[index])
                self._lives[index].append(so_far)
                if (t, index) in lives_lost:
                    continue
                cost = None if costs is None else float(self._costs[index])
                self._finished.append(Episode(*so_far, index, _of_lives(self._lives[index]), episode_cost=cost))
            self._forget(index)
        running = np.arange(len(rewards))[:, None] >= starts
        self._returns += (rewards * running).sum(axis=0, dtype=np.float64)
        self._lengths += (running if valid is None else running & valid).sum(axis=0)
        if costs is not None:
            self._costs += (costs * running).sum(axis=0, dtype=np.float64)

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
        for index in range(len(self._returns)):
            self._forget(index)

    def _forget(self, index: int) -> None:
        self._returns[index], self._lengths[index], self._lives[index] = 0.0, 0, []
        self._costs[index] = 0.0


def _of_lives(totals: list[tuple[float, int]]) -> dict[str, list[float]]:
    """Return and length of each of several lives, of what the game had summed up to at the end of each."""
    if len(totals) == 1:
        return {}
    rewards, lengths = (np.diff(column, prepend=0).tolist() for column in zip(*totals))
    return {"life_reward": rewards, "life_len": lengths}
