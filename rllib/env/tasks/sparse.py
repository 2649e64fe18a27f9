"""Environments with rewards that are hard to find: give them by "rllib.env.tasks.sparse:Corridor"."""

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiBinary


class Corridor(gymnasium.Env):
    """A walk of `length` places (20) with a reward of 1 behind the last; each step towards it costs 0.01 / length.

    The observation is the place. Which of the two actions leads on is another in each place; the other leads back.
    Episodes are truncated four steps after the fastest walk would have ended, so chance alone finds the end in one of
    some thousands of episodes, and what an agent learns before is to stay where it is. (After the deep sea of bsuite,
    Osband et al., arXiv:1908.03568, with the same cost.)

    Args:
        length: number of places.
    """

    action_space = Discrete(2)

    def __init__(self, length: int = 20):
        self.length = length
        self.observation_space = Discrete(self.length + 1)
        self._leads_on = np.random.default_rng(7).integers(2, size=self.length)
        self._place = self._steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._place = self._steps = 0
        return self._place, {}

    def step(self, action):
        goes_on = action == self._leads_on[self._place]
        self._place = max(self._place + (1 if goes_on else -1), 0)
        self._steps += 1
        arrived = self._place == self.length
        reward = float(arrived) - 0.01 / self.length * goes_on
        return self._place, reward, arrived, self._steps >= self.length + 4, {}


class BitFlipping(gymnasium.Env):
    """A goal environment: each action flips one of `length` bits (8), until they equal the goal.

    Bits and goal are drawn at each reset. Every step costs 1, the one that reaches the goal nothing; episodes are
    truncated after `length` steps. From some ten bits on, chance alone hardly ever finds a goal. (Andrychowicz et al.,
    arXiv:1707.01495, section 3.1.)

    Args:
        length: number of bits.
    """

    def __init__(self, length: int = 8):
        self.length = length
        self.action_space = Discrete(length)
        parts = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = Dict({name: MultiBinary(length) for name in parts})
        self._bits = self._goal = np.zeros(length, np.int8)
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._bits, self._goal = self.np_random.integers(2, size=(2, self.length), dtype=np.int8)
        self._steps = 0
        return self._observation(), {}

    def step(self, action):
        self._bits = self._bits.copy()
        self._bits[action] ^= 1
        self._steps += 1
        goals = self._bits, self._goal, {}
        reward, terminated = float(self.compute_reward(*goals)), bool(self.compute_terminated(*goals))
        return self._observation(), reward, terminated, self._steps >= self.length, {}

    def compute_reward(self, achieved_goal, desired_goal, info):
        """Reward for goals [length] or [B, length]."""
        return -(achieved_goal != desired_goal).any(-1).astype(float)

    def compute_terminated(self, achieved_goal, desired_goal, info):
        """Whether the goal is reached; of goals [length] or [B, length]."""
        return (achieved_goal == desired_goal).all(-1)

    def _observation(self) -> dict:
        return {"observation": self._bits, "achieved_goal": self._bits, "desired_goal": self._goal}
