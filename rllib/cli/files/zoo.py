"""Files of RL Baselines3 Zoo: settings of one algorithm by environment, in Stable-Baselines3's words.

    CartPole-v1:
      n_envs: 8
      n_timesteps: !!float 1e5
      policy: 'MlpPolicy'
      learning_rate: lin_0.001
      policy_kwargs: "dict(net_arch=[64, 64], activation_fn=nn.ReLU)"

Texts that hold an expression of Python are read as data (literals.py). Names of the algorithm's own words are those of
rllib/compat/names/stable_baselines3; the rest is the Zoo's, and is translated here.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib.algorithms.base.registry import get_algorithm_class
from rllib.cli.files.literals import read_literal
from rllib.compat.names.stable_baselines3 import settings_from_sb3
from rllib.did_you_mean import did_you_mean
from rllib.env.factories.registry import EnvContext, resolve

logger = logging.getLogger("rllib")

# Sections of a file that are for several environments.
_ATARI, _OTHERS = "atari", "default"
_GAME = re.compile(r"ALE/.*|.*(NoFrameskip|Deterministic)-v\d")
# Keys whose texts are expressions of Python.
_EXPRESSIONS = ("policy_kwargs", "replay_buffer_kwargs", "normalize", "env_kwargs", "monitor_kwargs")
# Keys without a meaning here, and why.
_PASSED_OVER = {"monitor_kwargs": "episodes are counted in any case; info_columns are for keys of their infos"}
_REFUSED = {
    "callback": "a file runs no code; give callbacks in a program, by .callbacks(callbacks_class=MyCallbacks)",
    "vec_env_wrapper": "a file runs no code; frame_stack and normalize represent Stable-Baselines3's own",
}
# Algorithms whose settings depend on the kind of actions.
_NEED_ACTIONS = ("PPO", "A2C", "ARS")
_ATARI_WRAPPER = "stable_baselines3.common.atari_wrappers.AtariWrapper"
# Keyword of AtariWrapper -> items of env_config.
_OF_ATARI = {
    "noop_max": ("noop_max",),
    "frame_skip": ("frameskip",),
    "screen_size": ("img_height", "img_width"),
    "terminal_on_life_loss": ("episodic_life",),
}
# Wrappers of the Zoo and of sb3-contrib, and what comes near.
_WRAPPERS_ELSEWHERE = {
    "TimeFeatureWrapper": "gymnasium's TimeAwareObservation adds the time, counted from the beginning",
    "HistoryWrapper": "gymnasium's FrameStackObservation stacks observations, without the actions",
    "FrameSkip": "gymnasium's MaxAndSkipObservation repeats an action, and gives the maximum of the last two frames",
    "YAMLCompatResizeObservation": "gymnasium's ResizeObservation takes the shape as a list here",
    "DelayedRewardWrapper": None,
    "ActionNoiseWrapper": None,
    "ActionSmoothingWrapper": None,
    "LowPassFilterWrapper": None,
    "HistoryWrapperObsDict": None,
    "MaskVelocityWrapper": "for CartPole, env: rllib.env.tasks.memory:CartPoleNoVel",
}


def is_zoo(content: Mapping[str, Any]) -> bool:
    """Whether a file holds settings by environment, with the length of a run."""
    sections = [section for section in content.values() if section is not None]
    return all(isinstance(each, Mapping) for each in sections) and any("n_timesteps" in each for each in sections)


def zoo_keys(content: Mapping[str, Any], path: Path, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a run, from a file of the Zoo and what the command line chooses.

    Args:
        content: content of the file.
        path: its stem names the algorithm, where the command line does not.
        chosen: `algorithm` and `env`, which chooses the section; `stop`, whose steps replace the file's.

    Raises:
        ValueError: naming the key that is missing, unknown, or has no counterpart here.
    """
    algorithm = get_algorithm_class(chosen.get("algorithm") or path.stem).__name__
    section, env = _section(content, path, chosen.get("env"))
    if not content[section]:
        raise ValueError(f"{path}: the section {section} is empty.")
    try:
        return _keys_of(algorithm, env, dict(content[section]), chosen.get("stop") or {})
    except ValueError as error:
        raise ValueError(f"{path}: {section}: {error}") from error


def _section(content: Mapping[str, Any], path: Path, env: str | None) -> tuple[str, str]:
    """Name of the section for an environment, and the environment.

    Raises:
        ValueError: if there is no such section, or no environment was chosen from several.
    """
    environments = [name for name in content if name not in (_ATARI, _OTHERS)]
    if env is None:
        if len(environments) != 1:
            raise ValueError(
                f"{path} has settings of {len(environments)} environments. Choose one, as in --env "
                f"{environments[0] if environments else 'CartPole-v1'}."
            )
        return environments[0], environments[0]
    if env in environments:
        return env, env
    if _GAME.fullmatch(env) and _ATARI in content:
        return _ATARI, env
    for name in environments:
        if _without_version(name) == _without_version(env):
            logger.info("%s has settings of %s, which %s gets", path, name, env)
            return name, env
    if _OTHERS in content:
        logger.info("%s has no settings of %s, which gets those of %r", path, env, _OTHERS)
        return _OTHERS, env
    raise ValueError(f"{path} has no settings of {env}.{did_you_mean(env, environments)}")


