"""The output of a run: from the settings of `.offline_data(output=...)` to what its workers write by."""

from pathlib import Path
from typing import Any

from gymnasium import Space, spaces

from rllib.algorithms.base.recorded.settings import LOG_DIR, OfflineDataConfig
from rllib.evaluation.offline.recorder import Output
from rllib.offline.writing.metadata import ENVIRONMENT, NORMALIZED, metadata_of
from rllib.offline.writing.rolling import new_run_id
from rllib.offline.writing.step_formats import JSON
from rllib.processes import exit_when_terminated
from rllib.storage.local_path import local_path


def output_of(
    config: OfflineDataConfig,
    observation_space: Space,
    action_space: Space,
    directory: Path,
    **facts: Any,
) -> Output:
    """The output of a run's workers.

    Args:
        config: with `output`.
        observation_space, action_space: spaces of the steps.
        directory: directory of the run.
        facts: about the steps, for the metadata of the files: env, max_episode_steps, seed.

    Raises:
        OSError: if there cannot be such a directory.
    """
    format_ = config.output_format()
    # RLlib's files have the actions of its policies, which are normalized where they can be.
    is_normalized = (
        format_ == JSON
        and config.normalize_actions
        and isinstance(action_space, spaces.Box)
        and action_space.dtype.kind == "f"
    )
    units = NORMALIZED if is_normalized and not callable(config.output) else ENVIRONMENT
    if config.output == LOG_DIR:
        path = directory / "output"
    else:
        path = directory if callable(config.output) else local_path(config.output_path())
    if not callable(config.output):
        path.mkdir(parents=True, exist_ok=True)  # an error here is better than one in a worker
    exit_when_terminated()
    return Output(
        directory=str(path),
        format_=format_,
        metadata=metadata_of(
            observation_space, action_space, units, gamma=config.gamma, algorithm=config.algorithm_name, **facts
        ),
        run_id=new_run_id(),
        max_file_size=config.output_max_file_size,
        max_rows_per_file=config.output_max_rows_per_file or config.output_config.get("max_num_samples_per_file"),
        max_file_seconds=config.output_max_file_seconds,
        packed=tuple(config.output_compress_columns),
        whole_episodes=config.output_write_episodes,
        make_writer=config.output if callable(config.output) else None,
        log_dir=str(directory),
        config=config if callable(config.output) else None,
    )
