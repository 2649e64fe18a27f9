"""Chooses the description of a policy by an environment's spaces and the `model` settings."""

import logging
from collections.abc import Collection, Mapping

import numpy as np
from gymnasium import spaces

from rllib.config.conflicts import Unfit
from rllib.models.architectures import ARCHITECTURES
from rllib.models.arithmetic.activations import ACTIVATION_NAMES
from rllib.models.dense.initializers import GAINS
from rllib.models.dense.network_spec import Found, NetworkSpec
from rllib.models.dense.separate import Columns
from rllib.models.dense.spec import Dense
from rllib.models.distributions.choose import distribution_for
from rllib.models.distributions.names import resolved
from rllib.models.distributions.squashed import SquashedGaussian
from rllib.models.distributions.standard import DiagGaussian, Distribution
from rllib.models.model_settings import MODEL_DEFAULTS, ModelSettings, hiddens_behind
from rllib.models.observations.encoders import (
    BoxEncoder,
    Encoder,
    FlatEncoder,
    MaskedEncoder,
    OneHotEncoder,
    RowsEncoder,
)
from rllib.models.observations.filters import CLIP
from rllib.models.observations.flat_spaces import (
    Leaf,
    are_pixels,
    flat_leaves,
    is_under,
    unsupported,
    without_numbers,
)
from rllib.models.observations.masks import masked_columns, refuse_nested
from rllib.models.observations.torso import (
    AUTOMATIC_FILTERS,
    NATURE_FILTERS,
    Filters,
    Image,
    Impala,
    Torso,
    filters_from,
)

logger = logging.getLogger(__name__)

# Settings of the built-in networks, which a custom model does not read.
BUILT_IN = {
    *("fcnet_hiddens", "fcnet_activation", "fcnet_weights_initializer", "free_log_std", "layer_norm"),
    *("conv_filters", "conv_activation", "post_fcnet_hiddens", "post_fcnet_activation"),
    *("impala_width", "impala_pool", "impala_spectral_norm", "post_lstm_hiddens", "output_layer_use_bias"),
}
# Gains of orthogonal weights by their names in the setting orthogonal_gains.
NAMED_GAINS = dict(zip(("hidden", "policy", "value"), GAINS))
# The remedy that reads images as vectors.
_FLAT = {"model": {"conv_filters": []}}
# Names of observation filters, old ones too, and the filters that they build.
FILTERS = {"NoFilter": "NoFilter", "MeanStdFilter": "MeanStdFilter", "ConcurrentMeanStdFilter": "MeanStdFilter"}


