"""The `model` settings: defaults, allowed values, and settings of RLlib's that are not available."""

import difflib
import math
from collections.abc import Mapping
from numbers import Real

from rllib.config.aliases import OF_MODEL, activation_today
from rllib.models.dense.initializers import INITIALIZERS
from rllib.models.distributions.names import resolved
from rllib.models.observations.torso import IMPALA_HIDDENS, NATURE_HIDDENS, filters_from
from rllib.models.residual.spec import NETWORKS, Residual

MODEL_DEFAULTS = {
    "fcnet_hiddens": [256, 256],  # widths of the hidden layers
    "fcnet_activation": "tanh",  # "tanh", "relu", "swish", "sigmoid", "elu", "leaky_relu", "gelu", "linear" (None)
    # Convolutions: a list with [channels, kernel, stride] for each layer, "nature" or "impala"; None chooses by the
    # size of the image, [] is for none. Images skip the layers of fcnet_hiddens.
    "conv_filters": None,
    "conv_activation": "relu",  # as fcnet_activation
    # Of "impala", the residual network (models/observations/torso.py: Impala); BTR has 2, 6 and True.
    "impala_width": 1,  # factor of its channels 16, 32, 32
    "impala_pool": None,  # rows and columns to which its result is max-pooled; None: it is not
    "impala_spectral_norm": False,  # kernels in its residual blocks are divided by their largest singular value
    "post_fcnet_hiddens": [],  # widths of the hidden layers behind the convolutions, and behind fcnet_hiddens
    "post_fcnet_activation": "relu",  # theirs, unless fcnet_hiddens come first
    # "simba", "simbav2", "xqc" or "flashsac": a block for each of fcnet_hiddens, which are equal
    # (models/residual/spec.py); of actors with critics, the last two of SAC. None: fully connected layers.
    "network": None,
    "dim": 84,  # height and width of the pictures of Atari games (preprocessor_pref="deepmind")
    "framestack": True,  # their observations are the last four pictures
    "fcnet_weights_initializer": None,  # of INITIALIZERS; "uniform": as torch.nn.Linear; None: the algorithm's
    "vf_share_layers": True,  # policy and value read the same hidden layers
    "free_log_std": False,  # the standard deviation of continuous actions is a parameter, not a function of the state
    "layer_norm": False,  # hidden layers are normalised before their activation
    "output_layer_use_bias": True,  # the policy's and the value's last layer have a bias (RLlib's MLPHeadConfig)
    "vf_hiddens": None,  # widths of the value's own hidden layers, with vf_share_layers False; None: as the policy's
    "orthogonal_gains": {},  # of orthogonal weights: "hidden" (sqrt 2), "policy" (its head, 0.01), "value" (1)
    "log_std_init": 0.0,  # initial log standard deviation of continuous actions
    "squash_actions": False,  # continuous actions are tanh of normal ones, stretched to the bounds
    # State-dependent exploration (models/dense/state_dependent_noise.py), and the steps for which it keeps its random
    # matrix; -1: a fragment.
    "use_sde": False,
    "sde_sample_freq": -1,
    # A recurrent cell behind these layers (models/memory/spec.py).
    "use_lstm": False,
    "use_gru": False,
    "lstm_cell_size": 256,  # numbers in the output of the cell, of either kind
    "max_seq_len": 20,  # longest sequence that gradients flow through, in steps
    # Policy and value read the same cell and layers, whatever vf_share_layers says; the policy alone trains them.
    "vf_share_memory": False,
    "post_lstm_hiddens": [],  # widths of the layers between the cell and the heads
    "post_lstm_activation": "relu",
    "lstm_use_prev_action": False,  # observations include the last action (env/factories/previous_steps.py)
    "lstm_use_prev_reward": False,  # and the last reward; "lstm_use_prev_action_reward" sets both
    # A gated transformer behind these layers (models/attention/spec.py); "max_seq_len", "vf_share_memory",
    # "post_lstm_..." are as for a cell.
    "use_attention": False,
    "attention_num_transformer_units": 1,
    "attention_dim": 64,  # width of the input and output of a unit
    "attention_num_heads": 1,
    "attention_head_dim": 32,  # numbers in a query, key and value of each head
    "attention_memory_inference": 50,  # number of earlier steps that are attended to
    "attention_memory_training": 50,  # the same in learning
    "attention_position_wise_mlp_dim": 32,  # width of the layer behind the attention
    "attention_init_gru_gate_bias": 2.0,  # the greater, the closer a unit begins to the identity
    "attention_use_n_prev_actions": 0,  # 1: observations tell the action before (env/factories/previous_steps.py)
    "attention_use_n_prev_rewards": 0,  # and the last reward
    # A custom network: a class, or a name given to register_model (docs/guide/networks.md), and its keyword arguments.
    "custom_model": None,
    "custom_model_config": {},
    "of_policies": {},  # policy id -> settings in which its network differs, where several agents act
    "custom_action_dist": None,  # a class, or a name given to register_action_dist (docs/guide/networks.md)
}

