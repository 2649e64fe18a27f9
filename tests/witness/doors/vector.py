"""Doors of one agent: environments in processes, of the old gym API, and vector environments by autoreset mode."""

from contextlib import contextmanager
from functools import partial
from typing import ClassVar

from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from tests.witness.doors.scripted import Player, Single, set_environment, world
from tests.witness.script import HUNG

# Longest time that a call of an environment in a process may take (seconds), where a script lets it hang.
HANGS_S = 0.3


@contextmanager
def processes(config, family, case):
    """Each environment in a process of its own."""
    set_environment(config, Single, family, case)
    config.rollouts(gym_env_vectorize_mode="async")
    if HUNG in family.ends:
        config.rollouts(sub_environment_timeout_s=HANGS_S)
    yield


class Legacy:
    """An environment of the old gym API; where it is terminated and truncated, it can only say the latter."""

    metadata: ClassVar[dict] = {}

    def __init__(self, config):
        self.player, self._seed = Player(config), None
        self.observation_space, self.action_space = self.player.form.space, self.player.actions.space

    def seed(self, seed=None):
        self._seed = seed
        return [seed]

    def reset(self):
        seed, self._seed = self._seed, None
        self.player.reset(seed)
        return self.player.observe(0)

    def step(self, action):
        own = self.player.reward_of(0, action)
        event = self.player.step([0])
        is_terminated, is_truncated = event.flags
        info = {"TimeLimit.truncated": True} if is_truncated else {}
        return self.player.observe(0), event.rewards[0] + own, is_terminated or is_truncated, info


@contextmanager
def legacy(config, family, case):
    """The old gym API, in a loop or in processes."""
    set_environment(config, Legacy, family, case)
    if case["fragment"] == 3:
        config.rollouts(gym_env_vectorize_mode="async")
    yield


def one_of_vector(family, config):
    """A scripted environment with its time limit, as a part of a vector."""
    env = Single(config)
    return TimeLimit(env, family.limit) if family.limit else env


def vector(family, mode, context):
    """gymnasium's vector of as many environments as a worker is to have."""
    return SyncVectorEnv([partial(one_of_vector, family, context)] * context.num_envs, autoreset_mode=mode)


@contextmanager
def _vector(mode, config, family, case):
    config.environment(partial(vector, family, mode), env_config=world(family, case))
    yield


next_step = partial(_vector, AutoresetMode.NEXT_STEP)
same_step = partial(_vector, AutoresetMode.SAME_STEP)
disabled = partial(_vector, AutoresetMode.DISABLED)
