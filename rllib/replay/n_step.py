"""Returns of n steps (Sutton, 1988), for fragments as the rollout workers have them."""

import numpy as np


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
        terminateds, truncateds: [T, N] bool; no window goes on behind either.
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
    discounts = discounts[lengths] * ~np.take_along_axis(terminateds, last, axis=0)
    return returns, discounts, last