# Known settings that this version has no network for, with their neutral values.
NOT_AVAILABLE = {
    "custom_preprocessor": (None,),
    "grayscale": (None, True, False),  # pictures of Atari games are grey in any case, and scaled to 0 ... 1
    "zero_mean": (None, True, False),
    "no_final_linear": (False,),
    "encoder_latent_dim": (None,),
    # Of DefaultModelConfig.
    **{
        f"{part}_{of}_initializer{kwargs}": (None, {})
        for part in ("fcnet", "conv", "head_fcnet", "lstm", "fusionnet")
        for of in ("kernel", "bias")
        for kwargs in ("", "_kwargs")
        if part != "fcnet"
    },
    "head_fcnet_use_layernorm": (False,),  # layer_norm is of all hidden layers
    "log_std_clip_param": (20.0,),
    "fusionnet_hiddens": ([256, 256],),
    "fusionnet_activation": ("tanh",),
}

# Ray's settings of parts that this version does not have, or without effect here: any value is accepted.
OF_PARTS_THAT_ARE_OFF = frozenset(
    {
        "custom_preprocessor_config",
        *("_disable_preprocessor_api", "_disable_action_flattening", "_use_default_native_models"),
        "_time_major",
        "always_check_shapes",
    }
)

OTHER_NAMES = {
    "custom_options": "custom_model_config",  # of Ray 0.8
    # Of DefaultModelConfig (rllib/core).
    "head_fcnet_hiddens": "post_fcnet_hiddens",
    "head_fcnet_activation": "post_fcnet_activation",
    "fcnet_use_layernorm": "layer_norm",
}

ACTIVATION_NAMES = {
    "tanh": "tanh",
    "relu": "relu",
    "swish": "swish",
    "silu": "swish",
    **{name: name for name in ("sigmoid", "elu", "leaky_relu", "gelu", "linear")},
    None: "linear",
}


