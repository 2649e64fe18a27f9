"""Writes models in Stable-Baselines3's format: the inverse of networks.py, and settings as JSON.

The format has pickles for values that JSON cannot express: names of classes, and spaces. They are written by name, with
fixed templates (storage/pickled_names.py); Stable-Baselines3 need not be installed. It reads the zip with `PPO.load`.
Its optimizers are then reset: the moments of the two libraries' optimizers are not comparable.
"""

import base64
import io
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib.compat.names.stable_baselines3.algorithms import attribute_of, words_of_algorithm
from rllib.env.factories.adapters import adapters_of
from rllib.env.vec_env.wrappers import VecTransposeImage, is_image_space_channels_first
from rllib.sample_batch import DEFAULT_POLICY
from rllib.storage.pickled_names import Named, dumps_with_names

VERSION = "2.9.2"
# Algorithm there -> classes of its policies: of vectors, of images, of a Dict.
_SB3, _CONTRIB = "stable_baselines3", "sb3_contrib"
_OF_GRADIENTS = tuple(
    f"{_SB3}.common.policies.{name}"
    for name in ("ActorCriticPolicy", "ActorCriticCnnPolicy", "MultiInputActorCriticPolicy")
)
_POLICIES = {
    **dict.fromkeys(("PPO", "A2C", "TRPO"), _OF_GRADIENTS),
    "MaskablePPO": tuple(
        f"{_CONTRIB}.common.maskable.policies.Maskable{path.rpartition('.')[2]}" for path in _OF_GRADIENTS
    ),
    "DQN": tuple(f"{_SB3}.dqn.policies.{name}" for name in ("DQNPolicy", "CnnPolicy", "MultiInputPolicy")),
    "SAC": (f"{_SB3}.sac.policies.SACPolicy", None, f"{_SB3}.sac.policies.MultiInputPolicy"),
    "TQC": (f"{_CONTRIB}.tqc.policies.TQCPolicy", None, f"{_CONTRIB}.tqc.policies.MultiInputPolicy"),
    **dict.fromkeys(
        ("TD3", "DDPG"), (f"{_SB3}.td3.policies.TD3Policy", None, f"{_SB3}.td3.policies.MultiInputPolicy")
    ),
}  # fmt: skip
# Places of NatureCNN's convolutions there, and their shapes (filters, height, width).
_CONVOLUTIONS = {0: (32, 8, 8), 2: (64, 4, 4), 4: (64, 3, 3)}
_FEATURES = 512
_RMSPROP = "stable_baselines3.common.sb2_compat.rmsprop_tf_like.RMSpropTFLike"
_ON_POLICY = ("PPO", "A2C", "TRPO", "MaskablePPO")
_ACTIVATIONS = {
    "tanh": "Tanh", "relu": "ReLU", "elu": "ELU", "leaky_relu": "LeakyReLU", "gelu": "GELU", "swish": "SiLU",
    "sigmoid": "Sigmoid", "linear": "Identity",
}  # fmt: skip
# Arguments that are no attributes of a model there.
_NO_ATTRIBUTES = frozenset({
    "policy", "policy_kwargs", "device", "normalize", "rms_prop_eps", "use_rms_prop", "noise_type", "noise_std",
    "n_timesteps", "replay_buffer_class", "replay_buffer_kwargs", "action_noise", "tensorboard_log",
    "use_sde_at_warmup", "optimize_memory_usage",
})  # fmt: skip

# Arguments for which None has a meaning there.
_NONE_IS_A_VALUE = frozenset({"clip_range_vf", "target_kl"})
# Decay of RMSprop's squares, which A2C there has.
_RMS_DECAY = 0.99

Named_ = Mapping[str, np.ndarray]


class NotWrittenError(ValueError):
    """A model that Stable-Baselines3 does not have; the message names the part."""


