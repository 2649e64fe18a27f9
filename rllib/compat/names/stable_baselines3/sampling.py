"""Batches, updates, replay and exploration in Stable-Baselines3's words."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rllib.compat.names.stable_baselines3.rules import FLAGS_WITHIN
from rllib.compat.names.stable_baselines3.words import Words, name_of, scaled
from rllib.did_you_mean import did_you_mean
from rllib.notices import log_once, log_unused_arguments

_STORED_ONCE = "a replay stores every observation once"
# Keys of replay_buffer_kwargs that have no effect here -> reason.
KEYS_WITHOUT_EFFECT = {
    "copy_info_dict": "goals are computed from the achieved ones, without infos",
    "optimize_memory_usage": _STORED_ONCE,
    "online_sampling": "further goals are drawn as rows are written",
    "max_episode_length": "episodes may have any length",
}
# Goals that HerReplayBuffer adds for each step, where no keyword says it.
_GOALS = 4
_NORMALIZE = {"norm_obs": True, "norm_reward": True, "clip_obs": 10.0, "clip_reward": 10.0}
# Keywords of VecNormalize that ask for nothing else than ours does, with the values that they may have.
_OF_NORMALIZE = {"gamma": None, "training": (True,), "epsilon": (1e-8,), "norm_obs_keys": (None,)}


def device(words: Words) -> dict[str, Any]:
    if not words.ask("device"):
        return {}
    return {"num_gpus": 1} if str(words["device"]).startswith("cuda") else {}


def normalization(words: Words) -> dict[str, Any]:
    """Settings of VecNormalize."""
    given = words["normalize"]
    if not words.ask("normalize") or given is None:
        return {}
    if not isinstance(given, bool | Mapping):
        raise ValueError(f"normalize={given!r:.60} must be True or a dict, as in {{'norm_reward': False}}.")
    keywords = dict(given) if isinstance(given, Mapping) else {"norm_obs": given, "norm_reward": given}
    for key, value in keywords.items():
        if key in FLAGS_WITHIN:
            FLAGS_WITHIN[key].check(f"normalize: {key}", value)
        if key not in _NORMALIZE and key not in _OF_NORMALIZE:
            raise ValueError(f"normalize has no {key!r}.{did_you_mean(str(key), [*_NORMALIZE, *_OF_NORMALIZE])}")
        allowed = _OF_NORMALIZE.get(key)
        if allowed is not None and value not in allowed:
            raise ValueError(f"normalize: {key}={value!r} cannot be used; leave it out.")
    chosen = {**_NORMALIZE, **keywords}
    settings: dict[str, Any] = {"observation_filter": "NoFilter", "normalize_returns": chosen["norm_reward"]}
    if chosen["norm_obs"]:
        settings |= {"observation_filter": "MeanStdFilter", "observation_clip": chosen["clip_obs"]}
    if chosen["norm_reward"]:
        settings |= {"normalized_reward_clip": chosen["clip_reward"]}
    return settings


def rounds(words: Words) -> dict[str, Any]:
    """Batches of PPO and A2C: n_steps of each environment."""
    if not words.ask("n_steps", "n_envs", "batch_size"):
        return {}
    rows = int(words["n_steps"]) * int(words["n_envs"])
    settings = {"train_batch_size": rows} if words.ask("n_steps", "n_envs") else {}
    if words.ask("batch_size"):
        settings["sgd_minibatch_size"] = minibatch_rows(words)
    return settings


def minibatch_rows(words: Words) -> int:
    """Rows of a minibatch: a batch that is smaller than one is one."""
    return min(int(words["batch_size"]), int(words["n_steps"]) * int(words["n_envs"]))


def updates(words: Words) -> dict[str, Any]:
    """Fragments and number of updates: `gradient_steps` after each `train_freq` steps of all environments."""
    if not words.ask("train_freq", "gradient_steps", "n_envs", "batch_size"):
        return {}
    if words["train_freq"] is None and not words.ask("train_freq"):  # of a checkpoint without such rounds
        if words.ask("gradient_steps"):
            raise ValueError(f"gradient_steps={words['gradient_steps']!r} needs train_freq as well.")
        return {}
    length, unit = _frequency(words["train_freq"])
    updates, rows = words["gradient_steps"], int(words["batch_size"])
    if updates == 0:
        raise ValueError("gradient_steps=0 must be a positive number, or -1 for one update a step.")
    if unit == "episode":
        if updates != -1:
            raise ValueError(
                f"train_freq={words['train_freq']!r} with gradient_steps={updates} makes a number of updates for each "
                "episode, whatever its length. Give gradient_steps=-1, one update for each step."
            )
        return {"training_intensity": rows}
    settings: dict[str, Any] = {"rollout_fragment_length": length}
    if updates == -1:
        settings["training_intensity"] = rows
    elif updates != 1:  # one update after each round is what no training_intensity means
        settings["training_intensity"] = rows * updates / (length * int(words["n_envs"]))
    return settings


def _frequency(given) -> tuple[int, str]:
    length, unit = (given, "step") if isinstance(given, int | float) else given
    unit = getattr(unit, "value", unit)
    if unit not in ("step", "episode"):
        raise ValueError(f"train_freq={given!r} must be a number of steps, or a pair like (1, 'episode').")
    return int(length), unit


def replay(words: Words) -> dict[str, Any]:
    if words["optimize_memory_usage"]:
        log_once("optimize_memory_usage", f"optimize_memory_usage has no effect: {_STORED_ONCE}")
    if not words.ask("buffer_size", "replay_buffer_class", "replay_buffer_kwargs"):
        return {}
    kind = name_of(words["replay_buffer_class"] or "ReplayBuffer")
    if kind not in ("ReplayBuffer", "DictReplayBuffer", "NStepReplayBuffer", "HerReplayBuffer"):
        raise ValueError(
            f"replay_buffer_class={kind!r} is not available: give ReplayBuffer or HerReplayBuffer, or see "
            "docs/guide/replay.md for what else a replay can be."
        )
    settings: dict[str, Any] = {}
    config: dict[str, Any] = {}
    is_hindsight = kind == "HerReplayBuffer"
    if words.ask("replay_buffer_class", "policy"):
        config["type"] = "HerReplayBuffer" if is_hindsight else "ReplayBuffer"
    for key, value in dict(words["replay_buffer_kwargs"] or {}).items():
        if key == "handle_timeout_termination":
            settings["time_limit_ends_episode"] = not value
        elif key == "goal_selection_strategy":
            config[key] = str(getattr(value, "name", value)).rpartition(".")[2].lower()
        elif key == "n_sampled_goal":
            config[key] = int(value)
        elif key in KEYS_WITHOUT_EFFECT:
            log_unused_arguments("replay_buffer_kwargs", KEYS_WITHOUT_EFFECT[key], **{key: value})
        else:
            raise ValueError(f"replay_buffer_kwargs has no {key!r} here. See docs/guide/replay.md.")
    rows_per_step = 1 + int(config.get("n_sampled_goal", words["n_sampled_goal"] or _GOALS)) if is_hindsight else 1
    if words.ask("buffer_size", "replay_buffer_class") or "n_sampled_goal" in config:
        config["capacity"] = int(words["buffer_size"]) * rows_per_step
    return {**settings, "replay_buffer_config": config}


# ---------------------------------------------------------------------- exploration


def epsilon(words: Words) -> dict[str, Any]:
    """Random actions until learning starts, and epsilon, which falls from the first step on."""
    names = "exploration_fraction", "exploration_initial_eps", "exploration_final_eps"
    if not words.ask(*names, "learning_starts"):
        return {}
    config: dict[str, Any] = {"type": "EpsilonGreedy"}
    if words.ask("learning_starts"):
        config["random_timesteps"] = int(words["learning_starts"])
    if words.ask(*names):
        fraction, initial, final = (words[name] for name in names)
        config |= {"initial_epsilon": initial, "final_epsilon": final}
        if words["n_timesteps"] is not None and words.ask("exploration_fraction"):
            config["epsilon_timesteps"] = int(fraction * words["n_timesteps"])
            config |= {} if words.first is None else {"warmup_timesteps": words.first}
    return {"exploration_config": config}


def warmup(words: Words) -> dict[str, Any]:
    """Random actions until learning starts, for SAC and its relatives."""
    if not words.ask("learning_starts", "use_sde_at_warmup"):
        return {}
    by_noise = words["use_sde"] and words["use_sde_at_warmup"]
    steps = 0 if by_noise else int(words["learning_starts"])
    return {"exploration_config": {"type": "StochasticSampling", "random_timesteps": steps}}


def action_noise(words: Words) -> dict[str, Any]:
    """Noise on the actions of TD3 and DDPG, which acts on [-1, 1] in both libraries."""
    if not words.ask("action_noise", "noise_type", "noise_std", "learning_starts"):
        return {}
    steps = int(words["learning_starts"])
    if not words.ask("action_noise", "noise_type", "noise_std", "policy"):
        return {"exploration_config": {"random_timesteps": steps}}
    noise = words["action_noise"]
    noise = getattr(noise, "base_noise", noise)  # each environment has its own here in any case
    if words["noise_std"] is not None and not words["noise_type"]:
        raise ValueError(f"noise_std={words['noise_std']!r} needs its kind: give noise_type='normal' as well.")
    if noise is None and words["noise_type"]:
        if words["noise_std"] is None:
            raise ValueError(f"noise_type={words['noise_type']!r} needs its deviation: give noise_std=0.1 as well.")
        config = _noise(str(words["noise_type"]).strip(), float(words["noise_std"]))
    elif noise is None:
        config = _noise("normal", 0.0)
    else:
        kind = {"NormalActionNoise": "normal", "OrnsteinUhlenbeckActionNoise": "ornstein-uhlenbeck"}
        names = _attributes(noise, ("_mu", "_sigma"))
        if names["_mu"] != 0:
            raise ValueError(f"action_noise={noise!r:.80} must have the mean 0.")
        further = _attributes(noise, ("_theta", "_dt")) if hasattr(noise, "_theta") else {}
        config = _noise(kind.get(name_of(noise), name_of(noise)), names["_sigma"], **further)
    return {"exploration_config": {**config, "random_timesteps": steps}}


def _noise(kind: str, stddev: float, _theta: float = 0.15, _dt: float = 1e-2) -> dict[str, Any]:
    constant = {"initial_scale": 1.0, "final_scale": 1.0}
    if kind == "normal":
        return {"type": "GaussianNoise", "stddev": stddev, **constant}
    if kind == "ornstein-uhlenbeck":  # dx = theta (mu - x) dt + sigma sqrt(dt) N(0, 1)
        process = {"ou_base_scale": 1.0, "ou_theta": _theta * _dt, "ou_sigma": stddev * math.sqrt(_dt)}
        return {"type": "OrnsteinUhlenbeckNoise", **process, **constant}
    raise ValueError(f"noise of the type {kind!r} is not available: give normal or ornstein-uhlenbeck.")


def _attributes(noise, names: Sequence[str]) -> dict[str, float]:
    """Numbers of a noise object, which has them for each part of an action.

    Raises:
        ValueError: if the parts differ.
    """
    found = {}
    for name in names:
        given = getattr(noise, name, 0.0)
        numbers = {float(each) for each in (given.tolist() if hasattr(given, "tolist") else [given])}
        if len(numbers) != 1:
            raise ValueError(f"action_noise={noise!r:.80} must be equal for all parts of an action.")
        found[name] = numbers.pop()
    return found


# ---------------------------------------------------------------------- changes of what is saved


def kept_words(algorithm: str, saved: Mapping[str, Any]) -> dict[str, Any]:
    """Words that a checkpoint's settings represent, of those that are read together with others: numbers of
    environments, steps and rows, the replay and the exploration.

    Args:
        algorithm: its name.
        saved: settings by name; those of another algorithm, or of an earlier format, may lack some.
    """

    def count(name: str) -> int | None:
        return value if type(value := saved.get(name)) is int else None

    n_envs = (count("num_envs_per_worker") or 1) * max(count("num_rollout_workers") or 0, 1)
    rows, fragment = count("train_batch_size") or 1, count("rollout_fragment_length")
    model = saved.get("model") or {}
    words: dict[str, Any] = {"n_envs": n_envs, "use_rms_prop": saved.get("opt_type") == "rmsprop"}
    words |= {word: model[word] for word in ("use_sde", "sde_sample_freq") if word in model}
    if words["use_rms_prop"] and "rmsprop_epsilon" in saved:
        words["rms_prop_eps"] = saved["rmsprop_epsilon"]
    if algorithm in ("PPO", "A2C", "TRPO"):
        return words | {"n_steps": max(rows // n_envs, 1), "batch_size": count("sgd_minibatch_size")}
    if algorithm == "ARS":
        n_delta, n_top = count("num_rollouts") or 8, count("rollouts_used")
        words |= {"n_delta": n_delta, "n_top": None if n_top == n_delta else n_top}
        if "sgd_stepsize" in saved:
            words["learning_rate"] = scaled(saved["sgd_stepsize"], 1 / factor_of_deviation(n_top or n_delta))
        return words
    intensity = saved.get("training_intensity")
    words |= {"batch_size": rows, "learning_starts": count("num_steps_sampled_before_learning_starts") or 0}
    by_episode = fragment is None and intensity == rows
    words["train_freq"] = (1, "episode") if by_episode else fragment
    of_all = (fragment or 1) * n_envs
    words["gradient_steps"] = 1 if intensity is None else -1 if intensity == rows else intensity * of_all / rows
    replay, rows_per_step = saved.get("replay_buffer_config") or {}, 1
    words["n_sampled_goal"] = replay.get("n_sampled_goal", _GOALS)
    if replay.get("type") in ("HerReplayBuffer", "HindsightReplayBuffer"):
        words["replay_buffer_class"] = "HerReplayBuffer"
        rows_per_step += words["n_sampled_goal"]
    if "capacity" in replay:
        words["buffer_size"] = replay["capacity"] // rows_per_step
    exploration = saved.get("exploration_config") or {}
    if words.get("use_sde"):
        words["use_sde_at_warmup"] = exploration.get("random_timesteps") == 0
    names = {"exploration_initial_eps": "initial_epsilon", "exploration_final_eps": "final_epsilon"}
    return words | {word: exploration[name] for word, name in names.items() if name in exploration}


def factor_of_deviation(n_top: int) -> float:
    """Deviation of 2 n returns that the paper divides by, as a share of that of the sample, Stable-Baselines3's."""
    return math.sqrt((2 * n_top - 1) / (2 * n_top))


def joined_exploration(given: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an exploration, on top of those that were there before if it is of the same type."""
    is_same = given.get("type", before.get("type")) == before.get("type")
    return {**before, **given} if is_same else dict(given)


def changed(settings: dict[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that change a checkpoint's, with those that belong to them: what is left out stays as it is saved."""
    settings = dict(settings)
    if "rollout_fragment_length" in settings or "training_intensity" in settings:
        settings = {"rollout_fragment_length": "auto", "training_intensity": None, **settings}
    if "initial_alpha" in settings:
        settings = {"alpha_lr": None, **settings}
    rows, minibatch = settings.get("train_batch_size"), saved.get("sgd_minibatch_size")
    if rows is not None and minibatch is not None and minibatch > rows:
        settings = {"sgd_minibatch_size": rows, **settings}
    exploration, before = settings.get("exploration_config"), saved.get("exploration_config")
    if exploration and before:
        settings["exploration_config"] = joined_exploration(exploration, before)
    return settings