def check_model(model: Mapping) -> dict:
    """Checks settings; returns them with MODEL_DEFAULTS for all others.

    Raises:
        ValueError: for a setting that is unknown, out of range, or not available yet; the message says what to do.
    """
    settings = dict(MODEL_DEFAULTS)
    for key, value in model.items():
        key = OTHER_NAMES.get(key, key)
        if key == "fcnet_kernel_initializer":
            if value is not None:
                settings["fcnet_weights_initializer"] = _initializer_today(value)
        elif key == "fcnet_kernel_initializer_kwargs":
            settings["orthogonal_gains"] = _gains_of(value) or settings["orthogonal_gains"]
        elif key == "fcnet_bias_initializer":
            _check_biases(value, model)
        elif key == "fcnet_bias_initializer_kwargs":
            continue  # read with the initializer
        elif key in NOT_AVAILABLE:
            if not any(value is nothing or value == nothing for nothing in NOT_AVAILABLE[key]):
                raise ValueError(
                    f"model={{{key!r}: {value!r}}} is not available yet: this version builds fully connected networks, "
                    f"convolutions, LSTMs, GRUs and attention. Leave {key!r} out and set 'fcnet_hiddens' or "
                    "'conv_filters'."
                )
        elif key == "lstm_use_prev_action_reward":
            settings["lstm_use_prev_action"] = settings["lstm_use_prev_reward"] = value
        elif key in OF_PARTS_THAT_ARE_OFF or (key in ("use_lstm", "use_attention") and value is None):
            continue
        elif key not in MODEL_DEFAULTS and hasattr(model.get("custom_model"), "policy_description"):
            continue  # a module's own (rllib/core)
        elif key not in MODEL_DEFAULTS:
            near = [OF_MODEL[key]] if key in OF_MODEL else (
                difflib.get_close_matches(key, [*MODEL_DEFAULTS, *NOT_AVAILABLE], 1)
            )
            hint = f" Did you mean {near[0]!r}?" if near else f" Known ones: {', '.join(MODEL_DEFAULTS)}."
            raise ValueError(f"unknown model setting {key!r}.{hint}")
        else:
            settings[key] = value
    if "post_fcnet_hiddens" not in model and (hiddens := hiddens_behind(settings["conv_filters"])) is not None:
        settings["post_fcnet_hiddens"] = hiddens
    _check_values(settings)
    return settings


def _initializer_today(given) -> str:
    """The setting fcnet_weights_initializer for one that is named as in torch.nn.init, or given as such a function."""
    name = str(getattr(given, "__name__", given)).removesuffix("_")
    if name not in INITIALIZERS:
        raise ValueError(
            f"model['fcnet_kernel_initializer']={given!r:.80} is not available; there are {', '.join(INITIALIZERS)}. "
            "Make others in a network of your own, 'custom_model' (docs/guide/networks.md)."
        )
    return name


def _check_biases(given, model: Mapping) -> None:
    """Raises a ValueError unless the biases that are asked for are those that the weights' initializer gives: zeros."""
    if given is None:
        return
    name, value = getattr(given, "__name__", given), dict(model.get("fcnet_bias_initializer_kwargs") or {}).get("val")
    is_zero = name == "zeros_" or (name == "constant_" and value == 0)
    weights = model.get("fcnet_kernel_initializer") or model.get("fcnet_weights_initializer")
    if not is_zero or weights in (None, "uniform"):
        raise ValueError(
            f"model['fcnet_bias_initializer']={given!r:.80} is not available: biases begin at zero with "
            "'fcnet_weights_initializer': 'xavier_uniform', or any other but 'uniform' (as torch.nn.Linear's). Leave "
            "it out, and name the weights' initializer."
        )


def _gains_of(given: Mapping | None) -> dict[str, float]:
    """The setting orthogonal_gains for keyword arguments of torch.nn.init.orthogonal_."""
    if given and set(given) - {"gain"}:
        raise ValueError(
            f"model['fcnet_kernel_initializer_kwargs'] may hold a gain, {{'gain': 1.0}}, but got {given!r:.80}"
        )
    return {"hidden": given["gain"]} if given else {}


_OF_IMPALA = ("impala_width", "impala_pool", "impala_spectral_norm")
_SWITCHES = (
    *("impala_spectral_norm", "framestack", "vf_share_layers", "free_log_std", "layer_norm"),
    *("use_lstm", "use_gru", "use_attention", "vf_share_memory", "lstm_use_prev_action", "lstm_use_prev_reward"),
    *("use_sde", "squash_actions", "output_layer_use_bias"),
)