def entries_of(model: Any, algorithm: str, left_out: Iterable[str] = ()) -> dict[str, bytes]:
    """Entries of the zip.

    Args:
        model: the algorithm.
        algorithm: Stable-Baselines3's name of it.
        left_out: names in `data` that are not written.

    Returns:
        name -> content.

    Raises:
        NotWrittenError: (a ValueError) if Stable-Baselines3 has no such model.
    """
    if algorithm not in _POLICIES:
        raise NotWrittenError(f"the format of {algorithm} is not written; that of {', '.join(_POLICIES)} is")
    policy = model.policies[DEFAULT_POLICY]
    _refuse_other_networks(model, policy)
    network, kwargs, variables = _networks(model, algorithm, policy)
    data = _data(model, algorithm, kwargs)
    data = {name: value for name, value in data.items() if name not in set(left_out)}
    entries = {"data": json.dumps(data, indent=4).encode(), "policy.pth": _torch_file(network)}
    if variables:
        entries["pytorch_variables.pth"] = _torch_file(variables)
    learns_temperature = bool(variables and "log_ent_coef" in variables)
    is_shared = kwargs.get("share_features_extractor", True)
    for name, count in _optimizers(algorithm, network, learns_temperature, is_shared).items():
        entries[f"{name}.pth"] = _torch_file(_new_optimizer(model.config, count), plain=True)
    return {**entries, "_stable_baselines3_version": VERSION.encode()}


def _refuse_other_networks(model: Any, policy: Any) -> None:
    config = model.config
    kind = type(policy.spec.architecture).__name__
    if kind != "Dense":
        raise NotWrittenError(f"its network is {policy.spec.architecture.network_name}, and layers alone are written")
    if policy.filters_observations:
        raise NotWrittenError("it normalises observations itself (observation_filter); VecNormalize does it outside")
    if config.normalize_returns:
        raise NotWrittenError("it normalises returns itself (normalize_returns); VecNormalize does it outside")
    if config.model.get("use_sde"):
        raise NotWrittenError("it has state-dependent noise, whose parameters are not written")
    if not _has_images(policy.parameters()):
        return
    space = own_space(model)
    owner = "shared" if "shared.image_0_conv_0.weight" in policy.parameters() else "policy"
    shapes = [np.shape(policy.parameters().get(f"{owner}.image_0_conv_{index}.weight")) for index in range(4)]
    if not isinstance(space, spaces.Box) or [(shape[0], *shape[2:]) for shape in shapes if shape] != [
        *_CONVOLUTIONS.values()
    ]:
        raise NotWrittenError("its convolutions are others than NatureCNN's of one image, which alone are written")
    behind = [config.model.get(name, "relu") for name in ("conv_activation", "post_fcnet_activation")]
    if behind != ["relu", "relu"]:
        raise NotWrittenError(f"it has the activations {behind} in and behind its convolutions; relu is written")


def _has_images(own: Named_) -> bool:
    return any(".image_" in name for name in own)


def own_space(model: Any) -> spaces.Space:
    """The environment's observation space: the policy's may have a mask of actions as well."""
    space = model.observation_space
    for adapter in reversed(adapters_of(model.config)):
        space = adapter.own_space(space)
    return space


# ---------------------------------------------------------------------- networks


def _layers(given: Named_, owner: str, prefix: str, head: str | None = None, first: int = 0) -> dict[str, np.ndarray]:
    """Hidden layers OWNER.hidden_i, from i = first, as PREFIX.0, .2, ..., and a head as the last of them."""
    made, index = {}, 0
    while f"{owner}.hidden_{first + index}.weight" in given:
        for part in ("weight", "bias"):
            made[f"{prefix}.{2 * index}.{part}"] = given[f"{owner}.hidden_{first + index}.{part}"]
        index += 1
    if head is not None:
        made |= {f"{prefix}.{2 * index}.{part}": given[f"{head}.{part}"] for part in ("weight", "bias")}
    return made


def _widths(given: Named_, owner: str) -> list[int]:
    widths: list[int] = []
    while (name := f"{owner}.hidden_{len(widths)}.weight") in given:
        widths.append(len(given[name]))
    return widths


