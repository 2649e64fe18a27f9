"""A task with costs, whose best policy within a limit is known: "rllib.env.tasks.tolled_road:TolledRoad"."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box


class TolledRoad(gymnasium.Env):
    """A road of `length` stretches (20): at speed a, a stretch of worth w gives w a, and costs a^2 (`info["cost"]`).

    Worths are drawn uniformly from [0, 1]. The observation is the worth of the next stretch and the part of the road
    that lies ahead; speeds are within [-1, 1]. Without a limit a = 1 is best: it returns length / 2 and costs length.

    With a limit d on the mean cost, w a - lambda a^2 is largest for a = w / (2 lambda), and the cost is d for
    lambda = sqrt(length / (12 d)), while that is at least 1/2. The return is then sqrt(length d / 3) at most: for
    length 20 and d = 1.5 it is 3.162, and lambda 1.054. A speed that is the same everywhere returns at most
    sqrt(length d) / 2, there 2.739.

    Args:
        length: number of stretches, the steps of an episode.
    """

    observation_space = Box(0.0, 1.0, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, length: int = 20):
        self.length = length
        self._at, self._worth = 0, 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._at = 0
        return self._next_stretch(), {}

    def step(self, action):
        speed = float(action[0])
        reward, cost = self._worth * speed, speed * speed
        self._at += 1
        return self._next_stretch(), reward, self._at >= self.length, False, {"cost": cost}

    def _next_stretch(self) -> np.ndarray:
        self._worth = float(self.np_random.random())
        return np.array([self._worth, 1 - self._at / self.length], np.float32)