def _without_version(env: str) -> str:
    return re.sub(r"-v\d+$", "", env.rpartition(":")[2])


def _keys_of(algorithm: str, env: str, section: dict[str, Any], stop: Mapping[str, Any]) -> dict[str, Any]:
    for key, why in _REFUSED.items():
        if section.pop(key, None) is not None:
            raise ValueError(f"{key} cannot be used: {why}.")
    for key in _EXPRESSIONS:
        if isinstance(section.get(key), str):
            section[key] = read_literal(section[key])
    for key, why in _PASSED_OVER.items():
        if section.pop(key, None) is not None:
            logger.info("%s has no effect here: %s", key, why)
    timesteps = stop.get("timesteps_total") or stop.get("steps") or section.get("n_timesteps")
    if not isinstance(timesteps, int | float) or isinstance(timesteps, bool) or timesteps <= 0:
        raise ValueError(f"n_timesteps={timesteps!r} must be a number of environment steps.")
    environment = _environment(section)
    words = {**section, "n_timesteps": int(timesteps)}
    if algorithm in _NEED_ACTIONS:
        words["action_space"] = _action_space(env, environment.get("env_config", {}))
    settings = settings_from_sb3(algorithm, words, defaults=True)
    return {
        "algorithm": algorithm,
        "env": env,
        "config": {**settings, **environment},
        "stop": {"timesteps_total": int(timesteps)},
    }


def _action_space(env: str, env_config: Mapping[str, Any]):
    """The action space of an environment, of which one is made for a moment."""
    made = resolve(env).make(EnvContext(env_config))
    try:
        return getattr(made, "single_action_space", None) or made.action_space
    finally:
        made.close()


# ---------------------------------------------------------------------- the environment


def _environment(section: dict[str, Any]) -> dict[str, Any]:
    """Settings of the section `environment`; the keys that they represent are removed."""
    config = _mapping("env_kwargs", section.pop("env_kwargs", None))
    wrappers, frames = _entries(section.pop("env_wrapper", None)), section.pop("frame_stack", None)
    settings: dict[str, Any] = {}
    translated: list[Any] = []
    for name, keywords in wrappers:
        if name == _ATARI_WRAPPER:
            settings |= {} if keywords.pop("clip_reward", True) else {"clip_rewards": False}
            config |= _of_atari(keywords)
            config |= {"stack_num": frames} if frames not in (None, 4) else {}
            frames = None
        else:
            translated.append(_wrapper(name, keywords))
    if frames is not None:
        if section.get("policy") == "CnnPolicy":
            raise ValueError(
                f"frame_stack={frames} of pictures is for Atari games only. Stack other pictures by env_wrappers, with "
                "the frames first (docs/guide/environments.md)."
            )
        translated += [{"FrameStackObservation": {"stack_size": int(frames)}}, "FlattenObservation"]
    settings |= {"env_wrappers": translated} if translated else {}
    return {**settings, "env_config": config} if config else settings


def _entries(given) -> list[tuple[str, dict[str, Any]]]:
    """(name, keywords) of each wrapper; the file has a name, {name: keywords}, or a list of them."""
    entries = []
    for entry in [] if given is None else given if isinstance(given, list) else [given]:
        named = entry if isinstance(entry, Mapping) else {entry: None}
        entries += [(str(name), _mapping(f"env_wrapper: {name}", keywords)) for name, keywords in named.items()]
    return entries


def _mapping(name: str, given: Any) -> dict[str, Any]:
    """A copy of a mapping; empty for None."""
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"{name}={given!r:.60} must be a mapping of keywords, such as {{size: 5}}.")
    return dict(given or {})


def _of_atari(keywords: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [key for key in keywords if key not in _OF_ATARI]
    if unknown:
        raise ValueError(f"env_wrapper: AtariWrapper takes {', '.join(_OF_ATARI)} here, not {', '.join(unknown)}.")
    return {item: value for key, value in keywords.items() for item in _OF_ATARI[key]}


def _wrapper(name: str, keywords: dict[str, Any]):
    """An entry of env_wrappers."""
    module, _, short = name.rpartition(".")
    if module.startswith(("rl_zoo3.", "utils.wrappers", "sb3_contrib.")) and short in _WRAPPERS_ELSEWHERE:
        near = _WRAPPERS_ELSEWHERE[short]
        raise ValueError(
            f"env_wrapper {name} is not available{f': {near}' if near else ''}. Register a class of your own by "
            f"rllib.register_wrapper({short!r}, {short}) in a program, and name it {short} here."
        )
    if module.startswith(("gymnasium.wrappers", "gym.wrappers")):  # their modules may be named as well
        name = short
    return {name: keywords} if keywords else name
