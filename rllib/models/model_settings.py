"""The keys of `model`, and keys of RLlib's that are not available."""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from rllib.compat.names.aliases import OF_MODEL, activation_today
from rllib.config.conflicts import DEFAULT, Conflict, conflict, needs
from rllib.config.nested import NestedSettings
from rllib.config.sections import Checked, Range, Translated, at_least, between
from rllib.models.arithmetic.activations import ACTIVATION_NAMES
from rllib.models.dense.initializers import INITIALIZERS
from rllib.models.distributions.names import resolved
from rllib.models.observations.torso import IMPALA_HIDDENS, NATURE_HIDDENS, filters_from
from rllib.models.residual.layout import NETWORKS

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
    # Of MODEL_DEFAULTS since Ray 2.10.
    **{
        f"{of}_initializer{config}": (None, {})
        for of in (
            *("fcnet_weights", "fcnet_bias", "post_fcnet_weights", "post_fcnet_bias", "lstm_weights", "lstm_bias"),
            *("conv_kernel", "conv_bias", "conv_transpose_kernel", "conv_transpose_bias"),
        )
        for config in ("", "_config")
        if config or not of.startswith("fcnet")
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

MEMORIES = ("use_lstm", "use_gru", "use_attention")
# Settings that add the step before to observations.
PREVIOUS_STEP = (
    *("lstm_use_prev_action", "lstm_use_prev_reward"),
    *("attention_use_n_prev_actions", "attention_use_n_prev_rewards"),
)
# What a network without a memory leaves at its default.
OF_MEMORIES = (*MEMORIES, *PREVIOUS_STEP)

# ---------------------------------------------------------------------- types and rules

_Activation = Literal[tuple(ACTIVATION_NAMES)]
_TODAY = Translated(activation_today)
_NUMBER = Range(finite=True)


def _has_filters(given) -> bool:
    if given and hiddens_behind(given) is None:
        filters_from(given)
    return True


def _are_gains(gains: Mapping) -> bool:
    numbers = all(
        isinstance(gain, Real) and not isinstance(gain, bool) and 0 < gain < np.inf for gain in gains.values()
    )
    return numbers and gains.keys() <= {"hidden", "policy", "value"}


def _named(setting: str) -> Checked:
    return Checked(lambda given: given is None or resolved(setting, given) is not None)


def _of_policies(models: Mapping) -> bool:
    for policy_id, own in models.items():
        if not isinstance(own, Mapping):
            return False
        if mistake := ModelSettings.mistake(own, repr(policy_id)):
            raise ValueError(f"of_policies: {mistake.problem}")
    return True


# ---------------------------------------------------------------------- rules about several keys


def memories(settings: Mapping) -> list[str]:
    """The settings among MEMORIES that are on."""
    return [key for key in MEMORIES if settings[key]]


def without_memories(settings: Mapping) -> dict[str, Any]:
    """The remedy that leaves a network without a memory, and without what only a memory reads."""
    return {key: MODEL_DEFAULTS[key] for key in OF_MEMORIES if settings[key]}


def _without_memory(key: str, breaks: Callable[[Mapping], Any], why: str) -> Conflict:
    """A key that does not go with a memory."""
    return conflict(
        key,
        *MEMORIES,
        when=lambda model: breaks(model) and memories(model),
        why=why,
        remedies=[{key: DEFAULT}, without_memories],
    )


def _not_of_residual(key: str) -> Conflict:
    """A key that residual blocks do not have."""

    def differs(model) -> bool:
        return model.network is not None and key in model.changes() and not (key == "conv_filters" and model[key] == [])

    return conflict(
        key,
        "network",
        when=differs,
        why="these networks have layers and initial weights of their own, without it",
        remedies=[{key: DEFAULT}, {"network": None}],
    )


_CONFLICTS = (
    conflict(
        *MEMORIES,
        when=lambda model: len(memories(model)) > 1,
        why="a network has one memory",
        remedies=[lambda model: dict.fromkeys(memories(model)[1:], False)],
    ),
    *(needs(key, *MEMORIES, why="it is what a memory reads besides observations") for key in PREVIOUS_STEP),
    _without_memory("layer_norm", lambda model: model.layer_norm, "layers before a memory are not normalised yet"),
    _without_memory(
        "output_layer_use_bias",
        lambda model: not model.output_layer_use_bias,
        "output_layer_use_bias=False is not available with a memory yet",
    ),
    _without_memory(
        "vf_hiddens",
        lambda model: model.vf_hiddens is not None,
        "the value has separate layers, which cannot be behind a memory",
    ),
    _without_memory(
        "use_sde", lambda model: model.use_sde, "its standard deviations come from the last of fcnet_hiddens"
    ),
    conflict(
        "custom_model",
        *MEMORIES,
        when=lambda model: model.custom_model is not None and memories(model),
        why="a custom model has its own layers, and no memory is put behind them; it may have one itself "
        "(docs/guide/networks.md)",
        remedies=[without_memories],
    ),
    *(
        conflict(
            key,
            "custom_model",
            why="a custom model has its own layers and outputs, on which it has no effect; implement it in the model",
            remedies=[{key: DEFAULT}],
        )
        for key in ("vf_hiddens", "orthogonal_gains", "log_std_init", "use_sde")
    ),
    *(
        conflict(
            key,
            "conv_filters",
            when=lambda model, key=key: key in model.changes() and model.conv_filters != "impala",
            why="it is of the residual network 'impala'",
            remedies=[{"conv_filters": "impala"}, {key: DEFAULT}],
        )
        for key in ("impala_width", "impala_pool", "impala_spectral_norm")
    ),
    conflict(
        "layer_norm",
        "conv_filters",
        when=lambda model: model.layer_norm and model.conv_filters == "impala",
        why="the residual network has no layer normalisation; impala_spectral_norm bounds its kernels",
        remedies=[{"layer_norm": False}],
    ),
    conflict(
        "network",
        "fcnet_hiddens",
        when=lambda model: model.network is not None and len(set(model.fcnet_hiddens)) != 1,
        why="there is a residual block for each of fcnet_hiddens, and all have one width",
        remedies=[
            lambda model: {"fcnet_hiddens": [max(model.fcnet_hiddens, default=128)] * max(len(model.fcnet_hiddens), 1)},
            {"network": None},
        ],
    ),
    *map(
        _not_of_residual,
        (
            *("conv_filters", "custom_model", "custom_action_dist", "vf_hiddens", "fcnet_weights_initializer"),
            *("orthogonal_gains", "post_fcnet_hiddens", "layer_norm", "free_log_std", "log_std_init", "use_sde"),
            *("output_layer_use_bias", *MEMORIES),
        ),
    ),
    conflict(
        "vf_hiddens",
        "vf_share_layers",
        when=lambda model: model.vf_hiddens is not None and model.vf_share_layers,
        why="they are layers of the value alone",
        remedies=[{"vf_share_layers": False}, {"vf_hiddens": None}],
    ),
    conflict(
        "log_std_init",
        "output_layer_use_bias",
        when=lambda model: (
            model.log_std_init and not (model.output_layer_use_bias or model.free_log_std or model.use_sde)
        ),
        why="it is where a bias of the policy's last layer begins, and output_layer_use_bias=False",
        remedies=[{"free_log_std": True}, {"log_std_init": 0.0}],
    ),
    conflict(
        "use_sde",
        "free_log_std",
        why="standard deviations depend on the state, or do not",
        remedies=[{"free_log_std": False}, {"use_sde": False}],
    ),
    conflict(
        "use_sde",
        "fcnet_hiddens",
        when=lambda model: model.use_sde and not model.fcnet_hiddens,
        why="its standard deviations come from the last of fcnet_hiddens, and there is none",
        remedies=[{"fcnet_hiddens": [64, 64]}, {"use_sde": False}],
    ),
    conflict(
        "attention_memory_inference",
        "attention_memory_training",
        when=lambda model: model.use_attention and model.attention_memory_inference != model.attention_memory_training,
        why="learning with another window than acting would compute other probabilities of actions than those they "
        "were drawn with",
        remedies=[lambda model: {"attention_memory_training": model.attention_memory_inference}],
    ),
)


class ModelSettings(NestedSettings, setting="model"):
    """The keys of `model`, `policy_model_config` and `q_model_config`: what describes a network."""

    other_names: ClassVar = {
        "custom_options": "custom_model_config",  # of Ray 0.8
        # Of DefaultModelConfig (rllib/core).
        "head_fcnet_hiddens": "post_fcnet_hiddens",
        "head_fcnet_activation": "post_fcnet_activation",
        "fcnet_use_layernorm": "layer_norm",
    }

    fcnet_hiddens: Annotated[list[int], "widths of the hidden layers", at_least(1)] = [256, 256]  # noqa: RUF012
    fcnet_activation: Annotated[_Activation, "theirs; None: linear; or its class in torch.nn", _TODAY] = "tanh"
    conv_filters: Annotated[
        Literal["nature", "impala"] | list[Any] | None,
        "convolutions: [channels, kernel, stride] for each layer, or the name of a network; None: by the size of the "
        "image; []: none. Images skip the layers of fcnet_hiddens",
        Checked(_has_filters),
    ] = None
    conv_activation: Annotated[_Activation, "of convolutions, as fcnet_activation", _TODAY] = "relu"
    impala_width: Annotated[
        int, 'factor of the channels 16, 32, 32 of the residual network "impala" (BTR: 2)', at_least(1)
    ] = 1
    impala_pool: Annotated[
        int | None, "rows and columns to which its result is max-pooled (BTR: 6); None: it is not", at_least(1)
    ] = None
    impala_spectral_norm: Annotated[
        bool, "divide the kernels in its residual blocks by their largest singular value (BTR)"
    ] = False
    post_fcnet_hiddens: Annotated[
        list[int], "widths of the hidden layers behind the convolutions, and behind fcnet_hiddens", at_least(1)
    ] = []  # noqa: RUF012
    post_fcnet_activation: Annotated[_Activation, "theirs, unless fcnet_hiddens come first", _TODAY] = "relu"
    network: Annotated[
        Literal[NETWORKS] | None,
        "residual blocks, one for each of fcnet_hiddens, which are equal (models/residual/spec.py); for SAC, TQC, TD3 "
        'and DDPG ("xqc", "flashsac": SAC alone). None: fully connected layers',
    ] = None
    dim: Annotated[int, 'height and width of pictures of Atari games (preprocessor_pref="deepmind")', at_least(1)] = 84
    framestack: Annotated[bool, "their observations are the last four pictures"] = True
    fcnet_weights_initializer: Annotated[
        Literal[tuple(INITIALIZERS)] | None, '"uniform": as torch.nn.Linear; None: the algorithm\'s'
    ] = None
    vf_share_layers: Annotated[bool, "policy and value read the same hidden layers"] = True
    free_log_std: Annotated[
        bool, "the standard deviation of continuous actions is a parameter, not a function of the state"
    ] = False
    layer_norm: Annotated[bool, "hidden layers are normalised before their activation"] = False
    output_layer_use_bias: Annotated[
        bool, "the policy's and the value's last layer have a bias (RLlib's MLPHeadConfig)"
    ] = True
    vf_hiddens: Annotated[
        list[int] | None,
        "widths of the value's own hidden layers, with vf_share_layers False; None: as the policy's",
        at_least(1),
    ] = None
    orthogonal_gains: Annotated[
        dict,
        'gains of orthogonal weights: "hidden" (sqrt 2), "policy" (its head, 0.01), "value" (1)',
        Checked(_are_gains, "positive numbers of some of hidden, policy, value"),
    ] = {}  # noqa: RUF012
    log_std_init: Annotated[float, "initial log standard deviation of continuous actions", _NUMBER] = 0.0
    squash_actions: Annotated[
        bool, "continuous actions are tanh of normal ones, stretched to the bounds of the action space"
    ] = False
    use_sde: Annotated[bool, "state-dependent exploration (models/dense/state_dependent_noise.py)"] = False
    sde_sample_freq: Annotated[
        int,
        "steps for which it keeps its random matrix; -1: a fragment",
        Checked(lambda steps: steps == -1 or steps > 0, "a positive number of steps, or -1"),
    ] = -1
    use_lstm: Annotated[bool, "a recurrent cell, an LSTM, behind these layers (models/memory/spec.py)"] = False
    use_gru: Annotated[bool, "a GRU behind these layers"] = False
    lstm_cell_size: Annotated[int, "numbers in the output of the cell, of either kind", at_least(1)] = 256
    max_seq_len: Annotated[int, "longest sequence that gradients flow through (steps)", at_least(1)] = 20
    vf_share_memory: Annotated[
        bool,
        "policy and value read the same cell and layers, whatever vf_share_layers says; the policy alone trains them",
    ] = False
    post_lstm_hiddens: Annotated[list[int], "widths of the layers between the memory and the heads", at_least(1)] = []  # noqa: RUF012
    post_lstm_activation: Annotated[_Activation, "theirs", _TODAY] = "relu"
    lstm_use_prev_action: Annotated[bool, "observations include the last action (env/factories/previous_steps.py)"] = (
        False
    )
    lstm_use_prev_reward: Annotated[bool, 'and the last reward; "lstm_use_prev_action_reward" sets both'] = False
    use_attention: Annotated[
        bool,
        "a gated transformer behind these layers (models/attention/spec.py), with max_seq_len, vf_share_memory and "
        "post_lstm_... as for a cell",
    ] = False
    attention_num_transformer_units: Annotated[int, "its units", at_least(1)] = 1
    attention_dim: Annotated[int, "width of the input and output of a unit", at_least(1)] = 64
    attention_num_heads: Annotated[int, "heads of each unit", at_least(1)] = 1
    attention_head_dim: Annotated[int, "numbers in a query, key and value of each head", at_least(1)] = 32
    attention_memory_inference: Annotated[int, "number of earlier steps that are attended to", at_least(1)] = 50
    attention_memory_training: Annotated[int, "the same in learning", at_least(1)] = 50
    attention_position_wise_mlp_dim: Annotated[int, "width of the layer behind the attention", at_least(1)] = 32
    attention_init_gru_gate_bias: Annotated[float, "the greater, the closer a unit begins to the identity", _NUMBER] = (
        2.0
    )
    attention_use_n_prev_actions: Annotated[
        int,
        "1: observations include the action before (env/factories/previous_steps.py)",
        between(0, 1),
    ] = 0
    attention_use_n_prev_rewards: Annotated[int, "the same of rewards", between(0, 1)] = 0
    custom_model: Annotated[
        Any, "a network: a class, or a name given to register_model (docs/guide/networks.md)", _named("custom_model")
    ] = None
    custom_model_config: Annotated[
        dict,
        "its keyword arguments",
        Checked(lambda given: all(isinstance(key, str) for key in given), "a dict with strings as keys"),
    ] = {}  # noqa: RUF012
    of_policies: Annotated[
        dict,
        "policy id -> keys in which its network differs, where several agents act",
        Checked(_of_policies, "a dict of policy ids and dicts of keys of model"),
    ] = {}  # noqa: RUF012
    custom_action_dist: Annotated[
        Any,
        "a class, or a name given to register_action_dist (docs/guide/networks.md)",
        _named("custom_action_dist"),
    ] = None
    conflicts = _CONFLICTS

    @classmethod
    def today(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        own: dict[str, Any] = {}
        for key, value in given.items():
            key = cls.other_names.get(key, key)
            if key == "fcnet_kernel_initializer":
                if value is not None:
                    own["fcnet_weights_initializer"] = _initializer_today(value)
            elif key == "fcnet_kernel_initializer_kwargs":
                own |= {"orthogonal_gains": gains} if (gains := _gains_of(value)) else {}
            elif key == "fcnet_bias_initializer":
                _check_biases(value, given)
            elif key == "fcnet_bias_initializer_kwargs":
                continue  # read with the initializer
            elif key in NOT_AVAILABLE:
                if not any(value is nothing or value == nothing for nothing in NOT_AVAILABLE[key]):
                    raise ValueError(
                        f"{key}={value!r} is not available yet: this version builds fully connected networks, "
                        "convolutions, LSTMs, GRUs and attention. Set fcnet_hiddens or conv_filters."
                    )
            elif key == "lstm_use_prev_action_reward":
                if value != -1:  # Ray's mark of a key that is no longer there
                    own["lstm_use_prev_action"] = own["lstm_use_prev_reward"] = value
            elif key in OF_PARTS_THAT_ARE_OFF or (key in ("use_lstm", "use_attention") and value is None):
                continue
            elif key not in cls.settings and hasattr(given.get("custom_model"), "policy_description"):
                continue  # a module's own (rllib/core)
            else:
                own[key] = value
        if "post_fcnet_hiddens" not in given and (hiddens := hiddens_behind(own.get("conv_filters"))) is not None:
            own["post_fcnet_hiddens"] = hiddens
        return own

    @classmethod
    def nearest(cls, name: Any) -> list[str]:
        return [OF_MODEL[name]] if name in OF_MODEL else super().nearest(name)


def hiddens_behind(conv_filters) -> list[int] | None:
    """Widths of the layers behind convolutions that have a name; None for others."""
    named = {"nature": NATURE_HIDDENS, "impala": IMPALA_HIDDENS}
    return named.get(conv_filters) if isinstance(conv_filters, str) else None


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
            "'fcnet_weights_initializer': 'xavier_uniform', or any other but 'uniform' (as torch.nn.Linear's). Name "
            "the weights' initializer."
        )


def _gains_of(given: Mapping | None) -> dict[str, float]:
    """The setting orthogonal_gains for keyword arguments of torch.nn.init.orthogonal_."""
    if given and set(given) - {"gain"}:
        raise ValueError(
            f"model['fcnet_kernel_initializer_kwargs'] may hold a gain, {{'gain': 1.0}}, but got {given!r:.80}"
        )
    return {"hidden": given["gain"]} if given else {}


MODEL_DEFAULTS = ModelSettings.defaults()
