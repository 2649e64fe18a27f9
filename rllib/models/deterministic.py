"""Actions without chance: a = tanh(inputs), within -1 ... 1 (Lillicrap et al., arXiv:1509.02971).

Exploration adds its noise to them (evaluation/exploration.py), and the mapper of actions stretches -1 ... 1 to the
bounds of the space (env/actions.py).
"""

import math
from dataclasses import dataclass

import numpy as np

from rllib.models.described import Described


@dataclass(frozen=True)
class Deterministic(Described):
    """One action for each observation; the inputs are the action before tanh."""

    action_shape: tuple[int, ...]
    kind = "deterministic"
    action_dtype = np.dtype(np.float32)
    has_log_prob = False
    gives_values = False
    choices = ()  # none: the components are numbers

    @property
    def size(self) -> int:
        """Components of an action."""
        return math.prod(self.action_shape)

    @property
    def num_inputs(self) -> int:
        """Number of network outputs for one action."""
        return self.size

    @property
    def num_noise(self) -> int:
        """Number of random numbers for one action."""
        return 0

    def noise(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        """[*shape, 0]: there is none to draw."""
        return np.empty((*shape, 0), np.float32)

    def sample(self, inputs: np.ndarray, noise: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """The actions [B, *action_shape]."""
        if out is None:
            return self.mode(inputs)
        np.tanh(inputs, out=out.reshape(inputs.shape))
        return out

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        """The actions [B, *action_shape]."""
        return np.tanh(inputs).reshape(-1, *self.action_shape)
