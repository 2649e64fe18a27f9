"""Event loop of an experiment: waits for answers, reports them to trials.py, and carries its instructions out.

One thread, one wait. Everything that must survive the driver is in the journal (experiment/directory.py) before
anything follows from it.
"""

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rllib.errors import TuneError
from rllib.runs.files import ResultFiles
from rllib.runs.safe_files import is_of_full_disk
from rllib.tune.experiment import files as trial_files
from rllib.tune.experiment.callbacks import Callbacks
from rllib.tune.experiment.directory import ExperimentDirectory
from rllib.tune.experiment.spec import ExperimentSpec
from rllib.tune.experiment.trial import Trial
from rllib.tune.running import instructions
from rllib.tune.running.pool import TrialPool
from rllib.tune.running.trials import INTERRUPTED_CLOSE_S, Trials
from rllib.tune.trainables.checkpoint import remove_temporaries
from runtime.errors import RuntimeFailure

# Longest time in seconds between two looks at clocks (reports, time limits, Ctrl-C).
_TICK_S = 0.2


class TrialRunner:
    """Runs trials until there are no more.

    Args:
        directory: directory of the experiment, open.
        pool: of processes.
        decided: the trials, and the decisions about them.
        callbacks: hooks of the user, and the reporter.
        spec: the experiment's settings.

    Attributes:
        trials: all trials, in the order of creation.
        interrupted: whether Ctrl-C ended it.
        is_running: whether it is running them.
    """

    def __init__(
        self,
        directory: ExperimentDirectory,
        pool: TrialPool,
        decided: Trials,
        callbacks: Callbacks,
        spec: ExperimentSpec,
    ):
        self.directory, self.trials = directory, decided.trials
        self.interrupted = self.is_running = False
        self._pool, self._decided, self._callbacks, self._spec = pool, decided, callbacks, spec
        self._files: dict[str, ResultFiles] = {}
        self._began = time.monotonic()
        self._carry_out_by: dict[type, Callable] = {
            instructions.Start: self._start,
            instructions.Ask: self._ask,
            instructions.Leave: self._leave,
            instructions.Record: directory.journal.append,
            instructions.WriteResult: lambda trial, result: self._files[trial.trial_id].on_result(result),
            instructions.WriteConfig: trial_files.write_config,
            instructions.WriteError: trial_files.write_error,
            instructions.WriteText: directory.write_text,
            instructions.RollBack: lambda trial: decided.rolled_back(trial, *trial_files.roll_back(trial)),
            instructions.Adopt: lambda trial, source, config: decided.adopted(
                trial, trial_files.adopt(trial, source), config
            ),
            instructions.Remove: trial_files.remove_checkpoint,
            instructions.CallHook: lambda hook, trial, more: callbacks.call(hook, trial=trial, **more),
        }

    def run(self, interrupts: "Interrupts | None" = None, patience_s: float = INTERRUPTED_CLOSE_S) -> None:
        """Runs the experiment to its end.

        Args:
            interrupts: signals that interrupt it; None: Ctrl-C.
            patience_s: seconds that each trial then has to finish its step and to save.

        Raises:
            KeyboardInterrupt: after Ctrl-C, when all files are complete.
            TuneError: if the experiment cannot write its files, for instance on a full disk.
            the trial's own exception: with fail_fast="raise".
            whatever a callback, stop function, searcher or scheduler raises.
        """
        self.is_running = True
        try:
            self._callbacks.setup(
                stop=self._spec.stop,
                num_samples=self._spec.num_samples,
                total_num_samples=self._decided.verdicts.total_samples(self._spec.num_samples),
                time_budget_s=self._spec.time_budget_s,
            )
            self._happened()  # instructions of a resumed experiment
            self.directory.snapshot(self._state, now=True)
            with interrupts or Interrupts() as interrupts:
                self._happened(self._decided.begin)
                while not self._decided.is_over:
                    if interrupts.seen and not self.interrupted:
                        self.interrupted = True
                        self._happened(self._decided.interrupt, patience_s)
                    self._step()
                self.interrupted = interrupts.seen is not None
            # Not after an error, which may have come between a record of the journal and its consequences.
            self.directory.snapshot(self._state, now=True)
        except OSError as error:
            self._pool.close()
            if not _is_of_files(error, self.directory.path):
                raise
            finished = sum(trial.is_finished for trial in self.trials)
            kept = f"{finished} of its trials have ended, and their results are kept. "
            raise TuneError(what_happened(error, self.directory.path, kept)) from error
        except BaseException:
            self._pool.close()
            raise
        finally:
            try:
                self._callbacks.call("on_experiment_end")
                self._callbacks.report(self.status, done=True)
            finally:
                self.is_running = False
                self._pool.close()
                self._close_files()
                self.directory.close()
        if self.interrupted:
            raise KeyboardInterrupt

    def _step(self) -> None:
        """One round: starts trials that fit, and processes answers."""
        decided = self._decided
        self._callbacks.round += 1
        unanswered_s = {} if self._spec.stop.time_limit_s is None else self._pool.unanswered_s()
        self._happened(decided.tick, time.monotonic() - self._began, unanswered_s)
        if not decided.running:
            return
        self._callbacks.call("on_step_begin")
        for trial, answer, failure in self._pool.answers(_TICK_S):
            if failure is None:
                self._happened(decided.answered, trial, answer)
            else:
                self._happened(self._failed, trial, failure)
        self.directory.journal.sync()
        self.directory.snapshot(self._state)
        self._callbacks.call("on_step_end")
        self._callbacks.report(self.status)

    def _happened(self, event: Callable[..., None] | None = None, *arguments) -> None:
        """Reports an event to the trials, and carries out their instructions, even if the event has raised an error."""
        try:
            if event is not None:
                event(*arguments)
        finally:
            while instructions := self._decided.take():
                for instruction in instructions:
                    self._carry_out_by[type(instruction)](*instruction)
        failed = self._decided.first_failed
        if failed is not None and self._spec.failures.fail_fast == "raise":
            raise failed.exception

    # ------------------------------------------------------------------ instructions

    def _start(self, trial: Trial, restore: str | None) -> None:
        remove_temporaries(trial.logdir)  # here: a process that starts would remove what the driver is copying
        self._files[trial.trial_id] = ResultFiles(Path(trial.logdir))
        self._pool.start(trial, restore)

    def _ask(self, trial: Trial, what: str, arguments: tuple) -> None:
        try:
            self._pool.ask(trial, what, arguments)
        except RuntimeFailure as failure:
            self._failed(trial, failure)

    def _failed(self, trial: Trial, failure: RuntimeFailure) -> None:
        """A trial has raised, or its process has died."""
        raised = getattr(failure, "failure", None)
        text = raised.traceback if raised else "".join(traceback.format_exception_only(failure)).rstrip()
        self._decided.failed(trial, getattr(failure, "cause", None) or failure, text)

    def _leave(self, trial: Trial, in_order: bool) -> None:
        if files := self._files.pop(trial.trial_id, None):
            files.close()
        self._pool.leave(trial, in_order)

    def _close_files(self) -> None:
        """Closes the files of trials that an error has left running."""
        with ExitStack() as stack:
            while self._files:
                stack.callback(self._files.popitem()[1].close)

    def _state(self) -> dict[str, Any]:
        """What is restored in an experiment that is resumed, in addition to the trials."""
        return {**self._decided.get_state(), "callbacks": self._callbacks.get_state()}

    def status(self) -> dict[str, Any]:
        """State of the experiment for reporters, in addition to the trials."""
        return {
            "scheduler": self._decided.verdicts.scheduler.debug_string(),
            "used": dict(self._decided.used),
            "total": dict(self._decided.total),
            "directory": str(self.directory.path),
            "elapsed_s": time.monotonic() - self._began,
        }


