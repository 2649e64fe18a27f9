"""Constructors with Stable-Baselines3's arguments: `PPO("MlpPolicy", env, n_steps=2048, verbose=1)`.

Arguments and their defaults are Stable-Baselines3's (compat/names/stable_baselines3). They may be mixed with settings
of this library, such as num_rollout_workers=4. In this package, such an argument is called a word.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gymnasium import Space
from gymnasium.vector import VectorEnv

from rllib.compat.methods.stable_baselines3.directories import next_directory
from rllib.compat.methods.stable_baselines3.recurrent import WITHOUT_MEMORY, with_memory, words_without_memory
from rllib.compat.names.stable_baselines3 import has_words, is_share, settings_from_sb3
from rllib.compat.names.stable_baselines3.sampling import joined_exploration
from rllib.config.config_object import ConfigObject
from rllib.env.factories.registry import EnvContext, resolve
from rllib.env.vec_env.given import settings_of
from rllib.notices import log_once

# Words whose value may be a function of the remaining share of a run.
_OVER_TIME = ("learning_rate", "clip_range", "clip_range_vf")
_USUAL_LENGTH = 1_000_000
# Functions that programs pass to `load`; a model makes them from other words, in both libraries.
_DERIVED = frozenset({"lr_schedule", "exploration_schedule"})
# Settings that are not compared: environments are made again, and a random seed is kept.
_OF_PLACE = frozenset({"env", "env_config", "seed", "log_dir"})


@dataclass(frozen=True)
class Words:
    """Arguments of a constructor in Stable-Baselines3's form.

    Some are shares of a run, such as schedules and DQN's exploration_fraction; its length comes with the first `learn`.

    Attributes:
        policy, env, given: as for `config_from_words`.
    """

    policy: Any
    env: Any
    given: Mapping[str, Any]

    def config(self, config: Any) -> Any:
        """The config for a run of unknown length: schedules over the remaining share last a million steps."""
        changes = any(is_share(word, self.given.get(word)) for word in _OVER_TIME)
        length = {"n_timesteps": _USUAL_LENGTH} if changes else {}
        return config_from_words(config, self.policy, self.env, {**length, **self.given})

    def config_of_length(self, config: Any, total_timesteps: float, seed: int) -> Any:
        """The config for a run of this length (environment steps), unless `given` has another, and this seed."""
        words = {"n_timesteps": int(total_timesteps), **self.given, "seed": seed}
        return config_from_words(config, self.policy, self.env, words)


def shares_of_run(words: Mapping[str, Any]) -> dict[str, Any]:
    """Words whose values depend on the length of the next `learn`; none with n_timesteps, which is the length."""
    if words.get("n_timesteps") is not None:
        return {}
    return {word: value for word, value in words.items() if is_share(word, value)}


def steps_of_unknown_length(first: int) -> range:
    """The assumed environment steps of a run that begins after `first` steps, until `learn` sets their number."""
    return range(first, first + _USUAL_LENGTH)


def differs(config: Any, other: Any) -> bool:
    """Whether two configs of the same words differ in settings that depend on the length of the run."""
    return any(config[name] != other[name] for name in config if name not in _OF_PLACE)


def config_from_words(config: Any, policy: Any, env: Any, words: Mapping[str, Any]) -> Any:
    """The config of an algorithm that is constructed in Stable-Baselines3's form.

    Args:
        config: a new one of the algorithm; it is changed and returned.
        policy: first argument of the constructor: "MlpPolicy", "CnnPolicy", "MultiInputPolicy", "MlpLstmPolicy", ...
        env: an id, class or function, an environment that is made already, or a `DummyVecEnv`.
        words: keywords of the constructor.

    Raises:
        TypeError: without the name of a policy, or for an environment from which no others can be made.
        ValueError: for an unknown word, a value that has no counterpart here, or a number of environments that cannot
            be divided among the workers.
    """
    words = dict(words)
    policy = words.pop("policy", None) if policy is None else policy
    if not isinstance(policy, str):
        raise TypeError(_no_policy(config, policy, words))
    place = settings_of(env)
    made = place.pop("num_envs_per_worker", None)
    own, theirs = _divided(config, {"policy": policy, **words})
    theirs["n_envs"] = _number_of_environments(made, own, theirs, 0) or 1
    algorithm = _algorithm(config)
    if own:
        words = {"n_timesteps": _USUAL_LENGTH, **_without_memory(theirs)}
        _warn_of_doubled(own, settings_from_sb3(algorithm, words, defaults=False), theirs)
    if (space := _action_space(place)) is not None:
        theirs["action_space"] = space  # on which the deviation of PPO and A2C depends
    settings = _with_defaults(algorithm, theirs)
    settings |= _in_tensorboard_log(config, settings)
    _join_exploration(own, settings.get("exploration_config"))
    config.update_from_dict({**settings, **place}).update_from_dict(own)
    return _shared_among_workers(config, theirs["n_envs"])


def _with_defaults(algorithm: str, words: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for words, with the other library's defaults."""
    if words["policy"] not in WITHOUT_MEMORY:
        return settings_from_sb3(algorithm, dict(words), defaults=True)
    words, memory = words_without_memory(algorithm, words)
    settings = settings_from_sb3(algorithm, words, defaults=True)
    return {**settings, "model": with_memory(settings["model"], memory)}


