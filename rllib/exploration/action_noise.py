"""Exploration by noise on the continuous actions of a deterministic policy: Gaussian, Ornstein-Uhlenbeck, uniform."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from gymnasium import spaces

from rllib.config.sections import at_least
from rllib.exploration.epsilon import RandomValues, worker_epsilon
from rllib.exploration.explorers import NOT_NEGATIVE, Exploration, Explorer, WorkerPosition, line_between


class NoiseExplorer(Explorer):
    """Adds noise to the actions of a deterministic policy, after random actions in the first steps of the run.

    The noise is in the units of the policy's actions (normalised actions have the bounds -1 and 1), and the sum is
    clipped to the bounds. The stored action is the one that was played. Its probability under the policy is
    meaningless, so algorithms that need probabilities cannot explore in this way.

    Raises:
        ValueError: if the actions have no finite bounds.
    """

    def __init__(self, exploration, policy, rngs, position):
        super().__init__(exploration, policy, rngs, position)
        if position.low is None or not np.isfinite([position.low, position.high]).all():
            raise ValueError(
                f"{type(self.exploration).__name__} needs continuous actions with finite bounds, but they reach from "
                f"{position.low} to {position.high}. Wrap the environment so that its action space has bounds."
            )
        self._low, self._high = position.low.reshape(-1), position.high.reshape(-1)
        self._shape = self._low.shape
        # The arithmetic of `rng.uniform` without its handling of arrays, which takes five times as long.
        self._lowest, self._span = self._low.astype(np.float64), np.subtract(self._high, self._low, dtype=np.float64)
        self._zeros = policy.noise(np.random.default_rng(), len(rngs)) * 0

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        """Random actions, or NaN where the policy acts, and noise for the policy's actions: [T, N, 2, size]."""
        steps = timesteps + self.position.stride * np.arange(num_steps)
        noise = np.zeros((num_steps, len(self.rngs), 2, *self._shape), np.float32)
        for i in self._drawing(active):
            rng = self.rngs[i]
            # Both are always drawn: the random streams then do not depend on random_timesteps.
            noise[:, i, 0] = self._lowest + self._span * rng.random((num_steps, *self._shape))
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


# Of several types.
_RANDOM_TIMESTEPS = Annotated[int, "first environment steps of the run with uniformly random actions", at_least(0)]
_INITIAL_SCALE = Annotated[float, "scale of the noise after the random steps", NOT_NEGATIVE]
_FINAL_SCALE = Annotated[float, "scale at the end of its line", NOT_NEGATIVE]
_SCALE_TIMESTEPS = Annotated[int, "environment steps of the line from initial_scale to final_scale", at_least(0)]


class GaussianNoise(Exploration):
    """Independent normal noise whose standard deviation shrinks."""

    random_timesteps: _RANDOM_TIMESTEPS = 1000
    stddev: Annotated[float, "standard deviation at scale 1", NOT_NEGATIVE] = 0.1
    initial_scale: _INITIAL_SCALE = 1.0
    final_scale: _FINAL_SCALE = 0.02
    scale_timesteps: _SCALE_TIMESTEPS = 10_000
    explorer = NoiseExplorer

    def numbers_alone(self, timesteps: int) -> dict[str, Any]:
        return _without_explorer(self, timesteps, self.stddev)

    def scale(self, timesteps: np.ndarray) -> np.ndarray:
        """Factor of normal noise at these environment steps, float32."""
        return (self.stddev * _scale(self, timesteps)).astype(np.float32)


class PerWorkerGaussianNoise(GaussianNoise):
    """Normal noise with a different scale in each worker, for the whole run; without workers, by the schedule."""

    differs_by_worker = True

    def in_worker(self, position: WorkerPosition) -> Exploration:
        return GaussianNoise(**_of_worker(self, position))


class OrnsteinUhlenbeckExplorer(NoiseExplorer):
    """Adds a process x that moves by theta * (0 - x) + sigma * normal at each step, from zero in each episode."""

    def __init__(self, exploration, policy, rngs, position):
        super().__init__(exploration, policy, rngs, position)
        self._state = np.zeros((len(rngs), *self._shape), np.float32)
        self._scales = iter(())

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        steps = timesteps + self.position.stride * np.arange(num_steps)
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

    def take_over(self, other: "OrnsteinUhlenbeckExplorer", environments: np.ndarray) -> None:
        self._state[environments] = other._state

    def set_state(self, state: Sequence[dict[str, Any]]) -> None:
        self.start_over()


