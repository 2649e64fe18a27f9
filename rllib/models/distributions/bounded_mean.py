"""A normal distribution whose mean is bounded by tanh, for actions in [-1, 1] that others have taken.

    a ~ N(tanh(m), exp(clip(l, -5, 2))^2)

Unlike a squashed distribution it has a finite density at the bounds, where recorded actions often lie. It is the actor
of implicit Q-learning (arXiv:2110.06169). Actions that are drawn beyond the bounds are clipped by their mapper.
"""

from dataclasses import dataclass

import numpy as np

from rllib.models.distributions.standard import DiagGaussian, GaussianDraw, TorchGaussianDraw

# Bounds of the logarithm of the standard deviation.
LOG_STD = (-5.0, 2.0)


@dataclass(frozen=True)
class BoundedMeanGaussian(DiagGaussian):
    """Independent normal components with means in [-1, 1].

    Inputs are the means before tanh, and the logarithms of the standard deviations. Draws are clipped to [-1, 1], as
    the environment would get them; their log-probabilities are those before.
    """

    kind = "bounded_mean_gaussian"
    spans_bounds = True

    def moments(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.tanh(inputs[:, : self.size]), np.clip(inputs[:, self.size :], *LOG_STD)

    def torch_moments(self, inputs) -> tuple:
        mean, log_std = inputs.chunk(2, dim=-1)
        return mean.tanh(), log_std.clamp(*LOG_STD)

    def through_bounds(self, gradient: np.ndarray, inputs: np.ndarray, mean: np.ndarray, log_std: np.ndarray) -> None:
        gradient[:, : self.size] *= 1 - mean * mean
        gradient[:, self.size :] *= inputs[:, self.size :] == log_std

    def draw(self, inputs: np.ndarray, noise: np.ndarray) -> "ClippedDraw":
        return ClippedDraw(self, inputs, noise)

    def torch_draw(self, inputs, noise) -> "TorchClippedDraw":
        return TorchClippedDraw(self, inputs, noise)


class ClippedDraw(GaussianDraw):
    """Normal actions, clipped to [-1, 1]."""

    def _to_actions(self) -> np.ndarray:
        return np.clip(self._u, -1, 1)

    def _d_u(self, d_actions: np.ndarray, weight: np.float32) -> np.ndarray:
        return d_actions * (self.actions == self._u)


class TorchClippedDraw(TorchGaussianDraw):
    """ClippedDraw of tensors."""

    def _to_actions(self):
        return self._u.clamp(-1, 1)
