"""Networks and optimizers in Stable-Baselines3's words."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rllib.compat.names.aliases import ACTIVATIONS_OF_TORCH
from rllib.compat.names.stable_baselines3.rules import FLAGS_WITHIN
from rllib.compat.names.stable_baselines3.words import Part, Words, name_of, refuse_unless
from rllib.did_you_mean import did_you_mean
from rllib.notices import log_unused_arguments

# Keys of policy_kwargs -> values that ask for nothing, and the reason why no other is taken.
_NEUTRAL_IN_NETWORK: Mapping[str, tuple[tuple, str]] = {
    "full_std": ((True,), "the noise matrix has a deviation for each weight"),
    "use_expln": ((False,), "deviations are exponentials"),
    "clip_mean": ((2.0, 2), "means before tanh are clipped to +-2"),
    "normalize_images": ((True,), "pixels are always scaled to 0 ... 1"),
    "batch_norm": ((True,), "CrossQ stands on batch normalisation; use SAC to do without it"),
    "n_lstm_layers": ((1,), "a memory has one layer"),
    "features_extractor_class": (
        (None, "FlattenExtractor", "CombinedExtractor", "NatureCNN"),
        "give a torch module as .training(model={'custom_model': Module}) (docs/guide/networks.md)",
    ),
}
# Class of torch's optimizers -> (opt_type, keyword -> setting).
_OPTIMIZERS = {
    "Adam": ("adam", {"eps": "adam_epsilon", "weight_decay": "weight_decay"}),
    "AdamW": ("adamw", {"eps": "adam_epsilon", "weight_decay": "weight_decay"}),
    "RAdam": ("radam", {"eps": "adam_epsilon", "weight_decay": "weight_decay"}),
    "RMSprop": (
        "rmsprop",
        {"eps": "rmsprop_epsilon", "alpha": "decay", "momentum": "momentum", "weight_decay": "weight_decay"},
    ),
    "SGD": ("sgd", {"weight_decay": "weight_decay"}),
}


def _layers(given, *critics: str) -> tuple[list[int], list[int]]:
    """Widths of the hidden layers of the actor and of its critic, as net_arch has them.

    Args:
        given: a list for both, or a dict.
        critics: key of the critic's in a dict; none: the algorithm has one network, and takes no dict.

    Raises:
        ValueError: for layers that both share in part, and for keys that the algorithm does not read.
    """
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 1 and isinstance(given[0], Mapping):
        given = given[0]
    names = ("pi", *critics)
    if isinstance(given, Mapping) and critics and given.keys() <= {*names}:
        # Stable-Baselines3: no layers of what a dict for PPO leaves out; both have to be said for an actor and critics.
        if critics == ("qf",) and len(given) < 2:
            raise ValueError(f"net_arch={given!r} must have both, as in {{'pi': [64, 64], 'qf': [64, 64]}}.")
        actor, critic = (_sequence(given.get(name) or ()) for name in names)
    else:
        actor = critic = [given] if isinstance(given, int) else _sequence(given)
    if not all(type(width) is int for width in (*actor, *critic)):
        dicts = f", or a dict of two, as in {{'pi': [64, 64], '{critics[0]}': [64, 64]}}" if critics else ""
        raise ValueError(f"net_arch={given!r} must be a list of widths{dicts}.")
    return actor, critic


def _sequence(given) -> list:
    return list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [None]


def _activation(given) -> str:
    name = name_of(given)
    if name not in ACTIVATIONS_OF_TORCH:
        raise ValueError(f"activation_fn={name!r} is not available: give one of {', '.join(ACTIVATIONS_OF_TORCH)}.")
    return ACTIVATIONS_OF_TORCH[name]


def _keywords(words: Words, defaults: Mapping[str, Any], taken: Sequence[str]) -> dict[str, Any]:
    """The network's keywords that become settings: those given, and the defaults if they are asked for.

    Raises:
        ValueError: for keywords that say what no network here does.
    """
    given = dict(words.network) if words.ask("policy_kwargs") else {}
    for key, value in given.items():
        if key in FLAGS_WITHIN:
            FLAGS_WITHIN[key].check(f"policy_kwargs: {key}", value)
        if key in _NEUTRAL_IN_NETWORK:
            known = value if value is None or not isinstance(value, type | str) else name_of(value)
            refuse_unless(key, known, *_NEUTRAL_IN_NETWORK[key])
        elif key not in (*taken, "activation_fn", "net_arch", *_OF_OPTIMIZERS):
            every = [*taken, "activation_fn", "net_arch", *_NEUTRAL_IN_NETWORK, *_OF_OPTIMIZERS]
            raise ValueError(f"policy_kwargs has no {key!r}.{did_you_mean(str(key), every)}")
    return {**defaults, **given} if words.ask("policy") else given


# Keywords of CrossQ's critics.
OF_CROSSQ = ("batch_norm_momentum", "batch_norm_eps", "renorm_warmup_steps")
_OF_OPTIMIZERS = ("optimizer_class", "optimizer_kwargs")


def optimizer(words: Words) -> dict[str, Any]:
    """Optimizer and its settings, of policy_kwargs."""
    if not words.ask("policy_kwargs") or not any(key in words.network for key in _OF_OPTIMIZERS):
        return {}
    name, keywords = name_of(words.network.get("optimizer_class", "Adam")), words.network.get("optimizer_kwargs") or {}
    # TensorFlow's adds epsilon below the root: sqrt(v + e) <= sqrt(v) + sqrt(e).
    root = name == "RMSpropTFLike"
    name = "RMSprop" if root else name
    if name not in _OPTIMIZERS:
        raise ValueError(f"optimizer_class={name!r} is not available: give one of {', '.join(_OPTIMIZERS)}.")
    opt_type, names = _OPTIMIZERS[name]
    settings: dict[str, Any] = {"opt_type": opt_type}
    # Stable-Baselines3's own constants are of Adam without keywords; all others have torch's.
    if "optimizer_kwargs" in words.network or name != "Adam":
        settings |= {names["eps"]: 1e-8} if "eps" in names else {}
        settings |= {"weight_decay": 1e-2} if name == "AdamW" else {}
    if not isinstance(keywords, Mapping):
        raise ValueError(f"optimizer_kwargs={keywords!r:.80} must be a dict, as in {{'eps': 1e-5}}.")
    for key, value in dict(keywords).items():
        if key in names:
            settings[names[key]] = math.sqrt(value) if root and key == "eps" else value
        elif key != "betas" or not isinstance(value, tuple | list) or tuple(value) not in _BETAS:
            raise ValueError(f"optimizer_kwargs: {key}={value!r} cannot be said of {name} here; leave it out.")
        elif value[0] != _BETAS[0][0]:
            settings["adam_beta1"] = value[0]
    return settings


# Adam's decays: torch's, and CrossQ's.
_BETAS = ((0.9, 0.999), (0.5, 0.999))
_OF_ACTOR_CRITIC = (
    *("ortho_init", "log_std_init", "squash_output"),
    *("share_features_extractor", "features_extractor_kwargs"),
)


def actor_critic(words: Words) -> dict[str, Any]:
    """Network of PPO and A2C: separate layers of policy and value, tanh, orthogonal weights."""
    is_cnn = words.policy == "CnnPolicy"
    default = {"net_arch": [] if is_cnn else [64, 64], "activation_fn": "Tanh"}
    keywords = _keywords(words, default, _OF_ACTOR_CRITIC)
    if not is_cnn:
        reason = "without convolutions policy and value share nothing"
        log_unused_arguments(
            "policy_kwargs", reason, share_features_extractor="share_features_extractor" in words.network
        )
    model: dict[str, Any] = {}
    if "net_arch" in keywords:
        actor, critic = _layers(keywords["net_arch"], "vf")
        if is_cnn and (actor or critic):
            raise ValueError(
                f"net_arch={keywords['net_arch']!r} puts layers of policy and value behind shared convolutions. Leave "
                "it out, or use .training(model={'post_fcnet_hiddens': [512, 256]})."
            )
        model |= {"fcnet_hiddens": actor} if actor == critic else {"fcnet_hiddens": actor, "vf_hiddens": critic}
    if words.ask("policy") and words["policy"]:
        model["vf_share_layers"] = is_cnn and keywords.get("share_features_extractor", True)
        model |= {"conv_filters": "nature"} if is_cnn else {}
    if (features := _features_dim(keywords)) is not None:
        model["post_fcnet_hiddens"] = [features]
    if "activation_fn" in keywords:
        model["fcnet_activation"] = _activation(keywords["activation_fn"])
    if keywords.get("ortho_init") is False:
        model["fcnet_weights_initializer"] = "uniform"
    if keywords.get("squash_output"):
        model["squash_actions"] = True
    if words.ask("policy", "policy_kwargs", "use_sde", "sde_sample_freq"):
        model |= _deviation(words, keywords)
    return {"model": model} if model else {}


def _features_dim(keywords: Mapping[str, Any]) -> int | None:
    """Width of the layer behind convolutions, of features_extractor_kwargs; None: it is not given.

    Raises:
        ValueError: for other keywords of an extractor.
    """
    extractor = dict(keywords.get("features_extractor_kwargs") or {})
    features = extractor.pop("features_dim", None)
    if extractor:
        raise ValueError(
            f"features_extractor_kwargs={extractor!r} cannot be used with the built-in extractors: leave it out, or "
            "give the widths behind images as .training(model={'post_fcnet_hiddens': [256]}) (docs/guide/networks.md)."
        )
    return features


def _deviation(words: Words, keywords: Mapping[str, Any], log_std_init: float = 0.0) -> dict[str, Any]:
    """Keys of `model` about the deviation of continuous actions; they are none of discrete ones."""
    if words.has_box is False:
        if words["use_sde"]:
            raise ValueError(
                f"use_sde=True needs continuous actions (Box), but the action space is {words['action_space']}. Leave "
                "it out."
            )
        reason = "discrete actions have no deviation"
        log_unused_arguments("policy_kwargs", reason, log_std_init=keywords.get("log_std_init"))
        return {}
    _log_noise(words)
    if words["use_sde"]:
        noise = {"use_sde": True, "sde_sample_freq": words["sde_sample_freq"] or -1}
        if not words.ask("policy", "policy_kwargs", "use_sde"):  # of a checkpoint, whose deviations stay
            return noise
        start = keywords.get("log_std_init", log_std_init)
        return {**noise, "log_std_init": start} if start else noise
    if not words.ask("policy", "policy_kwargs", "use_sde"):
        return {}
    start = {"log_std_init": keywords["log_std_init"]} if "log_std_init" in keywords else {}
    return {**start, "free_log_std": True} if words.has_box or start else {}


def _log_noise(words: Words) -> None:
    """Logs words about state-dependent noise where there is none."""
    if not words["use_sde"]:
        frequency, warmup = (words["sde_sample_freq"] or -1) > 0, words["use_sde_at_warmup"]
        log_unused_arguments(
            "constructor", "it is of use_sde=True", sde_sample_freq=frequency, use_sde_at_warmup=warmup
        )


def values_network(words: Words, further: Sequence[str] = ()) -> dict[str, Any]:
    """Network of DQN.

    Args:
        words: all.
        further: keywords of the network that are read elsewhere.
    """
    is_cnn = words.policy == "CnnPolicy"
    taken = (*further, "features_extractor_kwargs")
    keywords = _keywords(words, {"net_arch": [] if is_cnn else [64, 64], "activation_fn": "ReLU"}, taken)
    model: dict[str, Any] = {}
    features = _features_dim(keywords)
    if features is not None and not is_cnn:
        raise ValueError(f"features_dim={features} is the width of the layer behind the convolutions of 'CnnPolicy'.")
    if "net_arch" in keywords or (is_cnn and features is not None):
        layers, _ = _layers(keywords.get("net_arch", []))
        of_features = 512 if features is None else features
        model |= {"post_fcnet_hiddens": [of_features, *layers]} if is_cnn else {"fcnet_hiddens": layers}
    if is_cnn and words.ask("policy"):
        model["conv_filters"] = "nature"
    if "activation_fn" in keywords:
        model["fcnet_activation"] = _activation(keywords["activation_fn"])
    return {"model": model} if model else {}


def quantiles_network(words: Words) -> dict[str, Any]:
    """Network of QR-DQN: quantiles of the return of each action."""
    number = words.network.get("n_quantiles", 200)
    asked = words.ask("policy") or (words.ask("policy_kwargs") and "n_quantiles" in words.network)
    return {**values_network(words, ("n_quantiles",)), **({"num_quantiles": number} if asked else {})}


def off_policy_network(
    default: Sequence[int] | Mapping[str, Sequence[int]], log_std_init: float | None, further: Sequence[str] = ()
) -> Part:
    """Makes the function that gives the networks of an actor and its critics.

    Args:
        default: net_arch of the algorithm.
        log_std_init: of state-dependent noise; None: the algorithm has none.
        further: keywords of the algorithm's own critics.
    """
    noise = () if log_std_init is None else ("log_std_init",)
    taken = ("n_critics", *noise, "share_features_extractor", *further)

    def network(words: Words) -> dict[str, Any]:
        if words.policy == "CnnPolicy":
            raise ValueError(
                "policy='CnnPolicy' puts a layer that all critics share behind the convolutions, which networks here "
                "do not have. Use policy='MlpPolicy' with .training(model={'conv_filters': 'nature'}, "
                "share_encoder=False)."
            )
        keywords = _keywords(words, {"net_arch": default, "activation_fn": "ReLU"}, taken)
        if not (words["use_sde"] and log_std_init is not None):
            reason = "the deviation is the network's without use_sde"
            log_unused_arguments("policy_kwargs", reason, log_std_init=words.network.get("log_std_init"))
        _log_noise(words)
        reason = "actor and critics read the observation themselves"
        log_unused_arguments(
            "policy_kwargs", reason, share_features_extractor=words.network.get("share_features_extractor")
        )
        same = "n_critics", *further
        model, settings = {}, {key: keywords[key] for key in same if key in keywords}
        if "net_arch" in keywords:
            actor, critic = _layers(keywords["net_arch"], "qf")
            model["fcnet_hiddens"] = actor
            settings |= {"q_model_config": {"fcnet_hiddens": critic}} if actor != critic else {}
            settings |= {"q_model_config": {"fcnet_hiddens": critic}} if isinstance(default, Mapping) else {}
        if "activation_fn" in keywords:
            model["fcnet_activation"] = _activation(keywords["activation_fn"])
        if words["use_sde"] and words.ask("use_sde", "sde_sample_freq") and log_std_init is not None:
            model |= _deviation(words, keywords, log_std_init)
        return {**settings, "model": model} if model else settings

    return network


def perturbed_network(words: Words) -> dict[str, Any]:
    """Network of ARS; a linear one has no bias, and its actions are clipped instead of squashed."""
    is_linear = words.policy == "LinearPolicy"
    default = {
        "net_arch": [] if is_linear else [64, 64], "activation_fn": "ReLU", "with_bias": not is_linear,
        "squash_output": not is_linear,
    }  # fmt: skip
    keywords = _keywords(words, default, ("with_bias", "squash_output"))
    model: dict[str, Any] = {}
    if "net_arch" in keywords:
        model["fcnet_hiddens"], _ = _layers(keywords["net_arch"])
    if "activation_fn" in keywords:
        model["fcnet_activation"] = _activation(keywords["activation_fn"])
    if "with_bias" in keywords:
        model["output_layer_use_bias"] = keywords["with_bias"]
    settings: dict[str, Any] = {}
    if words.has_box and "squash_output" in keywords:
        squashes = bool(keywords["squash_output"])
        model["squash_actions"] = squashes
        settings |= {"normalize_actions": squashes, "clip_actions": not squashes}
    _check_start(words, bool(model.get("fcnet_hiddens")))
    return {**settings, "model": model} if model else settings


def _check_start(words: Words, has_hiddens: bool) -> None:
    """Raises a ValueError where weights would begin otherwise than zero_policy says."""
    if words.ask("zero_policy") and bool(words["zero_policy"]) is has_hiddens:
        raise ValueError(
            f"zero_policy={words['zero_policy']!r} cannot be used: a linear policy begins at zero here, one with "
            f"hidden layers at random. Give zero_policy={not words['zero_policy']}."
        )
