"""Advantage estimates of time-major fragments."""

import numpy as np


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
        gamma: discount per step, 0 ... 1.
        lambda_: 0 gives the TD error, 1 the discounted return minus the value.

    Returns:
        advantages, value_targets: [T, B] float32 each; a target is the advantage plus the value.

    Raises:
        ValueError: if the arguments are not all of one shape [T, B].
    """
    shapes = {np.shape(x) for x in (rewards, values, next_values, terminated, truncated)}
    if len(shapes) > 1 or len(next(iter(shapes))) != 2:
        raise ValueError(f"gae needs arrays of one shape [T, B], but got {sorted(shapes)}")
    # delta_t = r_t + gamma V(o_{t+1}) (1 - terminated_t) - V(o_t)
    advantages = np.where(terminated, np.float32(0), next_values)
    advantages *= np.float32(gamma)
    advantages += rewards
    advantages -= values
    # A_t = delta_t + gamma lambda (1 - terminated_t) (1 - truncated_t) A_{t+1}
    decay = np.where(np.logical_or(terminated, truncated), np.float32(0), np.float32(gamma * lambda_))
    scratch = np.empty_like(advantages[0]) if len(advantages) else None
    for t in range(len(advantages) - 2, -1, -1):
        np.multiply(decay[t], advantages[t + 1], out=scratch)
        np.add(advantages[t], scratch, out=advantages[t])
    return advantages, advantages + values
