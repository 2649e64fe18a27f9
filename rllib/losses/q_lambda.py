"""Lambda-returns of the greedy policy's values: what PQN's action values are fitted to (arXiv:2407.04811, eq. 4)."""

import numpy as np


def q_lambda_targets(rewards, next_values, terminated, truncated, gamma, lambda_):
    """Peng's Q(lambda) (Peng and Williams 1996), of one fragment. T steps, B environments.

    R_t = r_t + gamma ((1 - lambda) max_a Q(o_{t+1}, a) + lambda R_{t+1}); a trace goes on through explored actions.

    Args:
        rewards: [T, B] float32, received after action t.
        next_values: [T, B] float32, max_a Q(o_{t+1}, a); at an episode's end, of its true final observation.
        terminated: [T, B] bool; nothing is bootstrapped past these.
        truncated: [T, B] bool; their value is bootstrapped, but the trace ends there.
        gamma: discount per step, 0 ... 1.
        lambda_: 0 gives one-step targets, 1 discounted returns to the end of the fragment.

    Returns:
        targets [T, B] float32.

    Raises:
        ValueError: if the arguments are not all of one shape [T, B].
    """
    shapes = {np.shape(x) for x in (rewards, next_values, terminated, truncated)}
    if len(shapes) > 1 or len(next(iter(shapes))) != 2:
        raise ValueError(f"q_lambda_targets needs arrays of one shape [T, B], but got {sorted(shapes)}")
    going_on = np.where(terminated, np.float32(0), np.float32(gamma))
    tracing = np.where(truncated, np.float32(0), going_on * np.float32(lambda_))
    # In the last row nothing is known but the value.
    tracing[-1:] = 0
    targets = rewards + (going_on - tracing) * next_values
    for t in range(len(targets) - 2, -1, -1):
        targets[t] += tracing[t] * targets[t + 1]
    return targets