def _extractor(given: Named_, owner: str, prefix: str, torso: Any) -> dict[str, np.ndarray]:
    """Convolutions of OWNER, and its first hidden layer, as a NatureCNN, which reads features channel by channel."""
    made = _part(given, f"{owner}.hidden_0", f"{prefix}.linear.0")
    weight, (height, width, channels) = given[f"{owner}.hidden_0.weight"], torso.images[0].layers[-1].out_shape
    by_channel = weight.reshape(-1, height, width, channels).transpose(0, 3, 1, 2)
    made[f"{prefix}.linear.0.weight"] = by_channel.reshape(len(weight), -1)
    for index, place in enumerate(_CONVOLUTIONS):
        made |= _part(given, f"{owner}.image_0_conv_{index}", f"{prefix}.cnn.{place}")
    return made


def _part(given: Named_, name: str, prefix: str) -> dict[str, np.ndarray]:
    return {f"{prefix}.{part}": given[f"{name}.{part}"] for part in ("weight", "bias")}


def _networks(model: Any, algorithm: str, policy: Any) -> tuple[dict, dict[str, Any], dict]:
    """Parameters there, settings of the networks, and further tensors."""
    own = policy.parameters()
    name = _ACTIVATIONS[model.config.model["fcnet_activation"]]
    activation = Named(f"torch.nn.modules.{'linear' if name == 'Identity' else 'activation'}.{name}")
    kwargs: dict[str, Any] = {"activation_fn": activation, **_optimizer_keywords(model.config, algorithm)}
    if algorithm in _ON_POLICY:
        return (*_actor_critic(model, own, kwargs), {})
    learner = model.learners[DEFAULT_POLICY]
    if algorithm == "DQN":
        if model.config.dueling or model.config.num_atoms > 1 or policy.spec.noisy_layers:
            raise NotWrittenError("its action values are dueling, distributional or noisy")
        target = learner.vector.named_parameters("policy", learner.targets["policy"].weights)
        first, made = int(_has_images(own)), {}
        for given, prefix in ((own, "q_net"), (target, "q_net_target")):
            if first:
                made |= _extractor(given, "shared", f"{prefix}.features_extractor", policy.spec.torso)
            made |= _layers(given, "shared", f"{prefix}.q_net", "policy.head", first)
        arch = _widths(own, "shared")
        return made, {**kwargs, **_of_features(arch[:first]), "net_arch": arch[first:]}, {}
    return _actor_and_critics(model, algorithm, own, learner, kwargs)


def _optimizer_keywords(config: Any, algorithm: str) -> dict[str, Any]:
    """Keywords of the network about its optimizer."""
    if config["opt_type"] == "adam":
        return {}
    if config["opt_type"] != "rmsprop" or algorithm != "A2C":
        raise NotWrittenError(f"its optimizer is {config['opt_type']}; Adam is written, and RMSprop of A2C")
    kwargs = {"alpha": _RMS_DECAY, "eps": config["rmsprop_epsilon"], "weight_decay": 0}
    return {"optimizer_class": Named(_RMSPROP), "optimizer_kwargs": kwargs}


def _of_features(widths: list[int]) -> dict[str, Any]:
    """Keywords about the layer behind convolutions; {} without one, or for the usual one."""
    return {"features_extractor_kwargs": {"features_dim": widths[0]}} if widths and widths[0] != _FEATURES else {}


def _actor_critic(model: Any, own: Named_, kwargs: dict[str, Any]) -> tuple[dict, dict[str, Any]]:
    first, shared = int(_has_images(own)), _widths(own, "shared")
    actor, critic = _widths(own, "policy"), _widths(own, "value")
    space = model.action_space
    if "value.head.weight" not in own or len(shared) > first:
        raise NotWrittenError("its policy and value share layers")
    made: dict[str, np.ndarray] = {}
    if first:
        owners = ("shared", "shared") if shared else ("policy", "value")
        for name, owner in zip(("features_extractor", "pi_features_extractor", "vf_features_extractor"),
                               (owners[0], *owners), strict=True):  # fmt: skip
            made |= _extractor(own, owner, name, model.policies[DEFAULT_POLICY].spec.torso)
        kwargs = {**kwargs, **_of_features(shared or actor[:1]), "share_features_extractor": bool(shared)}
        actor, critic = actor[not shared :], critic[not shared :]
    behind = int(bool(first and not shared))
    for owner, name in (("policy", "policy_net"), ("value", "value_net")):
        made |= _layers(own, owner, f"mlp_extractor.{name}", first=behind)
    made |= {**_part(own, "policy.head", "action_net"), **_part(own, "value.head", "value_net")}
    if isinstance(space, spaces.MultiBinary):  # here a switch has a logit of 0 and one of 1, there their difference
        for part in ("action_net.weight", "action_net.bias"):
            made[part] = made[part][1::2] - made[part][::2]
    if isinstance(space, spaces.Box):
        if "policy.log_std" not in own:
            raise NotWrittenError("its deviations are the network's, and no parameters of their own")
        made = {"log_std": own["policy.log_std"], **made}
    return made, {**kwargs, "net_arch": {"pi": actor, "vf": critic}}


