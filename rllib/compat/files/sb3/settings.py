"""Algorithm and settings of a saved model, as far as they are readable without running code."""

import math
import re
from collections.abc import Mapping
from typing import Any

from rllib.compat.files.sb3.archive import SavedModel, is_object, type_of
from rllib.compat.names.stable_baselines3 import settings_from_sb3

# Module of the policy's class -> algorithms that have it.
_POLICIES = {
    "stable_baselines3.common.policies": ("PPO", "A2C"),
    "stable_baselines3.dqn.policies": ("DQN",),
    "stable_baselines3.sac.policies": ("SAC",),
    "stable_baselines3.td3.policies": ("TD3", "DDPG"),
    "sb3_contrib.tqc.policies": ("TQC",),
}
# Settings that identify the algorithm of sb3-contrib, where the class of the policy does not.
_OTHERS = {"cg_max_steps": "TRPO", "n_delta": "ARS", "n_quantiles": "QRDQN"}
# Arguments of the constructors about learning; a model has its algorithm's arguments as attributes.
_WORDS = (
    "learning_rate", "n_steps", "n_envs", "batch_size", "n_epochs", "gamma", "gae_lambda", "clip_range",
    "clip_range_vf", "normalize_advantage", "ent_coef", "vf_coef", "max_grad_norm", "target_kl", "buffer_size",
    "learning_starts", "tau", "train_freq", "gradient_steps", "target_update_interval", "exploration_fraction",
    "exploration_initial_eps", "exploration_final_eps", "target_entropy", "policy_delay", "target_policy_noise",
    "target_noise_clip", "top_quantiles_to_drop_per_net", "action_noise",
)  # fmt: skip
# Attributes that a model has from the algorithm that it derives from, and, of SAC and TQC, the temperature: it is a
# tensor of the zip.
_OF_OTHERS = {
    "DDPG": ("policy_delay", "target_policy_noise", "target_noise_clip"),
    **dict.fromkeys(("SAC", "TQC"), ("ent_coef",)),
}
_CONSTANT = re.compile(r"ConstantSchedule\(val=(?P<value>[-+.eE\d]+)\)")
_UNREAD = object()


def algorithm_of(saved: SavedModel) -> str:
    """Name of the model's algorithm here.

    Raises:
        ValueError: if the class of the policy is the user's, or of an algorithm that cannot be imported.
    """
    module = _policy_module(saved)
    if module not in _POLICIES:
        raise ValueError(
            f"{saved.path}: the model's policy is a class of {module or 'an unknown module'}, and models of PPO, A2C, "
            "DQN, SAC, TQC, TD3 and DDPG with their own policies are taken. Write the network as a torch module, "
            "model={'custom_model': Module} (docs/guide/networks.md), and load its parameters there."
        )
    first, *others = _POLICIES[module]
    for word, name in _OTHERS.items():
        if word in saved.data and first in ("PPO", "DQN"):
            raise ValueError(
                f"{saved.path} is a model of {name}, which is not taken: PPO, A2C, DQN, SAC, TQC, TD3, DDPG"
            )
    if others == ["A2C"]:
        return "PPO" if "n_epochs" in saved.data else "A2C"
    if others == ["DDPG"]:
        return "DDPG" if saved.policy_kwargs.get("n_critics") == 1 and saved.plain("policy_delay") == 1 else "TD3"
    return first


def _policy_module(saved: SavedModel) -> str:
    described = saved.data.get("policy_class")
    module = described.get("__module__") if isinstance(described, dict) else None
    return module if isinstance(module, str) else ""


def settings_of(algorithm: str, saved: SavedModel) -> tuple[dict[str, Any], list[str]]:
    """Settings of the config that a model was trained with, and sentences about settings that are not imported."""
    words, unread = {}, []
    for name in _WORDS:
        if name not in saved.data:
            continue
        value = _readable(saved.data[name])
        if value is _UNREAD:
            unread.append(name)
        elif value is not None:
            words[name] = value
    if algorithm == "A2C":
        words |= _optimizer_words(saved.policy_kwargs)
    for name in _OF_OTHERS.get(algorithm, ()):
        words.pop(name, None)
    steps = saved.plain("_total_timesteps")
    if type(steps) is int and steps > 0:
        words["n_timesteps"] = steps
    settings = settings_from_sb3(algorithm, words, defaults=True) | _temperature(saved)
    note = f"{', '.join(unread)}: pickled in the model, so that Stable-Baselines3's defaults hold"
    return settings, [note] if unread else []


def _readable(value):
    """A setting as plain data; _UNREAD for an object, unless it is a constant."""
    if not is_object(value):
        return value
    if type_of(value) in ("FloatSchedule", "ConstantSchedule"):
        found = _CONSTANT.fullmatch(str(value.get("value_schedule", f"ConstantSchedule(val={value.get('val')})")))
        if found:
            return float(found["value"])
    return _UNREAD


def _optimizer_words(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of A2C's optimizer, which are among the settings of its network there."""
    is_rmsprop = "RMSprop" in str(kwargs.get("optimizer_class", ""))
    given = kwargs.get("optimizer_kwargs")
    epsilon = given.get("eps") if isinstance(given, dict) else None
    return {"use_rms_prop": is_rmsprop, **({"rms_prop_eps": epsilon} if is_rmsprop and epsilon else {})}


def _temperature(saved: SavedModel) -> dict[str, float]:
    """Settings of SAC's temperature: its present value, and whether it is fixed."""
    if "log_ent_coef" in saved.variables:
        return {"initial_alpha": math.exp(float(saved.variables["log_ent_coef"].reshape(-1)[0]))}
    if "ent_coef_tensor" in saved.variables:
        return {"initial_alpha": float(saved.variables["ent_coef_tensor"].reshape(-1)[0]), "alpha_lr": 0.0}
    return {}
