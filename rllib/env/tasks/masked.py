"""Environments with actions that are illegal at times: give them by "rllib.env.tasks.masked:MaskedCartPole"."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

# One of the actions 0 and 1, and one of 2 and 3.
_MASKS = np.array([[1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1]], np.int8)


class MaskedCartPole(gymnasium.Wrapper):
    """CartPole-v1 with each of its two actions twice: 0 and 1 push to the left, 2 and 3 to the right.

    At every step one of each pair is illegal, at random, so that every episode can still have 500 steps. The
    observation is a Dict with the mask, MultiBinary(4) `action_mask`, and CartPole's own as `observations`. An illegal
    action raises a ValueError: a run that ends has taken none.
    """

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1", disable_env_checker=True))
        inner: Box = self.env.observation_space
        self.observation_space = Dict(action_mask=MultiBinary(4), observations=inner)
        self.action_space = Discrete(4)
        self._legal = _MASKS[0]

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        return self._masked(observation), info

    def step(self, action):
        if not self._legal[action]:
            raise ValueError(f"action {action} is illegal; the mask was {self._legal.tolist()}")
        observation, *rest = self.env.step(int(action) // 2)
        return self._masked(observation), *rest

    def action_masks(self) -> np.ndarray:
        """The present mask, as sb3-contrib asks for it."""
        return self._legal.astype(bool)

    def _masked(self, observation: np.ndarray) -> dict:
        self._legal = _MASKS[self.unwrapped.np_random.integers(4)]
        return {"action_mask": self._legal, "observations": observation}
