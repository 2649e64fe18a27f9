"""The trials of an experiment as they stand, in memory, in the journal and in their files: one place changes all three.

Nothing is asked of a process here, and nothing is decided.
"""

import itertools
import logging
import shutil
import traceback
from collections.abc import Sequence
from pathlib import Path

from rllib.tune import trial_files
from rllib.tune.experiment import ExperimentDirectory
from rllib.tune.experiment_callbacks import Observers
from rllib.tune.trial import PENDING, RUNNING, Trial, TrialCheckpoint
from rllib.tune.trial_checkpoint import CheckpointKeeper

logger = logging.getLogger(__name__)


class TrialRecords:
    """Keeps the trials.

    Args:
        directory: of the experiment, open.
        keeper: decides which checkpoints stay.
        observers: hear of checkpoints.

    Attributes:
        trials: all so far, in the order of creation.
        waiting: trial id -> trial, of those that are PENDING or PAUSED, in the order in which they came to be so.
    """

    def __init__(self, directory: ExperimentDirectory, keeper: CheckpointKeeper, observers: Observers):
        self.trials: list[Trial] = observers.trials
        self.waiting: dict[str, Trial] = {}
        self._dirnames: set[str] = set()
        self.directory = directory
        self._keeper, self._observers = keeper, observers

    # ------------------------------------------------------------------ status

    def add(self, trial: Trial) -> None:
        """A trial joins the experiment, in a directory that no other has."""
        trial.dirname = self._free(trial.dirname, trial.index)
        trial_files.write_config(trial)
        self.directory.trial_added(trial)
        self._join(trial)
        self.waiting[trial.trial_id] = trial

    def take_up(self, trial: Trial, runs_on: bool) -> None:
        """A trial of the journal; one that runs on does so from its last checkpoint."""
        self._join(trial)
        if runs_on:
            trial.status, trial.stopped_by, trial.error, trial.num_failures = PENDING, None, None, 0
            trial_files.roll_back(trial)
            self.waiting[trial.trial_id] = trial

    def _join(self, trial: Trial) -> None:
        self.trials.append(trial)
        self._dirnames.add(trial.dirname)

    def _free(self, dirname: str, index: int) -> str:
        """This name of a directory, or the first with a number behind it that no trial has."""
        numbered = (f"{dirname}_{number}" for number in itertools.count(index))
        return next(name for name in itertools.chain([dirname], numbered) if name not in self._dirnames)

    def queue_up(self, trials: Sequence[Trial]) -> None:
        """Those of them that wait do so in this order, after all others."""
        for trial in trials:
            if trial.trial_id in self.waiting:
                self.waiting[trial.trial_id] = self.waiting.pop(trial.trial_id)

    def started(self, trial: Trial) -> None:
        """A trial runs."""
        del self.waiting[trial.trial_id]
        trial.status = RUNNING
        self.directory.status_changed(trial)

    def stands_still(self, trial: Trial, status: str) -> None:
        """A trial is PENDING or PAUSED."""
        trial.status = status
        self.waiting[trial.trial_id] = trial
        self.directory.status_changed(trial)

    def finished(self, trial: Trial, status: str, reason: str | None) -> None:
        """A trial has ended for good."""
        self.waiting.pop(trial.trial_id, None)
        trial.status, trial.stopped_by = status, reason
        trial.settle()
        self.directory.status_changed(trial)

    def failed(self, trial: Trial, error: BaseException, tries_again: bool, allowed: int) -> None:
        """A trial has raised, or its process has died; one that tries again goes back to its last checkpoint.

        Args:
            trial: which.
            error: as it came.
            tries_again: whether it does; else it is still to be `finished`.
            allowed: how often it may fail; -1: always.
        """
        trial.num_failures += 1
        trial.exception = getattr(error, "cause", None) or error
        failure = getattr(error, "failure", None)
        trial.error = failure.traceback if failure else "".join(traceback.format_exception_only(error)).rstrip()
        trial_files.write_error(trial)
        if tries_again:
            logger.warning("%s has failed (%d of at most %s times) and starts again from %s: %s", trial,
                           trial.num_failures, allowed if allowed >= 0 else "any number of",
                           trial.checkpoint.name if trial.checkpoint else "the beginning",
                           trial.error.splitlines()[-1])  # fmt: skip
            trial_files.roll_back(trial)
            self.stands_still(trial, PENDING)

    # ------------------------------------------------------------------ configuration and checkpoints

    def configured(self, trial: Trial, config: dict, adopted: TrialCheckpoint | None = None) -> None:
        """A trial has another configuration, and perhaps a checkpoint that it has taken over."""
        trial.config = config
        self.directory.config_changed(trial, adopted)
        trial_files.write_config(trial)

    def adopt(self, trial: Trial, source: Trial, config: dict) -> None:
        """A trial takes over the newest checkpoint of another one, with a new configuration."""
        copied = self._keeper.adopt(trial, source)
        self.add_checkpoint(trial, copied)
        self.configured(trial, config, copied)

    def add_checkpoint(self, trial: Trial, checkpoint: TrialCheckpoint) -> None:
        """A checkpoint lies in the trial's directory; those that it makes superfluous go."""
        trial.checkpoints.append(checkpoint)
        self.directory.checkpoint_added(trial, checkpoint)
        self._observers.hear("on_checkpoint", trial=trial, checkpoint=checkpoint)
        for old in self._keeper.superfluous(trial):
            trial.checkpoints.remove(old)
            self.directory.checkpoint_removed(trial, old)
            shutil.rmtree(trial.checkpoint_path(old), ignore_errors=True)

    @staticmethod
    def place_for_checkpoint(trial: Trial) -> str:
        """Directory of the checkpoint of its last result."""
        return str(Path(trial.logdir) / f"checkpoint_{trial.last_result.get('training_iteration', 0):06d}")

    @staticmethod
    def is_saved(trial: Trial) -> bool:
        """Whether there is a checkpoint of its last result."""
        checkpoint = trial.checkpoint
        return bool(checkpoint) and checkpoint.iteration == trial.last_result.get("training_iteration")
