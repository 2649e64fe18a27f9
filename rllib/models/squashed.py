"""A Gaussian squashed into the bounds of actions: a = tanh(u), u normal (Haarnoja et al., arXiv:1801.01290).

The stored action is u, before tanh: nothing has to be inverted, and no precision is lost where tanh is flat. The mapper
of actions applies tanh and stretches the result to the bounds (env/actions.py). Densities and entropies are those of
tanh(u) in [-1, 1]:

    log p(a) = log N(u) - sum log(1 - tanh(u)^2),    log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))

tanh is one to one, so divergences are those of the Gaussians. The entropy has no closed form; it is the Gaussian's plus
the mean of the same logarithm, by Gauss-Hermite quadrature, and its gradient follows from d/du log(1 - tanh(u)^2) =
-2 tanh(u). (The log-probability of the action taken, which others put in its place, has a gradient of mean zero.)
"""

import math
from dataclasses import dataclass

import numpy as np

from rllib.models.distributions import DiagGaussian, DiagGaussianBatch, TorchDiagGaussianBatch

# Points and weights for the mean of a function of a standard normal number.
NUM_NODES = 32
NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(NUM_NODES)
WEIGHTS = (_WEIGHTS / _WEIGHTS.sum()).astype(np.float32)
NODES = NODES.astype(np.float32)


@dataclass(frozen=True)
class SquashedGaussian(DiagGaussian):
    """Independent normal components, squashed by tanh; inputs as DiagGaussian's, actions before tanh."""

    kind = "squashed_gaussian"
    squashed = True

    def at(self, inputs: np.ndarray) -> "SquashedGaussianBatch":
        return SquashedGaussianBatch(self.size, inputs)

    def torch_at(self, inputs) -> "TorchSquashedGaussianBatch":
        return TorchSquashedGaussianBatch(self.size, inputs)


class SquashedGaussianBatch(DiagGaussianBatch):
    """One squashed normal distribution per row; methods as in CategoricalBatch."""

    def __init__(self, size: int, inputs: np.ndarray):
        super().__init__(size, inputs)
        # Of each component the quadrature's points, [B, size, nodes].
        self._deviations = np.exp(self.log_std)[..., None] * NODES.astype(inputs.dtype)
        self._points = self.mean[..., None] + self._deviations

    def log_prob(self, actions: np.ndarray) -> np.ndarray:
        u = actions.reshape(len(actions), self._size)
        return super().log_prob(actions) - np.add.reduce(_log_slope(u), -1)

    def entropy(self) -> np.ndarray:
        return super().entropy() + np.add.reduce(_log_slope(self._points) @ WEIGHTS, -1)

    def gradient(self, d_log_prob: np.ndarray | None, d_entropy: float = 0.0, d_kl: float = 0.0) -> np.ndarray:
        gradient = super().gradient(d_log_prob, d_entropy, d_kl)
        if d_entropy:
            slope = np.float32(-2 * d_entropy) * np.tanh(self._points)
            gradient[:, : self._size] += slope @ WEIGHTS
            gradient[:, self._size :] += (slope * self._deviations) @ WEIGHTS
        return gradient


def _log_slope(u: np.ndarray) -> np.ndarray:
    """log(1 - tanh(u)^2), exact for any u."""
    return u.dtype.type(2) * (u.dtype.type(math.log(2)) - u - np.logaddexp(u.dtype.type(0), -2 * u))


class TorchSquashedGaussianBatch(TorchDiagGaussianBatch):
    """SquashedGaussianBatch of a tensor, for autograd."""

    def log_prob(self, actions):
        return super().log_prob(actions) - _torch_log_slope(actions.reshape(len(actions), self._size)).sum(-1)

    def entropy(self):
        nodes, weights = self.mean.new_tensor(NODES), self.mean.new_tensor(WEIGHTS)
        points = self.mean[..., None] + self.log_std.exp()[..., None] * nodes
        return super().entropy() + (_torch_log_slope(points) @ weights).sum(-1)


def _torch_log_slope(u):
    return 2 * (math.log(2) - u - (-2 * u).clamp(min=0) - (-(2 * u).abs()).exp().log1p())
