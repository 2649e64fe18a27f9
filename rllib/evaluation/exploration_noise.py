"""Noise on continuous actions, for policies that are deterministic: Gaussian, or with a memory (Ornstein-Uhlenbeck).

The policy's most probable action is taken and noise added, in the units of the policy's actions (where they are
normalised, the bounds are -1 and 1), then clipped to the bounds. What is stored is the action that was played. Its
probability under the policy means nothing, so algorithms that need one cannot explore like this.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib.evaluation.exploration import Exploration, Explorer, RandomValues


class NoiseExplorer(Explorer):
    """Adds noise to the policy's own actions; takes uniformly random actions in the first steps of the run.

    Raises:
        ValueError: if the first actions are to be random but have no bounds.
    """

    def __init__(self, exploration, policy, rngs, place):
        super().__init__(exploration, policy, rngs, place)
        if place.low is None or not np.isfinite([place.low, place.high]).all():
            raise ValueError(
                f"{type(self.exploration).__name__} needs continuous actions with finite bounds, but they reach from "
                f"{place.low} to {place.high}. Wrap the environment so that its action space has bounds."
            )
        self._low, self._high = place.low.reshape(-1), place.high.reshape(-1)
        self._shape = self._low.shape
        self._zeros = policy.noise(np.random.default_rng(), place.num_envs) * 0

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        """[T, N, 2, size]: random actions, or NaN where the policy acts, and noise for these."""
        steps = timesteps + self.place.stride * np.arange(num_steps)
        noise = np.zeros((num_steps, len(self.rngs), 2, *self._shape), np.float32)
        for i in self._drawing(active):
            rng = self.rngs[i]
            # Both are always drawn, so that the streams of runs with other settings stay in step.
            noise[:, i, 0] = rng.uniform(self._low, self._high, (num_steps, *self._shape))
            noise[:, i, 1] = rng.standard_normal((num_steps, *self._shape), np.float32)
        noise[steps >= self.exploration.random_timesteps, :, 0] = np.nan
        noise[:, :, 1] *= self.exploration.scale(steps)[:, None, None]
        return noise

    def act(self, observations, noise, dist_inputs, actions, values=None, state=None, next_state=None) -> None:
        self.policy.act(observations, self._zeros, dist_inputs, actions, values, state, next_state)
        flat = actions.reshape(len(actions), -1)
        at_random = ~np.isnan(noise[:, 0])
        flat += self.added(noise[:, 1])
        np.clip(flat, self._low, self._high, out=flat)
        flat[at_random] = noise[:, 0][at_random]

    def added(self, noise: np.ndarray) -> np.ndarray:
        """The noise to add to the actions, [N, size], from scaled normal numbers [N, size]."""
        return noise


@dataclass(frozen=True)
class GaussianNoise(Exploration):
    """Independent normal noise of a standard deviation that shrinks.

    Attributes:
        random_timesteps: the first environment steps of the run are uniformly random.
        stddev: standard deviation at scale 1.
        initial_scale, final_scale, scale_timesteps: the scale goes from one to the other in scale_timesteps environment
            steps after the random ones.
    """

    random_timesteps: int = 1000
    stddev: float = 0.1
    initial_scale: float = 1.0
    final_scale: float = 0.02
    scale_timesteps: int = 10_000
    explorer = NoiseExplorer

    def scale(self, timesteps: np.ndarray) -> np.ndarray:
        """Factor of normal noise at these environment steps, float32."""
        return (self.stddev * _scale(self, timesteps)).astype(np.float32)


class OrnsteinUhlenbeckExplorer(NoiseExplorer):
    """x moves by theta * (0 - x) + sigma * normal at each step, and starts at zero in each episode."""

    def __init__(self, exploration, policy, rngs, place):
        super().__init__(exploration, policy, rngs, place)
        self._state = np.zeros((len(rngs), *self._shape), np.float32)
        self._scales = iter(())

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        steps = timesteps + self.place.stride * np.arange(num_steps)
        self._scales = iter(self.exploration.base_scale(steps).tolist())
        return super().begin(num_steps, timesteps, active)

    def added(self, noise: np.ndarray) -> np.ndarray:
        self._state *= 1 - self.exploration.ou_theta
        self._state += noise
        return self._state * next(self._scales)

    def episodes_ended(self, environments: Sequence[int]) -> None:
        self._state[environments] = 0

    def start_over(self) -> None:
        self._state[:] = 0

    def set_state(self, state: Sequence[dict[str, Any]]) -> None:
        self.start_over()


@dataclass(frozen=True)
class OrnsteinUhlenbeckNoise(Exploration):
    """Noise that drifts: successive steps resemble one another (Lillicrap et al., arXiv:1509.02971).

    Attributes:
        random_timesteps, initial_scale, final_scale, scale_timesteps: as for GaussianNoise.
        ou_base_scale: factor of the process at scale 1.
        ou_theta: share of the way back to zero that it makes in a step.
        ou_sigma: standard deviation of its steps.
    """

    random_timesteps: int = 1000
    ou_base_scale: float = 0.1
    ou_theta: float = 0.15
    ou_sigma: float = 0.2
    initial_scale: float = 1.0
    final_scale: float = 0.02
    scale_timesteps: int = 10_000
    explorer = OrnsteinUhlenbeckExplorer

    def scale(self, timesteps: np.ndarray) -> np.ndarray:
        """Factor of normal noise, which the process adds up, at these environment steps, float32."""
        return np.full(len(timesteps), self.ou_sigma, np.float32)

    def base_scale(self, timesteps: np.ndarray) -> np.ndarray:
        """Factor of the process itself at these environment steps."""
        return self.ou_base_scale * _scale(self, timesteps)


def _scale(exploration: GaussianNoise | OrnsteinUhlenbeckNoise, timesteps: np.ndarray) -> np.ndarray:
    share = ((timesteps - exploration.random_timesteps) / max(exploration.scale_timesteps, 1)).clip(0, 1)
    return exploration.initial_scale + (exploration.final_scale - exploration.initial_scale) * share


@dataclass(frozen=True)
class RandomActions(Exploration):
    """Uniformly random actions, always."""

    random_timesteps: float = float("inf")
    explorer = NoiseExplorer

    def scale(self, timesteps: np.ndarray) -> np.ndarray:
        """Factor of normal noise: none."""
        return np.zeros(len(timesteps), np.float32)


@dataclass(frozen=True)
class Random(Exploration):
    """Random actions, whatever their space."""

    def for_actions(self, action_space: spaces.Space) -> Exploration:
        return RandomActions() if isinstance(action_space, spaces.Box) else RandomValues()
