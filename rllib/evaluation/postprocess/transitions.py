"""Rows for off-policy learning, made from a worker's fragments; a row needs no other row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rllib import sample_batch as sb
from rllib.env.streams.base import EnvironmentStream
from rllib.evaluation.postprocess.base import Postprocess
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.postprocess.td_errors import TDErrors
from rllib.policy import Policy
from rllib.sample_batch import Column, SampleBatch

# Columns that a row of n steps has of its last step.
OF_THE_END = (sb.NEXT_OBS, sb.TERMINATEDS, sb.TRUNCATEDS)


@dataclass(frozen=True)
class CostsOfSteps:
    """Costs that rows of n steps sum up in addition to the rewards.

    Args:
        column: the info column of costs.
        gamma: discount of costs per step.
    """

    column: str
    gamma: float


@dataclass(frozen=True)
class Transitions(Postprocess):
    """A postprocess that adds the next observations and discounts, and makes rows of n steps (see NStepRows).

    Args:
        shape, dtype: shape and dtype of one stored observation.
        gamma: discount per step.
        n_step: rewards that a row sums up, at most.
        td_errors: computes the column td_errors, so that new rows have a priority before any learner has seen them.
            None: without.
        costs: costs, whose discounts are the column cost_discounts; None: without.
    """

    shape: tuple[int, ...]
    dtype: str
    gamma: float
    n_step: int = 1
    td_errors: TDErrors | None = None
    costs: CostsOfSteps | None = None
    every_final_observation = True
    without_memory = (
        "a replay keeps single rows, without the states that they were acted upon in (R2D2's has sequences)"
    )

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns new_obs and discounts of one step, with costs cost_discounts as well."""
        own = Column(sb.NEXT_OBS, self.shape, self.dtype), Column(sb.DISCOUNTS)
        return own if self.costs is None else (*own, Column(sb.COST_DISCOUNTS))

    def __call__(self, fragment: Fragment, policy: Policy) -> None:
        """Fills them; new_obs is the true final observation at an episode's end."""
        following = fragment[sb.NEXT_OBS]
        np.copyto(following, fragment.observations[1:])
        for t, i, final in fragment.final_observations:
            following[t, i] = final
        for _, discounts, gamma in self.sums:
            np.multiply(~fragment[sb.TERMINATEDS], gamma, out=fragment[discounts], casting="unsafe")

    @property
    def sums(self) -> tuple[tuple[str, str, float], ...]:
        """Columns that a row sums up, each with the column of its discounts, and its discount per step."""
        own = ((sb.REWARDS, sb.DISCOUNTS, self.gamma),)
        return own if self.costs is None else (*own, (self.costs.column, sb.COST_DISCOUNTS, self.costs.gamma))

    def make_rows(self, stream: EnvironmentStream, rngs: Sequence[np.random.Generator]) -> "NStepRows":
        """Makes rows from the fragments of one worker.

        Args:
            stream: its environments.
            rngs: a generator for each environment, which samples of its rows draw from.
        """
        return NStepRows(self, len(rngs))