def policy_spec(
    observation_space: spaces.Space,
    action_space: spaces.Space,
    model: Mapping | None = None,
    *,
    observation_filter: str = "NoFilter",
    observation_clip: float | None = CLIP,
    initializer: str = "orthogonal",
    action_mask_key: str | None = None,
    critic_keys: Collection[str] = (),
    images_skip_layers: bool = True,
    has_value: bool = True,
) -> NetworkSpec:
    """Chooses the network for an environment.

    Args:
        observation_space, action_space: spaces of a single environment.
        model: settings that differ from MODEL_DEFAULTS.
        observation_filter: "NoFilter" or "MeanStdFilter"; observations that are one of n states are never filtered.
        observation_clip: bound of filtered observations, in standard deviations; None: unbounded.
        initializer: initializer of the weights, where `model` does not name one.
        action_mask_key: key of the mask of legal actions in Dict observations (masks.py); None: there is none.
        critic_keys: of the parts of Dict observations that the value reads and the policy does not.
        images_skip_layers: whether fcnet_hiddens have no part in a network for images alone; False: they stand behind
            the convolutions, and "nature" and "impala" bring no layer of their own.
        has_value: whether the network has a value; residual blocks do not.

    Raises:
        Unfit: (a ValueError) for a space that no network here can serve by these settings; it says what to do.
        ValueError: for a setting that is unknown or out of range.
    """
    model = model or {}
    settings = ModelSettings(model)
    if observation_filter not in FILTERS:
        raise ValueError(f"observation_filter must be one of {list(FILTERS)}, but got {observation_filter!r}")
    filtered = FILTERS[observation_filter] != "NoFilter"
    if critic_keys:
        _check_critic(settings)
    if settings.custom_model is not None:
        return _user_model_spec(observation_space, action_space, settings, model, filtered, action_mask_key)
    distribution = _distribution(action_space, settings, model)
    refuse_nested(observation_space, action_mask_key, distribution)
    mask = masked_columns(observation_space, action_mask_key, distribution)
    read = observation_space
    if mask is not None:
        read = spaces.Dict([(name, part) for name, part in read.spaces.items() if name != action_mask_key])
    encoder, torso = preprocessing(read, settings, ACTIVATION_NAMES[settings.conv_activation], filtered)
    hiddens, activation = _hidden_layers(settings, torso, model, images_skip_layers)
    architecture = next(filter(None, (kind.of_settings(settings) for kind in ARCHITECTURES)), Dense())
    found = Found(observation_space, torso is not None, mask is not None, filtered, has_value)
    if problem := architecture.problem(found):
        raise problem
    if not architecture.has_layers:
        hiddens = ()
    # A Dict of a mask and a Discrete space is one of n states as well.
    kinds = [type(leaf.space) for leaf in flat_leaves(read)]
    is_one_of_n = isinstance(encoder, OneHotEncoder) or (mask is not None and kinds == [spaces.Discrete])
    for key in ("free_log_std", "log_std_init", "use_sde"):
        if settings[key] and not isinstance(distribution, DiagGaussian):
            raise _needs_continuous_actions(key, settings, action_space)
    for key in ("vf_hiddens", "use_sde"):
        if settings[key] and torso is not None:
            raise Unfit(
                f"model={{{key!r}: {settings[key]}}} is for fully connected networks, but {observation_space} asks for "
                "convolutions.",
                "Leave it out, or set 'conv_filters': [].",
                {"model": {key: MODEL_DEFAULTS[key]}},
                _FLAT,
            )
    if critic_keys and torso is not None:
        raise Unfit(
            f"the value alone can read {', '.join(critic_keys)} in fully connected networks, but {observation_space} "
            "asks for convolutions.",
            "Set 'conv_filters': [], or let the environment give features.",
            _FLAT,
        )
    initializer = settings.fcnet_weights_initializer or initializer
    if settings.orthogonal_gains and initializer != "orthogonal":
        raise Unfit(
            f"model={{'orthogonal_gains': {settings['orthogonal_gains']}}} needs orthogonal weights, but they are "
            f"{initializer}.",
            "Set 'fcnet_weights_initializer': 'orthogonal'.",
            {"model": {"fcnet_weights_initializer": "orthogonal"}},
            {"model": {"orthogonal_gains": MODEL_DEFAULTS["orthogonal_gains"]}},
        )
    if isinstance(architecture, Dense):
        architecture = Dense(
            vf_hiddens=_value_hiddens(settings, hiddens, bool(critic_keys)),
            policy_columns=_policy_columns(read, critic_keys) if critic_keys else None,
            state_dependent_noise=settings.use_sde,
        )
    gains = settings.orthogonal_gains
    return NetworkSpec(
        encoder=encoder if mask is None else MaskedEncoder(encoder, ((mask.start, mask.stop),)),
        distribution=distribution,
        hiddens=hiddens,
        activations=(activation,) * len(hiddens),
        vf_share_layers=settings["vf_share_memory" if architecture.memory else "vf_share_layers"],
        free_log_std=settings.free_log_std,
        layer_norm=settings.layer_norm,
        torso=torso,
        initializer=initializer,
        observation_filter="NoFilter" if is_one_of_n else FILTERS[observation_filter],
        observation_clip=observation_clip,
        log_std_init=float(settings.log_std_init),
        gains=tuple(float(gains.get(name, gain)) for name, gain in NAMED_GAINS.items()) if gains else None,
        head_bias=settings.output_layer_use_bias,
        architecture=architecture,
    )


def _value_hiddens(settings: ModelSettings, hiddens: tuple[int, ...], has_inputs: bool) -> tuple[int, ...] | None:
    """The value's layers, where they are not those of the policy or have inputs of their own."""
    if settings.vf_hiddens is not None:
        return tuple(settings.vf_hiddens)
    return hiddens if has_inputs else None


