"""Rows of recorded steps, with the columns that a worker's would have (sample_batch.py)."""

from typing import Protocol

import numpy as np
from gymnasium import spaces

from rllib import sample_batch as sb
from rllib.env.spaces.actions import action_mapper
from rllib.evaluation.offline.episode_sums import linear_sums
from rllib.evaluation.postprocess.transitions import n_step_returns
from rllib.models.observations.flat_spaces import flat_leaves, parts
from rllib.models.observations.masks import parts_of_mask
from rllib.offline.dataset import Dataset
from rllib.policy import Policy

# Observations that pass a network or a filter at once.
_ROWS_AT_ONCE = 1 << 14


class Conversions(Protocol):
    """The settings by which actions of the environment and of the policy differ; see ActionMapper."""

    normalize_actions: bool
    clip_actions: bool


def observations(dataset: Dataset, policy: Policy, name: str = sb.OBS) -> np.ndarray:
    """A column of observations as the policy's batches store them: filtered, if it has a filter."""
    column = dataset.columns[name]
    if not policy.filters_observations:
        return column
    filtered = np.empty(column.shape, np.float32)
    for first in range(0, len(column), _ROWS_AT_ONCE):
        some = slice(first, first + _ROWS_AT_ONCE)
        policy.filter(column[some], out=filtered[some])
    return filtered


def actions(dataset: Dataset, policy: Policy, conversions: Conversions) -> np.ndarray:
    """The recorded actions in the policy's units and form, [rows, *policy.action_shape].

    Raises:
        ValueError: if there are none, or one is illegal.
    """
    if sb.ACTIONS not in dataset.columns:
        raise ValueError(f"{dataset.source} was read without actions (reads_actions=False), and they are needed here.")
    space, recorded = dataset.action_space, dataset.columns[sb.ACTIONS]
    mapper = action_mapper(space, policy.distribution, conversions.normalize_actions, conversions.clip_actions)
    given = recorded if parts(space) is None else _structured(space, recorded)
    stored = np.asarray(mapper.to_policy(given))
    stored = stored.reshape(len(stored), *policy.action_shape).astype(policy.action_dtype, copy=False)
    if policy.is_masked:
        _check_legal(dataset, policy, stored)
    return stored


def _check_legal(dataset: Dataset, policy: Policy, actions: np.ndarray) -> None:
    """Raises a ValueError if an action, here in the policy's form, is one that the mask in its observation forbids."""
    masks, recorded = policy.spec.encoder.mask(dataset.columns[sb.OBS]), dataset.columns[sb.ACTIONS]
    chosen = actions.reshape(len(actions), -1)
    for place, (columns, _) in enumerate(parts_of_mask(policy.distribution)):
        illegal = np.take_along_axis(masks[:, columns], chosen[:, place : place + 1].astype(np.int64), 1)[:, 0] == 0
        if illegal.any():
            row = int(illegal.argmax())
            raise ValueError(
                f"{dataset.source}, row {row}: the action is {recorded[row].tolist()}, which its mask "
                f"{masks[row].astype(int).tolist()} forbids; {illegal.sum():,} rows are so. Leave these rows out, or "
                "use .environment(action_mask_key=None)."
            )


def _structured(space: spaces.Space, rows: np.ndarray) -> dict | tuple:
    """Rows of numbers as a batch in the form of a Dict or Tuple space."""
    leaves = iter(flat_leaves(space))

    def build(part: spaces.Space, first: int):
        inner = parts(part)
        if inner is None:
            leaf = next(leaves)
            stop = first + int(np.prod(leaf.shape, dtype=int))
            return rows[:, first:stop].reshape(len(rows), *leaf.shape).astype(leaf.space.dtype), stop
        built = []
        for _, below in inner:
            value, first = build(below, first)
            built.append(value)
        if isinstance(part, spaces.Tuple):
            return tuple(built), first
        return dict(zip((key for key, _ in inner), built)), first

    return build(space, 0)[0]


def transitions(
    dataset: Dataset,
    policy: Policy,
    conversions: Conversions,
    rewards: np.ndarray,
    gamma: float,
    n_step: int = 1,
    with_next_actions: bool = False,
) -> dict[str, np.ndarray]:
    """The rows of a replay: as Transitions makes them of the same steps in a worker, in the order of the steps.

    A step of which it is unknown what followed gives no row: rows of steps before it end at its observation.

    Args:
        dataset: recorded steps.
        policy: whose filter and form of actions they get.
        conversions: conversions of actions.
        rewards: float32 [rows] that are learned from.
        gamma: discount per step.
        n_step: rewards that a row sums up, at most.
        with_next_actions: adds the column next_actions, what was done in new_obs; where an episode has ended, and
            nothing was, the row's last action.

    Returns:
        obs, new_obs, actions, rewards and discounts.
    """
    ends = (dataset.columns[name][:, None] for name in (sb.TERMINATEDS, sb.TRUNCATEDS))
    valid = dataset.is_transition
    returns, discounts, last = n_step_returns(rewards[:, None], *ends, gamma, n_step, valid[:, None])
    last = last[:, 0]
    kept = np.flatnonzero(valid)
    stored = actions(dataset, policy, conversions)
    columns = {
        sb.OBS: observations(dataset, policy)[kept],
        sb.NEXT_OBS: observations(dataset, policy, sb.NEXT_OBS)[last[kept]],
        sb.ACTIONS: stored[kept],
        sb.REWARDS: returns[kept, 0].astype(np.float32),
        sb.DISCOUNTS: discounts[kept, 0].astype(np.float32),
    }
    if with_next_actions:
        following = np.arange(1, len(dataset) + 1)
        following[dataset.starts[1:] - 1] -= 1
        columns[sb.NEXT_ACTIONS] = stored[following[last[kept]]]
    return columns


def returns_to_go(dataset: Dataset, rewards: np.ndarray, gamma: float, bootstraps: np.ndarray) -> np.ndarray:
    """G_t = r_t + gamma G_{t+1} to the end of each episode, and the value of what followed its last step.

    Args:
        dataset: recorded steps.
        rewards: float32 [rows].
        gamma: discount per step.
        bootstraps: [episodes], value of the observation after the last step; 0 after a termination.

    Returns:
        float32 [rows].
    """
    factors = np.full(len(dataset), gamma)
    return linear_sums(rewards.astype(np.float64), factors, dataset.starts, bootstraps).astype(np.float32)
