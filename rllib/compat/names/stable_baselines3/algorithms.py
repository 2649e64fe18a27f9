"""Words of each algorithm, its defaults, and the translation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rllib.compat.names.aliases import UNAVAILABLE
from rllib.compat.names.stable_baselines3.networks import (
    OF_CROSSQ,
    actor_critic,
    off_policy_network,
    optimizer,
    perturbed_network,
    quantiles_network,
    values_network,
)
from rllib.compat.names.stable_baselines3.rules import RULES, TEMPERATURE
from rllib.compat.names.stable_baselines3.sampling import (
    action_noise,
    changed,
    device,
    epsilon,
    factor_of_deviation,
    kept_words,
    minibatch_rows,
    normalization,
    replay,
    rounds,
    updates,
    warmup,
)
from rllib.compat.names.stable_baselines3.words import Part, Words, name_of, over_time, refuse_unless, scaled
from rllib.did_you_mean import did_you_mean
from rllib.notices import log_unused_arguments

# Word -> setting, where the value means the same.
_OF_ALL = {
    "gamma": "gamma",
    "seed": "seed",
    "n_envs": "num_envs_per_worker",
    "stats_window_size": "metrics_num_episodes_for_smoothing",
    "tensorboard_log": "log_dir",
}
_OF_GRADIENTS = {**_OF_ALL, "learning_rate": "lr"}
_OF_ON_POLICY = {
    **_OF_GRADIENTS,
    "gae_lambda": "lambda_",
    "ent_coef": "entropy_coeff",
    "vf_coef": "vf_loss_coeff",
    "max_grad_norm": "grad_clip",
}
_OF_PPO = {
    **_OF_ON_POLICY,
    "n_epochs": "num_sgd_iter",
    "clip_range": "clip_param",
    "clip_range_vf": "vf_clip_param",
    "target_kl": "target_kl",
}
_OF_TRPO = {
    **{word: name for word, name in _OF_ON_POLICY.items() if word in ("gae_lambda", *_OF_GRADIENTS)},
    "target_kl": "target_kl",
    "n_critic_updates": "num_sgd_iter",
    "cg_max_steps": "cg_iterations",
    "cg_damping": "cg_damping",
    "line_search_max_iter": "line_search_steps",
    "line_search_shrinking_factor": "line_search_shrink",
    "sub_sampling_factor": "kl_subsampling",
}
_OF_REPLAY = {
    **_OF_GRADIENTS,
    "batch_size": "train_batch_size",
    "learning_starts": "num_steps_sampled_before_learning_starts",
    "n_steps": "n_step",
}
_OF_DQN = {
    **_OF_REPLAY,
    "tau": "tau",
    "max_grad_norm": "grad_clip",
    "target_update_interval": "target_network_update_freq",
}
_OF_TD3 = {
    **_OF_REPLAY,
    "tau": "tau",
    "policy_delay": "policy_delay",
    "target_policy_noise": "target_noise",
    "target_noise_clip": "target_noise_clip",
}
_OF_SAC = {**_OF_REPLAY, "tau": "tau", "target_entropy": "target_entropy"}
_OF_ARS = {**_OF_ALL, "n_delta": "num_rollouts", "n_top": "rollouts_used", "delta_std": "noise_stdev"}

# Words of which None means that nothing is asked for; of all others it is a value.
_NONE_IS_NOTHING = frozenset({"seed", "tensorboard_log", "n_top"})
# Words whose value may change over the run.
_OVER_TIME = frozenset({"learning_rate", "clip_range", "clip_range_vf"})
# Words that say nothing about an algorithm here: what is printed, and what the caller knows.
_SILENT = frozenset({"verbose", "_init_setup_model", "n_timesteps", "action_space", "observation_space"})

# Words -> values that ask for nothing, and the reason why no other is taken. Further ones are in aliases.UNAVAILABLE.
_NEUTRAL: Mapping[str, tuple[tuple, str]] = {
    "n_eval_episodes": ((1,), "a direction is judged by one episode; more directions are given by n_delta"),
    "action_noise": ((None,), "its policy draws its actions; noise is for TD3 and DDPG"),
}


@dataclass(frozen=True)
class _Vocabulary:
    """The words of one algorithm.

    Attributes:
        names: word -> setting, where the value means the same.
        parts: functions of all words that give the other settings.
        of_parts: words that the parts read.
        defaults: what a word means if it is not given.
        always: settings that make the algorithm here the one there, and that no word represents.
    """

    names: Mapping[str, str]
    parts: tuple[Part, ...]
    of_parts: frozenset[str]
    defaults: Mapping[str, Any]
    always: Mapping[str, Any] = field(default_factory=dict)

    def knows(self, word: str) -> bool:
        """Whether the algorithm there has this word."""
        return word in self.names or word in self.of_parts or word in _SILENT or word in _NEUTRAL


def settings_from_sb3(
    algorithm: str,
    words: dict[str, Any],
    *,
    defaults: bool,
    saved: Mapping[str, Any] | None = None,
    steps: range | None = None,
) -> dict[str, Any]:
    """Translates settings in Stable-Baselines3's words.

    Args:
        algorithm: name of the algorithm, which both libraries share: PPO, A2C, TRPO, DQN, SAC, TD3, DDPG, TQC, CrossQ
            or ARS.
        words: see the package's docstring.
        defaults: True adds what Stable-Baselines3 does where no word is given, so that the settings make its algorithm
            out of ours. Without `n_timesteps`, DQN's epsilon then falls within our 10,000 steps.
        saved: settings of a checkpoint that these are to change, without `defaults`: words that are not given mean
            there what they say. n_steps=16 of a model with 8 environments is a batch of 128 rows.
        steps: with `saved`, the environment steps of the run that schedules and exploration_fraction are shares of,
            unless `n_timesteps` says its length, from 0 on.

    Returns:
        settings here, for `update_from_dict`. They hold neither environment nor length of the run.

    Raises:
        ValueError: for an algorithm without such words, an unknown word, and a value that cannot be said here; the
            message says why.
    """
    vocabulary = _VOCABULARIES.get(algorithm)
    if vocabulary is None:
        raise ValueError(
            f"no words of Stable-Baselines3 are known for {algorithm!r}; they are for {', '.join(_VOCABULARIES)}."
        )
    for word, value in words.items():
        _check_known(algorithm, vocabulary, word, value)
    if words.get("_init_setup_model") is False:
        log_unused_arguments(algorithm, "networks are always made with the algorithm", _init_setup_model=True)
    if algorithm == "ARS" and str(words.get("device")).startswith("cuda"):
        log_unused_arguments("ARS", "policies are only evaluated, on CPUs", device=True)
    if algorithm != "ARS" and name_of(words.get("policy") or "") == "LinearPolicy":
        raise ValueError(f"policy='LinearPolicy' is of ARS. Give {algorithm} policy_kwargs={{'net_arch': []}}.")
    asked = {**vocabulary.defaults, **words} if defaults else words
    kept = {} if saved is None else kept_words(algorithm, saved)
    length = {} if steps is None else {"n_timesteps": len(steps)}
    first = 0 if saved is not None else None
    if steps is not None and "n_timesteps" not in words:
        first = steps.start
    known = Words({"n_envs": 1, **vocabulary.defaults, **kept, **length, **words}, frozenset(asked), first)
    if not defaults and "exploration_fraction" in words:
        known.length("exploration_fraction")
    if saved is not None and "n_timesteps" in words and not any(is_share(word, value) for word, value in words.items()):
        log_unused_arguments("load", "no other argument is a share of the run", n_timesteps=True)
    settings = dict(vocabulary.always) if defaults else {}
    for word, value in asked.items():
        if word in vocabulary.names and not (value is None and word in _NONE_IS_NOTHING):
            settings[vocabulary.names[word]] = over_time(word, value, known) if word in _OVER_TIME else value
    for part in vocabulary.parts:
        settings = _joined(settings, part(known))
    return settings if saved is None else changed(settings, saved)


def has_words(algorithm: str) -> bool:
    """Whether Stable-Baselines3 has this algorithm."""
    return algorithm in _VOCABULARIES


def words_of_algorithm(algorithm: str) -> list[str]:
    """Words that an algorithm there has, and that say how it learns."""
    vocabulary = _VOCABULARIES[algorithm]
    return list(dict.fromkeys((*vocabulary.defaults, *vocabulary.names, *sorted(vocabulary.of_parts))))


def attribute_of(algorithm: str, word: str, config: Mapping[str, Any]) -> Any:
    """The value of a word for which an algorithm has these settings; None where no setting represents it.

    Args:
        algorithm: its name.
        word: one of `words_of_algorithm`.
        config: settings by name.
    """
    vocabulary = _VOCABULARIES[algorithm]
    if (setting := vocabulary.names.get(word)) is not None:
        return config[setting]
    if (read := _READ_BACK.get(word)) is not None and (value := read(config)) is not None:
        return value
    return kept_words(algorithm, {name: config[name] for name in config}).get(word, vocabulary.defaults.get(word))


def _temperature_of(config: Mapping[str, Any]) -> Any:
    """`ent_coef`: a number that is kept, or a learned one."""
    if "alpha_lr" not in config:
        return None
    if config["alpha_lr"] == 0.0:
        return config["initial_alpha"]
    return "auto" if config["initial_alpha"] == 1.0 else f"auto_{config['initial_alpha']}"


def _is_by_minibatch(config: Mapping[str, Any]) -> bool | None:
    return bool(config["standardize_advantages"]) if "standardize_advantages" in config else None


# Words whose settings are read back by themselves.
_READ_BACK: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "ent_coef": _temperature_of,
    "normalize_advantage": _is_by_minibatch,
}


def _check_known(algorithm: str, vocabulary: _Vocabulary, word: str, value) -> None:
    if word in _NEUTRAL and word not in vocabulary.of_parts:
        refuse_unless(word, value, *_NEUTRAL[word])
    elif not vocabulary.knows(word):
        if word in UNAVAILABLE:
            refuse_unless(word, value, UNAVAILABLE[word].harmless, UNAVAILABLE[word].sentence)
            return
        every = [*vocabulary.names, *sorted(vocabulary.of_parts)]
        raise ValueError(f"{algorithm} has no {word!r} in Stable-Baselines3.{did_you_mean(str(word), every)}")
    if word in RULES:
        RULES[word].check(word, value)


def is_share(word: str, value) -> bool:
    """Whether what a word means depends on the length of the run."""
    return word == "exploration_fraction" or (word in _OVER_TIME and (callable(value) or str(value).startswith("lin_")))


def _joined(settings: dict[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Both; where both have a dict, its keys are joined."""
    for name, value in others.items():
        both_dicts = isinstance(value, dict) and isinstance(settings.get(name), dict)
        settings[name] = {**settings[name], **value} if both_dicts else value
    return settings


