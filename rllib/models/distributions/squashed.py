"""A Gaussian squashed into the bounds of actions: a = tanh(u), u normal (Haarnoja et al., arXiv:1801.01290).

The stored action is u, before tanh: nothing has to be inverted, and no precision is lost where tanh is flat. The mapper
of actions applies tanh and stretches the result to the bounds (env/spaces/actions.py). Densities and entropies refer to
tanh(u) in [-1, 1]:

    log p(a) = log N(u) - sum log(1 - tanh(u)^2),    log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))

tanh is one to one, so divergences equal the Gaussians'. The entropy has no closed form; it is the Gaussian's plus
the mean of the same logarithm, by Gauss-Hermite quadrature, and its gradient follows from d/du log(1 - tanh(u)^2) =
-2 tanh(u). (The log-probability of the action taken, which others put in its place, has a gradient of mean zero.)
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from rllib.models.distributions.base import ActionUnit
from rllib.models.distributions.standard import (
    HALF_LOG_2_PI,
    DiagGaussian,
    DiagGaussianBatch,
    GaussianDraw,
    TorchDiagGaussianBatch,
    TorchGaussianDraw,
)

NUM_NODES = 32


@functools.cache
def quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Points and weights for the mean of a function of a standard normal number, float32 [NUM_NODES] each."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NUM_NODES)  # 9 ms, which an import should not take
    return nodes.astype(np.float32), (weights / weights.sum()).astype(np.float32)


@dataclass(frozen=True)
class SquashedGaussian(DiagGaussian):
    """Independent normal components, squashed by tanh; inputs as DiagGaussian's, actions before tanh."""

    kind = "squashed_gaussian"
    unit = ActionUnit.BEFORE_TANH
    spans_bounds = True

    def at(self, inputs: np.ndarray) -> "SquashedGaussianBatch":
        return SquashedGaussianBatch(self, inputs)

    def torch_at(self, inputs) -> "TorchSquashedGaussianBatch":
        return TorchSquashedGaussianBatch(self, inputs)

    def draw(self, inputs: np.ndarray, noise: np.ndarray) -> "SquashedDraw":
        return SquashedDraw(self, inputs, noise)

    def torch_draw(self, inputs, noise) -> "TorchSquashedDraw":
        return TorchSquashedDraw(self, inputs, noise)


# Bounds of the logarithm of the standard deviation, as in the authors' code and in most others.
LOG_STD = (-20.0, 2.0)


