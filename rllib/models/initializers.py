"""Weights to start from, by name."""

import math

import numpy as np

from rllib.models.layout import Layout


def orthogonal(layout: Layout, weights: np.ndarray, rng: np.random.Generator) -> None:
    """Orthogonal weights, gain sqrt(2) in hidden layers, 0.01 in the policy's head, 1 in the value's; no bias.

    Normalised features are neither scaled nor shifted at first.
    """
    weights[:] = 0
    for name, parameter in layout.named_parameters(weights).items():
        if name.endswith("weight") and parameter.ndim == 1:
            parameter[:] = 1
        elif name.endswith("weight"):
            gain = {"policy.head.weight": 0.01, "value.head.weight": 1.0}.get(name, math.sqrt(2))
            matrix = gain * orthogonal_matrix((len(parameter), math.prod(parameter.shape[1:])), rng)
            parameter[:] = matrix.reshape(parameter.shape)


def orthogonal_matrix(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """A matrix with orthonormal rows or columns, whichever are fewer (Saxe et al., arXiv:1312.6120)."""
    rows, columns = shape
    q, r = np.linalg.qr(rng.standard_normal((max(shape), min(shape))))
    q *= np.sign(np.diag(r))
    return q if rows >= columns else q.T


def uniform(layout: Layout, weights: np.ndarray, rng: np.random.Generator) -> None:
    """Weights and biases uniform within 1 / sqrt(fan in), as torch.nn.Linear and torch.nn.Conv2d begin.

    Parameters with one number per feature, such as those of a layer normalisation, are initialised as by `orthogonal`.
    """
    orthogonal(layout, weights, rng)
    named = layout.named_parameters(weights)
    for name, parameter in named.items():
        weight = named.get(name.removesuffix("bias") + "weight", parameter) if name.endswith("bias") else parameter
        if weight.ndim > 1:
            parameter[:] = rng.uniform(-1, 1, parameter.shape) / math.sqrt(math.prod(weight.shape[1:]))


# name -> function (layout, weights, rng) that fills the weights
INITIALIZERS = {"orthogonal": orthogonal, "uniform": uniform}
