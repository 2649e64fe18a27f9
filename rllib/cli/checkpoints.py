"""Checkpoints named on the command line, and the algorithms restored from them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.config import AlgorithmConfig, alone
from rllib.algorithms.base.recorded.settings import SAMPLER
from rllib.algorithms.families.teacher import Unasked
from rllib.cli.failures import Mistake, storage_input
from rllib.compat.methods.ray_rllib.settings import OVERRIDES
from rllib.did_you_mean import similar_path
from rllib.env.suites.table import starts_simulator
from rllib.offline.stream import Unread
from rllib.policies import own_settings_of
from rllib.remote.download import is_copy, local_checkpoint
from rllib.remote.url import is_url, place_of
from rllib.replay.disk import MEMORY
from rllib.sample_batch import DEFAULT_POLICY
from rllib.storage.checkpoint import newest_checkpoint, read_checkpoint
from rllib.storage.local_path import local_path

# Settings changed here whose dicts are merged with those that are there.
_MERGED = {"replay_buffer_config"}
# Names of the settings of a replay.
_REPLAYS = ("replay_buffer_config", "replay_buffer_kwargs")
# Names of recorded data in evaluation_config.
_DATA = {"input_", "input"}


class PlaceType(click.ParamType):
    """A path (Path), or the URL of a folder in remote storage (str), such as s3://BUCKET/RUN or hf://ORG/NAME."""

    name = "path"

    def convert(self, value, param, ctx):
        try:
            return place_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


PLACE = PlaceType()


def latest(path: Path | str) -> Path:
    """The checkpoint at that path or URL, or the last one of the run there. What a URL names is copied.

    Raises:
        Mistake: if there is nothing at that place, or a package is missing that reads it.
        StorageError: if remote storage does not answer.
    """
    if is_url(path):
        with storage_input():
            return local_checkpoint(path)
    if not path.exists():
        hint = similar_path(path)
        raise Mistake(f"there is no checkpoint {path}{hint and f'.{hint}'}")
    return (newest_checkpoint(path) if path.is_dir() else None) or path


def next_to(checkpoint: Path, name: str) -> Path:
    """The path of a new file next to a checkpoint; in the current directory for the copy of one at a URL."""
    checkpoint = local_path(checkpoint)
    return Path.cwd() / name if is_copy(checkpoint) else checkpoint.with_name(name)


def acting_algorithm(checkpoint: Path, load_user_code: bool, **overrides) -> Algorithm:
    """Restores the algorithm of a checkpoint for acting in this process alone, on the CPU if there is no GPU.

    Recorded data and teachers that it has learned from are not read again: they may be large, or not be there any more.
    Nothing is logged, recorded or served, and replays are in memory.

    Args:
        checkpoint: its directory.
        load_user_code: as for Algorithm.from_checkpoint, which raises the same errors.
        overrides: further settings to change, which take precedence.
    """
    settings = read_checkpoint(checkpoint, only="config.json").get("config.json", {})
    own = {**alone(settings), "num_cpus_per_learner": "auto", "output": None, "log_dir": None}
    if settings.get("num_gpus") and not _has_gpu():
        own |= {"num_gpus": 0, "learner_collective": "auto"}
    if settings.get("listen") is not None:
        own["listen"] = None
    if "replay_buffer_config" in settings:
        own |= _small_replays(settings, _settings_of_policies(checkpoint, settings))
    if not isinstance(given := settings.get("input_", SAMPLER), str) or given != SAMPLER:
        own |= _without_data(checkpoint)
    if settings.get("demonstrations") is not None:
        own["demonstrations"] = _unread(checkpoint)
    if _has_teacher(checkpoint, settings):
        unasked = {"teacher": Unasked(), "teacher_mapping_fn": None, "evaluate_teacher": False, "aggregate": False}
        if settings.get("teacher") is None:  # nothing says what it is for
            unasked["teacher_coeff"] = 1.0
        own |= {name: value for name, value in unasked.items() if name in settings}
    given = AlgorithmConfig().places(overrides)  # under names of any era
    own |= _of_evaluation(settings, given)
    # Of a dict that is merged, each key counts: given under another name, or in a section, it is merged there.
    own = {name: value for name, value in own.items() if name not in given or name in _MERGED}
    both = {name: overrides[name] for name in own.keys() & overrides.keys()}
    same = {name: {**own[name], **value} for name, value in both.items() if isinstance(value, Mapping)}
    return Algorithm.from_checkpoint(checkpoint, {**own, **overrides, **same}, load_user_code=load_user_code)


