"""Environments that need a memory: give them by "rllib.env.tasks.memory:CartPoleNoVel" and so on."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class CartPoleNoVel(gymnasium.ObservationWrapper):
    """CartPole-v1 without the velocities: the observation is the cart's position and the pole's angle, [2] float32.

    The task of RL Baselines3 Zoo's CartPoleNoVel-v1, which sets the velocities to zero.
    """

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        space = self.env.observation_space
        self.observation_space = Box(space.low[[0, 2]], space.high[[0, 2]], dtype=np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[[0, 2]]


class PendulumNoVel(gymnasium.ObservationWrapper):
    """Pendulum-v1 without the velocity: the observation is the cosine and the sine of the angle, [2] float32."""

    def __init__(self):
        super().__init__(gymnasium.make("Pendulum-v1"))
        space = self.env.observation_space
        self.observation_space = Box(space.low[:2], space.high[:2], dtype=np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[:2]


class RepeatAfterMe(gymnasium.Env):
    """The observation of `repeat_delay` steps ago is the right action: reward 1 for it, else -1.

    Observations are 0 or 1 at random; those before an episode count as 0. RLlib's task of this name.

    Args:
        repeat_delay: steps; 0 asks for the present observation.
        episode_len: steps of an episode, which is then truncated.
    """

    def __init__(self, repeat_delay: int = 1, episode_len: int = 100):
        self.observation_space = self.action_space = Discrete(2)
        self._delay, self._length = repeat_delay, episode_len
        self._seen: list[int] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._seen = [0] * self._delay
        return self._next(), {}

    def step(self, action):
        reward = 1.0 if action == self._seen[-1 - self._delay] else -1.0
        return self._next(), reward, False, len(self._seen) > self._delay + self._length, {}

    def _next(self) -> int:
        self._seen.append(int(self.np_random.integers(2)))
        return self._seen[-1]
