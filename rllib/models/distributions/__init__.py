"""Action distributions and action values."""

from rllib.models.distributions.choose import distribution_for
from rllib.models.distributions.product import Product
from rllib.models.distributions.squashed import SquashedGaussian
from rllib.models.distributions.standard import Categorical, Deterministic, DiagGaussian, MultiCategorical

__all__ = [
    "Categorical",
    "Deterministic",
    "DiagGaussian",
    "MultiCategorical",
    "Product",
    "SquashedGaussian",
    "distribution_for",
]
