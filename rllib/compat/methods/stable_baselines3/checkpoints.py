"""Checkpoints for `load`, Stable-Baselines3's name of restoring."""

import logging
import os
from pathlib import Path
from typing import Any

from rllib.compat.methods.stable_baselines3.directories import next_directory, numbered_name
from rllib.env.factories.adapters import adapters_of
from rllib.env.factories.registry import named_environment
from rllib.sample_batch import DEFAULT_POLICY
from rllib.storage.checkpoint import CheckpointError, UserCode, checkpoint_at, read_checkpoint
from rllib.storage.local_path import local_path

logger = logging.getLogger(__name__)


def checkpoint_named(path: str | os.PathLike) -> Path:
    """The checkpoint that a program for Stable-Baselines3 names, with or without the ending .zip.

    Raises:
        CheckpointError: if the path is a file of that library, or a directory without a checkpoint.
    """
    given = local_path(path)
    places = [given, given.with_suffix("") if given.suffix == ".zip" else given.with_name(f"{given.name}.zip")]
    if found := next(filter(Path.is_dir, places), None):
        return checkpoint_at(found)
    if file := next(filter(Path.is_file, places), None):
        raise CheckpointError(
            f"{file} is a file, as Stable-Baselines3 writes it; a checkpoint of this library is a directory. Use "
            f"rllib.import_sb3({str(file)!r}, DIRECTORY, env=ID), or on the command line rllib import-sb3 {file} --env "
            "ID -o DIRECTORY, and load that directory."
        )
    return given


def without_environment(path: str | os.PathLike) -> dict[str, Any]:
    """Settings to build a checkpoint's algorithm without its environment; {} if the checkpoint names the environment.

    Raises:
        CheckpointError: if there is no checkpoint, or it is damaged.
    """
    files = read_checkpoint(path, only=("config.json", f"policies/{DEFAULT_POLICY}/policy.json"))
    env = files.get("config.json", {}).get("env")
    if len(files) < 2 or not isinstance(env, UserCode) or not isinstance(named_environment(env), UserCode):
        return {}
    logger.info("the checkpoint %s does not name its environment: it is built without one, and acts", os.fspath(path))
    return spaces_alone(path)


def spaces_alone(path: str | os.PathLike) -> dict[str, Any]:
    """Settings to build a checkpoint's algorithm with the spaces of its single policy, without an environment.

    Raises:
        CheckpointError: if there is no checkpoint, or it is damaged.
    """
    name = f"policies/{DEFAULT_POLICY}/policy.json"
    files = read_checkpoint(path, only=(name, "config.json"))
    spaces = {each: files[name][each] for each in ("observation_space", "action_space")}
    # The saved space is the policy's; the settings add masks and previous steps to it once more.
    for adapter in reversed(adapters_of(files["config.json"])):
        spaces["observation_space"] = adapter.own_space(spaces["observation_space"])
    return {"env": None, "env_config": {}, "evaluation_interval": None, **spaces}


def saved_settings(path: str | os.PathLike) -> dict[str, Any]:
    """Settings of a checkpoint's algorithm, as in its file; {} for a checkpoint that is not of an algorithm.

    Raises:
        CheckpointError: if there is no checkpoint, or it is damaged.
    """
    return read_checkpoint(path, only=("config.json",)).get("config.json", {})


def saved_timesteps(path: str | os.PathLike) -> int:
    """Number of environment steps of a checkpoint's algorithm.

    Raises:
        CheckpointError: if there is no checkpoint, or it is damaged.
    """
    algorithm = read_checkpoint(path, only=("algorithm.json",)).get("algorithm.json", {})
    return int(algorithm.get("metrics", {}).get("counters", {}).get("num_env_steps_sampled", 0))


def log_directory(path: str | os.PathLike) -> tuple[Path | None, dict[str, str | None]]:
    """(directory of the saved run in tensorboard_log, or None; setting log_dir of a run that begins with it).

    The directory of the saved run is not changed, as its algorithm may still run. If the directory does not exist, the
    checkpoint may be another user's, and no files are written next to it.
    """
    config = saved_settings(path)
    saved = config.get("log_dir")
    if not isinstance(saved, str) or not config.get("tensorboard_groups"):
        return None, {}
    before = local_path(saved)
    if not before.is_dir():
        logger.warning("the run of %s wrote to %s, which is not there: give tensorboard_log for files", path, saved)
        return None, {"log_dir": None}
    name = numbered_name(before)
    return (before, {"log_dir": next_directory(before.parent, name)}) if name else (None, {})
