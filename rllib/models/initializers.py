"""Weights to start from, by name."""

import math

import numpy as np

from rllib.models.layout import ParameterLayout
from rllib.models.noisy_network import NoisyLayout, initialize_sigmas
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


def initialize(layout: ParameterLayout | NoisyLayout, weights: np.ndarray, rng, name: str, sigma0: float) -> None:
    """Fills the weights.

    Args:
        layout: where they lie.
        weights: flat float32 [layout.size], written.
        rng: draws them.
        name: in INITIALIZERS.
        sigma0: of noisy layers.
    """
    if isinstance(layout, NoisyLayout):
        initialize_sigmas(layout, weights, sigma0)
        layout, weights = layout.plain, weights[: layout.plain.size]
    INITIALIZERS[name](layout, weights, rng)


# name -> function (layout, weights, rng) that fills the weights
INITIALIZERS = {"orthogonal": orthogonal, "uniform": uniform}
