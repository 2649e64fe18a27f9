"""Rewards divided by the standard deviation of the discounted return, as OpenAI baselines' VecNormalize does.

    G_t = gamma G_{t-1} + r_t (0 before an episode);  r_t is learned from as clip(r_t / sqrt(Var(G) + 1e-8))

The returns are counted as observation filters count observations (models/observations/filters.py): a worker scales by
the last statistics that it received and counts its own returns in a delta, which the driver merges. So the statistics
stand still within a fragment, where VecNormalize's move with every step, and all workers of an iteration scale alike.
Rewards are scaled where they are collected: episode statistics and evaluation are of the environment's own.
"""

from collections.abc import Mapping

import numpy as np

from rllib.models.observations.filters import RunningMoments, merge_rows, rows_of

EPSILON = 1e-8


class ReturnScale:
    """The scale of the rewards, from the spread of the discounted returns of N environments.

    Args:
        gamma: discount per step.
        clip: scaled rewards stay within +- this; None leaves them as they are.
        num_envs: environments of the worker; the driver, which merges alone, needs none.
    """

    def __init__(self, gamma: float, clip: float | None = 10.0, num_envs: int = 0):
        self.gamma, self.clip = gamma, clip
        self._merged = RunningMoments(1)
        # Each environment is counted on its own, so that the merged bits do not depend on which worker it is in.
        self._deltas = [RunningMoments(1) for _ in range(num_envs)]
        self._running = np.zeros(num_envs)

    def apply(
        self,
        rewards: np.ndarray,
        ended: np.ndarray,
        valid: np.ndarray | None = None,
        starts: np.ndarray | None = None,
    ) -> None:
        """Counts the returns of a fragment and scales its rewards in place.

        Before the first merge, each environment's rewards are scaled by its returns so far.

        Args:
            rewards: float32 [T, N], raw rewards; scaled in place.
            ended: bool [T, N], whether an episode ends with the step.
            valid: bool [T, N], False for rows that are no transitions; None: all are.
            starts: int64 [N], first row of each slot, see Fragment; None: 0.
        """
        returns = np.empty(rewards.shape)
        running, goes_on = self._running, ~ended if valid is None else valid & ~ended
        for t, reward in enumerate(rewards):
            returns[t] = self.gamma * running + reward
            running[:] = np.where(goes_on[t], returns[t], 0 if starts is None else running * (t < starts))
        for i, delta in enumerate(self._deltas):
            column = returns[:, i, None]
            delta.add(column if valid is None else column[valid[:, i]])
        counted = [self._merged] if self._merged.count else self._deltas
        variance = np.concatenate([each.variance for each in counted])
        scaled = rewards / np.sqrt(variance + EPSILON)
        if self.clip is not None:
            np.clip(scaled, -self.clip, self.clip, out=scaled)
        rewards[:] = scaled

    def start_over(self) -> None:
        """Begins new episodes in all environments."""
        self._running[:] = 0

    @property
    def variance(self) -> float:
        """Merged population variance of the discounted returns."""
        return float(self._merged.variance[0])

    def pop_delta(self) -> dict[str, np.ndarray]:
        """The delta since the last call, for `merge` in the driver, a row for each environment; a new one begins."""
        delta = rows_of(self._deltas)
        self._deltas = [RunningMoments(1) for _ in self._deltas]
        return delta

    def merge(self, delta: Mapping[str, np.ndarray]) -> None:
        """Counts the returns of a worker's delta."""
        merge_rows(self._merged, delta)

    def get_state(self) -> dict[str, np.ndarray]:
        """The merged statistics: count, mean and m2."""
        return self._merged.get_state()

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Replaces the merged statistics; the delta stays."""
        self._merged.set_state(state)
