"""Initial weights, by the initializer's name."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from rllib.models.dense.layout import Layout

# (layout, weights, rng, gains): fills the weights.
Initializer = Callable[..., None]

# Gains of orthogonal weights in hidden layers, in the policy's head and in the value's (OpenAI baselines' PPO2).
GAINS = (math.sqrt(2), 0.01, 1.0)


def orthogonal(
    layout: Layout, weights: np.ndarray, rng: np.random.Generator, gains: tuple[float, float, float] = GAINS
) -> None:
    """Fills orthogonal weights with these gains, and zero biases.

    Normalisations begin with scale 1 and shift 0, running statistics with mean 0 and variance 1, and the directions of
    spectral normalisation, of any length, with ones.
    """
    hidden, policy, value = gains
    weights[:] = 0
    for name, parameter in layout.named_parameters(weights).items():
        if name.endswith(("running_var", "direction")) or (name.endswith("weight") and parameter.ndim == 1):
            parameter[:] = 1
        elif name.endswith("weight"):
            gain = {"policy.head.weight": policy, "value.head.weight": value}.get(name, hidden)
            matrix = gain * orthogonal_matrix((len(parameter), math.prod(parameter.shape[1:])), rng)
            parameter[:] = matrix.reshape(parameter.shape)


def orthogonal_matrix(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """A matrix with orthonormal rows or columns, whichever are fewer (Saxe et al., arXiv:1312.6120)."""
    rows, columns = shape
    q, r = np.linalg.qr(rng.standard_normal((max(shape), min(shape))))
    q *= np.sign(np.diag(r))
    return q if rows >= columns else q.T


def uniform(
    layout: Layout, weights: np.ndarray, rng: np.random.Generator, gains: tuple[float, float, float] = GAINS
) -> None:
    """Fills weights and biases uniform within 1 / sqrt(fan in), as torch.nn.Linear and torch.nn.Conv2d; without gains.

    Parameters with one number per feature, such as of a layer normalisation, are initialised as by `orthogonal`.
    """
    orthogonal(layout, weights, rng)
    named = layout.named_parameters(weights)
    for name, parameter in named.items():
        weight = named.get(name.removesuffix("bias") + "weight", parameter) if name.endswith("bias") else parameter
        if weight.ndim > 1:
            parameter[:] = rng.uniform(-1, 1, parameter.shape) / math.sqrt(math.prod(weight.shape[1:]))


def _of_hidden_layers(
    variance: Callable[[int, int], float], draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
) -> Initializer:
    """An initializer of hidden layers, whose biases are zero; all else is initialised as by `uniform`.

    Args:
        variance: variance of a weight, for the numbers of its inputs and outputs.
        draw: array of a shape, with mean 0 and variance 1.
    """

    def fill(layout, weights, rng, gains=GAINS) -> None:
        uniform(layout, weights, rng)
        for name, parameter in layout.named_parameters(weights).items():
            if ".hidden_" not in name:
                continue
            if name.endswith("bias"):
                parameter[:] = 0
            elif parameter.ndim == 2:
                outputs, inputs = parameter.shape
                parameter[:] = math.sqrt(variance(inputs, outputs)) * draw(rng, parameter.shape)

    return fill


def _glorot(fan_in: int, fan_out: int) -> float:
    """Glorot and Bengio 2010, equation 16."""
    return 2 / (fan_in + fan_out)


def _he(fan_in: int, fan_out: int) -> float:
    """He et al., arXiv:1502.01852, equation 10."""
    return 2 / fan_in


def _even(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(-math.sqrt(3), math.sqrt(3), shape)


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape)


INITIALIZERS: Mapping[str, Initializer] = {
    "orthogonal": orthogonal,
    "uniform": uniform,
    # By the names of torch.nn.init.
    "xavier_uniform": _of_hidden_layers(_glorot, _even),
    "xavier_normal": _of_hidden_layers(_glorot, _normal),
    "kaiming_uniform": _of_hidden_layers(_he, _even),
    "kaiming_normal": _of_hidden_layers(_he, _normal),
}
