"""From an environment's spaces and the `model` settings to the description of a policy."""

import dataclasses
import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from rllib.models.distributions import Categorical, DiagGaussian, Distribution, MultiCategorical, distribution_from_json
from rllib.models.encoders import BoxEncoder, Encoder, FlatEncoder, OneHotEncoder, RowsEncoder, encoder_from_json
from rllib.models.filters import Filter, MeanStdFilter, NoFilter
from rllib.models.flat_spaces import Leaf, are_pixels, flat_leaves
from rllib.models.initializers import INITIALIZERS
from rllib.models.layout import LayersLayout, Layout
from rllib.models.noisy_network import NoisyLayout, NoisyNetwork, initialize_sigmas
from rllib.models.numpy_network import NumpyNetwork
from rllib.models.numpy_torso import ConvolutionalNetwork
from rllib.models.torso import (
    AUTOMATIC_FILTERS,
    NATURE_FILTERS,
    NATURE_HIDDENS,
    Filters,
    Image,
    Torso,
    filters_from,
    torso_from_json,
)

logger = logging.getLogger(__name__)

MODEL_DEFAULTS = {
    "fcnet_hiddens": [256, 256],  # widths of the hidden layers
    "fcnet_activation": "tanh",  # "tanh", "relu", "swish" ("silu"), "linear" (None)
    # Convolutions: a list with [channels, kernel, stride] for each layer, or "nature"; None chooses by the size of the
    # image, [] is for none. Images skip the layers of fcnet_hiddens.
    "conv_filters": None,
    "conv_activation": "relu",  # as fcnet_activation
    "post_fcnet_hiddens": [],  # widths of the hidden layers behind the convolutions, and behind fcnet_hiddens
    "post_fcnet_activation": "relu",  # theirs, unless fcnet_hiddens come first
    "dim": 84,  # height and width of the pictures of Atari games (preprocessor_pref="deepmind")
    "framestack": True,  # their observations are the last four pictures
    "fcnet_weights_initializer": None,  # "orthogonal", "uniform" (torch.nn.Linear's); None: the algorithm's own
    "vf_share_layers": True,  # policy and value read the same hidden layers
    "free_log_std": False,  # the standard deviation of continuous actions is a parameter, not a function of the state
    "layer_norm": False,  # hidden layers are normalised before their activation
}

# Known model settings that this version has no network for, with their neutral values.
NOT_AVAILABLE = {
    "use_lstm": (False, None),
    "use_attention": (False, None),
    "custom_model": (None,),
    "custom_action_dist": (None,),
    "custom_preprocessor": (None,),
    "grayscale": (None, True, False),  # pictures of Atari games are grey in any case, and scaled to 0 ... 1
    "zero_mean": (None, True, False),
    "no_final_linear": (False,),
    "encoder_latent_dim": (None,),
}

# Settings of Ray's for parts that this version has not, or for switches that make no difference here: any value is
# taken, since the part itself has to be asked for ("use_lstm": True).
OF_PARTS_THAT_ARE_OFF = frozenset(
    {
        *("max_seq_len", "lstm_cell_size", "lstm_use_prev_action", "lstm_use_prev_reward"),
        *("lstm_use_prev_action_reward", "_time_major"),
        *("attention_num_transformer_units", "attention_dim", "attention_num_heads", "attention_head_dim"),
        *("attention_memory_inference", "attention_memory_training", "attention_position_wise_mlp_dim"),
        *("attention_init_gru_gate_bias", "attention_use_n_prev_actions", "attention_use_n_prev_rewards"),
        *("custom_model_config", "custom_preprocessor_config", "custom_options"),
        *("_disable_preprocessor_api", "_disable_action_flattening", "_use_default_native_models"),
        "always_check_shapes",
    }
)

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


