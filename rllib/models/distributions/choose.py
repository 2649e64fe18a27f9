"""Chooses the distribution of actions for a space, or reads it from JSON."""

import numpy as np
from gymnasium import spaces

from rllib.config.conflicts import Unfit
from rllib.models.distributions.bounded_mean import BoundedMeanGaussian
from rllib.models.distributions.joint_q_values import JointQValues
from rllib.models.distributions.product import Product
from rllib.models.distributions.q_values import QValues
from rllib.models.distributions.squashed import BoundedSquashedGaussian, SquashedGaussian
from rllib.models.distributions.standard import Categorical, Deterministic, DiagGaussian, Distribution, MultiCategorical
from rllib.models.observations.flat_spaces import flat_leaves, parts, unsupported
from rllib.storage.json_dataclass import from_json


def distribution_for(space: spaces.Space) -> Distribution:
    """Chooses the distribution of the actions of a space.

    Raises:
        ValueError: for a space that no distribution here can serve; the message says what to do.
    """
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(tuple(int(n) for n in space.nvec.reshape(-1)), tuple(space.shape))
    if isinstance(space, spaces.MultiBinary):
        return MultiCategorical((2,) * int(np.prod(space.shape)), tuple(space.shape))
    if isinstance(space, spaces.Box):
        if 0 in space.shape:
            raise Unfit(
                f"a Box action space needs at least one number, but {space} has shape {space.shape}.",
                "Let the environment have actions of at least one.",
            )
        is_continuous = np.issubdtype(space.dtype, np.floating)
        return DiagGaussian(tuple(space.shape)) if is_continuous else _choices_of(space)
    if problem := unsupported(space, "action_space"):
        raise Unfit(problem, "Or let the environment have another action space.")
    if _is_empty(space):
        raise Unfit(
            f"each part of an action needs something to choose, but {space} has an empty part.",
            "Leave the part out of the action space.",
        )
    return Product(tuple(distribution_for(leaf.space) for leaf in flat_leaves(space)))


def _is_empty(space: spaces.Space) -> bool:
    """Whether a Tuple or Dict, or one nested in it, has no parts."""
    inner = parts(space)
    return inner is not None and (not inner or any(_is_empty(part) for _, part in inner))


# Values that a number of a Box of integers may take; each is an output of the network.
MAX_VALUES = 10_000


def _choices_of(space: spaces.Box) -> MultiCategorical:
    """Distribution of a Box of integers: each number is a choice among low ... high."""
    sizes = [int(high) - int(low) + 1 for low, high in zip(space.low.flat, space.high.flat)]
    if max(sizes) > MAX_VALUES:
        raise Unfit(
            f"actions of {space} are integers, and each value is a separate choice, but one of the numbers has "
            f"{max(sizes):,} values (at most {MAX_VALUES:,}).",
            "Use a Box of floats, or narrower bounds.",
        )
    return MultiCategorical(tuple(sizes), tuple(space.shape))


def distribution_from_json(data: dict) -> Distribution:
    """The distribution that its `to_json` described; one of the user's (distributions/user.py) without its class."""
    if data["kind"] == "torch":
        from rllib.models.distributions.user import TorchDistribution

        return TorchDistribution(data["name"], data["num_inputs"], tuple(data["action_shape"]), data["dtype"])
    if data["kind"] == Product.kind:
        return Product(tuple(distribution_from_json(part) for part in data["parts"]))
    gaussian = DiagGaussian, SquashedGaussian, BoundedSquashedGaussian, BoundedMeanGaussian
    return from_json(data, (Categorical, MultiCategorical, *gaussian, Deterministic, QValues, JointQValues))
