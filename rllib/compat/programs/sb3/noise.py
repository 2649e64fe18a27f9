"""Noise of actions by Stable-Baselines3's names. TD3 and DDPG read what it is made of; programs may also call it."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable

import numpy as np


class ActionNoise(ABC):
    """Base class of noise."""

    def reset(self) -> None:
        """Begins an episode."""

    @abstractmethod
    def __call__(self) -> np.ndarray:
        """The next noise, [A]."""


class NormalActionNoise(ActionNoise):
    """Normal noise, independent at each step.

    Args:
        mean, sigma: [A], of the actions scaled to [-1, 1].
        dtype: dtype of the noise.
    """

    def __init__(self, mean: np.ndarray, sigma: np.ndarray, dtype: type = np.float32):
        self._mu, self._sigma, self._dtype = mean, sigma, dtype

    def __call__(self):
        return np.random.normal(self._mu, self._sigma).astype(self._dtype)

    def __repr__(self) -> str:
        return f"NormalActionNoise(mu={self._mu}, sigma={self._sigma})"


class OrnsteinUhlenbeckActionNoise(ActionNoise):
    """Noise that drifts back to its mean: dx = theta (mu - x) dt + sigma sqrt(dt) N(0, 1).

    Args:
        mean, sigma: [A].
        theta, dt: of the process.
        initial_noise: [A] at the beginning of an episode; None: zeros.
        dtype: dtype of the noise.
    """

    def __init__(
        self,
        mean: np.ndarray,
        sigma: np.ndarray,
        theta: float = 0.15,
        dt: float = 1e-2,
        initial_noise: np.ndarray | None = None,
        dtype: type = np.float32,
    ):
        self._mu, self._sigma, self._theta, self._dt, self._dtype = mean, sigma, theta, dt, dtype
        self.initial_noise = initial_noise
        self.reset()

    def __call__(self):
        drift = self._theta * (self._mu - self.noise_prev) * self._dt
        noise = self.noise_prev + drift + self._sigma * np.sqrt(self._dt) * np.random.normal(size=np.shape(self._mu))
        self.noise_prev = noise
        return noise.astype(self._dtype)

    def reset(self):
        self.noise_prev = np.zeros_like(self._mu) if self.initial_noise is None else self.initial_noise

    def __repr__(self) -> str:
        return f"OrnsteinUhlenbeckActionNoise(mu={self._mu}, sigma={self._sigma})"


class VectorizedActionNoise(ActionNoise):
    """Separate noise for each environment.

    Args:
        base_noise: the pattern.
        n_envs: number of environments.
    """

    def __init__(self, base_noise: ActionNoise, n_envs: int):
        if not isinstance(base_noise, ActionNoise):
            raise TypeError(f"base_noise={base_noise!r:.60} must be an ActionNoise")
        if n_envs < 1:
            raise ValueError(f"n_envs={n_envs!r} must be an integer >= 1")
        self.base_noise, self.n_envs = base_noise, int(n_envs)
        self.noises = [copy.deepcopy(base_noise) for _ in range(self.n_envs)]
        # What a constructor reads; the environments' noises are independent there in any case.
        self._mu, self._sigma = base_noise._mu, base_noise._sigma

    def reset(self, indices: Iterable[int] | None = None):
        for index in range(self.n_envs) if indices is None else indices:
            self.noises[index].reset()

    def __call__(self):
        return np.stack([noise() for noise in self.noises])