def without_simulator(checkpoint: Path) -> dict[str, Any]:
    """Settings by which the algorithm of a checkpoint acts without its environment, if that would start a simulator."""
    env = read_checkpoint(checkpoint, only="config.json").get("config.json", {}).get("env")
    if not starts_simulator(env):
        return {}
    policy = _policy_file(checkpoint)
    spaces = {name: policy[name] for name in ("observation_space", "action_space")}
    return {"env": None, "env_config": {}, "tensor_rollouts": None, **spaces}


def _has_teacher(checkpoint: Path, settings: Mapping[str, Any]) -> bool:
    """Whether the run of a checkpoint, or one of its policies, has a teacher."""
    if settings.get("teacher") is not None or "teacher" not in settings:
        return settings.get("teacher") is not None
    return any(own.get("teacher") is not None for own in _settings_of_policies(checkpoint, settings).values())


def _settings_of_policies(checkpoint: Path, settings: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Policy id -> its own settings, of the policies that the run of a checkpoint had at its end."""
    name, given = "algorithm.json", settings.get("policies")
    changes = read_checkpoint(checkpoint, only=name).get(name, {}).get("agents", {})
    added, removed = changes.get("policies", {}), changes.get("removed", ())
    first = {i: spec for i, spec in given.items() if i not in removed} if isinstance(given, Mapping) else {}
    return {policy_id: own_settings_of(spec) for policy_id, spec in {**first, **added}.items()}


def _small_replays(settings: Mapping[str, Any], policies: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Settings by which replays are in memory, and take little of it unless checkpoints have their rows.

    Args:
        settings: those of the run.
        policies: policy id -> its own settings.
    """
    least = max(settings.get("num_steps_sampled_before_learning_starts", 0), settings["train_batch_size"])
    flat = {policy_id: {**own, **(own.get("training") or {})} for policy_id, own in policies.items()}
    has_rows = any(each.get("store_buffer_in_checkpoints") for each in (settings, *flat.values()))

    def small(replay: Mapping[str, Any]) -> dict[str, Any]:
        sizes = {} if has_rows else {"capacity": min(replay.get("capacity", least), least)}
        return {"storage": MEMORY, **sizes}

    of_policies = {
        policy_id: {"replay_buffer_config": {**replay, **small(replay)}}
        for policy_id, own in flat.items()
        for name in _REPLAYS
        if isinstance(replay := own.get(name), Mapping)
    }
    changes = {"replay_buffer_config": small(settings["replay_buffer_config"])}
    return {**changes, OVERRIDES: of_policies} if of_policies else changes


def _without_data(checkpoint: Path) -> dict[str, Any]:
    """Settings by which the algorithm of a checkpoint reads no recorded steps."""
    return {
        "input_": _unread(checkpoint),
        "input_fraction_of_best": None,
        "offline_validation_fraction": 0.0,
        "offline_evaluation_interval": None,
        "off_policy_estimation_methods": {},
    }


def _of_evaluation(settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by which evaluations read no recorded steps, and have the environment and the seed that are given."""
    config = settings.get("evaluation_config")
    config = config if isinstance(config, Mapping) else {}
    changed = _DATA | (given.keys() & {"seed"})
    if "env" in given:
        changed |= {"env", "simulator"} | ({"env_config"} if "env" in config else set())  # which is for that one
    if not config.keys() & changed:
        return {}
    without_data = {"offline_evaluation_interval": None, "off_policy_estimation_methods": {}}
    kept = {name: value for name, value in config.items() if name not in changed}
    return {"evaluation_config": kept, **(without_data if config.keys() & _DATA else {})}


def _unread(checkpoint: Path) -> Unread:
    policy = _policy_file(checkpoint)
    return Unread(policy["observation_space"], policy["action_space"])


def _policy_file(checkpoint: Path) -> dict[str, Any]:
    """The description of a checkpoint's only policy."""
    name = f"policies/{DEFAULT_POLICY}/policy.json"
    return read_checkpoint(checkpoint, only=name)[name]


def _has_gpu() -> bool:
    import torch  # takes seconds, and few checkpoints ask for a GPU

    return torch.cuda.is_available()
