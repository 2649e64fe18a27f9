"""Ray's default networks by the names of their parameters, in the words of this library.

Of an RLModule, which the new API stack has, and PPO's policies of Ray 2.5 to 2.9:

| there                                          | here                                             |
|------------------------------------------------|--------------------------------------------------|
| encoder.actor_encoder.net.mlp.0, 2, ...        | policy.hidden_0, 1, ...                          |
| encoder.critic_encoder.net.mlp.0, 2, ...       | value.hidden_0, 1, ...                           |
| encoder.encoder.net.mlp.0, 2, ... (shared)     | shared.hidden_0, 1, ...                          |
| pi.net.mlp.0, 2, ... and vf.net.mlp.0, ...     | further hidden layers, and the heads             |
| encoder.net, af.net, vf.net (DQN)              | shared.hidden_0, ...; the heads                  |
| _target_encoder, _target_af, _target_vf        | the target copy                                  |
| pi_encoder.net, pi.net (SAC)                   | shared.hidden_0, ...; policy.head                |

Of a ModelV2:

| there                                          | here                                             |
|------------------------------------------------|--------------------------------------------------|
| _hidden_layers.0._model.0, 1, ...              | policy.hidden_0, or shared.hidden_0              |
| _value_branch_separate.0._model.0, ...         | value.hidden_0, ...                              |
| _logits._model.0, _value_branch._model.0       | policy.head, value.head                          |
| _append_free_log_std.log_std                   | policy.log_std                                   |
| advantage_module.dueling_A_0, A; value_module.dueling_V_0, V | further hidden layers; the heads   |
| action_model, q_net, twin_q_net                | the actor; the critics 0 and 1                   |

The streams of a dueling network have their own hidden layers there, and share them here: the shared layers are twice as
wide, and each head reads its half.
"""

import math
from typing import Any

import numpy as np

from rllib.compat.files.network import ForeignNetwork
from rllib.compat.files.parameters import Layer, Parameters, named, side_by_side, widths
from rllib.compat.files.ray_checkpoints.files import RayCheckpoint
from rllib.models.arithmetic.activations import ACTIVATION_NAMES

_HINT = (
    "It was trained with a network of your own, or with convolutions, a memory or noisy layers, which are not taken. "
    "Write the network as a torch module, model={'custom_model': Module} (docs/guide/networks.md), and load the "
    "parameters there."
)
# Classes of networks of the new API stack that can be imported: Ray's own.
_OWN = "ray.rllib."
# Prefixes of names in an RLModule that do not occur in a ModelV2.
_OF_MODULES = ("encoder.", "pi_encoder.")


def network_of(algorithm: str, checkpoint: RayCheckpoint) -> ForeignNetwork:
    """The network of a checkpoint.

    Args:
        algorithm: its name here, one of PPO, IMPALA, APPO, A2C, A3C, PG, DQN and SAC.
        checkpoint: what was read.

    Raises:
        ValueError: for networks that this library does not have; the message says which part.
    """
    if checkpoint.module and not checkpoint.module.startswith(_OWN):
        raise ValueError(f"the network of {checkpoint.path} is a class of your own, {checkpoint.module}. {_HINT}")
    if checkpoint.model.get("custom_model"):
        raise ValueError(f"the network of {checkpoint.path} is a custom_model. {_HINT}")
    parameters = Parameters(checkpoint.weights, str(checkpoint.path))
    # Policies of Ray 2.5 to 2.9 have an RLModule, too.
    is_module = any(name.startswith(_OF_MODULES) for name in parameters)
    made = _READERS[algorithm, is_module](parameters, checkpoint)
    parameters.refuse_left(_HINT)
    return made


def _activation(checkpoint: RayCheckpoint, default: str, name: str = "fcnet_activation") -> str:
    """The activation that a setting of the network names; the default where there is none."""
    given = checkpoint.model.get(name, default) if name else default
    given = given.lower() if isinstance(given, str) else given
    if given not in ACTIVATION_NAMES:
        raise ValueError(f"the network of {checkpoint.path} has the {name} {given!r:.40}, which is not available here")
    return ACTIVATION_NAMES[given]


def _of_heads(checkpoint: RayCheckpoint) -> str:
    """Activation of the hidden layers of an RLModule's heads; before Ray 2.40 by another name."""
    return _activation(checkpoint, checkpoint.model.get("post_fcnet_activation", "relu"), "head_fcnet_activation")


def _one_activation(checkpoint: RayCheckpoint, first: str, second: str, below: list, behind: list) -> str:
    """Activation of the lower and the upper layers, which must be the same here."""
    if below and behind and first != second:
        raise ValueError(
            f"the network of {checkpoint.path} has layers with {first}, and behind them layers with {second}; here all "
            "have one activation"
        )
    return second if behind and not below else first


def _model(policy: list[Layer], value: list[Layer] | None, activation: str, shared: bool) -> dict:
    model = {"fcnet_hiddens": widths(policy), "fcnet_activation": activation, "vf_share_layers": shared}
    if value is not None and widths(value) != widths(policy):
        model["vf_hiddens"] = widths(value)
    return model


