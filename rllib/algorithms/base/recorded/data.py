"""The recorded data of a run: from the setting `input_` to datasets, with the spaces that the run has."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space

from rllib.algorithms.base.recorded.settings import SAMPLER, OfflineDataConfig
from rllib.models.observations.filters import RunningMoments
from rllib.offline.dataset import Dataset
from rllib.policy import Policy
from rllib.sample_batch import OBS, REWARDS

# Observations that are counted at once.
_ROWS_AT_ONCE = 1 << 14

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecordedData:
    """Datasets, and their shares of each batch.

    Attributes:
        datasets: with the share of each.
        sampled: share of the environment's steps; 0 where all are recorded.
    """

    datasets: tuple[tuple[Dataset, float], ...]
    sampled: float = 0.0

    @property
    def only(self) -> Dataset:
        """All recorded steps, as one dataset."""
        return Dataset.concat([dataset for dataset, _ in self.datasets])

    @property
    def spaces(self) -> tuple[Space, Space]:
        """Observation space and action space."""
        first = self.datasets[0][0]
        return first.observation_space, first.action_space

    def moments(self, policy: Policy) -> dict[str, np.ndarray]:
        """State of a policy's filter that has seen all recorded observations."""
        moments = RunningMoments(int(np.prod(policy.filter.shape, dtype=int)))
        for dataset, _ in self.datasets:
            column = dataset.columns[OBS]
            for first in range(0, len(column), _ROWS_AT_ONCE):
                some = column[first : first + _ROWS_AT_ONCE]
                moments.add(some.reshape(len(some), -1).astype(np.float64))
        return moments.get_state()

    def info(self) -> dict[str, Any]:
        """Sizes and returns, for results."""
        datasets = [dataset for dataset, _ in self.datasets]
        facts = {"rows": sum(map(len, datasets)), "episodes": sum(each.num_episodes for each in datasets)}
        if all(REWARDS in each.columns for each in datasets):
            returns = np.concatenate([each.returns for each in datasets])
            facts |= {"mean_return": float(returns.mean()), "max_return": float(returns.max())}
        return facts


def recorded_data(
    config: OfflineDataConfig,
    observation_space: Space | None,
    action_space: Space | None,
    max_episode_steps: int | None,
) -> RecordedData:
    """Reads what `input_` names.

    Args:
        config: with recorded data.
        observation_space, action_space: of the environment or the config; None: the data's own.
        max_episode_steps: time limit of the environment, if there is one.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it cannot be read or cannot be right, or two sources have different spaces.
    """
    if ignored := _without_effect(config):
        logger.warning("nothing is sampled where all steps are recorded: %s has no effect", " and ".join(ignored))
    options = {"max_episode_steps": max_episode_steps, **config.read_options()}
    spaces = {"observation_space": observation_space, "action_space": action_space}
    shares = config.shares() or {SAMPLER if config.input_ == SAMPLER else "": 1.0}
    datasets = []
    for source, share in shares.items():
        if source == SAMPLER:
            continue
        dataset = _dataset(source if config.shares() else config.input_, config, options, spaces)
        for notice in dataset.notices:
            logger.warning("%s: %s", dataset.source, notice)
        if config.input_fraction_of_best is not None:
            dataset = dataset.filter_top(config.input_fraction_of_best)
        spaces = {"observation_space": dataset.observation_space, "action_space": dataset.action_space}
        datasets.append((dataset, share))
    return RecordedData(tuple(datasets), shares.get(SAMPLER, 0.0))


def _without_effect(config: OfflineDataConfig) -> list[str]:
    """Settings of sampling that a run from recorded data was given."""
    names = "exploration_config", "num_rollout_workers", "num_envs_per_worker"
    return [name for name in names if config.is_offline and name in config.changes()]


def _dataset(source: Any, config: OfflineDataConfig, options: Mapping[str, Any], spaces: Mapping) -> Dataset:
    if isinstance(source, Dataset):
        for name, space in spaces.items():
            if space is not None and getattr(source, name) != space:
                raise ValueError(
                    f"{source.source} has the {name} {getattr(source, name)}, but the environment's is {space}"
                )
        return source
    if isinstance(source, Mapping):
        return Dataset.from_columns(source, source="the arrays of input_", **options, **spaces)
    paths = config.input_config["paths"] if source == "dataset" else source
    return Dataset.from_path(paths, **options, **spaces)


def learned_rewards(dataset: Dataset, config: OfflineDataConfig) -> np.ndarray:
    """The rewards that are learned from, float32 [rows].

    Raises:
        ValueError: if the data has none.
    """
    if REWARDS not in dataset.columns:
        raise ValueError(f"{dataset.source} has no rewards, and {config.algorithm_name} learns from them")
    return (dataset.columns[REWARDS] * config.reward_scale + config.reward_shift).astype(np.float32)
