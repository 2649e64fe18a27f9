"""Callbacks and loggers that write a trial's results to files and trackers, under their names in Ray."""

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from rllib.runs.entries import plain
from rllib.runs.events import TensorBoardLogger
from rllib.runs.files import CsvLogger, JsonLogger, write_params
from rllib.runs.trackers import TRACKERS, check_package
from rllib.tune.experiment.callbacks import Callback, LoggerCallback
from rllib.tune.experiment.trial import Trial

logger = logging.getLogger(__name__)


class _OpenForEachTrial(LoggerCallback):
    """Base of callbacks that keep something open for each trial: until it ends, or the experiment before it."""

    def __init__(self):
        self._open_for: dict[str, Any] = {}  # trial id -> logger or run

    def on_experiment_end(self, trials, **info) -> None:
        """Ends what is open for trials that have not ended, after Ctrl-C for instance, even if one of them raises."""
        with ExitStack() as stack:
            for trial in trials:
                if trial.trial_id in self._open_for:
                    stack.callback(self.log_trial_end, trial, failed=True)


class FileLoggerCallback(_OpenForEachTrial):
    """Base of the callbacks below.

    An experiment writes result.json and progress.csv of every trial, and event files unless tensorboard=False is given.
    These callbacks write nothing then; only methods that a subclass adds take effect.

    Attributes:
        experiment_writes: whether the experiment writes the file; `tune.run` sets it.
    """

    experiment_writes = False
    _open: ClassVar[Callable[[Path], Any]]

    def log_trial_start(self, trial) -> None:
        """Opens the file, to which later results are appended."""
        self.log_trial_end(trial)
        if not self.experiment_writes:
            Path(trial.logdir).mkdir(parents=True, exist_ok=True)
            self._open_for[trial.trial_id] = self._open(Path(trial.logdir))

    def log_trial_result(self, iteration: int, trial, result) -> None:
        if trial.trial_id not in self._open_for:
            self.log_trial_start(trial)
        if trial.trial_id in self._open_for:
            self._open_for[trial.trial_id].on_result(result)

    def log_trial_end(self, trial, failed: bool = False) -> None:
        if trial.trial_id in self._open_for:
            self._open_for.pop(trial.trial_id).close()


class JsonLoggerCallback(FileLoggerCallback):
    """Writes result.json, a line for each result, and params.json."""

    _open = JsonLogger

    def log_trial_start(self, trial) -> None:
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
        if trial.trial_id in self._open_for and trial.evaluated_params:
            self._open_for[trial.trial_id].add_hparams(trial.evaluated_params, trial.last_result)
        super().log_trial_end(trial, failed)


class _TrackerCallback(_OpenForEachTrial):
    """Base of the callbacks below: one run of the tracker for each trial, continued when the trial continues.

    Runs of trials that are unfinished at the end of the experiment end as failed. A fault of the tracker is a warning,
    unless it has never begun a run: then it ends the experiment, at its first trial.

    Args:
        options: options of the run.

    Raises:
        ImportError: if the tracker's package is not installed.
    """

    tracker: ClassVar[str]

    def __init__(self, **options):
        super().__init__()
        check_package(self.tracker)
        self._options, self._has_begun = options, False

    def log_trial_start(self, trial) -> None:
        if trial.trial_id in self._open_for:
            return
        try:
            run = TRACKERS[self.tracker](trial.config, str(trial), **self._options)
        except Exception as error:  # any error of the tracker's library
            if not self._has_begun:
                raise
            run = None
            logger.warning("%s: no run could be made for %s, which is not logged to it: %s: %s", self.tracker, trial,
                           type(error).__name__, error)  # fmt: skip
        self._has_begun = True
        self._open_for[trial.trial_id] = run

    def log_trial_result(self, iteration: int, trial, result) -> None:
        self.log_trial_start(trial)
        if (run := self._open_for[trial.trial_id]) is not None:
            run.on_result(result)

    def log_trial_end(self, trial, failed: bool = False) -> None:
        if (run := self._open_for.pop(trial.trial_id, None)) is not None:
            run.close(failed)


class WandbLoggerCallback(_TrackerCallback):
    """Logs each trial as a run of Weights & Biases.

    Args:
        project, group, options: arguments of wandb.init.
    """

    tracker = "wandb"

    def __init__(self, project: str | None = None, group: str | None = None, **options):
        super().__init__(project=project, group=group, **options)


class MLflowLoggerCallback(_TrackerCallback):
    """Logs each trial as a run of MLflow.

    Args:
        tracking_uri: of the server, or a file's; None: what MLFLOW_TRACKING_URI says.
        experiment_name: made if there is none.
        tags: tags of the runs.
    """

    tracker = "mlflow"

    def __init__(
        self,
        tracking_uri: str | None = None,
        experiment_name: str = "rllib",
        tags: Mapping[str, str] | None = None,
    ):
        super().__init__(tracking_uri=tracking_uri, experiment_name=experiment_name, tags=tags)


class TrackioLoggerCallback(_TrackerCallback):
    """Logs each trial as a run of Trackio.

    Args:
        options: arguments of trackio.init, such as project, group and space_id.
    """

    tracker = "trackio"


