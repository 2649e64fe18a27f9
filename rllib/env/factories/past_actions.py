"""Adds the last actions to observations: what a policy must know of an environment in which actions arrive late."""

from collections import deque
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rllib.env.factories.adapter import ActionRow

_KEY = "past_actions"


class PastActions(gymnasium.Wrapper):
    """Observations with the last actions of the policy, the newest one last; before an episode's first action, zeros.

    A Box of one dimension becomes a longer one, and a Dict gets the key "past_actions"; any other observation becomes a
    Dict {"observations": ..., "past_actions": ...}. In an action choices are one-hot, and numbers between finite bounds
    are stretched to -1 ... 1.

    Args:
        env: the environment.
        number: number of actions, at least 1.

    Raises:
        ValueError: for another number, or a Dict that has the key already.
    """

    def __init__(self, env: gymnasium.Env, number: int = 1):
        super().__init__(env)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(f"PastActions needs a number of actions >= 1, but number={number!r}")
        self._row = ActionRow(env.action_space)
        self._actions: deque = deque([self._row.zeros] * number, maxlen=number)
        own = env.observation_space
        actions = spaces.Box(-np.inf, np.inf, (number * len(self._row.zeros),), np.float32)
        self._is_row = isinstance(own, spaces.Box) and len(own.shape) == 1 and np.issubdtype(own.dtype, np.floating)
        if self._is_row:
            low, high = np.concatenate([own.low, actions.low]), np.concatenate([own.high, actions.high])
            self.observation_space = spaces.Box(low.astype(own.dtype), high.astype(own.dtype), dtype=own.dtype.type)
            return
        parts = dict(own.spaces) if isinstance(own, spaces.Dict) else {"observations": own}
        if _KEY in parts:
            raise ValueError(f"observations with the keys {list(parts)} cannot get {_KEY!r} as well: rename the key")
        self.observation_space = spaces.Dict({**parts, _KEY: actions})

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        self._actions.extend([self._row.zeros] * self._actions.maxlen)
        return self._with_actions(observation), info

    def step(self, action):
        observation, *rest = self.env.step(action)
        self._actions.append(self._row.of(action))
        return self._with_actions(observation), *rest

    def _with_actions(self, observation) -> Any:
        actions = np.concatenate(self._actions)
        if self._is_row:
            return np.concatenate([observation, actions]).astype(self.observation_space.dtype)
        parts = observation if isinstance(self.env.observation_space, spaces.Dict) else {"observations": observation}
        return {**parts, _KEY: actions}
