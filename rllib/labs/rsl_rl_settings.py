"""Settings of rsl_rl's PPO as this library's: most tasks of Isaac Lab and all of mjlab are registered with some.

Read are the runner's configurations of rsl_rl 2 to 5 in Isaac Lab (isaaclab_rl/rsl_rl/rl_cfg.py) and mjlab
(mjlab/rl/config.py). The rules agree, but for these: a value also reads the policy's group of observations; gradients
of policy and value are clipped together, as rsl_rl did before version 5; a standard deviation is trained by its
logarithm (noise_std_type "log"); normalised observations have no 0.01 added to their deviation.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

# Those of Isaac Lab's locomotion, AnymalDRoughPPORunnerCfg in
# isaaclab_tasks/manager_based/locomotion/velocity/config/anymal_d/agents/rsl_rl_ppo_cfg.py.
LOCOMOTION = {
    "num_steps_per_env": 24,
    "max_iterations": 1500,
    "save_interval": 50,
    "policy": {
        "init_noise_std": 1.0,
        "actor_hidden_dims": [512, 256, 128],
        "critic_hidden_dims": [512, 256, 128],
        "activation": "elu",
    },
    "algorithm": {
        "value_loss_coef": 1.0,
        "use_clipped_value_loss": True,
        "clip_param": 0.2,
        "entropy_coef": 0.005,
        "num_learning_epochs": 5,
        "num_mini_batches": 4,
        "learning_rate": 1.0e-3,
        "schedule": "adaptive",
        "gamma": 0.99,
        "lam": 0.95,
        "desired_kl": 0.01,
        "max_grad_norm": 1.0,
    },
}
_ACTIVATIONS = {
    "elu": "elu", "relu": "relu", "tanh": "tanh", "sigmoid": "sigmoid", "gelu": "gelu", "swish": "swish",
    "silu": "swish", "lrelu": "leaky_relu", "identity": "linear",
}  # fmt: skip


class Translated(NamedTuple):
    """rsl_rl's settings as keys of a task's entry point (entry_points.py).

    Attributes:
        keys: the entry's.
        left_out: what has no counterpart here.
    """

    keys: dict[str, Any]
    left_out: list[str]


def from_rsl_rl(runner: Any) -> Translated:
    """This library's settings for a configuration of rsl_rl's OnPolicyRunner.

    Args:
        runner: an object with rsl_rl's fields, or a dict of them.

    Raises:
        ValueError: for a configuration of another algorithm, or of a network with a memory or for images.
    """
    given = _Fields(runner)
    algorithm, policy = given.part("algorithm"), given.part("policy")
    actor, critic = given.part("actor"), given.part("critic")
    _refuse(given, (algorithm, policy, actor, critic))
    left_out = [name for name in ("rnd_cfg", "symmetry_cfg") if algorithm.get(name) is not None]
    if algorithm.get("optimizer", "adam") != "adam":
        left_out.append(f"optimizer={algorithm.get('optimizer')!r} (Adam is taken)")
    if algorithm.get("class_name", "PPO").rpartition(":")[2].rpartition(".")[2] != "PPO":
        left_out.append(f"class_name={algorithm.get('class_name')!r} (PPO is taken)")

    activation = policy.get("activation", actor.get("activation", "elu"))
    if activation not in _ACTIVATIONS:
        left_out.append(f"activation={activation!r} (elu is taken)")
    clip, kl = algorithm.get("clip_param", 0.2), algorithm.get("desired_kl", 0.01)
    rate = algorithm.get("learning_rate", 1e-3)
    distribution = _Fields(actor.get("distribution_cfg") or {})
    std = policy.get("init_noise_std", distribution.get("init_std", actor.get("init_noise_std", 1.0)))
    follows_state = policy.get("state_dependent_std", actor.get("state_dependent_std", False))
    follows_state = follows_state or "Heteroscedastic" in distribution.get("class_name", "")
    normalizes = policy.get("actor_obs_normalization", actor.get("obs_normalization", False))
    normalizes = normalizes or given.get("empirical_normalization", False)
    its_normalizes = policy.get("critic_obs_normalization", critic.get("obs_normalization", normalizes))
    its_normalizes = its_normalizes or given.get("empirical_normalization", False)
    its_activation = policy.get("activation", critic.get("activation", activation))
    for name, own, its in (("normalization", normalizes, its_normalizes), ("activation", activation, its_activation)):
        if own != its:
            left_out.append(f"{name}={its!r} of the value (that of the policy is taken, {own!r})")
    config = {
        "lr": {"type": "kl_adaptive", "initial": rate, "desired_kl": kl}
        if algorithm.get("schedule", "adaptive") == "adaptive" and kl is not None
        else rate,
        "gamma": algorithm.get("gamma", 0.99),
        "lambda_": algorithm.get("lam", 0.95),
        "clip_param": clip,
        "vf_clip_param": clip if algorithm.get("use_clipped_value_loss", True) else None,
        "vf_loss_coeff": algorithm.get("value_loss_coef", 1.0),
        "entropy_coeff": algorithm.get("entropy_coef", 0.01),
        "grad_clip": algorithm.get("max_grad_norm", 1.0),
        "num_sgd_iter": algorithm.get("num_learning_epochs", 5),
        "use_kl_loss": False,
        "standardize_advantages": "minibatch" if algorithm.get("normalize_advantage_per_mini_batch", False) else True,
        "rollout_fragment_length": given.get("num_steps_per_env", 24),
        **({"observation_filter": "MeanStdFilter", "observation_clip": None} if normalizes else {}),
        "model": {
            "fcnet_hiddens": list(policy.get("actor_hidden_dims", actor.get("hidden_dims", [256, 256, 256]))),
            "vf_hiddens": list(policy.get("critic_hidden_dims", critic.get("hidden_dims", [256, 256, 256]))),
            "fcnet_activation": _ACTIVATIONS.get(activation, "elu"),
            "fcnet_weights_initializer": "uniform",
            "vf_share_layers": False,
            "free_log_std": not follows_state,
            "log_std_init": math.log(std),
        },
    }
    keys = {
        "algorithm": "PPO",
        "config": config,
        "num_mini_batches": algorithm.get("num_mini_batches", 4),
        "max_iterations": given.get("max_iterations", LOCOMOTION["max_iterations"]),
        "save_interval": given.get("save_interval", LOCOMOTION["save_interval"]),
    }
    for name in ("seed", "experiment_name", "run_name", "clip_actions"):
        if given.get(name) not in (None, ""):
            keys[name] = given.get(name)
    return Translated({**keys, **_groups(_Fields(given.get("obs_groups") or {}))}, left_out)


class _Fields:
    """Fields of an object or a dict; one that was left open (dataclasses.MISSING) counts as absent."""

    def __init__(self, of: Any):
        self._of = of

    def get(self, name: str, default: Any = None) -> Any:
        value = self._of.get(name, default) if isinstance(self._of, Mapping) else getattr(self._of, name, default)
        return default if isinstance(value, type(dataclasses.MISSING)) else value

    def part(self, name: str) -> "_Fields":
        return _Fields(self.get(name) or {})


def _refuse(runner: _Fields, parts: tuple[_Fields, ...]) -> None:
    names = [runner.get("class_name", "OnPolicyRunner"), *(part.get("class_name", "") for part in parts)]
    # Distillation, recurrent and convolutional networks, by the names of all versions.
    other = [name for name in names if any(word in name for word in ("Distill", "Recurrent", "RNN", "CNN"))]
    if any(part.get("rnn_type") or part.get("cnn_cfg") for part in parts) or other:
        raise ValueError(
            f"the task's settings for rsl_rl are for {', '.join(other) or 'a network with a memory or for images'}, "
            "and only PPO with fully connected layers is taken over. Give the task settings of this library: the "
            "keyword rllib_cfg_entry_point of its registration."
        )


def _groups(sets: _Fields) -> dict[str, Any]:
    """The groups of observations that the policy reads, and further ones that only the value reads."""
    of_policy = list(sets.get("actor", sets.get("policy", [])))
    of_value = [name for name in sets.get("critic", []) if name not in of_policy]
    if len(of_policy) > 1 or len(of_value) > 1:
        raise ValueError(
            f"obs_groups of the task's settings for rsl_rl join several groups of observations ({of_policy} for the "
            f"policy, {of_value} further ones for the value), and here each reads one. Join them in the task."
        )
    return {
        **({"group": of_policy[0]} if of_policy else {}),
        # None: the value is to read what the policy reads, also where the task has a group for it.
        **({"critic_group": next(iter(of_value), None)} if sets.get("critic") else {}),
    }
