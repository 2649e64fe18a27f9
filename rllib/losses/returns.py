"""Sums along time-major fragments: advantages, and the lambda-returns that values and action values are fitted to."""

import math
from collections.abc import Callable

import numpy as np

LEAST_RATIO = 1e-4  # mean of ratios by which a baseline is divided
LEAST_DEVIATION = 1e-4  # of advantages that are standardised: equal ones become zeros, never NaN


def gae(rewards, values, next_values, terminated, truncated, gamma, lambda_):
    """Generalized advantage estimation (Schulman et al., arXiv:1506.02438, eq. 16).

    T steps, B environments.

    Args:
        rewards: [T, B] float32, received after action t.
        values: [T, B] float32, V(o_t).
        next_values: [T, B] float32, V(o_{t+1}); at an episode's end, of its true final observation, not of the one
            that follows the reset.
        terminated: [T, B] bool; nothing is bootstrapped past these.
        truncated: [T, B] bool; their value is bootstrapped, but the sum ends there.
        gamma: discount per step, 0 ... 1; a number, or [B].
        lambda_: 0 gives the TD error, 1 the discounted return minus the value; a number, or [B].

    Returns:
        advantages, value_targets: [T, B] float32 each; a target is the advantage plus the value.

    Raises:
        ValueError: if the arguments are not all of one shape [T, B].
    """
    _check_shapes("gae", rewards, values, next_values, terminated, truncated)
    # delta_t = r_t + gamma V(o_{t+1}) (1 - terminated_t) - V(o_t)
    deltas = np.where(terminated, np.float32(0), next_values)
    deltas *= np.float32(gamma)
    deltas += rewards
    deltas -= values
    # A_t = delta_t + gamma lambda (1 - terminated_t) (1 - truncated_t) A_{t+1}
    decays = np.where(np.logical_or(terminated, truncated), np.float32(0), np.float32(gamma * lambda_))
    advantages = accumulated(deltas, decays)
    return advantages, advantages + values


def torch_gae(rewards, values, next_values, terminated, truncated, gamma, lambda_):
    """`gae` of tensors, on their device and without waiting for it; arguments, result and errors as there."""
    _check_shapes("torch_gae", rewards, values, next_values, terminated, truncated)
    advantages = next_values.masked_fill(terminated, 0).mul_(gamma).add_(rewards).sub_(values)
    decays = (terminated | truncated).logical_not().to(advantages.dtype).mul_(gamma * lambda_)
    of_steps, decay_of_steps = advantages.unbind(), decays.unbind()
    for t in range(len(of_steps) - 2, -1, -1):
        of_steps[t].addcmul_(decay_of_steps[t], of_steps[t + 1])
    return advantages, advantages + values


def q_lambda_targets(rewards, next_values, terminated, truncated, gamma, lambda_):
    """Peng's Q(lambda) (Peng and Williams 1996), the targets of PQN's action values (arXiv:2407.04811, eq. 4).

    R_t = r_t + gamma ((1 - lambda) max_a Q(o_{t+1}, a) + lambda R_{t+1}); traces continue through exploratory actions.

    Args:
        rewards, terminated, truncated, gamma: as for `gae`.
        next_values: [T, B] float32, max_a Q(o_{t+1}, a); at an episode's end, of its true final observation.
        lambda_: 0 gives one-step targets, 1 discounted returns to the end of the fragment.

    Returns:
        targets [T, B] float32.

    Raises:
        ValueError: if the arguments are not all of one shape [T, B].
    """
    _check_shapes("q_lambda_targets", rewards, next_values, terminated, truncated)
    going_on = np.where(terminated, np.float32(0), np.float32(gamma))
    tracing = np.where(truncated, np.float32(0), going_on * np.float32(lambda_))
    # The last row has no successor to trace.
    tracing[-1:] = 0
    return accumulated(rewards + (going_on - tracing) * next_values, tracing)


def standardized(
    advantages: np.ndarray,
    weight: np.ndarray | None = None,
    across: Callable | None = None,
    ratios: np.ndarray | None = None,
) -> np.ndarray:
    """Advantages [B] with mean 0 and (population) standard deviation 1; equal ones become zeros.

    Rows by another policy mu need `ratios`. What is subtracted is a baseline b, and a baseline leaves the policy
    gradient as it is only where its factor has mean 0: grad log pi under pi, but pi / mu grad log pi under mu. A plain
    b > 0 would add a step away from mu, the longer the further pi has moved, so that it feeds itself.

    Args:
        advantages: float32, an array, or a tensor without `weight`.
        weight: float32 [B], of sum 1, zero in rows that do not count, which get 0; None: all rows count alike.
        across: turns a mean over these rows into the mean over all rows, where several learners share them
            (losses/loss.py: Loss).
        ratios: float32 [B], pi / mu of the rows' actions, clipped as those in the advantages are: each row gets this
            share of the baseline. With `weight`. None: 1.
    """
    if not isinstance(advantages, np.ndarray):
        return torch_standardized(advantages, lambda column: column.mean(), across)
    if weight is None and across is None:
        return (advantages - advantages.mean()) / max(LEAST_DEVIATION, float(advantages.std()))
    across = across or (lambda one: one)
    weight = np.full(len(advantages), 1 / len(advantages), np.float32) if weight is None else weight
    baseline = np.float32(across(np.dot(weight, advantages)))
    if ratios is not None:
        baseline = baseline * ratios / max(LEAST_RATIO, across(np.dot(weight, ratios)))
    advantages = (advantages - baseline) * (weight > 0)
    return advantages / max(LEAST_DEVIATION, math.sqrt(float(across(np.dot(weight, advantages * advantages)))))


def torch_standardized(advantages, mean, across: Callable | None = None, ratios=None):
    """`standardized` of a tensor [B].

    Args:
        advantages: a tensor without gradient.
        mean: function of a tensor [B], its mean over the rows that count.
        across: as for `standardized`, of scalar tensors.
        ratios: as for `standardized`, a tensor without gradient.
    """
    across = across or (lambda one: one)
    baseline = across(mean(advantages))
    if ratios is not None:
        baseline = baseline * ratios / across(mean(ratios)).clamp(min=LEAST_RATIO)
    advantages = advantages - baseline
    return advantages / across(mean(advantages.square())).sqrt().clamp(min=LEAST_DEVIATION)


def accumulated(deltas: np.ndarray, decays: np.ndarray) -> np.ndarray:
    """x_t = deltas_t + decays_t x_{t+1}, from the end; x after the last row is 0. It may overwrite `deltas`."""
    if deltas.ndim == 1:
        # One long row of steps: Python's own floats are faster than arrays of one number.
        total, sums = 0.0, []
        for delta, decay in zip(deltas[::-1].tolist(), decays[::-1].tolist()):
            total = delta + decay * total
            sums.append(total)
        return np.array(sums[::-1], deltas.dtype)
    scratch = np.empty(deltas.shape[1:], deltas.dtype)
    steps = list(deltas)
    # Views of the rows are made once each: an index costs as much as a sum of a few environments.
    for decay, step, following in zip(decays[-2::-1], steps[-2::-1], steps[:0:-1]):
        np.multiply(decay, following, out=scratch)
        np.add(step, scratch, out=step)
    return deltas


def _check_shapes(name: str, *arrays) -> None:
    shapes = {np.shape(array) for array in arrays}
    if len(shapes) > 1 or len(next(iter(shapes))) != 2:
        raise ValueError(f"{name} needs arrays of one shape [T, B], but got {sorted(shapes)}")