def temperature(words: Words) -> dict[str, Any]:
    if not words.ask("ent_coef"):
        return {}
    given = words["ent_coef"]
    TEMPERATURE.check("ent_coef", given)
    if isinstance(given, str):
        return {"initial_alpha": float(given.partition("_")[2] or 1.0)}
    return {"initial_alpha": float(given), "alpha_lr": 0.0}


def delayed_targets(words: Words) -> dict[str, Any]:
    if words.ask("target_update_interval"):
        refuse_unless(
            "target_update_interval", words["target_update_interval"], (1,),
            "target copies move with every update; target_network_update_freq counts environment steps",
        )  # fmt: skip
    return {}


def directions(words: Words) -> dict[str, Any]:
    """Step size and survival bonus of ARS; its step is divided by another deviation than Stable-Baselines3's."""
    settings: dict[str, Any] = {}
    if words.ask("learning_rate", "n_delta", "n_top"):
        step = over_time("learning_rate", words["learning_rate"], words)
        settings["sgd_stepsize"] = scaled(step, factor_of_deviation(int(words["n_top"] or words["n_delta"])))
    if words.ask("alive_bonus_offset"):
        settings["offset"] = 0.0 - float(words["alive_bonus_offset"])
    if words.ask("n_delta", "n_top") and words["n_top"] is None:
        settings["rollouts_used"] = int(words["n_delta"])
    return settings