@dataclass(frozen=True)
class PolicySpec:
    """The description of a policy: all that is needed to build its network, in any process.

    Attributes:
        encoder: turns stored observations into the network's input.
        distribution: of the actions.
        hiddens: widths of the hidden layers.
        activations: of each hidden layer, "tanh", "relu", "swish" or "linear".
        vf_share_layers: one tower for policy and value instead of two.
        free_log_std: a parameter instead of an output (DiagGaussian alone).
        observation_filter: "NoFilter" or "MeanStdFilter".
        critic: whether there is a value head; without one there is a single tower.
        layer_norm: hidden layers are normalised before their activation.
        torso: convolutions that read the stored observations, for the hidden layers to read; None without images.
        initializer: of the weights, a name in models/initializers.py.
        noisy_layers: number of last layers, head included, with noise in their weights (single tower).
        sigma0: initial scale of this noise (noisy_network.py).
    """

    encoder: Encoder
    distribution: Distribution
    hiddens: tuple[int, ...]
    activations: tuple[str, ...]
    vf_share_layers: bool = False
    free_log_std: bool = False
    observation_filter: str = "NoFilter"
    critic: bool = True
    layer_norm: bool = False
    torso: Torso | None = None
    initializer: str = "orthogonal"
    noisy_layers: int = 0
    sigma0: float = 0.5

    # Of networks with a memory (models/recurrent.py): numbers of a state, longest sequence that gradients flow through.
    state_size = 0
    max_seq_len = 20

    def layout(self) -> Layout:
        """Where the parameters lie in the flat vector."""
        num_log_std = self.distribution.size if self.free_log_std else 0
        heads = {"policy": self.distribution.num_inputs - num_log_std}
        if self.critic:
            heads["value"] = 1
        # Without any layers there is nothing to share or to separate: both heads read the observation.
        has_layers = bool(self.hiddens) or self.torso is not None
        plain = LayersLayout(
            self.encoder.size if self.torso is None else self.torso.num_features,
            self.hiddens,
            heads,
            "shared" if self.vf_share_layers or not has_layers or not self.critic else None,
            num_log_std,
            self.layer_norm,
            self.torso,
        )
        return NoisyLayout(plain, self.noisy_layers) if self.noisy_layers else plain

    def initialize(self, layout: Layout, weights: np.ndarray, rng: np.random.Generator) -> None:
        """Fills the weights, flat float32 [layout.size]."""
        if isinstance(layout, NoisyLayout):
            initialize_sigmas(layout, weights, self.sigma0)
            layout, weights = layout.plain, weights[: layout.plain.size]
        INITIALIZERS[self.initializer](layout, weights, rng)

    def network(self, layout: Layout, weights: np.ndarray):
        """The network that acts, on these weights (see NumpyNetwork).

        Raises:
            ValueError: for weights of another size.
        """
        if isinstance(layout, NoisyLayout):
            return NoisyNetwork(layout, lambda summed: self.network(layout.plain, summed), weights)
        kind = ConvolutionalNetwork if layout.torso else NumpyNetwork
        return kind(layout, self.activations, weights)

    def torch(self, layout: Layout, flat, acting):
        """The torch module that learns, on a flat tensor; it shares the noise of `acting`, the policy's own network."""
        from rllib.models.torch_network import NoisyTorchNetwork, TorchNetwork

        if isinstance(layout, NoisyLayout):
            return NoisyTorchNetwork(layout, self.activations, flat, acting)
        return TorchNetwork(layout, self.activations, flat)

    def make_filter(self) -> Filter:
        """A new observation filter."""
        return MeanStdFilter(self.encoder.shape) if self.observation_filter == "MeanStdFilter" else NoFilter()

    def to_json(self) -> dict:
        """A JSON-able description, without what subclasses add; `from_json` reads it."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(PolicySpec)}
        return plain | {
            "encoder": self.encoder.to_json(),
            "distribution": self.distribution.to_json(),
            "hiddens": list(self.hiddens),
            "activations": list(self.activations),
            "torso": self.torso and self.torso.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping) -> "PolicySpec":
        """The description that `to_json` gave."""
        data = dict(data)
        if "activation" in data:  # of checkpoints from before each layer had its own
            data["activations"] = [data.pop("activation")] * len(data["hiddens"])
        return cls(
            **{
                **data,
                "encoder": encoder_from_json(data["encoder"]),
                "distribution": distribution_from_json(data["distribution"]),
                "hiddens": tuple(data["hiddens"]),
                "activations": tuple(data["activations"]),
                "torso": torso_from_json(data.get("torso")),
            }
        )


def policy_spec(
    observation_space: spaces.Space,
    action_space: spaces.Space,
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
    settings = check_model(model or {})
    if observation_filter not in FILTERS:
        raise ValueError(f"observation_filter must be one of {list(FILTERS)}, but got {observation_filter!r}")
    filtered = FILTERS[observation_filter] != "NoFilter"
    encoder, torso = preprocessing(observation_space, settings, ACTIVATION_NAMES[settings["conv_activation"]], filtered)
    hiddens, activation = _hidden_layers(settings, torso, model or {})
    distribution = _distribution(action_space)
    if settings["free_log_std"] and not isinstance(distribution, DiagGaussian):
        raise ValueError(
            f"model={{'free_log_std': True}} needs continuous actions, but the action space is {action_space}"
        )
    return PolicySpec(
        encoder=encoder,
        distribution=distribution,
        hiddens=hiddens,
        activations=(activation,) * len(hiddens),
        vf_share_layers=settings["vf_share_layers"],
        free_log_std=settings["free_log_std"],
        layer_norm=settings["layer_norm"],
        torso=torso,
        initializer=settings["fcnet_weights_initializer"] or initializer,
        observation_filter="NoFilter" if isinstance(encoder, OneHotEncoder) else FILTERS[observation_filter],
    )


def _hidden_layers(settings: dict, torso: Torso | None, model: Mapping) -> tuple[tuple[int, ...], str]:
    """Widths and activation. Images alone skip fcnet_hiddens; with other numbers beside them, both go through."""
    hiddens, post = tuple(settings["fcnet_hiddens"]), tuple(settings["post_fcnet_hiddens"])
    if torso is not None and not torso.others:
        if hiddens and "fcnet_hiddens" in model and hiddens != tuple(MODEL_DEFAULTS["fcnet_hiddens"]):
            logger.warning(
                "model['fcnet_hiddens']=%s has no part in a network for images alone; the layers behind its "
                "convolutions are model['post_fcnet_hiddens']=%s",
                list(hiddens),
                list(post),
            )
        hiddens = ()
    activation = settings["fcnet_activation"] if hiddens else settings["post_fcnet_activation"]
    return hiddens + post, ACTIVATION_NAMES[activation]


def check_model(model: Mapping) -> dict:
    """MODEL_DEFAULTS with the given settings.

    Raises:
        ValueError: for a setting that is unknown, out of range, or not available yet; the message says what to do.
    """
    settings = dict(MODEL_DEFAULTS)
    for key, value in model.items():
        if key in NOT_AVAILABLE:
            if not any(value is nothing or value == nothing for nothing in NOT_AVAILABLE[key]):
                raise ValueError(
                    f"model={{{key!r}: {value!r}}} is not available yet: this version builds fully connected networks "
                    f"and convolutions. Leave {key!r} out and set 'fcnet_hiddens' or 'conv_filters'."
                )
        elif key in OF_PARTS_THAT_ARE_OFF:
            continue
        elif key not in MODEL_DEFAULTS:
            near = difflib.get_close_matches(key, [*MODEL_DEFAULTS, *NOT_AVAILABLE], 1)
            hint = f" Did you mean {near[0]!r}?" if near else f" Known ones: {', '.join(MODEL_DEFAULTS)}."
            raise ValueError(f"unknown model setting {key!r}.{hint}")
        else:
            settings[key] = value
    if settings["conv_filters"] == "nature" and "post_fcnet_hiddens" not in model:
        settings["post_fcnet_hiddens"] = NATURE_HIDDENS
    _check_values(settings)
    return settings


def _check_values(settings: dict) -> None:
    for key in ("fcnet_hiddens", "post_fcnet_hiddens"):
        hiddens = settings[key]
        if not isinstance(hiddens, list | tuple) or not all(type(width) is int and width > 0 for width in hiddens):
            raise ValueError(f"model[{key!r}] must be a list of positive integers like [64, 64], but got {hiddens!r}")
    for key in ("fcnet_activation", "conv_activation", "post_fcnet_activation"):
        if settings[key] not in ACTIVATION_NAMES:
            raise ValueError(f"model[{key!r}] must be one of {list(ACTIVATION_NAMES)}, but got {settings[key]!r}")
    initializer = settings["fcnet_weights_initializer"]
    if initializer is not None and initializer not in INITIALIZERS:
        raise ValueError(
            f"model['fcnet_weights_initializer'] must be one of {list(INITIALIZERS)}, or None for the algorithm's own, "
            f"but got {initializer!r}"
        )
    if type(settings["dim"]) is not int or settings["dim"] < 1:
        raise ValueError(f"model['dim'] must be a number of pixels like 84, but got {settings['dim']!r}")
    if settings["conv_filters"] and settings["conv_filters"] != "nature":
        filters_from(settings["conv_filters"])
    for key in ("framestack", "vf_share_layers", "free_log_std", "layer_norm"):
        if not isinstance(settings[key], bool):
            raise ValueError(f"model[{key!r}] must be True or False, but got {settings[key]!r}")


def _distribution(space: spaces.Space) -> Distribution:
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


# ---------------------------------------------------------------------- what precedes the fully connected layers

# A one-hot row per state costs memory and time in proportion to the number of states.
MAX_ONE_HOT = 100_000
# Images without convolutions are flattened up to this size; beyond, a fully connected layer is a mistake.
MAX_FLAT_IMAGE = 10_000


def preprocessing(
    space: spaces.Space, settings: Mapping, activation: str, filtered: bool
) -> tuple[Encoder, Torso | None]:
    """Chooses how observations reach the fully connected layers.

    Args:
        space: of a single observation.
        settings: the checked `model` settings.
        activation: of the convolutions.
        filtered: whether an observation filter brings the numbers to their scale.

    Raises:
        ValueError: for a space that no network here can serve; the message says what to do.
    """
    _check_space(space)
    leaves = flat_leaves(space)
    images = _images(space, leaves, settings["conv_filters"], filtered)
    if images:
        torso = Torso(images, _others(leaves, images, filtered), activation, settings["layer_norm"])
        return RowsEncoder(space.shape if isinstance(space, spaces.Box) else (spaces.flatdim(space),)), torso
    if isinstance(space, spaces.Discrete):
        return OneHotEncoder(int(space.n), int(space.start)), None
    if isinstance(space, spaces.Box):
        return BoxEncoder(tuple(space.shape), _scale(leaves[0], filtered)), None
    # The others are stored as the flat vector that gymnasium makes of them.
    pixels = tuple((leaf.start, leaf.stop) for leaf in leaves if _scale(leaf, filtered) != 1.0)
    size = spaces.flatdim(space)
    return (FlatEncoder(size, pixels) if pixels else BoxEncoder((size,))), None


def _check_space(space: spaces.Space) -> None:
    known = spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Tuple | spaces.Dict
    if not isinstance(space, known) or not space.is_np_flattenable:
        raise ValueError(
            f"observations of {type(space).__name__} are not supported: {space}. Supported are Box, Discrete, "
            "MultiDiscrete, MultiBinary, and Dict and Tuple of these; wrap the environment so that it returns one of "
            "them."
        )
    for leaf in flat_leaves(space):
        size = leaf.stop - leaf.start
        if leaf.choices is not None and size > MAX_ONE_HOT:
            raise ValueError(
                f"observations{leaf.path} of {leaf.space} are too large for one-hot encoding, {size} numbers (at most "
                f"{MAX_ONE_HOT}). Let the environment return a vector that describes the state."
            )
        if not np.issubdtype(leaf.space.dtype, np.number) and leaf.space.dtype != np.bool_:
            raise ValueError(f"observations{leaf.path} must be numbers, but {leaf.space} has dtype {leaf.space.dtype}")


def _scale(leaf: Leaf, filtered: bool) -> float:
    return 1 / 255 if are_pixels(leaf.space) and not filtered else 1.0


def _images(space: spaces.Space, leaves: list[Leaf], setting, filtered: bool) -> tuple[Image, ...]:
    """The images among the leaves that get convolutions."""
    images = []
    for leaf in leaves:
        # A plain matrix is an image only where filters are given for it.
        is_image = len(leaf.shape) == 3 or (len(leaf.shape) == 2 and leaf.space is space and bool(setting))
        if not is_image or not isinstance(leaf.space, spaces.Box) or 0 in leaf.shape:
            continue
        # The fewest numbers stand for channels; where they come first, so do the channels.
        channels_first = len(leaf.shape) == 3 and leaf.shape[0] < min(leaf.shape[1:])
        if filters := _filters(leaf, channels_first, setting):
            images.append(Image(leaf.start, tuple(leaf.shape), channels_first, _scale(leaf, filtered), filters))
    if setting and not images:
        raise ValueError(
            f"model={{'conv_filters': ...}} is for images, but the observation space is {space}. Leave it out, or let "
            "the environment return images, Box(0, 255, (height, width, channels), uint8)."
        )
    return tuple(images)


def _filters(leaf: Leaf, channels_first: bool, setting) -> tuple[Filters, ...] | None:
    if setting is not None:
        return filters_from(NATURE_FILTERS if setting == "nature" else setting) if setting else None
    size = tuple(leaf.shape[1:] if channels_first else leaf.shape[:2])
    if size in AUTOMATIC_FILTERS:
        return filters_from(AUTOMATIC_FILTERS[size])
    if leaf.stop - leaf.start > MAX_FLAT_IMAGE:
        known = ", ".join(f"{height} x {width}" for height, width in AUTOMATIC_FILTERS)
        raise ValueError(
            f"there are no filters of choice for images of {list(leaf.shape)} (observations{leaf.path}); there are for "
            f"{known}. Set model={{'conv_filters': [[16, [8, 8], 4], ...]}}, or let the environment resize them."
        )
    return None


def _others(leaves: list[Leaf], images: tuple[Image, ...], filtered: bool) -> tuple[tuple[int, int, float], ...]:
    """The columns that bypass the convolutions; adjacent ones of equal scale are merged."""
    starts = {image.start for image in images}
    others = []
    for leaf in leaves:
        if leaf.start in starts and len(leaf.shape) > 1:
            continue
        scale = _scale(leaf, filtered)
        if others and others[-1][1:] == (leaf.start, scale):
            others[-1] = (others[-1][0], leaf.stop, scale)
        elif leaf.stop > leaf.start:
            others.append((leaf.start, leaf.stop, scale))
    return tuple(others)
