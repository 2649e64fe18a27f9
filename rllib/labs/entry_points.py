"""The settings of a run: of the task's entry point, of its settings for rsl_rl, or of locomotion in general.

A task of Isaac Lab is registered with keywords such as rsl_rl_cfg_entry_point; this library's is
rllib_cfg_entry_point. What it names is looked up: a file of YAML is data, and what a task's own package registers as a
class or a function is called.
"""

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.cli.spec import merged_keys
from rllib.cli.values import read_file
from rllib.did_you_mean import did_you_mean
from rllib.labs.command import ENTRY_POINT
from rllib.labs.rsl_rl_settings import LOCOMOTION, from_rsl_rl

RSL_RL = "rsl_rl_cfg_entry_point"
_FILES = (".yaml", ".yml")
# Keys of an entry point. The first is a mapping of the algorithm's settings.
KEYS = (
    "config", "algorithm", "num_mini_batches", "max_iterations", "save_interval", "experiment_name", "run_name", "seed",
    "clip_actions", "group", "critic_group",
)  # fmt: skip


class Found(NamedTuple):
    """Settings of a run.

    Attributes:
        keys: those of KEYS, complete but for the optional ones.
        source: where they come from, for the log.
    """

    keys: dict[str, Any]
    source: str


def settings_of(lab: str, task: str, key: str, changes: Mapping[str, Any]) -> Found:
    """The settings for a task.

    Args:
        lab: "isaaclab" or "mjlab".
        task: its name.
        key: keyword of the registration that holds them, also one with settings for rsl_rl; or an entry itself,
            "module:name", "module:file.yaml" or a file.
        changes: overrides: of KEYS, or else of the algorithm's settings.

    Raises:
        ValueError: for an entry of another form, or an unknown key.
    """
    keywords = _keywords(task) if lab == "isaaclab" else {}
    base = from_rsl_rl(LOCOMOTION).keys
    given = key if ":" in key or key.endswith(_FILES) else keywords.get(key)
    if given is None and key != ENTRY_POINT:
        known = [name for name in keywords if name.endswith("cfg_entry_point") and name != "env_cfg_entry_point"]
        hint = did_you_mean(key, known, otherwise=f"It has {', '.join(known) or 'none'}.")
        raise ValueError(
            f"{task} is registered without {key!r}.{hint} A file, MODULE:FILE.yaml and MODULE:NAME are taken as well."
        )
    if given is not None and not key.startswith("rsl_rl_"):
        where = f"--agent {key}" if given == key else f"{key} of {task}"
        try:
            entry = _checked(_looked_up(given, "--agent" if given == key else key), where)
        except ImportError as error:
            raise ValueError(f"{where} cannot be imported: {error}") from error
        found = Found(_over(base, entry), where)
    else:
        found = _of_rsl_rl(lab, task, key, keywords) or Found(
            base,
            f"{task} is registered without {key} and {RSL_RL}: rsl_rl's settings for locomotion (Isaac Lab's ANYmal D) "
            "are taken",
        )
    own = {name: value for name, value in changes.items() if name in KEYS}
    of_config = {name: value for name, value in changes.items() if name not in KEYS}
    return found._replace(keys=_over(found.keys, _checked({**own, "config": of_config}, "agent")))


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """The keys of `above`, and what they leave out; settings of PPO do not go to another algorithm."""
    if above.get("algorithm", below["algorithm"]) != below["algorithm"]:
        below = {**below, "config": {"rollout_fragment_length": below["config"]["rollout_fragment_length"]}}
    given = {"config": above.get("config") or {}}
    config = merged_keys({"algorithm": above.get("algorithm", "PPO"), "config": below["config"]}, given)["config"]
    if "lr" in given["config"]:
        config["lr"] = above["config"]["lr"]  # one schedule is no part of another
    return {**below, **above, "config": config}


def _keywords(task: str) -> Mapping[str, Any]:
    spec = gymnasium.registry.get(task)
    return {} if spec is None else spec.kwargs