def advantages(words: Words) -> dict[str, Any]:
    """PPO normalises advantages by minibatch; A2C has one."""
    if not words.ask("normalize_advantage"):
        return {}
    if words["normalize_advantage"] and words["batch_size"] is not None and minibatch_rows(words) < 2:
        raise ValueError(
            f"normalize_advantage=True needs minibatches of 2 rows or more: n_steps={words['n_steps']}, n_envs="
            f"{words['n_envs']} and batch_size={words['batch_size']} make one row, whose advantage becomes 0. Give "
            "larger ones, or normalize_advantage=False."
        )
    return {"standardize_advantages": "minibatch" if words["normalize_advantage"] else False}


def whole_batch_advantages(words: Words) -> dict[str, Any]:
    """TRPO normalises advantages over the whole batch."""
    if not words.ask("normalize_advantage"):
        return {}
    return {"standardize_advantages": bool(words["normalize_advantage"])}


def rms_prop(words: Words) -> dict[str, Any]:
    """A2C's optimizer, unless policy_kwargs has one."""
    if not words.ask("use_rms_prop", "rms_prop_eps") or "optimizer_class" in words.network:
        return {}
    if words["use_rms_prop"] and words.network.get("optimizer_kwargs"):
        raise ValueError(
            f"optimizer_kwargs={words.network['optimizer_kwargs']!r:.80} has no effect with use_rms_prop=True, whose "
            "keywords are its own. Give optimizer_class as well, or rms_prop_eps."
        )
    if words["use_rms_prop"]:
        return {"opt_type": "rmsprop", "rmsprop_epsilon": words["rms_prop_eps"]}
    return {"opt_type": "adam", "adam_epsilon": 1e-5}