# ---------------------------------------------------------------------- policy and value


def _module_with_value(parameters: Parameters, checkpoint: RayCheckpoint) -> ForeignNetwork:
    parameters.drop("_old_", "_target_")  # APPO's target network, a copy of an earlier policy
    prefixes = [f"encoder.{each}.net.mlp" for each in ("encoder", "actor_encoder", "critic_encoder")]
    both, of_policy, of_value = (parameters.layers(prefix) for prefix in prefixes)
    log_std = "pi.log_std" if "pi.log_std" in parameters else None
    free = parameters.take(log_std, 1) if log_std else None
    parameters.drop("pi.log_std_clip_param", "vf.log_std_clip_param")
    *pi, head = _not_empty(parameters.layers("pi.net.mlp"), "pi.net.mlp", checkpoint)
    vf = parameters.layers("vf.net.mlp")
    activation, of_heads = _activation(checkpoint, "tanh"), _of_heads(checkpoint)
    activation = _one_activation(checkpoint, activation, of_heads, both or of_policy, pi)
    if both and not pi and len(vf) == 1:
        policy = {**named("shared", both, head, "policy"), **named("value", (), vf[0])}
        return _with_log_std(ForeignNetwork({"model": _model(both, None, activation, True)}, policy), free)
    *behind, of_head = _not_empty(vf, "vf.net.mlp", checkpoint)
    actor, critic = [*(both or of_policy), *pi], [*(both or of_value), *behind]
    policy = {**named("policy", actor, head), **named("value", critic, of_head)}
    note = ["layers that policy and value shared: each has its own copy, and they learn apart"] if both else []
    made = ForeignNetwork({"model": _model(actor, critic, activation, False)}, policy, left_out=note)
    return _with_log_std(made, free)


def _with_log_std(made: ForeignNetwork, log_std: np.ndarray | None) -> ForeignNetwork:
    if log_std is not None:
        made.settings["model"]["free_log_std"] = True
        made.policy = {**made.policy, "policy.log_std": log_std}
    return made


def _not_empty(layers: list[Layer], name: str, checkpoint: RayCheckpoint) -> list[Layer]:
    if not layers:
        raise ValueError(f"the network of {checkpoint.path} has no layers {name}. {_HINT}")
    return layers


def _model_with_value(parameters: Parameters, checkpoint: RayCheckpoint) -> ForeignNetwork:
    activation = _activation(checkpoint, "tanh")
    hiddens = parameters.layers("_hidden_layers", "._model.0")
    separate = parameters.layers("_value_branch_separate", "._model.0")
    head, value = parameters.layer("_logits._model.0"), parameters.layer("_value_branch._model.0")
    free = parameters.take("_append_free_log_std.log_std", 1) if "_append_free_log_std.log_std" in parameters else None
    # Without hidden layers there is nothing to share.
    if separate or not hiddens:
        policy = {**named("policy", hiddens, head), **named("value", separate, value)}
        made = ForeignNetwork({"model": _model(hiddens, separate, activation, False)}, policy)
    else:
        policy = {**named("shared", hiddens, head, "policy"), **named("value", (), value)}
        made = ForeignNetwork({"model": _model(hiddens, None, activation, True)}, policy)
    return _with_log_std(made, free)


# ---------------------------------------------------------------------- DQN


def _action_values(parameters: Parameters, checkpoint: RayCheckpoint) -> ForeignNetwork:
    activation = _activation(checkpoint, "tanh")
    networks = []
    for prefix in ("", "_target_"):
        below = parameters.layers(f"{prefix}encoder.net.mlp")
        networks.append((below, parameters.layers(f"{prefix}af.net.mlp"), parameters.layers(f"{prefix}vf.net.mlp")))
    parameters.drop("af.log_std_clip_param", "vf.log_std_clip_param", "_target_af.log_std", "_target_vf.log_std")
    below, advantages, values = networks[0]
    hidden = _of_heads(checkpoint)
    made = _streams(checkpoint, below, _not_empty(advantages, "af.net.mlp", checkpoint), values, activation, hidden)
    if networks[1][1]:
        made.targets["policy"] = _streams(checkpoint, *networks[1], activation, hidden).policy
    return made


def _model_of_values(parameters: Parameters, checkpoint: RayCheckpoint) -> ForeignNetwork:
    activation = _activation(checkpoint, "tanh")
    parameters.drop("_value_branch.", "_value_branch_separate.")  # DQN does not use these layers
    below = parameters.layers("_hidden_layers", "._model.0")
    streams = []
    for stream, letter in (("advantage_module", "A"), ("value_module", "V")):
        layers = []
        while f"{stream}.dueling_{letter}_{len(layers)}._model.0.weight" in parameters:
            layers.append(parameters.layer(f"{stream}.dueling_{letter}_{len(layers)}._model.0"))
        if f"{stream}.{letter}._model.0.weight" in parameters:
            layers.append(parameters.layer(f"{stream}.{letter}._model.0"))
        streams.append(layers)
    if not streams[0] and "_logits._model.0.weight" in parameters:  # without `hiddens` the network gives the values
        streams[0] = [parameters.layer("_logits._model.0")]
    return _streams(
        checkpoint, below, _not_empty(streams[0], "advantage_module", checkpoint), streams[1], activation, "relu"
    )


