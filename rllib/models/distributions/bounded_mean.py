"""A normal distribution whose mean is bounded by tanh, for actions in [-1, 1] that others have taken.

    a ~ N(tanh(m), exp(clip(l, -5, 2))^2)

Unlike a squashed distribution it has a finite density at the bounds, where recorded actions often lie. It is the actor
of implicit Q-learning (arXiv:2110.06169). Actions that are drawn beyond the bounds are clipped by their mapper.
"""

from dataclasses import dataclass

import numpy as np

from rllib.models.distributions.standard import DiagGaussian, DiagGaussianBatch, TorchDiagGaussianBatch

# Bounds of the logarithm of the standard deviation.
LOG_STD = (-5.0, 2.0)


@dataclass(frozen=True)
class BoundedMeanGaussian(DiagGaussian):
    """Independent normal components with means in [-1, 1].

    Inputs are the means before tanh, and the logarithms of the standard deviations.
    """

    kind = "bounded_mean_gaussian"
    spans_bounds = True

    def sample(self, inputs: np.ndarray, noise: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        return super().sample(self._bounded(inputs), noise, out)

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        """The means [B, *action_shape]."""
        return np.tanh(inputs[:, : self.size]).reshape(-1, *self.action_shape)

    def at(self, inputs: np.ndarray) -> "BoundedMeanBatch":
        return BoundedMeanBatch(self.size, inputs, self._bounded(inputs))

    def torch_at(self, inputs) -> TorchDiagGaussianBatch:
        import torch

        mean, log_std = inputs.chunk(2, dim=-1)
        return TorchDiagGaussianBatch(self.size, torch.cat([mean.tanh(), log_std.clamp(*LOG_STD)], dim=-1))

    def _bounded(self, inputs: np.ndarray) -> np.ndarray:
        bounded = np.empty_like(inputs)
        np.tanh(inputs[:, : self.size], out=bounded[:, : self.size])
        np.clip(inputs[:, self.size :], *LOG_STD, out=bounded[:, self.size :])
        return bounded


class BoundedMeanBatch(DiagGaussianBatch):
    """One such distribution per row; methods as in CategoricalBatch."""

    def __init__(self, size: int, inputs: np.ndarray, bounded: np.ndarray):
        super().__init__(size, bounded)
        self._is_free = inputs[:, size:] == self.log_std

    def gradient(self, d_log_prob: np.ndarray | None, d_entropy: float = 0.0, d_kl: float = 0.0) -> np.ndarray:
        gradient = super().gradient(d_log_prob, d_entropy, d_kl)
        gradient[:, : self._size] *= 1 - self.mean * self.mean
        gradient[:, self._size :] *= self._is_free
        return gradient
