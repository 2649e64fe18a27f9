"""What a worker adds to a fragment for off-policy learning: the observation that followed each action."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rllib import sample_batch as sb
from rllib.evaluation.fragment import Fragment
from rllib.losses.loss import Loss
from rllib.losses.td import q_targets
from rllib.policy import CHUNK, Policy
from rllib.replay.n_step import n_step_returns
from rllib.sample_batch import Column


@dataclass(frozen=True)
class Transitions:
    """Adds the column new_obs, with the true final observation at an episode's end.

    Args:
        shape, dtype: of one stored observation.
    """

    shape: tuple[int, ...]
    dtype: str
    every_final_observation = True

    @property
    def columns(self) -> tuple[Column, ...]:
        """The column new_obs."""
        return (Column(sb.NEXT_OBS, self.shape, self.dtype),)

    def __call__(self, fragment: Fragment, policy: Policy) -> None:
        """Fills it."""
        following = fragment[sb.NEXT_OBS]
        np.copyto(following, fragment.observations[1:])
        for t, i, final in fragment.final_observations:
            following[t, i] = final


@dataclass(frozen=True)
class LockstepTransitions(Transitions):
    """Keeps rows that are no transitions, so that batches are whole steps of all environments: loss_mask tells them."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns new_obs and loss_mask."""
        return (*super().columns, Column(sb.LOSS_MASK, (), "bool"))

    def __call__(self, fragment: Fragment, policy: Policy) -> None:
        """Fills them."""
        super().__call__(fragment, policy)
        fragment[sb.LOSS_MASK][:] = True if fragment.valid is None else fragment.valid


@dataclass(frozen=True)
class NStepTransitions(Transitions):
    """Makes of each step a row that needs no other: rewards become returns of n steps, new_obs what followed those.

    Adds the columns discounts and td_errors: what the worker's own weights, choosing and judging, make of the row, in
    the terms of the loss. So new rows have a priority before any learner has seen them (arXiv:1803.00933). Windows do
    not go on into the next fragment: the last n - 1 rows of one are bootstrapped after fewer steps.

    Args:
        n_step, gamma: see n_step_returns.
        loss: of the learner; its row statistic td_error is what a priority comes from.
    """

    n_step: int
    gamma: float
    loss: Loss

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns new_obs, discounts and td_errors."""
        return (*super().columns, Column(sb.DISCOUNTS, (), "float32"), Column(sb.TD_ERRORS, (), "float32"))

    def __call__(self, fragment: Fragment, policy: Policy) -> None:
        """Fills them, and changes the rewards."""
        super().__call__(fragment, policy)
        rewards, following = fragment[sb.REWARDS], fragment[sb.NEXT_OBS]
        ends = fragment[sb.TERMINATEDS], fragment[sb.TRUNCATEDS]
        rewards[:], fragment[sb.DISCOUNTS][:], last = n_step_returns(
            rewards, *ends, self.gamma, self.n_step, fragment.valid
        )
        following[:] = following[last, np.arange(fragment.num_envs)]
        names = sb.OBS, sb.ACTIONS, sb.REWARDS, sb.NEXT_OBS, sb.DISCOUNTS
        columns = {name: fragment[name][: fragment.num_steps] for name in names}
        rows = {name: column.reshape(-1, *column.shape[2:]) for name, column in columns.items()}
        errors = fragment[sb.TD_ERRORS].reshape(-1)
        for start in range(0, len(errors), CHUNK):
            chunk = slice(start, start + CHUNK)
            errors[chunk] = self._td_errors({name: column[chunk] for name, column in rows.items()}, policy)

    def _td_errors(self, rows: Mapping[str, np.ndarray], policy: Policy) -> np.ndarray:
        judged = policy.action_values(rows[sb.NEXT_OBS])
        name, targets = q_targets(policy.distribution, judged, judged.q_values(), rows[sb.REWARDS], rows[sb.DISCOUNTS])
        outputs = policy.network.forward(policy.encode(rows[sb.OBS]))[0], None
        minibatch = {name: targets, sb.ACTIONS: rows[sb.ACTIONS], sb.WEIGHTS: np.ones(len(targets), np.float32)}
        _, _, (errors,) = self.loss.numpy(policy.distribution, outputs, minibatch)
        return errors
