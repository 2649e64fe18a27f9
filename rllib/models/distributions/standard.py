"""Action distributions: in numpy with closed-form gradients, and in torch for autograd.

A distribution is a description without state: the number of its network inputs and the form of an action.
`at(inputs)` evaluates it for a batch; shared terms are computed once there. Everything is a sum over the
parts of an action, so each result has one number per row. `torch_at(inputs)` is the same for tensors, without
`gradient`. Distributions whose `has_log_prob` is False (q_values.py) have no probabilities: they evaluate values.

Inputs are [B, num_inputs] float32, best in feature-major memory (the transpose of a contiguous array), because then
reductions over actions run along contiguous rows.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rllib.models.distributions.base import Distribution, Draw
from rllib.models.distributions.q_values import QValues

HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)
TINY = np.finfo(np.float32).tiny
LEAST = np.finfo(np.float32).min


def joint_log_prob(of_parts: Sequence):
    """Sum of log-probabilities [B] of independent parts, arrays or tensors; finite, as that of each part is.

    An illegal choice has the least float32 as its log-probability, and the sum of two of them would be infinite. Rows
    that no loss counts may hold such actions: that from which a truncated episode is bootstrapped has action 0.
    """
    with np.errstate(over="ignore"):
        return sum(of_parts).clip(min=LEAST)


def _gumbel(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Standard Gumbel numbers: -log of standard exponential ones."""
    noise = rng.standard_exponential(shape, dtype=np.float32)
    np.maximum(noise, TINY, out=noise)
    np.log(noise, out=noise)
    return np.negative(noise, out=noise)