def _of_rsl_rl(lab: str, task: str, key: str, keywords: Mapping[str, Any]) -> Found | None:
    """The task's settings for rsl_rl; None if it has none, or their package is not installed."""
    if lab == "mjlab":
        runner, where = importlib.import_module("mjlab.tasks.registry").load_rl_cfg(task), "mjlab's registration"
    else:
        where = key if key.startswith("rsl_rl_") else RSL_RL
        if keywords.get(where) is None:
            return None
        try:
            runner = _looked_up(keywords[where], where)
        except ImportError as error:
            missing = f"{task} is registered without {ENTRY_POINT}, and its {where} cannot be imported ({error})"
            return Found(from_rsl_rl(LOCOMOTION).keys, f"{missing}: rsl_rl's settings for locomotion are taken")
    keys, left_out = from_rsl_rl(runner)
    without = f", without {', '.join(left_out)}" if left_out else ""
    return Found(keys, f"{task}'s settings for rsl_rl, of {where}{without}")


def _looked_up(entry: Any, key: str) -> Any:
    """The value of an entry point: a dict, an object, "module:file.yaml", "module:name", or a class or function.

    Raises:
        ValueError: for a text of another form, or a file or a name that there is not.
        ImportError: if its module cannot be imported.
    """
    if isinstance(entry, str) and entry.endswith(_FILES):
        return read_file(_file_of(entry, key))
    if isinstance(entry, str):
        module_name, _, name = entry.partition(":")
        module = importlib.import_module(module_name) if name else None
        if module is None or not hasattr(module, name):
            hint = did_you_mean(name, vars(module) if module else ())
            raise ValueError(f"{key}={entry!r} must be MODULE:NAME or MODULE:FILE.yaml, with what is there.{hint}")
        entry = getattr(module, name)
    return entry() if inspect.isclass(entry) or inspect.isroutine(entry) else entry


def _file_of(entry: str, key: str) -> Path:
    """The file of "module:file.yaml", in the module's folder, or of a path."""
    module_name, _, name = entry.rpartition(":")
    path = Path(name)
    if module_name:
        path = Path(importlib.import_module(module_name).__file__ or "").parent / name
    if not path.is_file():
        raise ValueError(f"{key}={entry!r} names the file {path}, which there is not.")
    return path


def _checked(entry: Any, where: str) -> dict[str, Any]:
    """The keys of an entry.

    Raises:
        ValueError: for anything else than a config of an algorithm or a mapping of KEYS.
    """
    if isinstance(entry, AlgorithmConfig):
        if entry.algo_class is None:
            raise ValueError(f"{where} must be the config of an algorithm, such as PPOConfig(), not {entry!r:.60}")
        settings = {name: value for name, value in entry.changes().items() if name != "env"}
        name = entry.algo_class if isinstance(entry.algo_class, str) else entry.algo_class.__name__
        return {"algorithm": name, "config": settings}
    if not isinstance(entry, Mapping):
        raise ValueError(
            f"{where} must be a mapping with keys like algorithm, config and max_iterations, or the config of an "
            f"algorithm, but it is {entry!r:.60}"
        )
    for name in entry:
        if name not in KEYS:
            hint = did_you_mean(name, KEYS, otherwise=f"It takes {', '.join(KEYS)}.")
            raise ValueError(f"{where} has the key {name!r}, which it does not take.{hint}")
    if not isinstance(entry.get("algorithm", ""), str):
        raise ValueError(
            f"{where}: algorithm={entry['algorithm']!r:.60} must be a name, such as PPO. Settings have this library's "
            "names, as in agent.lr=1e-3; rllib config PPO lists them."
        )
    if not isinstance(entry.get("config", {}), Mapping):
        raise ValueError(f"{where}: config={entry['config']!r:.60} must be a mapping of settings, as in {{lr: 1e-3}}")
    return dict(entry)
