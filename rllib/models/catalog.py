"""From an environment's spaces and the `model` settings to the description of a policy."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from rllib.models.distributions import Categorical, DiagGaussian, Distribution, MultiCategorical, distribution_from_json
from rllib.models.encoders import BoxEncoder, Encoder, OneHotEncoder, encoder_from_json
from rllib.models.filters import Filter, MeanStdFilter, NoFilter
from rllib.models.initializers import INITIALIZERS
from rllib.models.layout import ParameterLayout
from rllib.models.noisy_network import NoisyLayout

MODEL_DEFAULTS = {
    "fcnet_hiddens": [256, 256],  # widths of the hidden layers
    "fcnet_activation": "tanh",  # "tanh", "relu", "swish" ("silu"), "linear" (None)
    "fcnet_weights_initializer": None,  # "orthogonal", "uniform" (torch.nn.Linear's); None: the algorithm's own
    "vf_share_layers": False,  # policy and value read the same hidden layers
    "free_log_std": False,  # the standard deviation of continuous actions is a parameter, not a function of the state
}

# Known model settings that this version has no network for, with the values that ask for nothing.
NOT_AVAILABLE = {
    "conv_filters": (None, []),
    "conv_activation": (None, "relu"),
    "post_fcnet_hiddens": (None, []),
    "use_lstm": (False, None),
    "use_attention": (False, None),
    "custom_model": (None,),
    "custom_action_dist": (None,),
    "custom_preprocessor": (None,),
}

ACTIVATION_NAMES = {
    "tanh": "tanh",
    "relu": "relu",
    "swish": "swish",
    "silu": "swish",
    "linear": "linear",
    None: "linear",
}
# Names of observation filters, old ones too, and what they build.
FILTERS = {"NoFilter": "NoFilter", "MeanStdFilter": "MeanStdFilter", "ConcurrentMeanStdFilter": "MeanStdFilter"}
# A one-hot row per state costs memory and time in proportion to the number of states.
MAX_ONE_HOT = 100_000


@dataclass(frozen=True)
class PolicySpec:
    """All that is needed to build a policy's network, in this process or in another.

    Attributes:
        encoder: turns stored observations into the network's input.
        distribution: of the actions.
        hiddens: widths of the hidden layers.
        activation: "tanh", "relu", "swish" or "linear".
        vf_share_layers: one tower for policy and value instead of two.
        free_log_std: a parameter instead of an output (DiagGaussian alone).
        observation_filter: "NoFilter" or "MeanStdFilter".
        critic: whether there is a value head; without one there is a single tower.
        initializer: of the weights, a name in models/initializers.py.
        noisy_layers: how many of the last layers, the head among them, have noise in their weights (single tower).
        sigma0: how much at first.
    """

    encoder: Encoder
    distribution: Distribution
    hiddens: tuple[int, ...]
    activation: str = "tanh"
    vf_share_layers: bool = False
    free_log_std: bool = False
    observation_filter: str = "NoFilter"
    critic: bool = True
    initializer: str = "orthogonal"
    noisy_layers: int = 0
    sigma0: float = 0.5

    def layout(self) -> ParameterLayout | NoisyLayout:
        """Where the parameters lie in the flat vector."""
        num_outputs = self.distribution.num_inputs
        num_log_std = self.distribution.size if self.free_log_std else 0
        # Without hidden layers there is nothing to share or to separate: both heads read the observation.
        num_towers = 1 if self.vf_share_layers or not self.hiddens or not self.critic else 2
        plain = ParameterLayout(
            self.encoder.size, self.hiddens, num_outputs - num_log_std, num_towers, num_log_std, int(self.critic)
        )
        return NoisyLayout(plain, self.noisy_layers) if self.noisy_layers else plain

    def make_filter(self) -> Filter:
        """A new observation filter."""
        return MeanStdFilter(self.encoder.shape) if self.observation_filter == "MeanStdFilter" else NoFilter()

    def to_json(self) -> dict:
        """A JSON-able description; `from_json` reads it."""
        return {
            "encoder": self.encoder.to_json(),
            "distribution": self.distribution.to_json(),
            "hiddens": list(self.hiddens),
            "activation": self.activation,
            "vf_share_layers": self.vf_share_layers,
            "free_log_std": self.free_log_std,
            "observation_filter": self.observation_filter,
            "critic": self.critic,
            "initializer": self.initializer,
            "noisy_layers": self.noisy_layers,
            "sigma0": self.sigma0,
        }

    @classmethod
    def from_json(cls, data: Mapping) -> "PolicySpec":
        """The description that `to_json` gave."""
        return cls(
            **{
                **data,
                "encoder": encoder_from_json(data["encoder"]),
                "distribution": distribution_from_json(data["distribution"]),
                "hiddens": tuple(data["hiddens"]),
            }
        )


def policy_spec(
    observation_space: gym.Space,
    action_space: gym.Space,
    model: Mapping | None = None,
    *,
    observation_filter: str = "NoFilter",
    initializer: str = "orthogonal",
) -> PolicySpec:
    """Chooses the network for an environment.

    Args:
        observation_space, action_space: of a single environment.
        model: settings that differ from MODEL_DEFAULTS.
        observation_filter: "NoFilter" or "MeanStdFilter"; observations that are one of n states are never filtered.
        initializer: of the weights, where `model` does not name one.

    Raises:
        ValueError: for a space that no network here can serve, or a setting that is unknown, out of range, or not
            available yet; the message says what to do.
    """
    settings = _checked(model or {})
    if observation_filter not in FILTERS:
        raise ValueError(f"observation_filter must be one of {list(FILTERS)}, but got {observation_filter!r}")
    filtered = FILTERS[observation_filter] != "NoFilter"
    encoder = _encoder(observation_space, filtered)
    distribution = _distribution(action_space)
    if settings["free_log_std"] and not isinstance(distribution, DiagGaussian):
        raise ValueError(
            f"model={{'free_log_std': True}} needs continuous actions, but the action space is {action_space}"
        )
    return PolicySpec(
        encoder=encoder,
        distribution=distribution,
        hiddens=tuple(settings["fcnet_hiddens"]),
        activation=ACTIVATION_NAMES[settings["fcnet_activation"]],
        vf_share_layers=settings["vf_share_layers"],
        free_log_std=settings["free_log_std"],
        initializer=settings["fcnet_weights_initializer"] or initializer,
        observation_filter=FILTERS[observation_filter] if isinstance(encoder, BoxEncoder) else "NoFilter",
    )


def _checked(model: Mapping) -> dict:
    """MODEL_DEFAULTS with the given settings, all of them checked."""
    settings = dict(MODEL_DEFAULTS)
    for key, value in model.items():
        if key in NOT_AVAILABLE:
            if not any(value is nothing or value == nothing for nothing in NOT_AVAILABLE[key]):
                raise ValueError(
                    f"model={{{key!r}: {value!r}}} is not available yet: this version builds fully connected networks. "
                    f"Leave {key!r} out and set 'fcnet_hiddens'."
                )
        elif key not in MODEL_DEFAULTS:
            near = difflib.get_close_matches(key, [*MODEL_DEFAULTS, *NOT_AVAILABLE], 1)
            hint = f" Did you mean {near[0]!r}?" if near else f" Known ones: {', '.join(MODEL_DEFAULTS)}."
            raise ValueError(f"unknown model setting {key!r}.{hint}")
        else:
            settings[key] = value
    _check_values(settings)
    return settings


def _check_values(settings: dict) -> None:
    hiddens, activation = settings["fcnet_hiddens"], settings["fcnet_activation"]
    if not isinstance(hiddens, list | tuple) or not all(type(width) is int and width > 0 for width in hiddens):
        raise ValueError(
            f"model['fcnet_hiddens'] must be a list of positive integers like [64, 64], but got {hiddens!r}"
        )
    if activation not in ACTIVATION_NAMES:
        raise ValueError(f"model['fcnet_activation'] must be one of {list(ACTIVATION_NAMES)}, but got {activation!r}")
    initializer = settings["fcnet_weights_initializer"]
    if initializer is not None and initializer not in INITIALIZERS:
        raise ValueError(
            f"model['fcnet_weights_initializer'] must be one of {list(INITIALIZERS)}, or None for the algorithm's own, "
            f"but got {initializer!r}"
        )
    for key in ("vf_share_layers", "free_log_std"):
        if not isinstance(settings[key], bool):
            raise ValueError(f"model[{key!r}] must be True or False, but got {settings[key]!r}")


def _encoder(space: gym.Space, filtered: bool) -> Encoder:
    spaces = gym.spaces
    if isinstance(space, spaces.Discrete):
        if space.n > MAX_ONE_HOT:
            raise ValueError(
                f"a Discrete observation space of {space.n} states is too large for one-hot encoding "
                f"(at most {MAX_ONE_HOT}). Let the environment return a vector that describes the state."
            )
        return OneHotEncoder(int(space.n), int(space.start))
    if isinstance(space, spaces.Box):
        if not np.issubdtype(space.dtype, np.number) and space.dtype != np.bool_:
            raise ValueError(f"Box observations must be numbers, but {space} has dtype {space.dtype}")
        are_pixels = space.dtype == np.uint8 and (space.low == 0).all() and (space.high == 255).all()
        return BoxEncoder(tuple(space.shape), 1 / 255 if are_pixels and not filtered else 1.0)
    if (
        isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary | spaces.Tuple | spaces.Dict)
        and space.is_np_flattenable
    ):
        # These are stored as the flat vector that gymnasium makes of them.
        return BoxEncoder((spaces.flatdim(space),))
    raise ValueError(
        f"observations of {type(space).__name__} are not supported: {space}. Supported are Box, Discrete, "
        "MultiDiscrete, MultiBinary, and Dict and Tuple of these; wrap the environment so that it returns one of them."
    )


def _distribution(space: gym.Space) -> Distribution:
    spaces = gym.spaces
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(tuple(int(n) for n in space.nvec.reshape(-1)), tuple(space.shape))
    if isinstance(space, spaces.MultiBinary):
        return MultiCategorical((2,) * int(np.prod(space.shape)), tuple(space.shape))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        if not space.shape or 0 in space.shape:
            raise ValueError(f"a Box action space needs at least one number, but {space} has shape {space.shape}")
        return DiagGaussian(tuple(space.shape))
    raise ValueError(
        f"actions of {type(space).__name__} are not supported: {space}. Supported are Discrete, MultiDiscrete, "
        "MultiBinary and Box of floats; wrap the environment so that it takes one of them."
    )