class Interrupts:
    """Context in which the first Ctrl-C sets `seen`, and only the second raises KeyboardInterrupt.

    It works in the main thread, where Python handles signals, and for signals that are not ignored (as SIGINT is for
    background jobs of scripts). A second SIGTERM changes nothing: managers of services and queues send it to all
    processes of a job, and one of these passes it on to another. Who cannot wait sends SIGINT or SIGKILL.

    Args:
        signals: signals that count; SIGINT by default.
        on_first: called at the first signal.

    Attributes:
        seen: number of the first signal; None: there was none.
    """

    def __init__(self, *signals: signal.Signals, on_first: Callable[[], None] | None = None):
        self.seen: int | None = None
        self._signals, self._on_first = signals or (signal.SIGINT,), on_first

    def __enter__(self):
        is_main = threading.current_thread() is threading.main_thread()
        signals = [number for number in self._signals if is_main and signal.getsignal(number) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._handle) for number in signals}
        return self

    def __exit__(self, *exc_info) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame) -> None:
        if self.seen is not None:
            if number != signal.SIGTERM:
                raise KeyboardInterrupt
            return
        self.seen = number
        if self._on_first:
            self._on_first()


def _is_of_files(error: OSError, path: Path) -> bool:
    """Whether the error comes from the experiment's own files in `path`.

    Notes mark errors of a user's callback. A write to an open file fails without a name, but with a number; errors
    of network libraries have neither.
    """
    is_the_systems = error.errno is not None and not isinstance(error, (ConnectionError, TimeoutError))
    if getattr(error, "__notes__", None) or not is_the_systems:
        return False
    return not isinstance(error.filename, (str, bytes)) or Path(os.fsdecode(error.filename)).is_relative_to(path)


@contextmanager
def first_writes(path: Path, is_resumed: bool) -> Iterator[None]:
    """Turns an error of the disk, before an experiment runs, into that of one that runs.

    Args:
        path: path of the experiment's directory.
        is_resumed: whether there is an experiment.

    Raises:
        TuneError: if the disk is full.
    """
    try:
        yield
    except OSError as error:
        if not is_of_full_disk(error) or getattr(error, "__notes__", None):  # which a user's function has
            raise
        raise TuneError(what_happened(error, path, is_resumed=is_resumed)) from error


def what_happened(error: OSError, path: Path, kept: str = "", is_resumed: bool = True) -> str:
    """Message about files of an experiment that cannot be written.

    Args:
        error: of the system.
        path: path of the experiment's directory.
        kept: sentence on what is kept, with a space behind it.
        is_resumed: whether there is an experiment to resume.
    """
    what = "the disk is full" if is_of_full_disk(error) else f"{error}"
    resume = " with resume=True" if is_resumed else ""
    return f"the experiment in {path} cannot write its files: {what}. {kept}Make room, then run it again{resume}."