class CometLoggerCallback(_TrackerCallback):
    """Logs each trial as an experiment of Comet.

    Args:
        online: False writes archives, which `comet upload` sends.
        tags: tags of the experiments.
        options: further arguments of comet_ml.start, such as project_name and workspace.
    """

    tracker = "comet"

    def __init__(self, online: bool = True, tags: Sequence[str] | None = None, **options):
        super().__init__(online=online, tags=tags, **options)


class ClearMLLoggerCallback(_TrackerCallback):
    """Logs each trial as a task of ClearML.

    Args:
        tags: tags of the tasks.
        options: further arguments of Task.create, such as project_name and task_type.
    """

    tracker = "clearml"

    def __init__(self, tags: Sequence[str] | None = None, **options):
        super().__init__(tags=tags, **options)


# ---------------------------------------------------------------------- of Ray 0.8, before there were callbacks

# result.json, progress.csv and events are written in any case.
DEFAULT_LOGGERS: tuple = ()
_ALWAYS_THERE = (JsonLogger, CsvLogger, TensorBoardLogger)


class Logger:
    """Base class of `tune.run(loggers=[MyLogger])`: a subclass defines `on_result`, and `_init`, `close` or `flush`.

    A logger class is made once for each trial, as `MyLogger(config, logdir)` or `MyLogger(config, logdir, trial)`, and
    gets its results. New code writes a LoggerCallback.

    Args:
        config: the trial's configuration.
        logdir: the trial's directory.
        trial: the trial.
    """

    def __init__(self, config: dict[str, Any], logdir: str, trial: Trial | None = None):
        self.config, self.logdir, self.trial = config, logdir, trial
        self._init()

    def _init(self) -> None:
        """Called once, before the first result."""

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Called with every result."""
        raise NotImplementedError(f"{type(self).__name__} needs a method on_result(result)")

    def update_config(self, config: dict[str, Any]) -> None:
        """Called when the trial continues with another configuration."""
        self.config = config

    def flush(self) -> None:
        """Called after every result."""

    def close(self) -> None:
        """Called when the trial ends."""


class LoggersCallback(Callback):
    """Makes loggers for each trial and passes results on to them.

    Args:
        classes: called with the trial's config and directory, and the trial where they take a third argument.
    """

    def __init__(self, classes: Sequence):
        self._classes = list(classes)
        self._loggers: dict[str, list] = {}

    def on_trial_start(self, iteration, trials, trial, **info) -> None:
        """Makes the loggers; for a trial that starts again, reports its configuration, which may have changed."""
        if trial.trial_id not in self._loggers:
            self._loggers[trial.trial_id] = [_made(cls, trial) for cls in self._classes]
        else:
            self._call(trial, "update_config", trial.config)

    def on_trial_result(self, iteration, trials, trial, result, **info) -> None:
        self._call(trial, "on_result", result)
        self._call(trial, "flush")

    def on_trial_complete(self, iteration, trials, trial, **info) -> None:
        self._call(trial, "close")
        self._loggers.pop(trial.trial_id, None)

    on_trial_error = on_trial_complete

    def on_experiment_end(self, trials, **info) -> None:
        for trial in trials:
            self.on_trial_complete(0, trials, trial)

    def _call(self, trial: Trial, method: str, *arguments) -> None:
        for logger in self._loggers.get(trial.trial_id, ()):
            if hasattr(logger, method):
                getattr(logger, method)(*arguments)


def callbacks_of(loggers) -> list[Callback]:
    """The callbacks of `loggers=`: callbacks as they are, classes through a LoggersCallback.

    Raises:
        TypeError: for anything else.
    """
    callbacks, classes = [], []
    for each in loggers or []:
        if isinstance(each, Callback):
            callbacks.append(each)
        elif not callable(each) or (isinstance(each, type) and not hasattr(each, "on_result")):
            raise TypeError(
                "loggers takes classes with a method on_result(result), made as Class(config, logdir), or Callback "
                f"objects, but got {each!r:.80}"
            )
        elif each not in _ALWAYS_THERE:
            classes.append(each)
    return [*callbacks, *([LoggersCallback(classes)] if classes else [])]


def _made(cls, trial: Trial):
    arguments = (trial.config, trial.logdir, trial)
    try:
        inspect.signature(cls).bind(*arguments)
    except (TypeError, ValueError):  # takes no trial, or has no signature
        return cls(*arguments[:2])
    return cls(*arguments)


def pretty_print(result: Mapping[str, Any], exclude: Sequence[str] | None = None) -> str:
    """A result as YAML, as Ray's function of this name prints it; without its config and its histories of episodes.

    Args:
        result: result of `train`, or of a trial.
        exclude: further keys that are left out.
    """
    import yaml

    left_out = {"config", "hist_stats", *(exclude or ())}
    shown = {key: value for key, value in result.items() if key not in left_out and value is not None}
    return yaml.safe_dump(_readable(shown), default_flow_style=False)


def _readable(value: Any) -> Any:
    """The value in types of YAML."""
    if isinstance(value, Mapping):
        return {str(key): _readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_readable(item) for item in value]
    return value if value is None or type(value) in (bool, int, float, str) else _readable(plain(value))
