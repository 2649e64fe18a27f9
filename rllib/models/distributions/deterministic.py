"""Deterministic actions: a = tanh(inputs), within -1 ... 1 (Lillicrap et al., arXiv:1509.02971).

In workers the explorer adds noise (exploration/action_noise.py); in a policy that acts alone, the distribution does.
The mapper of actions stretches -1 ... 1 to the bounds of the space (env/spaces/actions.py).
"""

import math
from dataclasses import dataclass

import numpy as np

from rllib.storage.json_dataclass import Described


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

    def noise(
        self, rng: np.random.Generator, *shape: int, stddev: float = 0.0, epsilon: float = 0.0
    ) -> np.ndarray:
        """Noise for `sample`, float32 [*shape, 2, size]: summands, then random actions + 2, or 0 for none.

        Without exploration nothing is drawn, and the result is [*shape, 0].

        Args:
            rng: source of randomness.
            shape: of the actions.
            stddev: standard deviation of normal noise.
            epsilon: probability of an action that is uniform over -1 ... 1 instead.
        """
        if not (stddev or epsilon):
            return np.empty((*shape, 0), np.float32)
        noise = np.empty((*shape, 2, self.size), np.float32)
        noise[..., 0, :] = stddev * rng.standard_normal((*shape, self.size), np.float32)
        noise[..., 1, :] = rng.uniform(1, 3, (*shape, self.size))
        noise[rng.random(shape) >= epsilon, 1] = 0
        return noise

    def sample(self, inputs: np.ndarray, noise: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """The actions [B, *action_shape], with what `noise` drew for them, within -1 ... 1."""
        if out is None:
            out = np.empty((len(inputs), *self.action_shape), np.float32)
        flat = out.reshape(inputs.shape)
        np.tanh(inputs, out=flat)
        if noise.size:
            added, at_random = noise[:, 0], noise[:, 1]
            flat[:] = np.where(at_random > 0, at_random - 2, np.clip(flat + added, -1, 1))
        return out

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        """The actions [B, *action_shape]."""
        return np.tanh(inputs).reshape(-1, *self.action_shape)