def _check_widths(key: str, hiddens) -> None:
    if not isinstance(hiddens, list | tuple) or not all(type(width) is int and width > 0 for width in hiddens):
        raise ValueError(f"model[{key!r}] must be a list of positive integers like [64, 64], but got {hiddens!r}")


def _check_values(settings: dict) -> None:
    for key in ("fcnet_hiddens", "post_fcnet_hiddens", "post_lstm_hiddens"):
        _check_widths(key, settings[key])
    for key in ("fcnet_activation", "conv_activation", "post_fcnet_activation", "post_lstm_activation"):
        settings[key] = activation_today(settings[key])
        if settings[key] not in ACTIVATION_NAMES:
            raise ValueError(
                f"model[{key!r}] must be one of {list(ACTIVATION_NAMES)}, or their class in torch.nn, but got "
                f"{settings[key]!r}"
            )
    initializer = settings["fcnet_weights_initializer"]
    if initializer is not None and initializer not in INITIALIZERS:
        raise ValueError(
            f"model['fcnet_weights_initializer'] must be one of {list(INITIALIZERS)}, or None for the algorithm's own, "
            f"but got {initializer!r}"
        )
    if type(settings["dim"]) is not int or settings["dim"] < 1:
        raise ValueError(f"model['dim'] must be a number of pixels like 84, but got {settings['dim']!r}")
    if settings["conv_filters"] and hiddens_behind(settings["conv_filters"]) is None:
        filters_from(settings["conv_filters"])
    _check_impala(settings)
    for key in _SWITCHES:
        if not isinstance(settings[key], bool):
            raise ValueError(f"model[{key!r}] must be True or False, but got {settings[key]!r}")
    _check_residual(settings)
    _check_memory(settings)
    _check_custom_model(settings)
    _check_of_policies(settings["of_policies"])
    _check_sizes_and_noise(settings)


def hiddens_behind(conv_filters) -> list[int] | None:
    """Widths of the layers behind convolutions that have a name; None for others."""
    named = {"nature": NATURE_HIDDENS, "impala": IMPALA_HIDDENS}
    return named.get(conv_filters) if isinstance(conv_filters, str) else None


def _check_impala(settings: dict) -> None:
    given = [name for name in _OF_IMPALA if settings[name] != MODEL_DEFAULTS[name]]
    if given and settings["conv_filters"] != "impala":
        raise ValueError(
            f"model={{{given[0]!r}: {settings[given[0]]!r}}} is of the residual network. Set 'conv_filters': 'impala', "
            "or leave it out."
        )
    if type(settings["impala_width"]) is not int or settings["impala_width"] < 1:
        raise ValueError(f"model['impala_width'] must be a positive integer, but got {settings['impala_width']!r}")
    pool = settings["impala_pool"]
    if pool is not None and (type(pool) is not int or pool < 1):
        raise ValueError(f"model['impala_pool'] must be a number of rows and columns like 6, or None, but got {pool!r}")
    if settings["conv_filters"] == "impala" and settings["layer_norm"]:
        raise ValueError(
            "model={'conv_filters': 'impala', 'layer_norm': True}: the residual network has no layer normalisation. "
            "Leave 'layer_norm' out; 'impala_spectral_norm': True bounds its kernels."
        )


def _check_of_policies(models) -> None:
    if not isinstance(models, Mapping) or not all(isinstance(each, Mapping) for each in models.values()):
        raise ValueError(f"model['of_policies'] must map policy ids to model settings, but got {models!r:.80}")
    for policy_id, own in models.items():
        try:
            check_model(own)
        except ValueError as error:
            raise ValueError(f"model['of_policies'][{policy_id!r}]: {error}") from None


