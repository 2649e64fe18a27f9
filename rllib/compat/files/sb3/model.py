"""Imports a model of Stable-Baselines3 as a checkpoint."""

import os
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.registry import get_algorithm_class, get_algorithm_config
from rllib.compat.files.imported import ImportedModel, refuse_used
from rllib.compat.files.sb3.archive import SavedModel, read_model, type_of
from rllib.compat.files.sb3.networks import network_of
from rllib.compat.files.sb3.settings import algorithm_of, settings_of
from rllib.compat.files.sb3.spaces import differing, space_of
from rllib.compat.files.sb3.vec_normalize import Normalization
from rllib.errors import DamagedFileError
from rllib.policy import FILTER_PREFIX
from rllib.sample_batch import DEFAULT_POLICY
from rllib.storage.checkpoint import naming_damage, write_checkpoint
from rllib.storage.local_path import local_path

_SPACES = ("observation_space", "action_space")


def import_sb3(
    model: str | os.PathLike,
    directory: str | os.PathLike,
    *,
    env: str | type | None = None,
    vecnormalize: str | os.PathLike | None = None,
    config: Mapping[str, Any] | None = None,
    algorithm: type[Algorithm] | None = None,
) -> ImportedModel:
    """Writes a model of Stable-Baselines3 2.x as a checkpoint: PPO, A2C, DQN, SAC, TQC, TD3 or DDPG.

    The zip's settings and tensors are read as data; pickles in it are not loaded. Actions are equal to the model's up
    to rounding.

    Args:
        model: the zip that `model.save` wrote.
        directory: directory of the checkpoint; a new one, or an empty one.
        env: the environment, as for `.environment`; None: the spaces of the zip are taken, to act alone.
        vecnormalize: the file that `VecNormalize.save` wrote, where observations or rewards were normalised.
        config: settings that replace those of the model, such as {"env_wrappers": [...]}.
        algorithm: class of the checkpoint's algorithm, where it is derived from this library's.

    Returns:
        the imported checkpoint, and the parts that were left out.

    Raises:
        ValueError: for a zip that is damaged, of another algorithm, with parts that this library does not have, or of
            another environment; for a VecNormalize file that names other classes; the message names the part. Also for
            a directory that is not empty.
        OSError: if a file cannot be read or written.
    """
    refuse_used(directory)
    saved = read_model(local_path(model))
    for name in _SPACES:
        if not isinstance(saved.data.get(name), dict):
            raise DamagedFileError(f"{saved.path} is no model of Stable-Baselines3: it does not say its {name}")
    with naming_damage(saved.path):
        name = algorithm_of(saved)
        network = network_of(name, saved, type_of(saved.data["action_space"]))
        settings, left_out = settings_of(name, saved)
    normalization = None if vecnormalize is None else Normalization(local_path(vecnormalize))
    if algorithm is not None and not issubclass(algorithm, get_algorithm_class(name)):
        raise ValueError(f"{saved.path} is a model of {name}, not of {algorithm.__name__}")
    made = get_algorithm_config(name) if algorithm is None else algorithm.get_default_config()
    for each in (settings, network.settings, normalization.settings if normalization else {}, _place(saved, env)):
        made.update_from_dict(each)
    made.update_from_dict(dict(config or {}))
    with made.build() as built:
        _compare_spaces(built, saved)
        network.load_into(built)
        built.metrics.counters["num_env_steps_sampled"] = steps = _steps_of(saved)
        state = built.get_state()
        if normalization is not None:
            state |= _with_statistics(state, normalization, built.observation_space)
        sentences = [*network.left_out, *left_out, *_always_left_out(built.config)]
    path = write_checkpoint(directory, state)
    return ImportedModel(path, name, env if isinstance(env, str) else None, steps, tuple(sentences))


def _place(saved: SavedModel, env: str | type | None) -> dict[str, Any]:
    """Settings of the environment, or, without an environment, of the spaces."""
    alone = {"num_rollout_workers": 0}
    if env is not None:
        return {**alone, "env": env}
    return {**alone, **{name: _read_space(saved, name) for name in _SPACES}}


def _read_space(saved: SavedModel, name: str) -> gym.Space:
    """A space of the zip.

    Raises:
        ValueError: if it cannot be read, or no network of the zip's size reads or fills it, so that a small file would
            make a network without bounds.
    """
    space = space_of(saved.data[name], name)
    numbers, parameters = spaces.flatdim(space), sum(array.size for array in saved.parameters.values())
    if numbers > parameters:
        raise ValueError(f"{saved.path}: its {name} has {numbers:,} numbers, and its networks {parameters:,}: damaged")
    return space


def _compare_spaces(algorithm: Algorithm, saved: SavedModel) -> None:
    built: dict[str, gym.Space] = {
        "observation_space": algorithm.observation_space,
        "action_space": algorithm.action_space,
    }
    for name, space in built.items():
        if (difference := differing(space, saved.data[name])) is not None:
            raise ValueError(
                f"the {name} of {algorithm.config.env!r} {difference}. Name the environment that the model was trained "
                "in, with its wrappers: env_wrappers=['FrameStackObservation'] for VecFrameStack, say "
                "(docs/guide/environments.md)."
            )


def _with_statistics(state: dict[str, Any], normalization: Normalization, space: gym.Space) -> dict[str, Any]:
    """Files of the checkpoint with the statistics of VecNormalize in their places."""
    place, changed = f"policies/{DEFAULT_POLICY}", {}
    if (observations := normalization.observation_state(space)) is not None:
        weights = f"{place}/weights.safetensors"
        changed[weights] = state[weights] | {FILTER_PREFIX + name: array for name, array in observations.items()}
    if (returns := normalization.return_state()) is not None:
        changed[f"{place}/returns.safetensors"] = returns
    return changed


def _steps_of(saved: SavedModel) -> int:
    steps = saved.plain("num_timesteps", 0)
    return steps if type(steps) is int and steps >= 0 else 0


def _always_left_out(config: AlgorithmConfig) -> list[str]:
    sentences = ["memories of the optimizers: they are reset"]
    if hasattr(config, "replay_buffer_config"):
        sentences.append("the replay, which Stable-Baselines3 saves in another file: it begins empty")
    return sentences