def _check_critic(settings: ModelSettings) -> None:
    """Raises Unfit where a network's value cannot read more than its policy."""
    keys = ("use_lstm", "use_gru", "use_attention", "vf_share_layers", "custom_model", "use_sde")
    changes = {key: MODEL_DEFAULTS[key] and False for key in keys if settings[key]}
    for key, without in changes.items():
        raise Unfit(
            f"model={{{key!r}: {settings[key]}}} does not go with centralized_critic and critic_observation_keys, "
            "whose value has its own inputs and layers.",
            f"Use model={{{key!r}: {without}}}.",
            {"model": changes},
        )


def _policy_columns(space: spaces.Space, critic_keys: Collection[str]) -> Columns:
    """Columns (start, stop) of flat observations without those of these keys; adjacent ones are merged."""
    columns: list[tuple[int, int]] = []
    for leaf in flat_leaves(space):
        if is_under(leaf, critic_keys):
            continue
        if columns and columns[-1][1] == leaf.start:
            columns[-1] = (columns[-1][0], leaf.stop)
        else:
            columns.append((leaf.start, leaf.stop))
    if not columns:
        raise Unfit(
            f"the policy has nothing to read: {space} has no keys but those of the value, {critic_keys}",
            "Leave out those that the policy is to read.",
            {"critic_observation_keys": []},
        )
    return tuple(columns)


def _distribution(action_space: spaces.Space, settings: ModelSettings, model: Mapping) -> Distribution:
    if settings.custom_action_dist is not None:
        from rllib.models.distributions.user import TorchDistribution

        own = resolved("custom_action_dist", settings.custom_action_dist)
        return TorchDistribution.of(own, action_space, {**settings, **model})
    distribution = distribution_for(action_space)
    if not settings.squash_actions:
        return distribution
    if not isinstance(distribution, DiagGaussian):
        raise _needs_continuous_actions("squash_actions", settings, action_space)
    if not action_space.is_bounded():
        raise Unfit(
            "model={'squash_actions': True} squashes actions into their bounds, but the action space "
            f"{action_space} is not bounded on all sides.",
            "Leave it out.",
            {"model": {"squash_actions": False}},
        )
    return SquashedGaussian(distribution.action_shape)


def _needs_continuous_actions(key: str, settings: ModelSettings, action_space: spaces.Space) -> Unfit:
    own = " with a distribution of the library's" if settings.custom_action_dist is not None else ""
    return Unfit(
        f"model={{{key!r}: {settings[key]}}} needs continuous actions{own}, but the action space is {action_space}.",
        "Leave it out.",
        {"model": {key: MODEL_DEFAULTS[key]}},
    )


def _user_model_spec(
    observation_space: spaces.Space,
    action_space: spaces.Space,
    settings: ModelSettings,
    model: Mapping,
    filtered: bool,
    action_mask_key: str | None,
) -> NetworkSpec:
    """Describes a policy with a custom model, which reads observations as they are stored."""
    from rllib.models.user.model_v2 import ModelV2Spec
    from rllib.models.user.user_model import UserModelSpec, with_state_shapes

    user_model = resolved("custom_model", settings.custom_model)
    is_flat = not isinstance(observation_space, spaces.Box | spaces.Discrete)
    filtered = filtered and not isinstance(observation_space, spaces.Discrete)
    _refuse_filtered_choices(observation_space, filtered)
    kind = _description_of(user_model)
    is_v2, is_rl_module = kind is ModelV2Spec, kind not in (ModelV2Spec, UserModelSpec)
    if kind is UserModelSpec:
        _log_unread(model, user_model)
    encoder = RowsEncoder((spaces.flatdim(observation_space),) if is_flat else tuple(observation_space.shape))
    distribution = _distribution(action_space, settings, model)
    mask = masked_columns(observation_space, action_mask_key, distribution)
    given = {
        "model": user_model,
        "config": {**(_own_settings(model) if is_rl_module else {}), **settings.custom_model_config},
        "observation_space": observation_space,
        "action_space": action_space,
        "max_seq_len": settings.max_seq_len,
    }
    spec = NetworkSpec(
        encoder=encoder if mask is None else MaskedEncoder(encoder, ((mask.start, mask.stop),), shown=True),
        distribution=distribution,
        hiddens=(),
        activations=(),
        vf_share_layers=True,
        observation_filter="MeanStdFilter" if filtered else "NoFilter",
        architecture=kind(**given, model_config={**settings, **model}) if is_v2 else kind(**given),
    )
    return with_state_shapes(spec)