_SAMPLED_HERE = {"num_rollout_workers": 0}
# Actions of PPO and A2C are in the units of the environment, and clipped to its bounds.
_UNSCALED = {**_SAMPLED_HERE, "normalize_actions": False, "clip_actions": True}
_SDE = {"use_sde": False, "sde_sample_freq": -1}
_COMMON = frozenset({"policy", "policy_kwargs", "device", "normalize"})
_REPLAYED = _COMMON | {
    *("train_freq", "gradient_steps", "buffer_size", "replay_buffer_class", "replay_buffer_kwargs"),
    *("optimize_memory_usage",),
}
_REPLAY_PARTS = (device, normalization, updates, replay, optimizer)
_OF_ACTING = {
    "learning_starts": 100, "batch_size": 256, "gamma": 0.99, "train_freq": 1, "gradient_steps": 1,
    "buffer_size": 1_000_000, "n_steps": 1, "policy": "MlpPolicy",
}  # fmt: skip
_OF_SOFT = {**_OF_ACTING, **_SDE, "learning_rate": 3e-4, "tau": 0.005, "ent_coef": "auto", "target_entropy": "auto"}
_SOFT_WORDS = _REPLAYED | {
    *("use_sde", "sde_sample_freq", "use_sde_at_warmup", "ent_coef", "target_update_interval"),
}
_SOFT_PARTS = (*_REPLAY_PARTS, warmup, temperature, delayed_targets)
_DETERMINISTIC_WORDS = _REPLAYED | {"action_noise", "noise_type", "noise_std"}