def _streams(
    checkpoint: RayCheckpoint, below: list[Layer], advantages: list[Layer], values: list[Layer], first: str, second: str
) -> ForeignNetwork:
    """A network of action values: the layers that both streams share, then each stream's layers."""
    *hiddens, head = advantages
    if hiddens and second != "relu":
        raise ValueError(
            f"the network of {checkpoint.path} has {second} layers in its streams, and here they have relu"
        )
    if values:
        *of_value, value = values
        if len(of_value) != len(hiddens):
            raise ValueError(f"the streams of {checkpoint.path} have {len(hiddens)} and {len(of_value)} hidden layers")
        head = side_by_side(head, value, one_input=not hiddens)
        hiddens = [side_by_side(*pair, one_input=not index) for index, pair in enumerate(zip(hiddens, of_value))]
    model = {"fcnet_hiddens": widths(below), "fcnet_activation": first}
    settings = {"hiddens": widths(hiddens), "dueling": bool(values), "model": model, **_atoms(checkpoint)}
    return ForeignNetwork(settings, named("shared", [*below, *hiddens], head, "policy"))


def _atoms(checkpoint: RayCheckpoint) -> dict[str, float]:
    """Settings of a network that gives distributions of returns."""
    names = ("num_atoms", "v_min", "v_max")
    given = {name: checkpoint.config.get(name, checkpoint.model.get(name)) for name in names}
    is_given = all(type(value) in (int, float) for value in given.values()) and given["num_atoms"] > 1
    return given if is_given else {}


# ---------------------------------------------------------------------- SAC


def _soft_module(parameters: Parameters, checkpoint: RayCheckpoint) -> ForeignNetwork:
    below = parameters.layers("pi_encoder.net.mlp")
    *behind, head = _not_empty(parameters.layers("pi.net.mlp"), "pi.net.mlp", checkpoint)
    activation, of_heads = _activation(checkpoint, "tanh"), _of_heads(checkpoint)
    activation = _one_activation(checkpoint, activation, of_heads, below, behind)
    parameters.drop("pi.log_std_clip_param", "qf", "target_qf")
    hiddens = [*below, *behind]
    settings = {"model": {"fcnet_hiddens": widths(hiddens), "fcnet_activation": activation}}
    note = (
        "the critics, which read observation and action by separate networks there: they get new weights. Before the "
        "actor learns on, let them learn for a while: actor_lr=0"
    )
    return ForeignNetwork(settings, named("shared", hiddens, head, "policy"), left_out=[note])


def _soft_model(parameters: Parameters, checkpoint: RayCheckpoint) -> ForeignNetwork:
    settings: dict[str, Any] = {}
    if "log_alpha" in parameters:
        settings["initial_alpha"] = math.exp(float(parameters.take("log_alpha").reshape(-1)[0]))
    parameters.drop("target_entropy")
    hiddens, head = _part(parameters, "action_model")
    critics: dict[str, np.ndarray] = {}
    of_critics: list[Layer] = []
    for number, prefix in enumerate(("q_net", "twin_q_net")):
        if any(name.startswith(f"{prefix}.") for name in parameters):
            of_critics, judging = _part(parameters, prefix)
            critics |= named(str(number), of_critics, judging)
    settings |= {
        "model": {"fcnet_hiddens": widths(hiddens), "fcnet_activation": _of_part(checkpoint, "policy_model_config")},
        "q_model_config": {
            "fcnet_hiddens": widths(of_critics), "fcnet_activation": _of_part(checkpoint, "q_model_config"),
        },
        "twin_q": "1.head.bias" in critics,
    }  # fmt: skip
    return ForeignNetwork(settings, named("shared", hiddens, head, "policy"), modules={"critics": critics})


def _of_part(checkpoint: RayCheckpoint, name: str) -> str:
    """Activation of one of SAC's models."""
    own = checkpoint.config.get(name)
    return _activation(checkpoint, own.get("fcnet_activation", "relu") if isinstance(own, dict) else "relu", "")


def _part(parameters: Parameters, prefix: str) -> tuple[list[Layer], Layer]:
    """Hidden layers and head of one of SAC's models."""
    hiddens = parameters.layers(f"{prefix}._hidden_layers", "._model.0")
    head = parameters.layer(f"{prefix}._logits._model.0")
    parameters.drop(f"{prefix}._value_branch")
    return hiddens, head


_WITH_VALUE = ("PPO", "IMPALA", "APPO", "A2C", "A3C", "PG")
_READERS = {
    **{(name, True): _module_with_value for name in _WITH_VALUE},
    **{(name, False): _model_with_value for name in _WITH_VALUE},
    ("DQN", True): _action_values,
    ("DQN", False): _model_of_values,
    ("SAC", True): _soft_module,
    ("SAC", False): _soft_model,
}
TAKEN = tuple(dict.fromkeys(name for name, _ in _READERS))
