"""Calls for functions that Tune runs: report, checkpoints, and the trial's id, name and directory.

All forms of report are one function: `tune.report(loss=1.0)`, `tune.report({"loss": 1.0}, checkpoint=...)`,
`session.report({...})`, `tune.track.log(loss=1.0)` and the `reporter` argument of Ray 0.8.

The function runs in a thread of the trial's process, and only while the experiment wants its next result: `report`
hands the result over and waits. So the function of a stopped or paused trial is blocked in its report.
"""

import logging
import os
import queue
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rllib.compat.names import absent
from rllib.did_you_mean import explains
from rllib.notices import log_once
from rllib.runs.files import ResultFiles, write_params
from rllib.runs.safe_files import numbered
from rllib.storage.local_path import local_path
from rllib.tune.trainables.checkpoint import Checkpoint, temporary_directory

logger = logging.getLogger(__name__)


class StopFunction(BaseException):
    """Raised by `report` in a function whose trial has ended; `except Exception` does not catch it."""


@explains(absent.TRIAL_CONTEXT)
@dataclass
class TrialContext:
    """Identity and place of a trial.

    Attributes:
        trial_id, trial_name, trial_dir: id, name and directory of the trial.
        experiment_name: name of its experiment.
        experiment_tag: number of the trial, and chosen values.
        resources: resource -> quantity for the trial's own process.
        load_user_code: whether the trial may unpickle checkpoints of other runs.
    """

    trial_id: str
    trial_name: str
    trial_dir: str
    experiment_name: str = ""
    experiment_tag: str = ""
    resources: dict = field(default_factory=dict)
    load_user_code: bool = False

    def get_trial_id(self) -> str:
        return self.trial_id

    def get_trial_name(self) -> str:
        return self.trial_name

    def get_trial_dir(self) -> str:
        """The trial's directory."""
        return self.trial_dir

    def get_experiment_name(self) -> str:
        return self.experiment_name

    def get_trial_resources(self) -> dict:
        """Resources of the trial's own process."""
        return dict(self.resources)

    def get_world_size(self) -> int:
        """1: a trial is one process."""
        return 1

    def get_world_rank(self) -> int:
        """0: a trial is one process."""
        return 0

    get_local_rank = get_node_rank = get_world_rank
    get_local_world_size = get_world_size


# Ray's name.
TuneContext = TrialContext


class FunctionSession:
    """Runs a function step by step: each step lasts until its next report.

    Args:
        body: called without arguments in a thread; its return value is the final result.
        restored: directory of the checkpoint to start from; None: from the beginning.
    """

    def __init__(self, body, restored: str | None):
        self.restored = restored
        self.checkpoint: Path | None = None  # written by the function since its last report
        self._body = body
        self._reports: queue.SimpleQueue = queue.SimpleQueue()
        self._may_go_on = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._stopping = False

    def step(self) -> tuple[str, Any, Any]:
        """Lets the function run to its next report.

        Returns:
            (kind, value, checkpoint): ("report", metrics, ...) or ("end", return value, ...), with the directory of the
            checkpoint that the function has saved since its last report, or None.

        Raises:
            the function's own exception.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="trial", daemon=True)
            self._thread.start()
        else:
            self._may_go_on.release()
        kind, value, checkpoint = self._reports.get()
        if kind == "error":
            raise value
        return kind, value, checkpoint

    def stop(self, timeout_s: float) -> bool:
        """Ends the function at its report; returns whether it has ended."""
        self._stopping = True
        self._may_go_on.release()
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()

    def report(self, metrics: dict[str, Any], checkpoint: Path | None) -> None:
        """Called in the function's thread: hands a result over and waits until the next one is wanted."""
        own, self.checkpoint = self.checkpoint, None
        self._reports.put(("report", metrics, checkpoint or own))
        self._may_go_on.acquire()
        if self._stopping:
            raise StopFunction

    def _run(self) -> None:
        try:
            returned = self._body()
            self._reports.put(("end", returned, self.checkpoint))
        except StopFunction:
            self._reports.put(("end", None, None))
        except BaseException as error:
            self._reports.put(("error", error, None))


_context: TrialContext | None = None
_session: FunctionSession | None = None
_has_warned = False


def activate(context: TrialContext | None, session: FunctionSession | None) -> None:
    """Sets the trial that runs in this process from now on."""
    global _context, _session
    _context, _session = context, session


def report(metrics: Mapping[str, Any] | float | None = None, *, checkpoint: Checkpoint | None = None, **more) -> None:
    """Hands a result to the experiment, and waits until the next one is wanted.

    Args:
        metrics: name -> value, which may be nested; a bare number is called `_metric`.
        checkpoint: returned by `get_checkpoint()` when the trial continues.
        more: further metrics.

    Outside an experiment, where the function was called by hand, it does nothing but log a warning once.

    Raises:
        TypeError: if the metrics are no dict.
    """
    global _has_warned
    if isinstance(metrics, (int, float)):
        metrics = {"_metric": metrics}
    if metrics is not None and not isinstance(metrics, Mapping):
        raise TypeError(f"report takes a dict of metrics, or them by name, but got {metrics!r:.80}")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"report(checkpoint=...) takes a tune.Checkpoint, but got {checkpoint!r:.80}")
    if _session is None:
        if not _has_warned:
            _has_warned = True
            logger.warning("tune.report was called outside an experiment, so the result is dropped")
        return
    kept = None
    if checkpoint is not None:
        kept = temporary_directory(_context.trial_dir)
        shutil.copytree(checkpoint.path, kept, dirs_exist_ok=True)
    _session.report({**(metrics or {}), **more}, kept)