def _description_of(user_model) -> type:
    """The class that describes a user's network: an RLModule's own (rllib/core), a TorchModelV2's, or the plain one."""
    from rllib.models.user.model_v2 import ModelV2Spec
    from rllib.models.user.user_model import UserModelSpec

    own = getattr(user_model, "policy_description", None)
    return own or (ModelV2Spec if hasattr(user_model, "value_function") else UserModelSpec)


def _refuse_filtered_choices(observation_space: spaces.Space, filtered: bool) -> None:
    if filtered and not all(isinstance(leaf.space, spaces.Box) for leaf in flat_leaves(observation_space)):
        raise Unfit(
            f"observation_filter='MeanStdFilter' would standardise the choices in {observation_space}, which a custom "
            "model gets as integers.",
            "Use .rollouts(observation_filter='NoFilter'), and scale the numbers in the model.",
            {"observation_filter": "NoFilter"},
        )


def _log_unread(model: Mapping, user_model) -> None:
    unread = [key for key in BUILT_IN & model.keys() if model[key] != MODEL_DEFAULTS[key]]
    if unread:
        logger.warning("model settings %s have no part in the custom model %s", sorted(unread), user_model)


def user_critics(
    settings: Mapping,
    observation_space: spaces.Space,
    action_space: spaces.Space,
    policy: NetworkSpec,
    *,
    reads: tuple[str, ...],
    num_outputs: int | None,
    copies: int,
):
    """Describes critics that are a user's network, and tries them with made-up observations (UserCritics).

    Args:
        settings: settings of the critics' network, with a custom_model.
        observation_space, action_space: spaces of the environment.
        policy: the actor's description.
        reads, num_outputs, copies: as for UserCritics.

    Raises:
        ValueError: if the network breaks the contract; the message says what to do.
    """
    from rllib.models.user.user_critics import UserCritics
    from rllib.models.user.user_model import UserModelSpec

    user_model, filtered = resolved("custom_model", settings["custom_model"]), policy.observation_filter != "NoFilter"
    if _description_of(user_model) is not UserModelSpec:
        raise Unfit(
            f"the custom critic {user_model!r:.80} is a network of RLlib's (TorchModelV2, TorchRLModule), which reads "
            "no action here.",
            "Derive it from torch.nn.Module, with forward(observation, action) (docs/guide/networks.md).",
            {"q_model_config": {"custom_model": None}},
        )
    _refuse_filtered_choices(observation_space, filtered)
    _log_unread(settings, user_model)
    critics = UserCritics(
        user_model,
        dict(settings.get("custom_model_config", {})),
        observation_space,
        action_space,
        policy.encoder,
        filtered=filtered,
        reads=reads,
        num_outputs=num_outputs,
        copies=copies,
    )
    critics.check()
    return critics


def _own_settings(model: Mapping) -> dict:
    """Settings that an RLModule gets in its model_config, in addition to those of custom_model_config."""
    passed_over = ("custom_model", "custom_model_config", "custom_action_dist", "of_policies")
    return {key: value for key, value in model.items() if key not in passed_over}


def _hidden_layers(
    settings: ModelSettings, torso: Torso | None, model: Mapping, images_skip_layers: bool
) -> tuple[tuple[int, ...], str]:
    """Widths and activation of the hidden layers. Images may skip fcnet_hiddens, unless others are next to them."""
    hiddens, post = tuple(settings.fcnet_hiddens), tuple(settings.post_fcnet_hiddens)
    if not images_skip_layers and hiddens_behind(settings.conv_filters) is not None:
        post = tuple(model.get("post_fcnet_hiddens", ()))
    if images_skip_layers and torso is not None and not torso.others:
        if hiddens and "fcnet_hiddens" in model and hiddens != tuple(MODEL_DEFAULTS["fcnet_hiddens"]):
            logger.warning(
                "model['fcnet_hiddens']=%s has no part in a network for images alone; the layers behind its "
                "convolutions are model['post_fcnet_hiddens']=%s",
                list(hiddens),
                list(post),
            )
        hiddens = ()
    activation = settings.fcnet_activation if hiddens else settings.post_fcnet_activation
    return hiddens + post, ACTIVATION_NAMES[activation]


# ---------------------------------------------------------------------- what precedes the fully connected layers