_VOCABULARIES: Mapping[str, _Vocabulary] = {
    "PPO": _Vocabulary(
        names=_OF_PPO,
        parts=(device, normalization, rounds, advantages, actor_critic, optimizer),
        of_parts=_COMMON | {"n_steps", "batch_size", "normalize_advantage", "use_sde", "sde_sample_freq"},
        defaults={
            "policy": "MlpPolicy", "learning_rate": 3e-4, "n_steps": 2048, "batch_size": 64, "n_epochs": 10,
            "gamma": 0.99, "gae_lambda": 0.95, "clip_range": 0.2, "clip_range_vf": None, "normalize_advantage": True,
            "ent_coef": 0.0, "vf_coef": 0.5, "max_grad_norm": 0.5, "target_kl": None, **_SDE,
        },
        always={**_UNSCALED, "use_kl_loss": False, "kl_coeff": 0.0, "adam_epsilon": 1e-5},
    ),
    "A2C": _Vocabulary(
        names=_OF_ON_POLICY,
        parts=(device, normalization, rounds, advantages, rms_prop, actor_critic, optimizer),
        of_parts=_COMMON | {
            *("n_steps", "normalize_advantage", "use_sde", "sde_sample_freq", "use_rms_prop", "rms_prop_eps"),
        },
        defaults={
            "policy": "MlpPolicy", "learning_rate": 7e-4, "n_steps": 5, "gamma": 0.99, "gae_lambda": 1.0,
            "ent_coef": 0.0, "vf_coef": 0.5, "max_grad_norm": 0.5, "rms_prop_eps": 1e-5, "use_rms_prop": True,
            "normalize_advantage": False, **_SDE,
        },
        # Results by steps: ten seconds, RLlib's, are most of a short run.
        always={
            **_UNSCALED, "adam_epsilon": 1e-5, "min_time_s_per_iteration": 0,
            "min_sample_timesteps_per_iteration": 1000,
        },
    ),
    "TRPO": _Vocabulary(
        names=_OF_TRPO,
        parts=(device, normalization, rounds, whole_batch_advantages, actor_critic, optimizer),
        of_parts=_COMMON | {"n_steps", "batch_size", "normalize_advantage", "use_sde", "sde_sample_freq"},
        defaults={
            "policy": "MlpPolicy", "learning_rate": 1e-3, "n_steps": 2048, "batch_size": 128, "gamma": 0.99,
            "cg_max_steps": 15, "cg_damping": 0.1, "line_search_shrinking_factor": 0.8, "line_search_max_iter": 10,
            "n_critic_updates": 10, "gae_lambda": 0.95, "normalize_advantage": True, "target_kl": 0.01,
            "sub_sampling_factor": 1, **_SDE,
        },
        always={**_UNSCALED, "adam_epsilon": 1e-5},
    ),
    "DQN": _Vocabulary(
        names=_OF_DQN,
        parts=(*_REPLAY_PARTS, epsilon, values_network),
        of_parts=_REPLAYED | {"exploration_fraction", "exploration_initial_eps", "exploration_final_eps"},
        defaults={
            **_OF_ACTING, "learning_rate": 1e-4, "batch_size": 32, "tau": 1.0, "train_freq": 4,
            "target_update_interval": 10_000, "exploration_fraction": 0.1, "exploration_initial_eps": 1.0,
            "exploration_final_eps": 0.05, "max_grad_norm": 10,
        },
        always={**_SAMPLED_HERE, "double_q": False, "dueling": False, "hiddens": []},
    ),
    "QRDQN": _Vocabulary(
        names=_OF_DQN,
        parts=(*_REPLAY_PARTS, epsilon, quantiles_network),
        of_parts=_REPLAYED | {"exploration_fraction", "exploration_initial_eps", "exploration_final_eps"},
        defaults={
            **_OF_ACTING, "learning_rate": 5e-5, "batch_size": 32, "tau": 1.0, "train_freq": 4,
            "target_update_interval": 10_000, "exploration_fraction": 0.005, "exploration_initial_eps": 1.0,
            "exploration_final_eps": 0.01, "max_grad_norm": None,
        },
        always={**_SAMPLED_HERE, "double_q": False, "dueling": False, "hiddens": []},
    ),
    "SAC": _Vocabulary(
        names=_OF_SAC,
        parts=(*_SOFT_PARTS, off_policy_network([256, 256], -3.0)),
        of_parts=_SOFT_WORDS,
        defaults=_OF_SOFT,
        always=_SAMPLED_HERE,
    ),
    "TQC": _Vocabulary(
        names={**_OF_SAC, "top_quantiles_to_drop_per_net": "top_quantiles_to_drop_per_net"},
        parts=(*_SOFT_PARTS, off_policy_network([256, 256], -3.0, ("n_quantiles",))),
        of_parts=_SOFT_WORDS,
        defaults={**_OF_SOFT, "top_quantiles_to_drop_per_net": 2},
        always=_SAMPLED_HERE,
    ),
    "CrossQ": _Vocabulary(
        names={**{word: name for word, name in _OF_SAC.items() if word != "tau"}, "policy_delay": "policy_delay"},
        parts=(*_SOFT_PARTS, off_policy_network({"pi": [256, 256], "qf": [1024, 1024]}, -3.0, OF_CROSSQ)),
        of_parts=_SOFT_WORDS - {"target_update_interval"},
        defaults={
            **{word: value for word, value in _OF_SOFT.items() if word != "tau"},
            "learning_rate": 1e-3, "policy_delay": 3,
        },
        always=_SAMPLED_HERE,
    ),
    "TD3": _Vocabulary(
        names=_OF_TD3,
        parts=(*_REPLAY_PARTS, action_noise, off_policy_network([400, 300], None)),
        of_parts=_DETERMINISTIC_WORDS,
        defaults={
            **_OF_ACTING, "learning_rate": 1e-3, "tau": 0.005, "action_noise": None, "policy_delay": 2,
            "target_policy_noise": 0.2, "target_noise_clip": 0.5,
        },
        always={**_SAMPLED_HERE, "l2_reg": 0.0},
    ),
    "DDPG": _Vocabulary(
        names={word: name for word, name in _OF_TD3.items() if word not in (
            "policy_delay", "target_policy_noise", "target_noise_clip"
        )},
        parts=(*_REPLAY_PARTS, action_noise, off_policy_network([400, 300], None)),
        of_parts=_DETERMINISTIC_WORDS,
        defaults={**_OF_ACTING, "learning_rate": 1e-3, "tau": 0.005, "action_noise": None},
        always={**_SAMPLED_HERE, "l2_reg": 0.0},
    ),
    "ARS": _Vocabulary(
        names=_OF_ARS,
        parts=(normalization, directions, perturbed_network),
        of_parts=_COMMON | {"learning_rate", "zero_policy", "alive_bonus_offset"},
        defaults={
            "policy": "MlpPolicy", "n_delta": 8, "n_top": None, "learning_rate": 0.02, "delta_std": 0.05,
            "alive_bonus_offset": 0,
        },
        always={**_SAMPLED_HERE, "observation_filter": "NoFilter"},
    ),
}  # fmt: skip
