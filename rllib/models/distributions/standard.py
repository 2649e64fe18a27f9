"""Action distributions: in numpy with closed-form gradients, and in torch for autograd.

A distribution is a description without state: the number of its network inputs and the form of an action.
`at(inputs)` evaluates it for a batch; shared terms are computed once there. Everything is a sum over the
parts of an action, so each result has one number per row. `torch_at(inputs)` is the same for tensors, without
`gradient`. Distributions whose `has_log_prob` is False (q_values.py) have no probabilities: they evaluate values.

Inputs are [B, num_inputs] float32, best in feature-major memory (the transpose of a contiguous array), because then
reductions over actions run along contiguous rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rllib.models.distributions.base import Distribution
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
        shape: of an action; its product is the number of parts. Default: a vector.
    """

    sizes: tuple[int, ...]
    shape: tuple[int, ...] = ()
    kind = "multi_categorical"
    action_dtype = np.dtype(np.int64)
    has_log_prob = True
    gives_values = False

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return self.shape or (len(self.sizes),)

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

    def sample(self, inputs: np.ndarray, noise: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Actions [B, *action_shape]: mean + standard deviation * noise."""
        rows, size = len(inputs), self.size
        if out is None:
            out = np.empty((rows, *self.action_shape), np.float32)
        flat = out.reshape(rows, size)
        np.exp(inputs[:, size:], out=flat)
        np.multiply(flat, noise, out=flat)
        np.add(flat, inputs[:, :size], out=flat)
        return out

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        """The means [B, *action_shape]."""
        return inputs[:, : self.size].reshape(-1, *self.action_shape)

    def at(self, inputs: np.ndarray) -> "DiagGaussianBatch":
        """The distributions of a batch."""
        return DiagGaussianBatch(self.size, inputs)

    def torch_at(self, inputs) -> "TorchDiagGaussianBatch":
        """As `at`, for a tensor."""
        return TorchDiagGaussianBatch(self.size, inputs)


class DiagGaussianBatch:
    """One normal distribution per row; methods as in CategoricalBatch."""

    def __init__(self, size: int, inputs: np.ndarray):
        self._size = size
        self.mean, self.log_std = inputs[:, :size], inputs[:, size:]
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
        old_mean, old_log_std = old_inputs[:, : self._size], old_inputs[:, self._size :]
        log_ratio = old_log_std - self.log_std
        self._kl_difference = difference = (self.mean - old_mean) * self._inverse_std
        self._kl_ratio = ratio = np.exp(log_ratio * np.float32(2)) + difference * difference
        return np.add.reduce(ratio * np.float32(0.5) - log_ratio - np.float32(0.5), -1)

    def gradient(self, d_log_prob: np.ndarray | None, d_entropy: float = 0.0, d_kl: float = 0.0) -> np.ndarray:
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

    def __init__(self, size: int, inputs):
        self._size = size
        self.mean, self.log_std = inputs[:, :size], inputs[:, size:]

    def log_prob(self, actions):
        z = (actions.reshape(len(actions), self._size) - self.mean) * (-self.log_std).exp()
        return -(0.5 * z * z + self.log_std).sum(-1) - self._size * HALF_LOG_2_PI

    def entropy(self):
        return self.log_std.sum(-1) + self._size * (HALF_LOG_2_PI + 0.5)

    def kl_from(self, old_inputs):
        old_mean, old_log_std = old_inputs[:, : self._size], old_inputs[:, self._size :]
        log_ratio = old_log_std - self.log_std
        difference = (self.mean - old_mean) * (-self.log_std).exp()
        return (0.5 * ((2 * log_ratio).exp() + difference * difference) - log_ratio - 0.5).sum(-1)


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