# A one-hot row per state costs memory and time in proportion to the number of states.
MAX_ONE_HOT = 100_000
# Images without convolutions are flattened up to this size; beyond, a fully connected layer is a mistake.
MAX_FLAT_IMAGE = 10_000


def preprocessing(
    space: spaces.Space, settings: ModelSettings, activation: str, filtered: bool
) -> tuple[Encoder, Torso | None]:
    """Chooses how observations reach the fully connected layers.

    Args:
        space: space of a single observation.
        settings: the checked `model` settings.
        activation: activation function of the convolutions.
        filtered: whether an observation filter brings the numbers to their scale.

    Raises:
        Unfit: (a ValueError) for a space that no network here can serve; it says what to do.
    """
    _check_space(space)
    leaves = flat_leaves(space)
    images = _images(space, leaves, settings, filtered)
    if images:
        torso = Torso(images, _others(leaves, images, filtered), activation, settings.layer_norm)
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
    problem = unsupported(space, "observation_space") or without_numbers(space, "what the policy observes")
    if problem:
        raise Unfit(problem, "Or let the environment have another observation space.")
    for leaf in flat_leaves(space):
        size = leaf.stop - leaf.start
        if leaf.choices is not None and size > MAX_ONE_HOT:
            raise Unfit(
                f"observations{leaf.path} of {leaf.space} are too large for one-hot encoding, {size} numbers (at most "
                f"{MAX_ONE_HOT}).",
                "Let the environment return a vector that describes the state.",
            )
        if not np.issubdtype(leaf.space.dtype, np.number) and leaf.space.dtype != np.bool_:
            raise Unfit(
                f"observations{leaf.path} must be numbers, but {leaf.space} has dtype {leaf.space.dtype}.",
                "Let the environment return numbers.",
            )


def _scale(leaf: Leaf, filtered: bool) -> float:
    return 1 / 255 if are_pixels(leaf.space) and not filtered else 1.0


def _images(space: spaces.Space, leaves: list[Leaf], settings: ModelSettings, filtered: bool) -> tuple[Image, ...]:
    """The images among the leaves that get convolutions."""
    images, setting = [], settings.conv_filters
    impala = _impala(settings)
    for leaf in leaves:
        # A plain matrix is an image only if filters are given for it.
        is_image = len(leaf.shape) == 3 or (len(leaf.shape) == 2 and leaf.space is space and bool(setting))
        if not is_image or not isinstance(leaf.space, spaces.Box) or 0 in leaf.shape:
            continue
        # The shortest axis holds the channels.
        channels_first = len(leaf.shape) == 3 and leaf.shape[0] < min(leaf.shape[1:])
        filters = () if impala else _filters(leaf, channels_first, setting)
        if filters or impala:
            images.append(Image(leaf.start, tuple(leaf.shape), channels_first, _scale(leaf, filtered), filters, impala))
    if setting and not images:
        raise Unfit(
            f"model={{'conv_filters': ...}} is for images, but the observation space is {space}.",
            "Leave it out, or let the environment return images, Box(0, 255, (height, width, channels), uint8).",
            {"model": {"conv_filters": None}},
        )
    return tuple(images)


def _impala(settings: ModelSettings) -> Impala | None:
    """The residual network that conv_filters asks for."""
    if settings.conv_filters != "impala":
        return None
    return Impala(settings.impala_width, settings.impala_pool, settings.impala_spectral_norm)


def _filters(leaf: Leaf, channels_first: bool, setting) -> tuple[Filters, ...] | None:
    if setting is not None:
        return filters_from(NATURE_FILTERS if setting == "nature" else setting) if setting else None
    size = tuple(leaf.shape[1:] if channels_first else leaf.shape[:2])
    if size in AUTOMATIC_FILTERS:
        return filters_from(AUTOMATIC_FILTERS[size])
    if leaf.stop - leaf.start > MAX_FLAT_IMAGE:
        known = ", ".join(f"{height} x {width}" for height, width in AUTOMATIC_FILTERS)
        raise Unfit(
            f"there are no filters of choice for images of {list(leaf.shape)} (observations{leaf.path}); there are for "
            f"{known}.",
            "Set model={'conv_filters': [[16, [8, 8], 4], ...]}, or let the environment resize them.",
            {"model": {"conv_filters": "impala"}},
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
