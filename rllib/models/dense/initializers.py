"""Initial weights, by the initializer's name."""

import math

import numpy as np

from rllib.models.dense.layout import Layout

# Gains of orthogonal weights in hidden layers, in the policy's head and in the value's (OpenAI baselines' PPO2).
GAINS = (math.sqrt(2), 0.01, 1.0)


def orthogonal(
    layout: Layout, weights: np.ndarray, rng: np.random.Generator, gains: tuple[float, float, float] = GAINS
) -> None:
    """Fills orthogonal weights with these gains, and zero biases.

    Normalisations begin with scale 1 and shift 0, running statistics with mean 0 and variance 1.
    """
    hidden, policy, value = gains
    weights[:] = 0
    for name, parameter in layout.named_parameters(weights).items():
        if name.endswith("running_var") or (name.endswith("weight") and parameter.ndim == 1):
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


# name -> function (layout, weights, rng, gains) that fills the weights
INITIALIZERS = {"orthogonal": orthogonal, "uniform": uniform}