def _actor_and_critics(model: Any, algorithm: str, own: Named_, learner: Any, kwargs: dict) -> tuple[dict, dict, dict]:
    if not isinstance(model.action_space, spaces.Box):
        raise NotWrittenError("its actions are choices")
    is_soft, variables = algorithm in ("SAC", "TQC"), {}
    if is_soft:
        made = _layers(own, "shared", "actor.latent_pi")
        for index, name in enumerate(("mu", "log_std")):
            for part in ("weight", "bias"):
                made[f"actor.{name}.{part}"] = np.split(own[f"policy.head.{part}"], 2)[index]
        alpha = float(_temperature(model))
        if model.config.alpha_lr == 0.0:
            variables["ent_coef_tensor"] = np.asarray(alpha, np.float32)
        else:
            variables["log_ent_coef"] = np.asarray([math.log(alpha)], np.float32)
    else:
        made = _layers(own, "shared", "actor.mu", "policy.head")
        target = learner.vector.named_parameters("policy", learner.targets["policy"].weights)
        made |= _layers(target, "shared", "actor_target.mu", "policy.head")
    critics = learner.vector.named_parameters("critics")
    targets = learner.vector.named_parameters("critics", learner.targets["critics"].weights)
    count = len({name.partition(".")[0] for name in critics})
    for prefix, given in (("critic", critics), ("critic_target", targets)):
        for number in range(count):
            made |= _layers(given, str(number), f"{prefix}.qf{number}", f"{number}.head")
    arch = {"pi": _widths(own, "shared"), "qf": _widths(critics, "0")}
    kwargs = {**kwargs, "net_arch": arch, "n_critics": count}
    if algorithm == "TQC":
        kwargs["n_quantiles"] = len(critics["0.head.bias"])
    return made, kwargs, variables


def _temperature(model: Any) -> float:
    return model.trainees[DEFAULT_POLICY].temperature.alpha


def _optimizers(
    algorithm: str, network: Mapping[str, Any], learns_temperature: bool, is_shared: bool
) -> dict[str, int]:
    """Optimizer there -> number of its parameters, of which copies by further names are none."""
    shared_copies = ("features_extractor.", "vf_features_extractor.") if is_shared else ("features_extractor.",)
    names = [name for name in network if not (algorithm in _ON_POLICY and name.startswith(shared_copies))]
    if algorithm in _ON_POLICY:
        return {"policy.optimizer": len(names)}
    if algorithm == "DQN":
        return {"policy.optimizer": sum(name.startswith("q_net.") for name in names)}
    counts = {f"{part}.optimizer": sum(name.startswith(f"{part}.") for name in names) for part in ("actor", "critic")}
    return {**counts, "ent_coef_optimizer": 1} if learns_temperature else counts


def _new_optimizer(config: Any, count: int) -> dict[str, Any]:
    """The state of an optimizer of `count` parameters before its first step."""
    import torch

    one = [torch.zeros(1)]
    if config["opt_type"] == "rmsprop":
        made: Any = torch.optim.RMSprop(one, alpha=_RMS_DECAY, eps=config["rmsprop_epsilon"])
    else:
        made = torch.optim.Adam(one, eps=config["adam_epsilon"])
    (group,) = made.state_dict()["param_groups"]
    return {"state": {}, "param_groups": [{**group, "params": list(range(count))}]}