# Settings that residual blocks do not have, and what they may be beside them.
_NOT_OF_RESIDUAL = {
    **{name: MODEL_DEFAULTS[name] for name in ("conv_filters", "custom_model", "custom_action_dist", "vf_hiddens")},
    **{name: MODEL_DEFAULTS[name] for name in ("fcnet_weights_initializer", "orthogonal_gains", "post_fcnet_hiddens")},
    **{name: MODEL_DEFAULTS[name] for name in ("layer_norm", "free_log_std", "log_std_init", "use_sde")},
    **{name: MODEL_DEFAULTS[name] for name in ("output_layer_use_bias", "use_lstm", "use_gru", "use_attention")},
}


def residual_blocks(settings: Mapping) -> Residual | None:
    """The residual blocks that checked settings describe; None for other networks."""
    if settings["network"] is None:
        return None
    hiddens = settings["fcnet_hiddens"]
    return Residual(settings["network"], hiddens[0], len(hiddens))


def _check_residual(settings: dict) -> None:
    network, hiddens = settings["network"], settings["fcnet_hiddens"]
    if network is None:
        return
    if network not in NETWORKS:
        raise ValueError(f"model['network'] must be one of {', '.join(NETWORKS)}, or None, but got {network!r}")
    if not hiddens or len(set(hiddens)) > 1:
        raise ValueError(
            f"model={{'network': {network!r}}} has residual blocks of one width, an entry of 'fcnet_hiddens' for each, "
            f"but got {list(hiddens)}. Use equal widths, such as [128] for one block or [512, 512] for two."
        )
    for name, value in _NOT_OF_RESIDUAL.items():
        if settings[name] != value and not (name == "conv_filters" and settings[name] == []):
            raise ValueError(
                f"model={{'network': {network!r}}} has layers and initial weights of its own, without {name}="
                f"{settings[name]!r}. Leave one of the two out."
            )


# Settings that do not reach a custom model.
_OF_BUILT_IN_NETWORKS = ("vf_hiddens", "orthogonal_gains", "log_std_init", "use_sde")


def _check_sizes_and_noise(settings: dict) -> None:
    without_effect = [key for key in _OF_BUILT_IN_NETWORKS if settings[key]]
    if settings["custom_model"] is not None and without_effect:
        raise ValueError(
            f"model={{'custom_model': ...}} has its own layers and outputs, so {without_effect[0]!r} has no effect on "
            "it. Leave it out, and implement it in the model."
        )
    has_memory = bool(memories(settings))
    vf_hiddens, gains = settings["vf_hiddens"], settings["orthogonal_gains"]
    if vf_hiddens is not None:
        _check_widths("vf_hiddens", vf_hiddens)
        if settings["vf_share_layers"] or has_memory:
            raise ValueError(
                f"model={{'vf_hiddens': {list(vf_hiddens)}}} gives the value separate layers. Set 'vf_share_layers': "
                f"False, and none of {', '.join(MEMORIES)}."
            )
    known = ("hidden", "policy", "value")
    if not isinstance(gains, Mapping) or not set(gains) <= set(known) or not all(map(_is_positive, gains.values())):
        raise ValueError(
            f"model['orthogonal_gains'] must map some of {', '.join(known)} to positive numbers, but got {gains!r}"
        )
    if not _is_number(settings["log_std_init"]):
        raise ValueError(f"model['log_std_init'] must be a number like -0.5, but got {settings['log_std_init']!r}")
    if settings["log_std_init"] and not (
        settings["output_layer_use_bias"] or settings["free_log_std"] or settings["use_sde"]
    ):
        raise ValueError(
            f"model={{'log_std_init': {settings['log_std_init']}}} is where a bias of the policy's last layer begins, "
            "but 'output_layer_use_bias' is False. Set 'free_log_std': True, or leave one of the two out."
        )
    freq = settings["sde_sample_freq"]
    if type(freq) is not int or (freq < 1 and freq != -1):
        raise ValueError(f"model['sde_sample_freq'] must be a positive number of steps, or -1, but got {freq!r}")
    if settings["use_sde"] and (settings["free_log_std"] or has_memory or not settings["fcnet_hiddens"]):
        raise ValueError(
            "model={'use_sde': True} computes standard deviations from the last of 'fcnet_hiddens'. Give one or more, "
            f"and leave out 'free_log_std', {', '.join(MEMORIES)}."
        )


