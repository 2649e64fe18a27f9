"""Files of the learner: the candidate's checkpoint, promoted ones, and the returns of the served policy."""

import json
import math
import os
import shutil
from pathlib import Path

from rllib.runs.files import read_results
from rllib.runs.safe_files import write_whole
from rllib.serving.learning.results import is_of_learner
from rllib.serving.learning.settings import LearningSettings
from rllib.storage.checkpoint import CheckpointError, newest_checkpoint
from rllib.storage.file_locks import sync_directory
from rllib.storage.whole import draft_beside, is_draft, move_whole, remove_abandoned, remove_whole

_FIRST = "checkpoint_000000"
_HISTORY = "returns.json"


def prepare_directory(directory: Path, checkpoint: Path) -> Path:
    """Prepares the directory of a learner, whose checkpoint_000000 is the initial policy.

    Args:
        directory: a new directory, or one of an earlier server, whose newest checkpoint the learner continues from.
        checkpoint: the initial checkpoint of a new directory.

    Returns:
        the checkpoint to serve.

    Raises:
        CheckpointError: if the directory holds other files, or cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if (newest := newest_checkpoint(directory)) is not None:
            if not all(map(is_of_learner, read_results(directory)[-1:])):
                raise CheckpointError(f"--learn-to {directory} is the directory of a training run: give a new one")
            return newest
        if not all(is_draft(each.name) for each in directory.iterdir()):
            raise CheckpointError(f"--learn-to {directory} holds other files than checkpoints: give a new directory")
        first = directory / _FIRST
        with draft_beside(first) as draft:
            shutil.copytree(checkpoint, draft, dirs_exist_ok=True)
            move_whole(draft, first)
    except OSError as error:
        raise CheckpointError(f"--learn-to {directory} cannot be written: {error.strerror}") from error
    return first


def holds_first_alone(directory: Path) -> bool:
    """Whether the directory of a learner has only the initial policy, so that nothing was learned yet."""
    return {each.name for each in directory.iterdir() if not is_draft(each.name)} <= {_FIRST}


class Progress:
    """The files of a learner.

    Args:
        settings: settings of the learner.
    """

    def __init__(self, settings: LearningSettings):
        self._settings = settings
        remove_abandoned(settings.path)
        self.drop_candidate()

    @property
    def served(self) -> Path:
        """The checkpoint that is served: the initial or the last promoted one."""
        newest = newest_checkpoint(self._settings.path)
        if newest is None:
            raise CheckpointError(f"{self._settings.path} has no checkpoint any more")
        return newest

    def promote(self) -> Path:
        """Makes the candidate the checkpoint that is served; returns its path."""
        number = int(self.served.name.removeprefix("checkpoint_")) + 1
        path = self._settings.path / f"checkpoint_{number:06d}"
        os.rename(self._settings.candidate, path)
        sync_directory(path.parent)
        return path

    def drop_candidate(self) -> None:
        """Removes the candidate, if there is one."""
        remove_whole(self._settings.candidate)

    def write_history(self, version: int, returns: list[float]) -> None:
        """Writes the returns of the policy that is served."""
        content = json.dumps({"version": version, "returns": returns})
        write_whole(self._settings.path / _HISTORY, content.encode(), is_synced=False)

    def history(self, version: int) -> list[float]:
        """Returns of the policy of this version; [] if they are not known."""
        try:
            content = json.loads((self._settings.path / _HISTORY).read_text())
            returns = [float(each) for each in content["returns"]] if content["version"] == version else []
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return []
        return returns if all(map(math.isfinite, returns)) else []
