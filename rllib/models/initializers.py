"""Weights to start from, by name."""

import math

import numpy as np

from rllib.models.layout import ParameterLayout
from rllib.models.numpy_network import initialize as orthogonal


def uniform(layout: ParameterLayout, weights: np.ndarray, rng: np.random.Generator) -> None:
    """Weights and biases uniform within 1 / sqrt(fan in), as torch.nn.Linear and torch.nn.Conv2d begin.

    Parameters of single numbers per feature, as those of a layer normalisation, are what `orthogonal` makes of them.
    """
    orthogonal(layout, weights, rng)
    named = layout.named_parameters(weights)
    for name, parameter in named.items():
        weight = named.get(name.removesuffix("bias") + "weight", parameter) if name.endswith("bias") else parameter
        if weight.ndim > 1:
            parameter[:] = rng.uniform(-1, 1, parameter.shape) / math.sqrt(math.prod(weight.shape[1:]))


# name -> function (layout, weights, rng) that fills the weights
INITIALIZERS = {"orthogonal": orthogonal, "uniform": uniform}