class NStepRows:
    """Rows of n steps from the fragments of one worker: reward r_t + gamma r_{t+1} + ..., and what followed the last.

    A row is complete after n steps or at the end of its episode, whichever comes first. Steps whose rows are not
    complete at the end of a fragment, n - 1 of each environment at most, are kept for the next fragment.

    Args:
        settings: n, gamma and what computes TD errors.
        num_envs: environments of the worker; where there are several agents, slots of a policy.
    """

    def __init__(self, settings: Transitions, num_envs: int):
        self._settings, self._num_envs = settings, num_envs
        # The last n - 1 steps, [<= n - 1, N, ...] by column, and which of them wait for their rows.
        self._kept: dict[str, np.ndarray] = {}
        # Rows that `cut` has completed: columns [K, ...] and the environment of each row.
        self._cut: list[tuple[dict[str, np.ndarray], np.ndarray]] = []

    def of(self, fragment: Fragment, policy: Policy, policy_version: int, has_gaps: bool) -> SampleBatch:
        """The rows that this fragment completes.

        Args:
            fragment: after the postprocess.
            policy: whose weights give the TD errors, if they are asked for.
            policy_version: version of these weights.
            has_gaps: see Fragment.to_batch.

        Returns:
            for n = 1 the rows in the order of `Fragment.to_batch`; else environment by environment, each in the order
            of its steps, which does not depend on how environments are shared out among workers.
        """
        if self._settings.n_step == 1:
            batch = fragment.to_batch(policy_version, has_gaps)
        else:
            batch = SampleBatch(self._completed(fragment), policy_version=policy_version)
        if self._settings.td_errors is not None:
            batch[sb.TD_ERRORS] = self._settings.td_errors(batch, policy)
        return batch

    def cut(self, environments: Sequence[int]) -> None:
        """Ends the episodes of these environments with the last step of the fragment before, as a truncation does.

        The rows that this completes come with the next fragment.
        """
        if not self._kept or not self._kept["waits"][:, environments].any():
            return
        steps, rest = dict(self._kept), dict(self._kept)
        is_cut = np.zeros(steps["waits"].shape[1], bool)
        is_cut[environments] = True
        steps["waits"], rest["waits"] = steps["waits"] & is_cut, steps["waits"] & ~is_cut
        steps[sb.TRUNCATEDS] = steps[sb.TRUNCATEDS].copy()
        steps[sb.TRUNCATEDS][-1] |= steps["waits"][-1]
        self._cut.append(self._windows(steps))
        self._kept = rest

    def take_over(self, other: "NStepRows", environments: np.ndarray) -> None:
        """Continues with the steps of the same episodes in other environments of a worker.

        Args:
            other: has their rows so far.
            environments: int64, environment of this object for each of the other's. Where two are the same, the
                episodes of both must have been cut.
        """
        self._cut += [(rows, environments[env]) for rows, env in other._cut]
        for name, column in other._kept.items():
            self._kept[name] = np.zeros((len(column), self._num_envs, *column.shape[2:]), column.dtype)
            self._kept[name][:, environments] = column

    def _completed(self, fragment: Fragment) -> dict[str, np.ndarray]:
        steps = {name: column[: fragment.num_steps] for name, column in fragment.columns.items()}
        steps["waits"] = np.ones(steps[sb.REWARDS].shape, bool) if fragment.valid is None else fragment.valid.copy()
        if self._kept:
            steps = {name: np.concatenate([self._kept[name], column]) for name, column in steps.items()}
            if fragment.starts is not None:
                steps = _moved_up(steps, len(self._kept["waits"]), fragment.starts)
        parts, self._cut = [*self._cut, self._windows(steps)], []
        if len(parts) == 1:
            return parts[0][0]
        order = np.argsort(np.concatenate([env for _, env in parts]), kind="stable")
        return {name: np.concatenate([rows[name] for rows, _ in parts])[order] for name in parts[-1][0]}

    def _windows(self, steps: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The rows whose windows are complete, and the environment of each; keeps the steps of the others.

        Args:
            steps: columns [T, N, ...], with the column "waits" of the steps whose rows are not made.
        """
        n_step, waits, ends = self._settings.n_step, steps["waits"], (steps[sb.TERMINATEDS], steps[sb.TRUNCATEDS])
        summed = {}
        for name, discounts, gamma in self._settings.sums:
            summed[name], summed[discounts], last = n_step_returns(steps[name], *ends, gamma, n_step, waits)
        # Of the last n - 1 steps, the windows that end with the fragment and not with an episode.
        is_open = waits[1 - n_step :] & (last[1 - n_step :] == len(last) - 1) & ~(ends[0] | ends[1])[-1]
        is_complete = waits.copy()
        is_complete[1 - n_step :] &= ~is_open
        waits[1 - n_step :] = is_open
        self._kept = {name: column[1 - n_step :].copy() for name, column in steps.items()}
        env, t = np.nonzero(is_complete.T)
        ends_at = last[t, env]
        names = [name for name in steps if name != "waits"]
        rows = {name: steps[name][ends_at if name in OF_THE_END else t, env] for name in names}
        return rows | {name: column[t, env].astype(np.float32) for name, column in summed.items()}, env


def _moved_up(steps: dict[str, np.ndarray], num_kept: int, starts: np.ndarray) -> dict[str, np.ndarray]:
    """The steps with the kept ones of each slot moved up to its first row of the fragment.

    Args:
        steps: columns [num_kept + T, N, ...]: kept steps of earlier fragments, then the T of this one.
        num_kept: number of kept steps.
        starts: int64 [N], first row of each slot in the fragment.
    """
    t = np.arange(len(steps["waits"]))[:, None]
    source = np.where(t < num_kept + starts, np.maximum(t - starts, 0), t)
    moved = {name: column[source, np.arange(len(starts))] for name, column in steps.items()}
    moved["waits"] &= t >= starts
    return moved


def n_step_returns(
    rewards: np.ndarray,
    terminateds: np.ndarray,
    truncateds: np.ndarray,
    gamma: float,
    n_step: int,
    valid: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """R_t = r_t + gamma r_{t+1} + ... over k <= n steps: to n, the episode's end, or the end of the fragment.

    Every step starts one window, so an episode's last n - 1 steps have shorter ones. A truncated window is
    bootstrapped from the final observation like any other, with gamma^k.

    Args:
        rewards: [T, N] received after action t.
        terminateds, truncateds: [T, N] bool; windows end at either.
        gamma: discount per step.
        n_step: n, at least 1.
        valid: [T, N] bool, False for rows that are no transitions: no window enters them. None when all are.

    Returns:
        returns: [T, N] float64.
        discounts: [T, N] float64, gamma^k, and 0 where the window ends in termination: the factor of the bootstrap.
        last: [T, N] int64, the step each window ends with: the bootstrap is from what followed it.

    Raises:
        ValueError: if the shapes differ, or n_step is below 1.
    """
    if n_step < 1:
        raise ValueError(f"n_step={n_step} must be at least 1")
    if not rewards.shape == terminateds.shape == truncateds.shape:
        shapes = rewards.shape, terminateds.shape, truncateds.shape
        raise ValueError(f"rewards and flags must have the same shape [T, N], but got {shapes}")
    num_steps = len(rewards)
    goes_on = ~(terminateds | truncateds)[:-1]  # [T - 1]: from step t to t + 1
    if valid is not None:
        goes_on &= valid[1:]
    returns = rewards.astype(np.float64)
    lengths = np.ones(rewards.shape, np.int64)
    open_ = np.ones(rewards.shape, bool)
    for k in range(1, min(n_step, num_steps)):
        open_ = open_[: num_steps - k] & goes_on[k - 1 :]
        returns[: num_steps - k] += gamma**k * rewards[k:] * open_
        lengths[: num_steps - k] += open_
    last = np.arange(num_steps)[:, None] + lengths - 1
    discounts = gamma ** np.arange(n_step + 1.0)
    discounts = discounts[lengths] * ~terminateds[last, np.arange(terminateds.shape[1])]
    return returns, discounts, last
