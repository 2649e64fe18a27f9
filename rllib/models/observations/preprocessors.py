"""Preprocessors, for programs that encode observations themselves; networks here read observations as they are."""

from typing import Any

import numpy as np
from gymnasium import spaces


class Preprocessor:
    """Turns observations of a space into arrays, as RLlib's preprocessors do.

    Arrays (Box) stay as they are. A choice becomes one-hot, and the parts of a Dict or Tuple one row, in the order of
    the space.

    Args:
        obs_space: the space.
        options: RLlib's model settings, without effect.

    Attributes:
        observation_space: space of the arrays.
        shape: shape of one of them.
        size: number of its elements.

    Raises:
        NotImplementedError: for a space whose observations have no fixed size.
    """

    def __init__(self, obs_space: spaces.Space, options: dict | None = None):
        self._space = obs_space
        is_array = isinstance(obs_space, spaces.Box)
        self.observation_space = obs_space if is_array else spaces.flatten_space(obs_space)
        if not isinstance(self.observation_space, spaces.Box):
            raise NotImplementedError(f"observations of {obs_space} have no fixed size. Wrap the environment.")
        self.shape = self.observation_space.shape
        self.size = int(np.prod(self.shape))

    def transform(self, observation: Any) -> np.ndarray:
        """The array of one observation, float32 unless the space is a Box."""
        if self.observation_space is self._space:
            return np.asarray(observation)
        return spaces.flatten(self._space, observation).astype(np.float32)


def get_preprocessor(space: spaces.Space, include_multi_binary: bool = False) -> type[Preprocessor]:
    """The class of the preprocessors of a space, called with it; there is one."""
    return Preprocessor