def changes_from_words(
    config: Any,
    env: Any,
    device: str,
    words: Mapping[str, Any],
    saved: Mapping[str, Any],
    steps: range | None = None,
) -> dict[str, Any]:
    """Settings to change in a checkpoint's config, for `load`; arguments as for `config_from_words`.

    Args:
        device: "cuda", "cpu", or "auto", which changes nothing.
        saved: settings of the checkpoint, whose steps of each environment and updates of each round stay as they are
            with another number of environments.
        steps: environment steps of the run that schedules are shares of, as for `settings_from_sb3`.
    """
    algorithm = _algorithm(config)
    # Programs give one dict of functions to load of any algorithm.
    without = _DERIVED if algorithm == "PPO" else _DERIVED | {"clip_range"}
    words = {word: value for word, value in words.items() if not (word in without and callable(value))}
    if device != "auto":
        words = {"device": device, **words}
    own, theirs = _divided(config, words)
    if device == "cpu":
        own["num_gpus"] = 0
    place = settings_of(env)
    workers = own.get("num_rollout_workers", saved.get("num_rollout_workers", 0))
    if has_words(algorithm):
        n_envs = _number_of_environments(place.pop("num_envs_per_worker", None), own, theirs, workers)
        theirs = theirs if n_envs is None else {**theirs, "n_envs": n_envs}
    translated = settings_from_sb3(algorithm, theirs, defaults=False, saved=saved, steps=steps) if theirs else {}
    if (count := translated.get("num_envs_per_worker")) is not None:
        translated["num_envs_per_worker"] = _of_each_worker(count, max(workers, 1))
    _warn_of_doubled(own, translated, theirs)
    _join_exploration(own, translated.get("exploration_config") or saved.get("exploration_config"))
    return {**translated, **_in_tensorboard_log(config, translated), **place, **own}


def _number_of_environments(
    made: int | None, own: Mapping[str, Any], words: Mapping[str, Any], workers: int
) -> int | None:
    """The number of environments of all workers, given under any of its names; None: it is not given.

    Args:
        made: number of environments that exist already.
        own: settings by their names here.
        words: Stable-Baselines3's words.
        workers: number of rollout workers, if `own` has none.

    Raises:
        ValueError: for two different numbers.
    """
    workers = max(own.get("num_rollout_workers", workers), 1)
    of_each = own.get("num_envs_per_worker")
    given = {
        "the environments that are made": made,
        "n_envs": words.get("n_envs"),
        f"num_envs_per_worker of {workers} workers": None if of_each is None else of_each * workers,
    }
    counts = {name: count for name, count in given.items() if count is not None}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise ValueError(f"the number of environments is given in different ways ({listed}): leave all but one out.")
    return next(iter(counts.values()), None)


