"""Callbacks that write a trial's results to files, under the names that they have in Ray."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from rllib.tune.experiment_callbacks import LoggerCallback
from rllib.tune.loggers import CsvLogger, JsonLogger, TensorBoardLogger, flatten, write_params


class FileLoggerCallback(LoggerCallback):
    """Base of the callbacks below.

    An experiment writes result.json and progress.csv of every trial, and event files unless tensorboard=False is given.
    There these callbacks write nothing themselves, and only what a subclass adds takes effect.

    Attributes:
        experiment_writes: whether the experiment writes the file; `tune.run` sets it.
    """

    experiment_writes = False
    _open: ClassVar[Callable[[Path], Any]]

    def __init__(self):
        self._loggers: dict[str, Any] = {}

    def log_trial_start(self, trial) -> None:
        """Opens the file, at whose end later results go."""
        self.log_trial_end(trial)
        if not self.experiment_writes:
            Path(trial.logdir).mkdir(parents=True, exist_ok=True)
            self._loggers[trial.trial_id] = self._open(Path(trial.logdir))

    def log_trial_result(self, iteration: int, trial, result) -> None:
        """Writes a result."""
        if trial.trial_id not in self._loggers:
            self.log_trial_start(trial)
        if trial.trial_id in self._loggers:
            self._loggers[trial.trial_id].on_result(result)

    def log_trial_end(self, trial, failed: bool = False) -> None:
        """Closes the file."""
        if trial.trial_id in self._loggers:
            self._loggers.pop(trial.trial_id).close()


class JsonLoggerCallback(FileLoggerCallback):
    """Writes result.json, a line for each result, and params.json."""

    _open = JsonLogger

    def log_trial_start(self, trial) -> None:
        """Opens result.json and writes params.json."""
        super().log_trial_start(trial)
        if not self.experiment_writes:
            write_params(Path(trial.logdir), trial.config)


class CSVLoggerCallback(FileLoggerCallback):
    """Writes progress.csv, a row for each result."""

    _open = CsvLogger


class TBXLoggerCallback(FileLoggerCallback):
    """Writes event files for TensorBoard, and the trial's hyperparameters when it ends.

    Raises:
        ImportError: at the first trial, if tensorboardX is not installed.
    """

    _open = TensorBoardLogger

    def log_trial_end(self, trial, failed: bool = False) -> None:
        """Adds the hyperparameters and closes the file."""
        if trial.trial_id in self._loggers and trial.evaluated_params:
            metrics = {key: value for key, value in flatten(trial.last_result) if isinstance(value, (int, float))}
            self._loggers[trial.trial_id].add_hparams(trial.evaluated_params, metrics)
        super().log_trial_end(trial, failed)