class StatusReporter:
    """The `reporter` argument of a function `f(config, reporter)`."""

    def __call__(self, metrics: Mapping[str, Any] | None = None, **more) -> None:
        report(metrics, **more)

    logdir = property(lambda self: get_trial_dir())
    trial_id = property(lambda self: get_trial_id())
    trial_name = property(lambda self: get_trial_name())


class _TrackedRun:
    """A session of `track.init` outside an experiment, which writes results to files in a new directory.

    Attributes:
        restored, checkpoint: None, for the interface of FunctionSession.
    """

    restored = checkpoint = None

    def __init__(self, directory: Path, config: Mapping[str, Any]):
        directory.mkdir(parents=True)
        write_params(directory, config)
        self._files = ResultFiles(directory)
        self._began = time.time()
        self._iteration = 0

    def report(self, metrics: dict[str, Any], checkpoint: Path | None) -> None:
        """Writes a result; a checkpoint stays where it was written."""
        self._iteration += 1
        counted = {"training_iteration": self._iteration, "time_total_s": time.time() - self._began}
        self._files.on_result({**counted, **metrics})

    def close(self) -> None:
        self._files.close()


class Track:
    """`tune.track` of Ray 0.8.

    Inside a trial `init` and `shutdown` do nothing: logged results go to the experiment. Outside one, `init` makes a
    directory DIR/EXPERIMENT/TRIAL, to which `log` writes until `shutdown`.
    """

    def init(
        self,
        experiment_name: str = "track",
        trial_name: str | None = None,
        trial_config: Mapping[str, Any] | None = None,
        log_dir: str | Path | None = None,
        ignore_reinit_error: bool = True,
        **other_eras,
    ) -> "Track":
        """Starts a session.

        Args:
            experiment_name: name of the trials' common directory.
            trial_name: name of this trial's directory; the time by default.
            trial_config: written to params.json.
            log_dir: directory in which the experiment's lies; ./results by default.
            ignore_reinit_error: a second `init` does nothing; False: it is a RuntimeError.
            other_eras: arguments of Ray 0.8 without effect here.
        """
        if _session is not None:
            if isinstance(_session, _TrackedRun) and not ignore_reinit_error:
                raise RuntimeError("tune.track.init was called before; call tune.track.shutdown() first")
            return self
        now = datetime.now()
        name = trial_name or f"{now:%Y-%m-%d_%H-%M-%S}-{now.microsecond:06}"
        parent = local_path(log_dir or "results") / experiment_name
        directory = next(path for path in numbered(parent / name) if not path.exists())
        activate(TrialContext(directory.name, directory.name, str(directory), experiment_name),
                 _TrackedRun(directory, trial_config or {}))  # fmt: skip
        return self

    def shutdown(self) -> None:
        """Ends the session of `init`; inside a trial it does nothing."""
        if isinstance(_session, _TrackedRun):
            _session.close()
            activate(None, None)

    def __enter__(self) -> "Track":
        return self

    def __exit__(self, *exc_info) -> None:
        self.shutdown()

    def log(self, **metrics) -> None:
        report(metrics)

    @property
    def trial_dir(self) -> str:
        """The trial's directory."""
        return get_trial_dir()


track = Track()


@contextmanager
def checkpoint_dir(step: int | None = None) -> Iterator[str]:
    """Context with a directory to write a checkpoint into; it belongs to the next report.

    Args:
        step: accepted; checkpoints are numbered by training_iteration.
    """
    if step is not None:
        log_once("checkpoint_dir(step)", "checkpoint_dir: step has no effect: checkpoints are numbered by iterations")
    if _session is None:
        logger.warning("tune.checkpoint_dir was called outside an experiment, so the checkpoint is thrown away")
    directory = superfluous = temporary_directory(os.getcwd() if _session is None else _context.trial_dir)
    try:
        yield str(directory)
        if _session is not None:
            superfluous, _session.checkpoint = _session.checkpoint, directory
    finally:
        if superfluous is not None:
            shutil.rmtree(superfluous, ignore_errors=True)


def get_checkpoint() -> Checkpoint | None:
    """The checkpoint from which this trial starts; None: from the beginning."""
    if _session is None or _session.restored is None:
        return None
    return Checkpoint(_session.restored, _context.load_user_code)


def get_context() -> TrialContext:
    """Identity and place of the trial.

    Raises:
        RuntimeError: outside a trial.
    """
    if _context is None:
        raise RuntimeError("there is no trial here: this is known only inside a trainable that Tune runs")
    return _context


def get_trial_id() -> str:
    """Id of the trial that runs here; RuntimeError outside one."""
    return get_context().trial_id


def get_trial_name() -> str:
    """Name of the trial that runs here; RuntimeError outside one."""
    return get_context().trial_name


def get_trial_dir() -> str:
    """Directory of the trial that runs here; RuntimeError outside one."""
    return get_context().trial_dir


def get_experiment_name() -> str:
    """Name of the experiment that runs here; RuntimeError outside one."""
    return get_context().experiment_name


def get_trial_resources() -> dict:
    """Resources of the trial's own process; RuntimeError outside one."""
    return get_context().get_trial_resources()