def _is_number(value) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _is_positive(value) -> bool:
    return _is_number(value) and value > 0


MEMORIES = ("use_lstm", "use_gru", "use_attention")
# Settings that add the step before to observations.
PREVIOUS_STEP = (
    *("lstm_use_prev_action", "lstm_use_prev_reward"),
    *("attention_use_n_prev_actions", "attention_use_n_prev_rewards"),
)
_ATTENTION_SIZES = (
    *("attention_num_transformer_units", "attention_dim", "attention_num_heads", "attention_head_dim"),
    *("attention_memory_inference", "attention_memory_training", "attention_position_wise_mlp_dim"),
)


def memories(settings: Mapping) -> list[str]:
    """The settings among MEMORIES that are on."""
    return [key for key in MEMORIES if settings[key]]


def _check_memory(settings: dict) -> None:
    asked = memories(settings)
    if len(asked) > 1:
        raise ValueError(
            f"model={{{', '.join(f'{key!r}: True' for key in asked)}}} asks for several memories; set one of them"
        )
    for key in ("lstm_cell_size", "max_seq_len", *_ATTENTION_SIZES):
        if type(settings[key]) is not int or settings[key] < 1:
            raise ValueError(f"model[{key!r}] must be a positive integer, but got {settings[key]!r}")
    of_previous_step = [key for key in PREVIOUS_STEP if settings[key]]
    if of_previous_step and not asked:
        key = of_previous_step[0]
        raise ValueError(
            f"model={{{key!r}: {settings[key]}}} is for a network with a memory. Set one of "
            f"{', '.join(MEMORIES)}, too."
        )
    for key, value in (("layer_norm", True), ("output_layer_use_bias", False)) if asked else ():
        if settings[key] is value:
            raise ValueError(f"model={{{key!r}: {value}}} is not available with {asked[0]!r} yet. Leave {key!r} out.")
    if settings["use_attention"]:
        _check_attention(settings)


def _check_attention(settings: dict) -> None:
    acting, learning = settings["attention_memory_inference"], settings["attention_memory_training"]
    if acting != learning:
        raise ValueError(
            f"model={{'attention_memory_inference': {acting}, 'attention_memory_training': {learning}}}: learning with "
            "another window than acting would compute other probabilities of actions than those they were drawn with. "
            f"Set both to {acting}."
        )
    for key in ("attention_use_n_prev_actions", "attention_use_n_prev_rewards"):
        if settings[key] not in (0, 1):
            raise ValueError(
                f"model[{key!r}] must be 0 or 1, but got {settings[key]!r}. The memory holds the observations of the "
                f"last {acting} steps, so 1 makes it hold that many of the steps before them, too."
            )
    if not _is_number(settings["attention_init_gru_gate_bias"]):
        raise ValueError(
            "model['attention_init_gru_gate_bias'] must be a number like 2.0, but got "
            f"{settings['attention_init_gru_gate_bias']!r}"
        )


def _check_custom_model(settings: dict) -> None:
    if settings["custom_model"] is not None:
        resolved("custom_model", settings["custom_model"])
        if asked := memories(settings):
            raise ValueError(
                f"model={{'custom_model': ...}} has its own layers, so {asked[0]!r} puts no memory behind them. "
                "Give the custom model a memory (docs/guide/networks.md), or leave it out."
            )
    if settings["custom_action_dist"] is not None:
        resolved("custom_action_dist", settings["custom_action_dist"])
    config = settings["custom_model_config"]
    if not isinstance(config, Mapping) or not all(isinstance(key, str) for key in config):
        raise ValueError(
            "model['custom_model_config'] must be a dict, the keyword arguments of the custom model, but got "
            f"{config!r:.80}"
        )
