"""A reward that a run has learned from demonstrations, from its checkpoint, without the run and the demonstrations."""

import os

import numpy as np

from rllib.algorithms.base.registry import ALGORITHMS, get_algorithm_class
from rllib.algorithms.families.demonstrated import DISCRIMINATOR_FILE, DemonstratedConfig
from rllib.imitation.learned_reward import LearnedReward
from rllib.serving.loaded_policy import load_policy
from rllib.storage.checkpoint import CheckpointError, naming_damage, read_checkpoint


def load_reward(path: str | os.PathLike) -> LearnedReward:
    """A learned reward, ready to be asked: `load_reward(path).ask(observations, actions)`, as `algo.learned_reward`.

    Args:
        path: a checkpoint of GAIL, AIRL, AMP or GAILSAC, or the directory of a run or trial, whose newest checkpoint is
            taken; or a URL, as for `load_policy`.

    Raises:
        CheckpointError: (a ValueError) if there is no checkpoint, it is damaged, or has no such reward.
        StorageError: if a URL cannot be read.
    """
    loaded = load_policy(path)
    own, place = f"policies/{loaded.policy_id}/{DISCRIMINATOR_FILE}", loaded.checkpoint
    files = read_checkpoint(place, only=(own, "algorithm.json", "config.json"))
    name = files.get("algorithm.json", {}).get("algorithm")
    kind = get_algorithm_class(name).config_class if name in ALGORITHMS else None
    if own not in files or kind is None or not issubclass(kind, DemonstratedConfig):
        raise CheckpointError(
            f"the checkpoint {place} of {loaded.of} has no reward that was learned from demonstrations. Give one of "
            "GAIL, AIRL, AMP or GAILSAC."
        )
    with naming_damage(place):
        config = kind.from_dict(files["config.json"])
        reward = LearnedReward(
            config.discriminator_settings(),
            loaded.policy,
            None,
            config,
            np.random.default_rng(0),
            observation_keys=config.discriminator_observation_keys,
            action_mask_key=config.action_mask_key,
        )
        reward.discriminator.set_state(files[own])
    return reward
