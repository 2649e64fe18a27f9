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

from rllib.models.distributions.standard import HALF_LOG_2_PI, DiagGaussian, DiagGaussianBatch, TorchDiagGaussianBatch

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
    squashed = spans_bounds = True

    def at(self, inputs: np.ndarray) -> "SquashedGaussianBatch":
        return SquashedGaussianBatch(self.size, inputs)

    def torch_at(self, inputs) -> "TorchSquashedGaussianBatch":
        return TorchSquashedGaussianBatch(self.size, inputs)


# Bounds of the logarithm of the standard deviation, as in the authors' code and in most others.
LOG_STD = (-20.0, 2.0)


@dataclass(frozen=True)
class BoundedSquashedGaussian(SquashedGaussian):
    """SquashedGaussian with bounded standard deviations, for learning from a replay: no probabilities of old actions.

    Losses draw new actions, with gradients: see `torch_draw`.

    Attributes:
        mean_limit: bound of the means on both sides, before tanh; None: unbounded. Beyond it, only gradients that lead
            back are passed on. A plain clip passes on none, and a policy whose means are beyond the limit in every
            state would stay there.
    """

    mean_limit: float | None = None
    kind = "bounded_squashed_gaussian"
    has_log_prob = False

    def sample(self, inputs: np.ndarray, noise: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        return super().sample(self.bounded(inputs), noise, out)

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        return self._mean(inputs).reshape(-1, *self.action_shape)

    def bounded(self, inputs: np.ndarray) -> np.ndarray:
        """Means and logarithms of standard deviations within their bounds, [B, 2 size]; `at` evaluates their densities.

        For estimates of how probable actions are; losses know the densities of what they draw.
        """
        return np.concatenate([self._mean(inputs), np.clip(inputs[:, self.size :], *LOG_STD)], axis=1)

    def _mean(self, inputs):
        mean = inputs[:, : self.size]
        return mean if self.mean_limit is None else np.clip(mean, -self.mean_limit, self.mean_limit)

    def log_prob_of(self, inputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """log p(tanh(u)) of actions u [B, size] that `sample` has drawn from these inputs, float32 [B]."""
        mean, log_std = self._mean(inputs), np.clip(inputs[:, self.size :], *LOG_STD)
        u = actions.reshape(len(actions), self.size)
        scaled = (u - mean) * np.exp(-log_std)
        log_prob = -(np.float32(0.5) * scaled * scaled + log_std + np.float32(HALF_LOG_2_PI)) - _log_slope(u)
        return np.add.reduce(log_prob, -1)

    def draw(self, inputs: np.ndarray, noise: np.ndarray) -> "Draw":
        """Draws actions whose gradients are known, from arrays; arguments as for `torch_draw`."""
        return Draw(self.size, inputs, noise, self.mean_limit)

    def torch_draw(self, inputs, noise) -> tuple:
        """Draws actions that have a gradient (appendix C of the paper).

        Args:
            inputs: tensor [B, 2 size].
            noise: standard normal numbers [B, size].

        Returns:
            tanh(u) [B, size], and log p(tanh(u)) [B].
        """
        mean, log_std = inputs.chunk(2, dim=-1)
        log_std = log_std.clamp(*LOG_STD)
        if self.mean_limit is not None:
            mean = _clip().apply(mean, self.mean_limit)
        u = mean + log_std.exp() * noise
        # -((u - mean) / std)^2 / 2 is -noise^2 / 2, without a gradient.
        log_prob = -(0.5 * noise.square() + log_std + HALF_LOG_2_PI) - _torch_log_slope(u)
        return u.tanh(), log_prob.sum(-1)


class Draw:
    """Squashed actions drawn with given noise, their log-probabilities and both gradients.

    Attributes:
        actions: tanh(u), [B, size].
        log_prob: log p(tanh(u)), [B].
    """

    def __init__(self, size: int, inputs: np.ndarray, noise: np.ndarray, mean_limit: float | None = None):
        mean, given = inputs[:, :size], inputs[:, size:]
        log_std = np.clip(given, *LOG_STD)
        self._is_free, self._beyond = log_std == given, None
        if mean_limit is not None:
            self._beyond = np.sign(mean) * (np.abs(mean) > mean_limit)
            mean = np.clip(mean, -mean_limit, mean_limit)
        self._deviation = np.exp(log_std) * noise
        u = mean + self._deviation
        self.actions = np.tanh(u)
        log_prob = -(np.float32(0.5) * noise * noise + log_std + np.float32(HALF_LOG_2_PI)) - _log_slope(u)
        self.log_prob = np.add.reduce(log_prob, -1)

    def gradient(self, d_actions: np.ndarray, d_log_prob: float) -> np.ndarray:
        """Gradient with respect to the inputs, [B, 2 size].

        Args:
            d_actions: gradient with respect to the actions, [B, size].
            d_log_prob: weight of every row's log-probability.
        """
        # u = mean + std noise;  d log p / d u = 2 tanh(u),  and log p has -log std besides.
        a, weight = self.actions, np.float32(d_log_prob)
        d_u = d_actions * (1 - a * a) + 2 * weight * a
        d_log_std = (d_u * self._deviation - weight) * self._is_free
        d_mean = d_u if self._beyond is None else np.where(self._beyond * d_u < 0, np.float32(0), d_u)
        return np.concatenate([d_mean, d_log_std], axis=1)


class SquashedGaussianBatch(DiagGaussianBatch):
    """One squashed normal distribution per row; methods as in CategoricalBatch."""

    def __init__(self, size: int, inputs: np.ndarray):
        super().__init__(size, inputs)
        # Of each component the quadrature's points, [B, size, nodes].
        self._deviations = np.exp(self.log_std)[..., None] * quadrature()[0].astype(inputs.dtype)
        self._points = self.mean[..., None] + self._deviations

    def log_prob(self, actions: np.ndarray) -> np.ndarray:
        u = actions.reshape(len(actions), self._size)
        return super().log_prob(actions) - np.add.reduce(_log_slope(u), -1)

    def entropy(self) -> np.ndarray:
        return super().entropy() + np.add.reduce(_log_slope(self._points) @ quadrature()[1], -1)

    def gradient(self, d_log_prob: np.ndarray | None, d_entropy: float = 0.0, d_kl: float = 0.0) -> np.ndarray:
        gradient = super().gradient(d_log_prob, d_entropy, d_kl)
        if d_entropy:
            slope, weights = np.float32(-2 * d_entropy) * np.tanh(self._points), quadrature()[1]
            gradient[:, : self._size] += slope @ weights
            gradient[:, self._size :] += (slope * self._deviations) @ weights
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
