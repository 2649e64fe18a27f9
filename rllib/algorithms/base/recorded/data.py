"""The recorded data of a run: from the setting `input_` to datasets, with the spaces that the run has."""

import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Dict

from rllib.algorithms.base.recorded.settings import SAMPLER, OfflineDataConfig
from rllib.config.conflicts import Mistake
from rllib.config.io_context import IOContext
from rllib.env.factories.previous_steps import PreviousStep
from rllib.models.model_settings import MODEL_DEFAULTS, PREVIOUS_STEP
from rllib.models.observations.filters import RunningMoments
from rllib.offline.dataset import COPIES, Dataset
from rllib.offline.files import named, size_of_files
from rllib.offline.formats import is_table
from rllib.offline.larger_than_memory import dataset_on_disk
from rllib.offline.readers import JsonReader
from rllib.offline.stream import RecordedStream, Unread
from rllib.policy import Policy
from rllib.registered import INPUTS
from rllib.replay.disk import DISK
from rllib.replay.memory import free_bytes
from rllib.sample_batch import OBS, REWARDS

# Observations that are counted at once.
_ROWS_AT_ONCE = 1 << 14

# Advice where a Dataset has other spaces than the environment.
_OF_DATASET = (
    "A Dataset has the spaces that it was made with: Dataset.from_path(PATH, observation_space=..., action_space=...)."
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecordedData:
    """Datasets, and their shares of each batch.

    Attributes:
        datasets: with the share of each.
        sampled: share of the environment's steps; 0 where all are recorded.
        stream: of a reader without end, or of data that is not read, in place of datasets; None: there are datasets.
        held_out: episodes that are evaluated on, and in none of the datasets (offline_validation_fraction).
    """

    datasets: tuple[tuple[Dataset, float], ...]
    sampled: float = 0.0
    stream: RecordedStream | Unread | None = None
    held_out: tuple[Dataset, ...] = ()

    @property
    def only(self) -> Dataset:
        """All recorded steps, as one dataset.

        Raises:
            ValueError: if they are of a reader without end.
        """
        if self.stream is not None:
            raise ValueError(
                "evaluation needs data with an end, but input_ is a reader, whose batches have no end. Let its "
                "function return arrays or paths."
            )
        return Dataset.concat([dataset for dataset, _ in self.datasets])

    @property
    def for_evaluation(self) -> Dataset:
        """Episodes to evaluate on: those that are held out; where there are none, all recorded ones."""
        return Dataset.concat(self.held_out) if self.held_out else self.only

    @property
    def spaces(self) -> tuple[Space, Space]:
        """Observation space and action space."""
        first = self.stream or self.datasets[0][0]
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

    def progress(self, trained: int) -> dict[str, Any]:
        """Sizes and returns, and how often the rows were learned from, for results.

        Args:
            trained: rows that were learned from so far.
        """
        if self.stream is not None:
            return {"rows": self.stream.rows}
        datasets = [dataset for dataset, _ in self.datasets]
        facts = {"rows": sum(map(len, datasets)), "episodes": sum(each.num_episodes for each in datasets)}
        if all(REWARDS in each.columns for each in datasets):
            returns = np.concatenate([each.returns for each in datasets])
            facts |= {"mean_return": float(returns.mean()), "max_return": float(returns.max())}
        return {**facts, "epochs": trained * (1 - self.sampled) / facts["rows"]}


def recorded_data(
    config: OfflineDataConfig,
    observation_space: Space | None,
    action_space: Space | None,
    max_episode_steps: int | None,
) -> RecordedData:
    """Reads what `input_` names, to learn from it.

    Args:
        config: with recorded data.
        observation_space, action_space: spaces of the environment or the config; None: the data's own.
        max_episode_steps: time limit of the environment, if there is one.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it cannot be read or cannot be right, or two sources have different spaces.
    """
    if isinstance(config.input_, Unread):
        _refuse_other_environment(config, observation_space, action_space)
        return RecordedData((), stream=config.input_)
    if ignored := _without_effect(config):
        logger.warning("nothing is sampled where all steps are recorded: %s has no effect", " and ".join(ignored))
    data = _read(config, observation_space, action_space, max_episode_steps)
    _refuse_other_parts(config, data.spaces[0])
    rows = sum(len(dataset) for dataset, _ in data.datasets)
    if data.stream is None and rows < config.train_batch_size:
        logger.warning(
            "there are %s recorded steps, but a train batch has %s: it repeats them", rows, config.train_batch_size
        )
    return data


def evaluated_data(
    config: OfflineDataConfig,
    observation_space: Space | None,
    action_space: Space | None,
    max_episode_steps: int | None,
) -> Dataset:
    """Reads all episodes that `input_` names, to evaluate on; arguments and errors are those of `recorded_data`."""
    config = config.copy(copy_frozen=False)
    config.offline_data(input_fraction_of_best=None, offline_validation_fraction=0.0)
    return _read(config, observation_space, action_space, max_episode_steps).only


def data_of(
    setting: str,
    config: OfflineDataConfig,
    observation_space: Space,
    action_space: Space,
    max_episode_steps: int | None,
    *,
    reads_actions: bool = True,
    parts_read: Sequence[str] = (),
) -> Dataset:
    """Reads what a setting in addition to `input_` names, such as demonstrations, by the same options of reading.

    Args:
        setting: its name.
        config: which has it.
        observation_space, action_space: spaces of the environment.
        max_episode_steps: time limit of the environment, if there is one.
        reads_actions: whether actions are read; if not, the data may have none, or those of another body.
        parts_read: of Dict observations the only keys that are read, so that the data may lack others; (): all.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it cannot be read, cannot be right, has other spaces, or is a reader without end.
    """
    options = {"max_episode_steps": max_episode_steps, **config.read_options()}
    if not reads_actions:
        options["reads_actions"] = False
    if parts_read:
        options["parts_read"] = parts_read
    spaces = {"observation_space": observation_space, "action_space": action_space}
    dataset = _dataset(config[setting], config, options, spaces, setting)
    if isinstance(dataset, RecordedStream):
        problem = f"{setting} needs data with an end, but it is a reader, whose batches have no end."
        raise config.error(Mistake(problem, (setting,), advice="Let its function return arrays or paths."))
    for notice in dataset.notices:
        logger.warning("%s: %s", dataset.source, notice)
    return dataset


def _refuse_other_environment(
    config: OfflineDataConfig, observation_space: Space | None, action_space: Space | None
) -> None:
    """Refuses an environment in which a policy cannot act that has learned from recorded data.

    Bounds may differ, and so may the number of choices: data seldom says them.
    """
    data = config.input_
    for kind, own, recorded in (
        ("observation_space", observation_space, data.observation_space),
        ("action_space", action_space, data.action_space),
    ):
        if own is None or (own.shape == recorded.shape and (kind != "action_space" or type(own) is type(recorded))):
            continue
        raise config.error(
            Mistake(
                f"the policy has learned from recorded data with the {kind} {recorded}, but {config.env!r} has {own}.",
                ("env",),
                advice="Play in an environment with the same spaces, or name this one in addition to the data for "
                "training: its spaces are taken then.",
            )
        )


def _refuse_other_parts(config: OfflineDataConfig, space: Space) -> None:
    """Refuses observations that lack parts which the policy is to read, or have some that it is to ignore.

    Environments add and leave out these parts; recorded observations are taken as they are.

    Raises:
        ValueError: naming the parts.
    """
    ignored = [key for key in config.ignore_observation_keys if isinstance(space, Dict) and key in space.spaces]
    if ignored:
        raise config.error(
            Mistake(
                f"ignore_observation_keys={config.ignore_observation_keys} leaves parts out of an environment's "
                f"observations, but the recorded ones have {' and '.join(ignored)}.",
                ("ignore_observation_keys", "input_"),
                ({"ignore_observation_keys": []},),
                advice="Leave these columns out of the data and of observation_space, or name the environment.",
            )
        )
    previous = PreviousStep.of_config(config)
    if previous is not None and (missing := previous.missing_in(space)):
        raise config.error(
            Mistake(
                f"{previous.setting} needs observations with {' and '.join(missing)}, but the recorded data have those "
                f"of {space}.",
                ("model", "input_"),
                ({"model": {name: MODEL_DEFAULTS[name] for name in PREVIOUS_STEP}},),
                advice="Leave these settings out; or give data that a run with the same model has recorded (output=), "
                "with its observation_space.",
            )
        )


def _read(
    config: OfflineDataConfig,
    observation_space: Space | None,
    action_space: Space | None,
    max_episode_steps: int | None,
) -> RecordedData:
    options = {"max_episode_steps": max_episode_steps, **config.read_options()}
    spaces = {"observation_space": observation_space, "action_space": action_space}
    shares = config.shares() or {"": 1.0}
    datasets, held_out = [], []
    for source, share in shares.items():
        if source == SAMPLER:
            continue
        dataset = _dataset(source if config.shares() else config.input_, config, options, spaces)
        if isinstance(dataset, RecordedStream):
            _refuse_with_stream(config)
            return RecordedData((), stream=dataset)
        for notice in dataset.notices:
            logger.warning("%s: %s", dataset.source, notice)
        spaces = {"observation_space": dataset.observation_space, "action_space": dataset.action_space}
        if config.offline_validation_fraction:
            # The same episodes whatever the run's seed: runs are compared on them.
            validation, dataset = dataset.split(config.offline_validation_fraction)
            held_out.append(validation)
        # Afterwards: episodes to evaluate on that were chosen by their returns would look better than the data is.
        if config.input_fraction_of_best is not None:
            dataset = dataset.filter_top(config.input_fraction_of_best)
        datasets.append((dataset, share))
    return RecordedData(tuple(datasets), shares.get(SAMPLER, 0.0), held_out=tuple(held_out))


def _without_effect(config: OfflineDataConfig) -> list[str]:
    """Settings of sampling that a run from recorded data was given."""
    names = (
        "exploration_config",
        "num_rollout_workers",
        "num_envs_per_worker",
        "rollout_fragment_length",
        "batch_mode",
    )
    return [name for name in names if config.is_offline and name in config.changes()]


def _dataset(
    source: Any, config: OfflineDataConfig, options: Mapping[str, Any], spaces: Mapping, setting: str = "input_"
) -> Dataset | RecordedStream:
    if isinstance(source, str) and source in INPUTS:
        source = INPUTS.get(source)
    if callable(source):
        return _from_reader(source, config, options, spaces, setting)
    if isinstance(source, Dataset):
        source = source.with_bounds_of(spaces["observation_space"])
        own = {"observation_space": source.observation_space, "action_space": source.action_space}
        for name, space in spaces.items():
            is_read = name != "action_space" or options.get("reads_actions", True)
            if is_read and space is not None and own[name] != space:
                problem = f"{source.source} has the {name} {own[name]}, but the environment's is {space}."
                raise config.error(Mistake(problem, (setting, "env"), advice=_OF_DATASET))
        return source
    if isinstance(source, Mapping) or is_table(source):
        return Dataset.from_columns(source, source=f"the arrays of {setting}", **options, **spaces)
    paths = config.input_config["paths"] if isinstance(source, str) and source == "dataset" else source
    return _of_files(paths, config, options, spaces)


def _from_reader(
    make_reader: Callable[[IOContext], Any],
    config: OfflineDataConfig,
    options: Mapping[str, Any],
    spaces: Mapping,
    setting: str,
) -> Dataset | RecordedStream:
    """The data, or the reader, that a function of the user's returns."""
    make = functools.partial(make_reader, IOContext(config.get("log_dir"), config))
    kept = config.take_input(make_reader)
    made = kept[0] if kept else make()
    if _is_plain(made):
        made = made.inputs
    if isinstance(made, Dataset | Mapping | str | os.PathLike | list | tuple) or is_table(made):
        return _dataset(made, config, options, spaces, setting)
    if not callable(getattr(made, "next", None)):
        raise TypeError(
            f"the function of {setting} returned {made!r:.60}, but it is to return a reader with next(), a Dataset, "
            "arrays by name, a table, or paths"
        )
    waiting = [made]  # the one that was made to see what it is
    return RecordedStream(lambda: waiting.pop() if waiting else make(), options, **spaces)


def _estimates_from(config: OfflineDataConfig) -> bool:
    """Whether estimators read the run's own data."""
    return bool(config.get("off_policy_estimation_methods")) and config.get("evaluation_data") is None


def _is_plain(reader: Any) -> bool:
    """Whether it is a JsonReader that gives what is in its files, so that these can be read in its place."""
    kind = type(reader)
    own = issubclass(kind, JsonReader) and (kind.next, kind.read_all_files)
    return own == (JsonReader.next, JsonReader.read_all_files)


def _refuse_with_stream(config: OfflineDataConfig) -> None:
    advice = "Let its function return arrays or paths, or leave the setting out."
    if config.shares():
        problem = "a mixture of sources in input_ needs data with an end, but one is a reader, which has no end."
        raise config.error(Mistake(problem, ("input_",), advice=advice))
    for name, given in (
        ("input_fraction_of_best", config.input_fraction_of_best),
        ("normalize_observations", config.normalize_observations),
        ("offline_validation_fraction", config.offline_validation_fraction),
        ("off_policy_estimation_methods", _estimates_from(config)),
    ):
        if given:
            problem = f"{name} needs data with an end, but input_ is a reader, whose batches have no end."
            remedy = {name: config.settings[name].default}
            raise config.error(Mistake(problem, (name, "input_"), (remedy,), advice))


def _of_files(paths: Any, config: OfflineDataConfig, options: Mapping[str, Any], spaces: Mapping) -> Dataset:
    """The dataset of files, on a disk if it does not fit into the memory that it may take."""
    storage = config.storage_on_disk
    needed, free = COPIES * size_of_files(paths), free_bytes()
    limit = free // 2 if config.offline_memory == "auto" else config.offline_memory
    if storage is None and needed <= limit:
        return Dataset.from_path(paths, **options, **spaces)
    if storage is None:
        logger.warning(
            "%s takes about %.1f GiB in memory, where %.1f GiB are free and offline_memory is %.1f GiB: its columns "
            "are kept in files of a temporary directory", named(paths), needed / 2**30, free / 2**30, limit / 2**30,
        )  # fmt: skip
    return dataset_on_disk(paths, storage=storage or DISK, **options, **spaces)


def learned_rewards(
    dataset: Dataset, config: OfflineDataConfig, clip: Callable[[np.ndarray], None] | None = None
) -> np.ndarray:
    """The rewards that are learned from, float32 [rows].

    Args:
        dataset: recorded steps.
        config: with reward_scale and reward_shift.
        clip: clips the recorded rewards in place, before these two; None: they are not clipped.

    Raises:
        ValueError: if the data has none, or they are too large for float32.
    """
    if REWARDS not in dataset.columns:
        problem = f"{dataset.source} has no rewards, and {config.algorithm_name} learns from them."
        raise config.error(Mistake(problem, ("input_",), advice="Give data with rewards, or use BC."))
    rewards = dataset.columns[REWARDS]
    if clip is not None:
        clip(rewards := rewards.copy())
    with np.errstate(over="ignore"):
        rewards = (rewards * config.reward_scale + config.reward_shift).astype(np.float32)
    if not np.isfinite(rewards).all():
        scaled = f"reward_scale={config.reward_scale:g}, reward_shift={config.reward_shift:g}"
        problem = f"{scaled} make rewards of {dataset.source} that are beyond float32."
        remedy = {"reward_scale": 1.0, "reward_shift": 0.0}
        raise config.error(Mistake(problem, ("reward_scale", "reward_shift"), (remedy,)))
    return rewards
