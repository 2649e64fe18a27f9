"""Demonstrations for tests, made on the spot."""

from collections.abc import Callable

import gymnasium as gym
import numpy as np


def recorded(env: str | gym.Env, policy: Callable, episodes: int = 5, seed: int = 0) -> dict[str, np.ndarray]:
    """Columns of recorded steps, without rewards.

    Args:
        env: an environment, or its name.
        policy: function of an observation that returns an action.
        episodes: number of them.
        seed: of the first one.
    """
    env = gym.make(env) if isinstance(env, str) else env
    rows = []
    for episode in range(episodes):
        seen, _ = env.reset(seed=seed + episode)
        over = False
        while not over:
            action = policy(seen)
            after, _, terminated, truncated, _ = env.step(action)
            rows.append((seen, action, after, terminated, truncated))
            seen, over = after, terminated or truncated
    names = "obs", "actions", "new_obs", "terminateds", "truncateds"
    return {name: np.stack([row[i] for row in rows]) for i, name in enumerate(names)}


def always_left(episodes: int = 10) -> dict[str, np.ndarray]:
    """CartPole-v1 of an expert that pushes the cart to the left: about 9.3 steps an episode."""
    return recorded("CartPole-v1", lambda seen: 0, episodes)