def _join_exploration(own: dict[str, Any], said: Mapping[str, Any] | None) -> None:
    """Adds the words about exploration to an exploration_config of the same type."""
    if said and isinstance(given := own.get("exploration_config"), Mapping):
        own["exploration_config"] = joined_exploration(given, said)


def _in_tensorboard_log(config: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a run's directory in tensorboard_log, which is their log_dir; {} without it."""
    if settings.get("log_dir") is None:
        return {}
    return {"log_dir": next_directory(settings["log_dir"], _algorithm(config)), "tensorboard_groups": True}


def _algorithm(config: Any) -> str:
    """Name of the built-in algorithm that a config's algorithm is, or is derived from."""
    kinds = (config.algo_class or type(config)).__mro__
    if (own := getattr(kinds[0], "words_of", None)) is not None:
        return own
    return next((kind.__name__ for kind in kinds if kind.__module__.startswith("rllib.algorithms.")), kinds[0].__name__)


def _divided(config: ConfigObject, words: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(settings by their names here, words of Stable-Baselines3); names that both libraries have mean the same."""
    own = {word: value for word, value in words.items() if word in config.settings}
    return own, {word: value for word, value in words.items() if word not in own}


def _without_memory(words: Mapping[str, Any]) -> dict[str, Any]:
    """The words without those about a policy with a memory."""
    has_memory = words["policy"] in WITHOUT_MEMORY
    return {word: value for word, value in words.items() if not (has_memory and word.startswith("policy"))}


def _warn_of_doubled(own: Mapping[str, Any], said: Mapping[str, Any], words: Mapping[str, Any]) -> None:
    """Warns of a setting that is given by its name here and, with another value, by a word; the former counts.

    Args:
        own: settings by their names here.
        said: settings that the words are translated to, without defaults.
        words: the words, for the message.
    """
    for name in sorted(said.keys() & own.keys() - {"num_envs_per_worker"}):
        if not isinstance(own[name], Mapping) and own[name] != said[name]:
            given = ", ".join(word for word in words if word not in ("policy", "n_envs"))
            message = (
                f"{name}={own[name]!r:.80} is used; {name}={said[name]!r:.80}, which Stable-Baselines3's arguments "
                f"({given}) give, is ignored."
            )
            log_once(message, message, logging.WARNING)


def _action_space(place: Mapping[str, Any]) -> Space | None:
    """Action space of the environment, which is made to read it; None without an environment, or such a space."""
    if "env" not in place:
        return None
    env = resolve(place["env"]).make(EnvContext(place.get("env_config")))
    try:
        space = env.single_action_space if isinstance(env, VectorEnv) else getattr(env, "action_space", None)
    finally:
        env.close()
    return space if isinstance(space, Space) else None


def _shared_among_workers(config: Any, count: int) -> Any:
    """The config with `count` environments in all, divided among its rollout workers."""
    return config.rollouts(num_envs_per_worker=_of_each_worker(count, max(config.num_rollout_workers, 1)))


def _of_each_worker(count: int, workers: int) -> int:
    if count % workers:
        raise ValueError(f"n_envs={count} environments cannot be divided among num_rollout_workers={workers}")
    return count // workers


def _no_policy(config: Any, policy: Any, words: Mapping[str, Any]) -> str:
    name = _algorithm(config)
    first = next(iter(words), "verbose")
    what = "" if policy is None else f", not {policy!r:.60}"
    return (
        f"{name}({first}=...) is Stable-Baselines3's form, whose first argument is the name of a policy{what}. Use "
        f'{name}("MlpPolicy", env, {first}=...), or {name}Config() and its sections (docs/start/from_sb3.md).'
    )
