"""Imports a checkpoint of Ray RLlib as a checkpoint."""

import os
from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.compat.files.imported import ImportedModel, refuse_used
from rllib.compat.files.ray_checkpoints.files import RayCheckpoint, read_ray_checkpoint
from rllib.compat.files.ray_checkpoints.filters import filter_of
from rllib.compat.files.ray_checkpoints.networks import TAKEN, network_of
from rllib.policy import FILTER_PREFIX
from rllib.sample_batch import DEFAULT_POLICY
from rllib.storage.checkpoint import naming_damage, write_checkpoint
from rllib.storage.local_path import local_path

# Settings of learning, by the names of Ray 2.6 and 2.60; this library has the same names, or aliases of them.
_WORDS = (
    "gamma", "lr", "actor_lr", "critic_lr", "alpha_lr", "lambda_", "clip_param", "vf_clip_param", "vf_loss_coeff",
    "entropy_coeff", "kl_coeff", "kl_target", "use_kl_loss", "use_critic", "use_gae", "grad_clip", "train_batch_size",
    "sgd_minibatch_size", "num_sgd_iter", "minibatch_size", "num_epochs", "rollout_fragment_length", "vtrace", "n_step",
    "tau", "double_q", "target_network_update_freq", "num_steps_sampled_before_learning_starts", "initial_alpha",
    "target_entropy", "normalize_actions", "clip_actions",
)  # fmt: skip
_PLAIN = (bool, int, float, str)


def import_ray(
    checkpoint: str | os.PathLike,
    directory: str | os.PathLike,
    *,
    env: str | type | None = None,
    policy_id: str = DEFAULT_POLICY,
    config: Mapping[str, Any] | None = None,
) -> ImportedModel:
    """Writes a checkpoint of Ray RLlib as one of this library: Ray's default networks of vectors.

    PPO, IMPALA, APPO, A2C, A3C, PG, DQN and SAC, of Ray's old API stack (2.0 to 2.60) and the new one (2.40 to 2.60).
    The files are read as data; no pickle is loaded.

    Args:
        checkpoint: the directory that `Algorithm.save` wrote.
        directory: directory of the new checkpoint; a new one, or an empty one.
        env: the environment, as for `.environment`; None: the one that the checkpoint names.
        policy_id: id of the policy, where the checkpoint has several.
        config: settings that replace those of the checkpoint.

    Returns:
        the imported checkpoint, and the parts that were left out.

    Raises:
        ValueError: for a checkpoint that is damaged, of another algorithm, with a network that this library does not
            have, or of another environment; for weights that name a class; the message names the part. Also for a
            directory that is not empty.
        OSError: if a file cannot be read or written.
    """
    refuse_used(directory)
    with naming_damage(checkpoint):
        found = read_ray_checkpoint(local_path(checkpoint), policy_id)
        name = _algorithm_of(found)
        network = network_of(name, found)
        filtered = None if found.filter is None else filter_of(found.filter, str(found.path))
    env = _named_environment(found) if env is None else env
    made, left_out = _settings(name, found)
    for each in (network.settings, filtered.settings if filtered else {}, {"env": env, "num_rollout_workers": 0}):
        made.update_from_dict(each)
    made.update_from_dict(dict(config or {}))
    with made.build() as algorithm:
        network.load_into(algorithm)
        algorithm.metrics.counters["num_env_steps_sampled"] = found.timesteps
        state = algorithm.get_state()
        if filtered is not None:
            weights = f"policies/{DEFAULT_POLICY}/weights.safetensors"
            numbers = filtered.state(spaces.flatdim(algorithm.observation_space))
            state[weights] |= {FILTER_PREFIX + name: array for name, array in numbers.items()}
    path = write_checkpoint(directory, state)
    sentences = [*network.left_out, *left_out, "memories of the optimizers: they are reset"]
    return ImportedModel(path, name, env if isinstance(env, str) else None, found.timesteps, tuple(sentences))


def _algorithm_of(found: RayCheckpoint) -> str:
    """Name of the algorithm here.

    Raises:
        ValueError: for an algorithm that cannot be imported.
    """
    name = found.algorithm.removesuffix("TorchPolicyV2").removesuffix("TorchPolicy").removesuffix("Policy").upper()
    if name not in TAKEN:
        raise ValueError(
            f"{found.path} is of {found.algorithm or 'an unknown algorithm'}, and checkpoints of {', '.join(TAKEN)} "
            "are taken"
        )
    return name


def environment_of(checkpoint: str | os.PathLike, policy_id: str = DEFAULT_POLICY) -> str:
    """Name of the environment that a checkpoint was trained in; raises as `import_ray` if the checkpoint has none."""
    with naming_damage(checkpoint):
        return _named_environment(read_ray_checkpoint(local_path(checkpoint), policy_id))


def _named_environment(found: RayCheckpoint) -> str:
    given = found.config.get("env")
    if not isinstance(given, str):
        raise ValueError(f"{found.path} does not name its environment. Name it with --env, or env=.")
    return given


def _settings(name: str, found: RayCheckpoint) -> tuple[AlgorithmConfig, list[str]]:
    """The config with the checkpoint's settings, and sentences about settings that are not imported."""
    config, left = get_algorithm_config(name), []
    for word in _WORDS:
        value = found.config.get(word)
        if value is None or not isinstance(value, _PLAIN):  # None is a default there
            continue
        try:
            config.update_from_dict({word: value})
        except (TypeError, ValueError):
            left.append(f"{word}={value!r:.40}")
    return config, [f"settings that {name} does not take here: {', '.join(left)}"] if left else []
