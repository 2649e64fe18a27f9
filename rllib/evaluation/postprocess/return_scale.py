"""Rewards divided by the standard deviation of the discounted return, as OpenAI baselines' VecNormalize does.

    G_t = gamma G_{t-1} + r_t (0 before an episode);  r_t is learned from as clip(r_t / sqrt(Var(G) + 1e-8))

The returns are counted as observation filters count observations (models/observations/filters.py): a worker scales by
the last statistics that it received and counts its own returns in a delta, which the driver merges. So the statistics
stand still within a fragment, where VecNormalize's move with every step, and all workers of an iteration scale alike.
Rewards are scaled where they are collected: episode statistics and evaluation are of the environment's own.

A replay outlives the statistics of its time. There workers count alone (`ReturnRange`), and rewards are divided when
they are learned from, as SimbaV2 does (Lee et al., arXiv:2502.15280, section 4.3).
"""

from collections.abc import Mapping, Sequence

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
        self._count(rewards, ended, valid, starts)
        counted = [self._merged] if self._merged.count else self._deltas
        variance = np.concatenate([each.variance for each in counted])
        scaled = rewards / np.sqrt(variance + EPSILON)
        if self.clip is not None:
            np.clip(scaled, -self.clip, self.clip, out=scaled)
        rewards[:] = scaled

    def _count(
        self, rewards: np.ndarray, ended: np.ndarray, valid: np.ndarray | None, starts: np.ndarray | None
    ) -> np.ndarray:
        """Counts the returns of a fragment; returns them, [T, N], with arguments as for `apply`."""
        returns = np.empty(rewards.shape)
        running, goes_on = self._running, ~ended if valid is None else valid & ~ended
        for t, reward in enumerate(rewards):
            returns[t] = self.gamma * running + reward
            running[:] = np.where(goes_on[t], returns[t], 0 if starts is None else running * (t < starts))
        for i, delta in enumerate(self._deltas):
            column = returns[:, i, None]
            delta.add(column if valid is None else column[valid[:, i]])
        return returns

    def start_over(self) -> None:
        """Begins new episodes in all environments."""
        self._running[:] = 0

    def cut(self, environments: Sequence[int]) -> None:
        """Begins new episodes in these environments."""
        self._running[environments] = 0

    def take_over(self, other: "ReturnScale", environments: np.ndarray) -> None:
        """Continues with the statistics and running returns of another one.

        Args:
            other: of the same kind.
            environments: int64, environment of this object for each of the other's.
        """
        self.set_state(other.get_state())
        self._running[environments] = other._running

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


class ReturnRange(ReturnScale):
    """Statistics of the discounted returns, by which rewards are divided when they are learned from.

    Args:
        gamma, num_envs: as for ReturnScale.

    Attributes:
        largest: largest absolute discounted return of the merged statistics.
    """

    def __init__(self, gamma: float, num_envs: int = 0):
        super().__init__(gamma, None, num_envs)
        self.largest = self._newest = 0.0

    def apply(
        self,
        rewards: np.ndarray,
        ended: np.ndarray,
        valid: np.ndarray | None = None,
        starts: np.ndarray | None = None,
    ) -> None:
        """Counts the returns of a fragment; rewards stay as they are. Arguments as for ReturnScale."""
        returns = np.abs(self._count(rewards, ended, valid, starts))
        self._newest = max(self._newest, float(returns.max(initial=0, where=True if valid is None else valid)))

    def divisor(self, bound: float) -> float:
        """Number that rewards are divided by, so that returns have the variance 1 or less and stay within +-bound.

        Max of sqrt(Var(G) + 1e-8) and max |G| / bound. While all returns are 0 it is 1: they say nothing about the
        scale of other rewards, such as those of loaded rows.
        """
        if not self.largest:
            return 1.0
        return max(float(np.sqrt(self.variance + EPSILON)), self.largest / bound)

    def pop_delta(self) -> dict[str, np.ndarray]:
        delta, self._newest = {**super().pop_delta(), "largest": np.array(self._newest)}, 0.0
        return delta

    def merge(self, delta: Mapping[str, np.ndarray]) -> None:
        super().merge(delta)
        self.largest = max(self.largest, float(delta["largest"]))

    def get_state(self) -> dict[str, np.ndarray]:
        """The merged statistics: count, mean, m2 and largest."""
        return {**super().get_state(), "largest": np.array(self.largest)}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().set_state(state)
        # Those of a ReturnScale, of a run with normalize_returns, have no largest one: it is no less than their root
        # mean square.
        of_all = np.sqrt(state["mean"] ** 2 + state["m2"] / np.maximum(state["count"], 1))
        self.largest = float(state.get("largest", of_all.max()))
