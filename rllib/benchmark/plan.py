"""What a benchmark compares, and where its runs are: DIRECTORY/ALGORITHM/TASK/seed_N, directories of ordinary runs."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from rllib.benchmark.suite import Suite, label, read_suite
from rllib.errors import DamagedFileError
from rllib.runs.naming import file_name
from rllib.runs.safe_files import write_whole
from rllib.storage.foreign_files import json_object, read_inside

PLAN = "benchmark.json"
_OF_SEED = re.compile(r"seed_(\d+)")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a benchmark compares.

    Attributes:
        suite: name of the suite.
        algorithms: their names; the first one is the baseline.
        steps: task -> environment steps at which the runs are scored.
        seeds: seeds of the runs on each task.
        metric: result key of the scores.
    """

    suite: str
    algorithms: list[str]
    steps: dict[str, int]
    seeds: list[int]
    metric: str

    @classmethod
    def read(cls, directory: Path) -> Self:
        """The plan in the directory of a benchmark.

        Raises:
            ValueError: if there is none, or it is damaged.
        """
        if not (directory / PLAN).is_file():
            raise ValueError(f"{directory} is not the directory of a benchmark: it has no {PLAN}")
        try:
            return msgspec.convert(json_object(read_inside(directory, PLAN)), cls)
        except (msgspec.ValidationError, DamagedFileError) as error:
            raise ValueError(f"{directory / PLAN} is damaged: {error}") from error

    def write(self, directory: Path) -> None:
        """Stores the plan in the directory, which is made."""
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(directory / PLAN, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")

    @property
    def is_of_returns(self) -> bool:
        """Whether the scores are returns, as the scales and published scores of suites are."""
        return self.metric.rpartition("/")[2].startswith(("episode_reward_", "episode_return_"))

    def read_suite(self) -> Suite:
        """The suite."""
        return read_suite(self.suite)


def algorithm_folder(directory: Path, algorithm: str) -> Path:
    """The directory of an algorithm's runs."""
    return directory / file_name(algorithm)


def task_folder(directory: Path, algorithm: str, task: str, first_seed: int | None = None) -> Path:
    """The directory of the seeds of an algorithm on a task; of seeds that come later, with the first of them."""
    name = file_name(label(task))
    return algorithm_folder(directory, algorithm) / (name if first_seed is None else f"{name}_from_{first_seed}")


def task_folders(directory: Path, algorithm: str, task: str) -> list[Path]:
    """The directories of the seeds of an algorithm on a task: TASK, and TASK_from_N with seeds that came later."""
    plain = task_folder(directory, algorithm, task)
    of_task = re.compile(rf"{re.escape(plain.name)}(_from_\d+)?")
    return sorted(path for path in plain.parent.glob("*") if path.is_dir() and of_task.fullmatch(path.name))


def runs_of(directory: Path, algorithm: str, task: str, seeds: Sequence[int]) -> dict[int, Path]:
    """Directories of the runs that have results, by seed."""
    places = {
        int(match[1]): path
        for folder in task_folders(directory, algorithm, task)
        for path in folder.iterdir()
        if (match := _OF_SEED.fullmatch(path.name)) and (path / "result.json").is_file()
    }
    return {seed: places[seed] for seed in seeds if seed in places}