@dataclass(frozen=True)
class BoundedSquashedGaussian(SquashedGaussian):
    """SquashedGaussian with bounded standard deviations, for learning from a replay: no probabilities of old actions.

    Losses draw new actions, with gradients (appendix C of the paper): see `draw`.

    Attributes:
        mean_limit: bound of the means on both sides, before tanh; None: unbounded. Beyond it, only gradients that lead
            back are passed on. A plain clip passes on none, and a policy whose means are beyond the limit in every
            state would stay there.
    """

    mean_limit: float | None = None
    kind = "bounded_squashed_gaussian"
    has_log_prob = False

    def moments(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = inputs[:, : self.size]
        if self.mean_limit is not None:
            mean = np.clip(mean, -self.mean_limit, self.mean_limit)
        return mean, np.clip(inputs[:, self.size :], *LOG_STD)

    def torch_moments(self, inputs) -> tuple:
        (mean, log_std), limit = inputs.chunk(2, dim=-1), self.mean_limit
        if limit is not None:
            mean = _clip().apply(mean, limit) if mean.requires_grad else mean.clamp(-limit, limit)
        return mean, log_std.clamp(*LOG_STD)

    def through_bounds(self, gradient: np.ndarray, inputs: np.ndarray, mean: np.ndarray, log_std: np.ndarray) -> None:
        gradient[:, self.size :] *= log_std == inputs[:, self.size :]
        if self.mean_limit is not None:
            given, d_mean = inputs[:, : self.size], gradient[:, : self.size]
            d_mean[np.sign(given) * (given != mean) * d_mean < 0] = 0

    def log_prob_of(self, inputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """log p(tanh(u)) of actions u [B, size] that `sample` has drawn from these inputs, float32 [B]."""
        mean, log_std = self.moments(inputs)
        u = actions.reshape(len(actions), self.size)
        scaled = (u - mean) * np.exp(-log_std)
        log_prob = -(np.float32(0.5) * scaled * scaled + log_std + np.float32(HALF_LOG_2_PI)) - _log_slope(u)
        return np.add.reduce(log_prob, -1)


class SquashedDraw(GaussianDraw):
    """Normal actions u, squashed to tanh(u)."""

    def _to_actions(self) -> np.ndarray:
        return np.tanh(self._u)

    def _log_densities(self) -> np.ndarray:
        return super()._log_densities() - _log_slope(self._u)

    def _d_u(self, d_actions: np.ndarray, weight: np.float32) -> np.ndarray:
        # d log p / d u = 2 tanh(u)
        a = self.actions
        return d_actions * (1 - a * a) + 2 * weight * a


class TorchSquashedDraw(TorchGaussianDraw):
    """SquashedDraw of tensors."""

    def _to_actions(self):
        return self._u.tanh()

    def _log_densities(self):
        return super()._log_densities() - _torch_log_slope(self._u)


class SquashedGaussianBatch(DiagGaussianBatch):
    """One squashed normal distribution per row; methods as in CategoricalBatch."""

    @functools.cached_property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """The quadrature's points of each component and their distances from the mean, [B, size, nodes] each."""
        deviations = np.exp(self.log_std)[..., None] * quadrature()[0].astype(self.mean.dtype)
        return self.mean[..., None] + deviations, deviations

    def log_prob(self, actions: np.ndarray) -> np.ndarray:
        u = actions.reshape(len(actions), self._size)
        return super().log_prob(actions) - np.add.reduce(_log_slope(u), -1)

    def entropy(self) -> np.ndarray:
        return super().entropy() + np.add.reduce(_log_slope(self._nodes[0]) @ quadrature()[1], -1)

    def _of_moments(self, d_log_prob: np.ndarray | None, d_entropy: float, d_kl: float) -> np.ndarray:
        gradient = super()._of_moments(d_log_prob, d_entropy, d_kl)
        if d_entropy:
            points, deviations = self._nodes
            slope, weights = np.float32(-2 * d_entropy) * np.tanh(points), quadrature()[1]
            gradient[:, : self._size] += slope @ weights
            gradient[:, self._size :] += (slope * deviations) @ weights
        return gradient


def _log_slope(u: np.ndarray) -> np.ndarray:
    """log(1 - tanh(u)^2), exact for any u."""
    return u.dtype.type(2) * (u.dtype.type(math.log(2)) - u - np.logaddexp(u.dtype.type(0), -2 * u))


class TorchSquashedGaussianBatch(TorchDiagGaussianBatch):
    """Like SquashedGaussianBatch, of a tensor, for autograd."""

    def log_prob(self, actions):
        return super().log_prob(actions) - _torch_log_slope(actions.reshape(len(actions), self._size)).sum(-1)

    def entropy(self):
        nodes, weights = map(self.mean.new_tensor, quadrature())
        points = self.mean[..., None] + self.log_std.exp()[..., None] * nodes
        return super().entropy() + (_torch_log_slope(points) @ weights).sum(-1)


def _torch_log_slope(u):
    # Even in u, and written so: autograd gives -2 tanh(u) at u = 0, too.
    size = u.abs()
    return 2 * (math.log(2) - size - (-2 * size).exp().log1p())


@functools.cache
def _clip() -> type:
    """Clamp to -limit ... limit whose gradient is kept where it leads back into the range."""
    import torch

    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, limit: float):
            ctx.save_for_backward(x)
            ctx.limit = limit
            return x.clamp(-limit, limit)

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            # A step against the gradient would lead farther away.
            outwards = (x.abs() > ctx.limit) & (x * gradient < 0)
            return gradient.masked_fill(outwards, 0.0), None

    return Clip
