"""Tries an environment in the driver, before any worker starts, so that its errors show in the user's own process."""

import copy
from collections.abc import Sequence

import numpy as np
from gymnasium.vector import VectorEnv

from rllib.env.registry import EnvContext, EnvFactory
from rllib.env.stream import EnvironmentStream
from rllib.env.sync_stream import close_all
from rllib.env.vector import make_environment, stream_over
from rllib.sample_batch import Column

CHECKED_STEPS = 8


def check_environment(
    factory: EnvFactory,
    env_config: dict | None = None,
    *,
    num_envs: int = 1,
    check: bool = True,
    info_columns: Sequence[Column] = (),
) -> tuple:
    """Makes one environment, takes a few random steps on the path that training takes, and closes it.

    Args:
        factory: from `registry.resolve`.
        env_config: the user's dict.
        num_envs: number of environments per worker; a VectorEnv is made with this number, any other environment once.
        check: False takes no steps and only reads the spaces.
        info_columns: keys of the info dicts that are to be columns.

    Returns:
        (observation_space, action_space) of a single environment.

    Raises:
        ValueError, TypeError: naming the part of the observation, its value and the bound or shape it violates, or
            the rule of the environment API that is violated.
        Exception: whatever the environment raises, with its own traceback and a note.
    """
    made = make_environment(factory, EnvContext(env_config, num_envs=num_envs))
    seeds = list(range(num_envs)) if isinstance(made, VectorEnv) else [0]
    try:
        stream = stream_over([made], seeds, checked_steps=CHECKED_STEPS, info_columns=info_columns)
    except BaseException:
        close_all([made])
        raise
    with stream:
        if check:
            _take_steps(stream)
        return stream.observation_space, stream.action_space


def _take_steps(stream: EnvironmentStream) -> None:
    row = stream.new_row()
    stream.reset(row)
    actions = copy.deepcopy(stream.action_space)  # sampling must not move the generator of the user's space
    actions.seed(0)
    for _ in range(CHECKED_STEPS):
        drawn = np.stack([actions.sample() for _ in range(stream.num_envs)])
        stream.step(drawn, row)
