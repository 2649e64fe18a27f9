"""Tries an environment in the driver, before any worker starts, so that its mistakes are told where the user sits."""

import copy

import numpy as np

from rllib.env.registry import EnvFactory
from rllib.env.vector import make_stream

CHECKED_STEPS = 8


def check_environment(factory: EnvFactory, env_config: dict | None = None, *, num_envs: int = 1) -> tuple:
    """Makes one environment, takes a few random steps on the path that training takes, and closes it.

    Args:
        factory: from `registry.resolve`.
        env_config: the user's dict.
        num_envs: environments per worker; only a VectorEnv is made with so many.

    Returns:
        (observation_space, action_space) of a single environment.

    Raises:
        ValueError, TypeError: naming the part of the observation, its value and the bound or shape it violates, or
            what else of the environment API is not kept.
        Exception: whatever the environment raises, with its own traceback and a note.
    """
    seeds = list(range(num_envs))
    with make_stream(factory, num_envs=num_envs, seeds=seeds, env_config=env_config, check=CHECKED_STEPS) as stream:
        observations = np.empty((num_envs, *stream.observation_shape), stream.observation_dtype)
        rewards = np.empty(num_envs, np.float32)
        terminated, truncated = np.empty(num_envs, bool), np.empty(num_envs, bool)
        stream.reset(observations)
        actions = copy.deepcopy(stream.action_space)  # sampling must not move the generator of the user's space
        actions.seed(0)
        for _ in range(CHECKED_STEPS):
            drawn = np.stack([actions.sample() for _ in range(num_envs)])
            stream.step(drawn, observations, rewards, terminated, truncated)
        return stream.observation_space, stream.action_space