def _torch_file(content: Any, plain: bool = False) -> bytes:
    import torch

    if not plain:
        content = {name: torch.from_numpy(np.array(array, np.float32)) for name, array in content.items()}
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


# ---------------------------------------------------------------------- settings


def _data(model: Any, algorithm: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    of_words = "PPO" if algorithm == "MaskablePPO" else algorithm
    space = own_space(model)
    has_images = any(".image_" in name for name in model.policies[DEFAULT_POLICY].parameters())
    path = _POLICIES[algorithm][1 if has_images else 2 if isinstance(space, spaces.Dict) else 0]
    if has_images and not is_image_space_channels_first(space):  # there environments are wrapped in VecTransposeImage
        space = VecTransposeImage.transpose_space(space)
    words = {word: attribute_of(of_words, word, model.config) for word in _attributes(of_words)}
    return {
        "policy_class": _pickled(Named(path), {"__module__": path.rpartition(".")[0]}),
        **_plain(words),
        **_target_entropy(model, algorithm),
        **({"policy_delay": 1} if algorithm == "DDPG" else {}),  # which tells it from TD3
        "policy_kwargs": _pickled(kwargs, _readable(kwargs)),
        "observation_space": _space(space),
        "action_space": _space(model.action_space),
        "num_timesteps": int(model.num_timesteps),
        "_total_timesteps": int(model.num_timesteps),
        "_num_timesteps_at_start": 0,
        "_n_updates": int(model.n_updates),
        "_episode_num": int(model.metrics.episodes_total),
        "_current_progress_remaining": 0.0,
        "n_envs": model.n_envs,
        "seed": model.config.seed,
        "verbose": model.verbose,
        "use_sde": False,
    }


def _target_entropy(model: Any, algorithm: str) -> dict[str, float]:
    """SAC's, as a number: there it would be asked of an environment."""
    if algorithm not in ("SAC", "TQC"):
        return {}
    return {"target_entropy": float(model.trainees[DEFAULT_POLICY].temperature.target_entropy)}


def _attributes(algorithm: str) -> list[str]:
    return [word for word in words_of_algorithm(algorithm) if word not in _NO_ATTRIBUTES]


def _plain(words: Mapping[str, Any]) -> dict[str, Any]:
    """Words as numbers, texts and lists; a schedule as what it begins with."""
    found = {}
    for word, value in words.items():
        if isinstance(value, Mapping) and "initial" in value:
            value = value["initial"]
        elif callable(value):
            value = float(value(0))
        elif isinstance(value, list | tuple) and value and isinstance(value[0], list | tuple):
            value = value[0][1]
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool | int | float | str | list | tuple) or (value is None and word in _NONE_IS_A_VALUE):
            found[word] = value
    return found


def _readable(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of the network, with classes as their texts."""
    return {name: f"<class '{value.path}'>" if isinstance(value, Named) else value for name, value in kwargs.items()}


def _pickled(value: Any, readable: Mapping[str, Any]) -> dict[str, Any]:
    """A pickle as `data` has it: base64, with its type and fields that can be read."""
    kind = "<class 'dict'>" if isinstance(value, dict) else "<class 'abc.ABCMeta'>"
    return {":type:": kind, ":serialized:": base64.b64encode(dumps_with_names(value)).decode(), **readable}


def _space(space: spaces.Space) -> dict[str, Any]:
    """A space, with the fields that space_of (spaces.py) reads."""
    kind = f"<class '{type(space).__module__}.{type(space).__name__}'>"
    written = {":type:": kind, ":serialized:": base64.b64encode(dumps_with_names(space)).decode()}
    if isinstance(space, spaces.Box):
        bounds = {name: np.array2string(getattr(space, name), threshold=10**9) for name in ("low", "high")}
        return {**written, "dtype": str(space.dtype), "_shape": list(space.shape), **bounds}
    if isinstance(space, spaces.Discrete):
        return {**written, "n": str(space.n), "start": str(space.start), "_shape": [], "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiDiscrete):
        return {**written, "nvec": str(space.nvec), "_shape": list(space.shape), "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiBinary):
        return {**written, "n": str(space.n), "_shape": list(space.shape), "dtype": str(space.dtype)}
    return written
