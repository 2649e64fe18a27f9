"""Directories of runs in tensorboard_log: tensorboard_log/PPO_1, then PPO_2 and so on."""

import itertools
import re
from pathlib import Path
from typing import Any

from rllib.runs.run_log import hand_over
from rllib.storage.local_path import local_path


def next_directory(given: Any, algorithm: str) -> str:
    """tensorboard_log/PPO_1 for a first run, then PPO_2 and so on: each run has its own directory."""
    paths = (local_path(given) / f"{algorithm}_{number}" for number in itertools.count(1))
    return str(next(path for path in paths if not path.exists()))


def numbered_name(directory: Path) -> str | None:
    """The name before the number of a directory that `next_directory` has named; None for other directories."""
    found = re.fullmatch(r"(.+)_\d+", directory.name)
    return found and found[1]


def directory_of_learning(
    present: Path, name: str, *, is_open: bool, starts_again: bool, loaded_from: Path | None, iteration: int
) -> Path:
    """The directory of tensorboard_log that a call of `learn` writes to.

    A call that does not reset the number of steps continues in the directory of the run, or of the loaded run, unless
    results that are newer than the checkpoint would be lost there.

    Args:
        present: directory of the run.
        name: before the number of the directory.
        is_open: whether files are being written in `present`.
        starts_again: whether the call resets the number of steps.
        loaded_from: directory of the run whose checkpoint was loaded; None: it was not.
        iteration: number of iterations of the run so far.
    """
    if name != numbered_name(present) or (is_open and starts_again):
        return Path(next_directory(present.parent, name))
    saved = None if is_open or starts_again else loaded_from
    return present if saved is None or not hand_over(saved, iteration) else saved