@dataclass(frozen=True)
class Categorical(Distribution):
    """One of `num_actions` integers; the inputs are unnormalised log-probabilities."""

    num_actions: int
    kind = "categorical"
    action_shape = ()
    action_dtype = np.dtype(np.int64)
    has_log_prob = True
    gives_values = False

    @property
    def num_inputs(self) -> int:
        """Number of network outputs for one action."""
        return self.num_actions

    @property
    def choices(self) -> tuple[tuple[int, int], ...]:
        """Columns (start, stop) of the inputs with the choices of each part of an action."""
        return ((0, self.num_actions),)

    @property
    def num_noise(self) -> int:
        """Number of random numbers for one action."""
        return self.num_actions

    def noise(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        """Noise for `sample`, float32 [*shape, num_inputs]; drawn ahead, for a whole fragment at once."""
        return _gumbel(rng, (*shape, self.num_actions))

    def sample(self, inputs: np.ndarray, noise: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Actions [B] by the Gumbel-max trick: the argmax of inputs + noise needs no softmax."""
        return np.add(inputs, noise).argmax(-1, out=out)

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        """The most probable actions [B]."""
        return inputs.argmax(-1)

    def at(self, inputs: np.ndarray) -> "CategoricalBatch":
        """The distributions of a batch."""
        return CategoricalBatch(inputs)

    def torch_at(self, inputs) -> "TorchCategoricalBatch":
        """As `at`, for a tensor."""
        return TorchCategoricalBatch(inputs)


class CategoricalBatch:
    """One categorical distribution per row of inputs [B, n]."""

    def __init__(self, inputs: np.ndarray):
        shifted = inputs - inputs.max(-1, keepdims=True)
        probabilities = np.exp(shifted)
        total = probabilities.sum(-1, keepdims=True)
        probabilities /= total
        shifted -= np.log(total)
        self.probabilities = probabilities
        self.log_probabilities = shifted
        self._actions = self._old = self._entropy = None

    def log_prob(self, actions: np.ndarray) -> np.ndarray:
        """Log-probability [B] of the actions [B]."""
        self._actions = (np.arange(len(actions)), actions)
        return self.log_probabilities[self._actions]

    def entropy(self) -> np.ndarray:
        """Entropy [B] in nats."""
        self._entropy = -np.add.reduce(self.probabilities * self.log_probabilities, -1)
        return self._entropy

    def kl_from(self, old_inputs: np.ndarray) -> np.ndarray:
        """KL(old || self) [B], the old distribution given by its inputs."""
        self._old = old = CategoricalBatch(old_inputs)
        return np.add.reduce(old.probabilities * (old.log_probabilities - self.log_probabilities), -1)

    def gradient(self, d_log_prob: np.ndarray | None, d_entropy: float = 0.0, d_kl: float = 0.0) -> np.ndarray:
        """Gradient [B, n] of sum(d_log_prob * log_prob + d_entropy * entropy + d_kl * kl) with respect to the inputs.

        Args:
            d_log_prob: weight [B] of each row's last computed log_prob; None leaves it out.
            d_entropy, d_kl: weights of the last computed entropies and divergences, the same for every row.
        """
        # d log p_a = 1[a] - p;  dH = -p (log p + H);  dKL = p - p_old.
        p = self.probabilities
        factor = np.zeros((len(p), 1), p.dtype) if d_log_prob is None else -d_log_prob[:, None]
        if d_entropy:
            factor = factor - np.float32(d_entropy) * (self.log_probabilities + self._entropy[:, None])
        if d_kl:
            factor = factor + np.float32(d_kl)
        gradient = p * factor
        if d_kl:
            gradient -= np.float32(d_kl) * self._old.probabilities
        if d_log_prob is not None:
            gradient[self._actions] += d_log_prob
        return gradient


class TorchCategoricalBatch:
    """CategoricalBatch of a tensor, for autograd."""

    def __init__(self, inputs):
        self.log_probabilities = inputs.log_softmax(-1)
        self.probabilities = self.log_probabilities.exp()

    def log_prob(self, actions):
        return self.log_probabilities.gather(-1, actions[:, None])[:, 0]

    def entropy(self):
        return -(self.probabilities * self.log_probabilities).sum(-1)

    def kl_from(self, old_inputs):
        old = old_inputs.log_softmax(-1)
        return (old.exp() * (old - self.log_probabilities)).sum(-1)


@dataclass(frozen=True)
class MultiCategorical(Distribution):
    """Several independent integers, each with its own number of choices; the inputs are their logits side by side.

    Attributes:
        sizes: number of choices of each part.
        shape: shape of an action; its product is the number of parts. None: a vector.
    """

    sizes: tuple[int, ...]
    shape: tuple[int, ...] | None = None
    kind = "multi_categorical"
    action_dtype = np.dtype(np.int64)
    has_log_prob = True
    gives_values = False

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return (len(self.sizes),) if self.shape is None else self.shape

    @property
    def num_inputs(self) -> int:
        """Number of network outputs for one action."""
        return sum(self.sizes)

    @property
    def choices(self) -> tuple[tuple[int, int], ...]:
        """Columns (start, stop) of the inputs with the choices of each part of an action."""
        return tuple((part.start, part.stop) for part in self.slices())

    @property
    def num_noise(self) -> int:
        """Number of random numbers for one action."""
        return self.num_inputs

    def noise(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        """The noise for `sample`, [*shape, num_inputs] float32."""
        return _gumbel(rng, (*shape, self.num_inputs))

    def sample(self, inputs: np.ndarray, noise: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Actions [B, *action_shape]."""
        return self._argmax(np.add(inputs, noise), out)

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        """The most probable actions [B, *action_shape]."""
        return self._argmax(inputs, None)

    def _argmax(self, scores: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        if out is None:
            out = np.empty((len(scores), *self.action_shape), self.action_dtype)
        parts = out.reshape(len(scores), len(self.sizes))
        for index, part in enumerate(self.slices()):
            parts[:, index] = scores[:, part].argmax(-1)
        return out

    def slices(self) -> list[slice]:
        """Slices of the inputs with the logits of each part."""
        ends = np.cumsum(self.sizes).tolist()
        return [slice(end - size, end) for size, end in zip(self.sizes, ends)]

    def at(self, inputs: np.ndarray) -> "MultiCategoricalBatch":
        """The distributions of a batch."""
        return MultiCategoricalBatch(self.slices(), [CategoricalBatch(inputs[:, part]) for part in self.slices()])

    def torch_at(self, inputs) -> "MultiCategoricalBatch":
        """As `at`, for a tensor."""
        return MultiCategoricalBatch(self.slices(), [TorchCategoricalBatch(inputs[:, part]) for part in self.slices()])


class MultiCategoricalBatch:
    """MultiCategorical distributions, one per row; methods as in CategoricalBatch."""

    def __init__(self, slices: list[slice], parts: list):
        self._slices, self._parts = slices, parts

    def log_prob(self, actions: np.ndarray) -> np.ndarray:
        columns = actions.reshape(len(actions), len(self._parts)).T
        return joint_log_prob([part.log_prob(column) for part, column in zip(self._parts, columns)])

    def entropy(self) -> np.ndarray:
        return sum(part.entropy() for part in self._parts)

    def kl_from(self, old_inputs: np.ndarray) -> np.ndarray:
        return sum(part.kl_from(old_inputs[:, where]) for part, where in zip(self._parts, self._slices))

    def gradient(self, d_log_prob: np.ndarray | None, d_entropy: float = 0.0, d_kl: float = 0.0) -> np.ndarray:
        return np.concatenate([part.gradient(d_log_prob, d_entropy, d_kl) for part in self._parts], axis=-1)


@dataclass(frozen=True)
class OfNumbers(Distribution):
    """Distribution of arrays of float32 numbers."""

    action_shape: tuple[int, ...]
    action_dtype = np.dtype(np.float32)
    gives_values = False
    choices = ()  # none: the components are numbers

    @property
    def size(self) -> int:
        """Components of an action."""
        return math.prod(self.action_shape)


@dataclass(frozen=True)
class DiagGaussian(OfNumbers):
    """Independent normal components; the inputs are means and logarithms of standard deviations, side by side."""

    kind = "diag_gaussian"
    has_log_prob = True

    @property
    def num_inputs(self) -> int:
        """Number of network outputs for one action."""
        return 2 * self.size

    @property
    def num_noise(self) -> int:
        """Number of random numbers for one action."""
        return self.size

    def noise(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        """The noise for `sample`, [*shape, size] float32."""
        return rng.standard_normal((*shape, self.size), dtype=np.float32)

    def moments(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and logarithms of standard deviations, [B, size] each, within their bounds."""
        return inputs[:, : self.size], inputs[:, self.size :]

    def torch_moments(self, inputs) -> tuple:
        """As `moments`, for a tensor and autograd."""
        return inputs[:, : self.size], inputs[:, self.size :]

    def through_bounds(self, gradient: np.ndarray, inputs: np.ndarray, mean: np.ndarray, log_std: np.ndarray) -> None:
        """Makes the gradient of the moments [B, 2 size] that of the inputs, in place."""

    def sample(self, inputs: np.ndarray, noise: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Actions [B, *action_shape]: mean + standard deviation * noise."""
        if out is None:
            out = np.empty((len(inputs), *self.action_shape), np.float32)
        flat, (mean, log_std) = out.reshape(len(inputs), self.size), self.moments(inputs)
        np.exp(log_std, out=flat)
        np.multiply(flat, noise, out=flat)
        np.add(flat, mean, out=flat)
        return out

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        """The means [B, *action_shape]."""
        return self.moments(inputs)[0].reshape(-1, *self.action_shape)

    def at(self, inputs: np.ndarray) -> "DiagGaussianBatch":
        """The distributions of a batch."""
        return DiagGaussianBatch(self, inputs)

    def torch_at(self, inputs) -> "TorchDiagGaussianBatch":
        """As `at`, for a tensor."""
        return TorchDiagGaussianBatch(self, inputs)

    def draw(self, inputs: np.ndarray, noise: np.ndarray) -> Draw:
        return GaussianDraw(self, inputs, noise)

    def torch_draw(self, inputs, noise) -> Draw:
        return TorchGaussianDraw(self, inputs, noise)


class DiagGaussianBatch:
    """One normal distribution per row; methods as in CategoricalBatch."""

    def __init__(self, distribution: DiagGaussian, inputs: np.ndarray):
        self._distribution, self._inputs, self._size = distribution, inputs, distribution.size
        self.mean, self.log_std = distribution.moments(inputs)
        self._inverse_std = np.exp(-self.log_std)
        self._z = self._kl_difference = self._kl_ratio = None

    def log_prob(self, actions: np.ndarray) -> np.ndarray:
        # -((a - mean) / std)^2 / 2 - log std - log sqrt(2 pi), summed over the components.
        self._z = z = (actions.reshape(len(actions), self._size) - self.mean) * self._inverse_std
        return -np.add.reduce(z * z * np.float32(0.5) + self.log_std, -1) - np.float32(self._size * HALF_LOG_2_PI)

    def entropy(self) -> np.ndarray:
        return np.add.reduce(self.log_std, -1) + np.float32(self._size * (HALF_LOG_2_PI + 0.5))

    def kl_from(self, old_inputs: np.ndarray) -> np.ndarray:
        # log(std / std_old) + (std_old^2 + (mean_old - mean)^2) / (2 std^2) - 1/2, summed over the components.
        old_mean, old_log_std = self._distribution.moments(old_inputs)
        log_ratio = old_log_std - self.log_std
        self._kl_difference = difference = (self.mean - old_mean) * self._inverse_std
        self._kl_ratio = ratio = np.exp(log_ratio * np.float32(2)) + difference * difference
        return np.add.reduce(ratio * np.float32(0.5) - log_ratio - np.float32(0.5), -1)

    def gradient(self, d_log_prob: np.ndarray | None, d_entropy: float = 0.0, d_kl: float = 0.0) -> np.ndarray:
        gradient = self._of_moments(d_log_prob, d_entropy, d_kl)
        self._distribution.through_bounds(gradient, self._inputs, self.mean, self.log_std)
        return gradient

    def _of_moments(self, d_log_prob: np.ndarray | None, d_entropy: float, d_kl: float) -> np.ndarray:
        """`gradient` with respect to the means and the logarithms of the standard deviations."""
        size = self._size
        gradient = np.zeros((2 * size, len(self.mean)), self.mean.dtype).T
        d_mean, d_log_std = gradient[:, :size], gradient[:, size:]
        if d_log_prob is not None:
            weighted = d_log_prob[:, None] * self._z
            np.multiply(weighted, self._inverse_std, out=d_mean)
            np.subtract(weighted * self._z, d_log_prob[:, None], out=d_log_std)
        if d_entropy:
            d_log_std += np.float32(d_entropy)
        if d_kl:
            d_mean += np.float32(d_kl) * self._kl_difference * self._inverse_std
            d_log_std += np.float32(d_kl) * (np.float32(1) - self._kl_ratio)
        return gradient


class TorchDiagGaussianBatch:
    """DiagGaussianBatch of a tensor, for autograd."""

    def __init__(self, distribution: DiagGaussian, inputs):
        self._distribution, self._size = distribution, distribution.size
        self.mean, self.log_std = distribution.torch_moments(inputs)

    def log_prob(self, actions):
        z = (actions.reshape(len(actions), self._size) - self.mean) * (-self.log_std).exp()
        return -(0.5 * z * z + self.log_std).sum(-1) - self._size * HALF_LOG_2_PI

    def entropy(self):
        return self.log_std.sum(-1) + self._size * (HALF_LOG_2_PI + 0.5)

    def kl_from(self, old_inputs):
        old_mean, old_log_std = self._distribution.torch_moments(old_inputs)
        log_ratio = old_log_std - self.log_std
        difference = (self.mean - old_mean) * (-self.log_std).exp()
        return (0.5 * ((2 * log_ratio).exp() + difference * difference) - log_ratio - 0.5).sum(-1)


class GaussianDraw(Draw):
    """Actions u = mean + std * noise of arrays; subclasses bound them.

    Args:
        distribution: gives the moments.
        inputs: [B, 2 size].
        noise: [B, size].
    """

    def __init__(self, distribution: DiagGaussian, inputs: np.ndarray, noise: np.ndarray):
        # A copy, since the next pass of the network overwrites what it has given.
        self._distribution, self._inputs, self._noise = distribution, inputs.copy("K"), noise
        self._mean, self._log_std = distribution.moments(self._inputs)
        self._deviation = np.exp(self._log_std) * noise
        self._u = self._mean + self._deviation
        self.actions = self._to_actions()

    @functools.cached_property
    def log_prob(self) -> np.ndarray:
        return np.add.reduce(self._log_densities(), -1)

    def gradient(self, d_actions: np.ndarray, d_log_prob: float = 0.0) -> np.ndarray:
        # u = mean + std noise, and log p has -log std besides what it has of u.
        weight = np.float32(d_log_prob)
        d_u = self._d_u(d_actions, weight)
        gradient = np.concatenate([d_u, d_u * self._deviation - weight], axis=1)
        self._distribution.through_bounds(gradient, self._inputs, self._mean, self._log_std)
        return gradient

    def _to_actions(self) -> np.ndarray:
        """The actions, from u."""
        return self._u

    def _log_densities(self) -> np.ndarray:
        """Log-densities of the components, [B, size]."""
        # -((u - mean) / std)^2 / 2 is -noise^2 / 2, without a gradient.
        return -(np.float32(0.5) * self._noise * self._noise + self._log_std + np.float32(HALF_LOG_2_PI))

    def _d_u(self, d_actions: np.ndarray, weight: np.float32) -> np.ndarray:
        """Gradient with respect to u; `weight` is that of the log-probability."""
        return d_actions


class TorchGaussianDraw(Draw):
    """GaussianDraw of tensors, for autograd."""

    def __init__(self, distribution: DiagGaussian, inputs, noise):
        mean, self._log_std = distribution.torch_moments(inputs)
        self._noise = noise
        self._u = mean + self._log_std.exp() * noise
        self.actions = self._to_actions()

    @functools.cached_property
    def log_prob(self):
        return self._log_densities().sum(-1)

    def _to_actions(self):
        return self._u

    def _log_densities(self):
        return -(0.5 * self._noise.square() + self._log_std + HALF_LOG_2_PI)


Distribution = Categorical | MultiCategorical | DiagGaussian | QValues


@dataclass(frozen=True)
class Deterministic(OfNumbers):
    """Deterministic actions a = tanh(inputs), within -1 ... 1 (Lillicrap et al., arXiv:1509.02971).

    In workers the explorer adds noise (exploration/action_noise.py); in a policy that acts alone, the distribution
    does. The mapper of actions stretches -1 ... 1 to the bounds of the space (env/spaces/actions.py).
    """

    kind = "deterministic"
    has_log_prob = False
    spans_bounds = True

    @property
    def num_inputs(self) -> int:
        """Number of network outputs for one action."""
        return self.size

    @property
    def num_noise(self) -> int:
        """Number of random numbers for one action."""
        return 0

    def noise(self, rng: np.random.Generator, *shape: int, stddev: float = 0.0, epsilon: float = 0.0) -> np.ndarray:
        """Noise for `sample`, float32 [*shape, 2, size]: summands, then random actions + 2, or 0 for none.

        Without exploration nothing is drawn, and the result is [*shape, 0].

        Args:
            rng: source of randomness.
            shape: shape of the actions.
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

    def draw(self, inputs: np.ndarray, noise: np.ndarray | None = None) -> "DeterministicDraw":
        return DeterministicDraw(inputs, noise)

    def torch_draw(self, inputs, noise=None) -> Draw:
        drawn = Draw()
        drawn.actions = inputs.tanh() if noise is None else (inputs.tanh() + noise).clamp(-1, 1)
        return drawn


class DeterministicDraw(Draw):
    """Actions tanh(inputs), with `noise` clip(tanh(inputs) + noise, -1, 1); they have no density."""

    def __init__(self, inputs: np.ndarray, noise: np.ndarray | None):
        self._chosen, self._noise = np.tanh(inputs), noise
        self.actions = self._chosen if noise is None else np.clip(self._chosen + noise, -1, 1)

    def gradient(self, d_actions: np.ndarray, d_log_prob: float = 0.0) -> np.ndarray:
        gradient = d_actions * (1 - self._chosen * self._chosen)
        return gradient if self._noise is None else gradient * (self.actions == self._chosen + self._noise)