class OrnsteinUhlenbeckNoise(Exploration):
    """Noise that is correlated over successive steps (Lillicrap et al., arXiv:1509.02971)."""

    random_timesteps: _RANDOM_TIMESTEPS = 1000
    ou_base_scale: Annotated[float, "factor of the process at scale 1", NOT_NEGATIVE] = 0.1
    ou_theta: Annotated[float, "share of the way back to zero that the process moves in a step", NOT_NEGATIVE] = 0.15
    ou_sigma: Annotated[float, "standard deviation of its steps", NOT_NEGATIVE] = 0.2
    initial_scale: _INITIAL_SCALE = 1.0
    final_scale: _FINAL_SCALE = 0.02
    scale_timesteps: _SCALE_TIMESTEPS = 10_000
    explorer = OrnsteinUhlenbeckExplorer

    def numbers_alone(self, timesteps: int) -> dict[str, Any]:
        # Single actions have no previous step: they get the stationary deviation, sigma / sqrt(1 - (1 - theta)^2).
        kept = (1 - self.ou_theta) ** 2
        spread = self.ou_sigma / math.sqrt(1 - kept) if kept < 1 else self.ou_sigma
        return _without_explorer(self, timesteps, self.ou_base_scale * spread)

    def scale(self, timesteps: np.ndarray) -> np.ndarray:
        """Standard deviation of the process's steps at these environment steps, float32."""
        return np.full(len(timesteps), self.ou_sigma, np.float32)

    def base_scale(self, timesteps: np.ndarray) -> np.ndarray:
        """Factor of the process itself at these environment steps."""
        return self.ou_base_scale * _scale(self, timesteps)


class PerWorkerOrnsteinUhlenbeckNoise(OrnsteinUhlenbeckNoise):
    """Correlated noise with a different scale in each worker, for the whole run; without workers, by the schedule."""

    differs_by_worker = True

    def in_worker(self, position: WorkerPosition) -> Exploration:
        return OrnsteinUhlenbeckNoise(**_of_worker(self, position))


def _of_worker(exploration: GaussianNoise | OrnsteinUhlenbeckNoise, position: WorkerPosition) -> dict[str, Any]:
    """The noise settings of one worker, whose scale is the `worker_epsilon` of discrete actions."""
    settings = msgspec.structs.asdict(exploration)
    if position.num_workers:
        scale = worker_epsilon(position.worker_index, position.num_workers) if position.worker_index else 0.0
        settings |= {"initial_scale": scale, "final_scale": scale}
    return settings


def _without_explorer(exploration: GaussianNoise | OrnsteinUhlenbeckNoise, timesteps: int, stddev: float) -> dict:
    """Exploration of a deterministic policy without an explorer; stddev is its standard deviation at scale 1."""
    stddev *= float(_scale(exploration, timesteps))
    return {"stddev": stddev, "epsilon": 1.0 if timesteps < exploration.random_timesteps else 0.0}


def _scale(exploration: GaussianNoise | OrnsteinUhlenbeckNoise, timesteps: np.ndarray) -> np.ndarray:
    start, end = line_between(exploration.random_timesteps, exploration.scale_timesteps)
    share = np.clip((timesteps - start) / (end - start), 0, 1)
    return exploration.initial_scale + (exploration.final_scale - exploration.initial_scale) * share


class RandomActions(Exploration):
    """Takes uniformly random actions throughout the run."""

    random_timesteps: float = float("inf")
    explorer = NoiseExplorer

    def numbers_alone(self, timesteps: int) -> dict[str, Any]:
        return {"epsilon": 1.0}

    def scale(self, timesteps: np.ndarray) -> np.ndarray:
        """Factor of normal noise: none."""
        return np.zeros(len(timesteps), np.float32)


class Random(Exploration):
    """Takes uniformly random actions in any action space."""

    def for_actions(self, action_space: spaces.Space) -> Exploration:
        return RandomActions() if isinstance(action_space, spaces.Box) else RandomValues()
