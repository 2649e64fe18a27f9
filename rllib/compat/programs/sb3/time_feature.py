"""TimeFeatureWrapper of sb3-contrib."""

import gymnasium
import numpy as np
from gymnasium import spaces


class TimeFeatureWrapper(gymnasium.Wrapper):
    """Adds the remaining share of an episode's steps to its observations, from 1 to 0.

    Args:
        env: of observations in a Box of one axis, or a Dict whose part "observation" is one.
        max_steps: steps of an episode, where no TimeLimit says them.
        test_mode: the share is always 1.

    Raises:
        ValueError: for other observations.
    """

    def __init__(self, env: gymnasium.Env, max_steps: int = 1000, test_mode: bool = False):
        super().__init__(env)
        space = env.observation_space
        self._is_dict = isinstance(space, spaces.Dict)
        own = space["observation"] if self._is_dict else space
        if not isinstance(own, spaces.Box) or len(own.shape) != 1:
            raise ValueError(f"TimeFeatureWrapper needs observations in a Box of one axis, but they are of {space}")
        longer = spaces.Box(np.append(own.low, 0.0), np.append(own.high, 1.0), dtype=np.float32)
        self.observation_space = spaces.Dict({**space.spaces, "observation": longer}) if self._is_dict else longer
        limit = env.spec and env.spec.max_episode_steps
        self._max_steps, self._test_mode, self._step = limit or max_steps, test_mode, 0

    def reset(self, **kwargs):
        self._step = 0
        observation, info = self.env.reset(**kwargs)
        return self._with_time(observation), info

    def step(self, action):
        self._step += 1
        observation, *rest = self.env.step(action)
        return (self._with_time(observation), *rest)

    def _with_time(self, observation):
        share = 1.0 if self._test_mode else 1 - self._step / self._max_steps
        if self._is_dict:
            return {**observation, "observation": np.append(observation["observation"], share).astype(np.float32)}
        return np.append(observation, share).astype(np.float32)
