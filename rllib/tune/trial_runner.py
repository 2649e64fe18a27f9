"""The event loop of an experiment: starts trials as they fit, waits for their answers, and ends it all.

One thread, one wait. What answers mean is decided in trial_lifecycle.py; how trials stand is in trial_records.py. All
that has to survive the driver is in the journal (experiment.py) before anything follows from it.
"""

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rllib.errors import TuneError
from rllib.tune import hangs, stoppers
from rllib.tune.experiment import ExperimentDirectory
from rllib.tune.experiment_callbacks import Observers
from rllib.tune.run_settings import RunSettings
from rllib.tune.trainables import Resolved
from rllib.tune.trial import PAUSED, PENDING, RUNNING, TERMINATED, Trial
from rllib.tune.trial_checkpoint import CheckpointKeeper
from rllib.tune.trial_decisions import TrialDecisions
from rllib.tune.trial_pool import TrialPool
from rllib.tune.trial_records import TrialRecords
from rllib.tune.trials import TrialLifecycle

# The loop looks at clocks (reports, time limits, Ctrl-C) at least so often.
_TICK_S = 0.2
# How long trials may take to save themselves and end after Ctrl-C.
_INTERRUPTED_CLOSE_S = 2.5
# Configurations that are asked for ahead, so that tables show what is to come.
_PENDING_AHEAD = 8


class TrialRunner:
    """Runs trials until there are no more.

    Args:
        directory: of the experiment, open.
        trainable: what the trials run.
        pool: for them.
        searcher: suggests configurations.
        scheduler: decides which trials go on.
        settings: how trials are run.
        keeper: decides which checkpoints stay.
        observers: hear how it goes.
        make_trial: (trial_id, index, config) -> Trial.

    Attributes:
        trials: all so far, in the order of creation.
        interrupted: whether Ctrl-C ended it.
        is_function: whether the trainable is a function, which saves itself.
    """

    def __init__(
        self,
        directory: ExperimentDirectory,
        trainable: Resolved,
        pool: TrialPool,
        searcher,
        scheduler,
        settings: RunSettings,
        keeper: CheckpointKeeper,
        observers: Observers,
        make_trial: Callable[[str, int, dict], Trial],
    ):
        self.interrupted, self.is_function = False, trainable.is_function
        self.searcher, self.scheduler = searcher, scheduler
        self.settings, self.directory = settings, directory
        self._trainable, self._pool, self._make_trial = trainable, pool, make_trial
        self._observers = observers
        self.records = TrialRecords(directory, keeper, observers)
        self.trials = self.records.trials
        self.decisions = TrialDecisions(searcher, scheduler, settings.metric, observers, directory)
        self.lifecycle = TrialLifecycle(self.records, pool, self.decisions, settings, observers, self.is_function)
        self._waiting, self._live = self.records.waiting, pool.live
        self._interrupted: list[Trial] = []  # that ran when the driver died; they come before all others
        self._exhausted = False
        self._began = time.monotonic()

    def get_state(self) -> dict[str, Any]:
        """All that searcher, scheduler and stopper know."""
        return {**self.decisions.get_state(), "stopper": stoppers.saved(self.settings.stopper)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on where `get_state` was called."""
        self.decisions.set_state(state)
        stoppers.restore(self.settings.stopper, state.get("stopper"))

    def resume(self, trials: Sequence[Trial], which: Callable[[Trial], bool]) -> None:
        """Takes in the trials of the journal; those that `which` picks run on, or again."""
        for trial in trials:
            runs_on, before = which(trial), trial.status
            self.records.take_up(trial, runs_on)
            if trial.last_result:
                self.decisions.see(trial.last_result)
            if runs_on:
                self.decisions.goes_back(trial)
                if before == RUNNING:
                    self._interrupted.append(trial)

    def run(self) -> None:
        """Runs everything.

        Raises:
            KeyboardInterrupt: after Ctrl-C, when everything is in order.
            TuneError: if the experiment cannot write its files, for instance on a full disk.
            the trial's own exception: with fail_fast="raise".
            whatever a callback, stop function, searcher or scheduler raises.
        """
        self._observers.set_up(self.settings.num_samples)
        interrupts = Interrupts()
        try:
            self.directory.snapshot(self.get_state, now=True)
            with interrupts:
                self._follow_last_results()
                while not interrupts.seen and self._step():
                    pass
                if interrupts.seen:
                    self.interrupted = True
                    self._give_up()
            # Not after an error, which may have come between what is in the journal and what follows from it.
            self.directory.snapshot(self.get_state, now=True)
        except OSError as error:
            self.lifecycle.abandon()
            if not _is_of_files(error, self.directory.path):
                raise
            raise TuneError(_what_happened(error, self.directory.path, self.trials)) from error
        except BaseException:
            self.lifecycle.abandon()
            raise
        finally:
            self._wind_up()
        if self.interrupted:
            raise KeyboardInterrupt

    # ------------------------------------------------------------------ the loop

    def _follow_last_results(self) -> None:
        """An experiment may have been interrupted when a trial had a result, before anything followed from it.

        The stopper, which may be another one now, is asked again, but counts no result twice.
        """
        stopper = self.settings.stopper
        for trial in [trial for trial in self._waiting.values() if trial.last_result]:
            before = stoppers.saved(stopper)
            reached = stopper.reached(trial.trial_id, trial.last_result)
            stoppers.restore(stopper, before)
            decision = "CONTINUE" if reached else self.decisions.standing_verdict(self.lifecycle, trial)
            if reached or decision == "STOP":
                self.lifecycle.finish(trial, TERMINATED, reached or "the scheduler")
            elif decision == "PAUSE":
                trial.status = PAUSED
                self.records.queue_up([trial])

    def _step(self) -> bool:
        """One round; whether there is more to come."""
        self._observers.round += 1
        reason = self._why_all_stops()
        if reason:
            self._observers.warn_once("end", f"the experiment ends: {reason}")
            self._stop_everything(reason)
            return False
        self._add_trials()
        self._start_trials()
        if not self._live:
            if not self._waiting:
                self._warn_of_no_trials()
                return not self._exhausted
            self._settle_deadlock()
            return True
        self._observers.hear("on_step_begin")
        self._take_answers()
        self.lifecycle.check_deadlines()
        self.directory.sync()
        self.directory.snapshot(self.get_state)
        self._observers.hear("on_step_end")
        self._observers.report(self.status)
        return True

    def _warn_of_no_trials(self) -> None:
        if self._exhausted and not self.trials:
            name = type(self.searcher).__name__
            self._observers.warn_once("none", f"{name} suggested no configuration, so there are no trials")

    def _take_answers(self) -> None:
        for live in self._pool.wait(_TICK_S):
            self.lifecycle.take_answer(live)

    def _why_all_stops(self) -> str | None:
        budget, failed = self.settings.time_budget_s, self.lifecycle.first_failed
        if budget is not None and time.monotonic() - self._began >= budget:
            return f"its time budget of {budget:g} s is used up"
        if self.settings.fail_fast and failed is not None:
            return f"{failed} has failed, and fail_fast is set"
        return str(self.settings.stopper) if self.settings.stopper.stop_all() else None

    def _add_trials(self) -> None:
        """Asks the searcher for configurations, a few ahead of what runs."""
        counts_itself = self.searcher.is_exhaustive  # for grids num_samples is how often they are gone through
        ahead = _PENDING_AHEAD if counts_itself else 1
        while not self._exhausted and sum(t.status == PENDING for t in self._waiting.values()) < ahead:
            index = len(self.trials)
            if not counts_itself and 0 <= self.settings.num_samples <= index:
                self._exhausted = True
                return
            trial_id = f"{self.directory.header['id']}_{index:05d}"
            config = self.searcher.suggest(trial_id)
            if config is None:
                if not self._live and not self._waiting:
                    self._exhausted = True  # nothing runs whose result it could wait for
                return
            if not isinstance(config, dict):
                self._exhausted = True
                return
            self._add(self._make_trial(trial_id, index, config))

    def _add(self, trial: Trial) -> None:
        request = self._trainable.request(trial.config) if trial.resources is None else trial.resources
        trial.resources, notice = request.within(self._pool.total, f"a trial of {trial.trainable_name}")
        if notice:
            self._observers.warn_once("oversubscribed", notice)
        self.records.add(trial)
        suggested = trial.config
        self.scheduler.on_trial_add(self.lifecycle, trial)
        if trial.config is not suggested:
            self.records.configured(trial, trial.config)

    def _start_trials(self) -> None:
        while self._waiting and not self._pool.is_full:
            trial = self._next_trial()
            if trial is None:
                return
            self.lifecycle.start(trial)
            self._add_trials()

    def _next_trial(self) -> Trial | None:
        """The scheduler's choice, after those that ran already."""
        while self._interrupted:
            trial = self._interrupted.pop(0)
            if trial.status == PENDING and self.lifecycle.has_resources_for(trial):
                return trial
        return self.scheduler.choose_trial_to_run(self.lifecycle)

    def _settle_deadlock(self) -> None:
        """Nothing runs, something waits, and the scheduler starts none of it."""
        before = len(self._waiting)
        chosen = self.scheduler.choose_trial_to_run(self.lifecycle)
        if chosen is None and len(self._waiting) == before and self._exhausted:
            for trial in list(self._waiting.values()):
                self.lifecycle.finish(trial, TERMINATED, "the scheduler, which lets it go on no more")

    # ------------------------------------------------------------------ the end

    def _stop_everything(self, reason: str) -> None:
        """Ends all trials, those that wait included: those that answer in time as they like, the others by force."""
        for trial in list(self._waiting.values()):
            self.lifecycle.finish(trial, TERMINATED, reason)
        for live in list(self._live.values()):
            if live.ending is None or live.ending[0] in (PENDING, PAUSED):
                live.ending = (TERMINATED, reason)
                if live.calls:
                    self.lifecycle.ask(live, "close")
                else:
                    save = self.settings.checkpoint_at_end and not self.is_function
                    self.lifecycle.end(live, TERMINATED, reason, save)
        self._drain(hangs.GRACE_S)

    def _give_up(self) -> None:
        """Everything stands still: trials are saved where that can be done in time, and remain unfinished."""
        for live in list(self._live.values()):
            if live.ending is None:
                live.ending = (PENDING, None)
                if not self.is_function:
                    self.lifecycle.ask(live, "save", self.records.place_for_checkpoint(live.trial))
                self.lifecycle.ask(live, "close")
        self._drain(_INTERRUPTED_CLOSE_S)

    def _drain(self, seconds: float) -> None:
        """Takes answers in until all have ended; after so many seconds the rest is killed."""
        deadline = time.monotonic() + seconds
        while self._live and time.monotonic() < deadline:
            self._take_answers()
        for live in list(self._live.values()):
            status, reason = live.ending
            live.ending = (status, reason and f"{reason}; it hung in {hangs.doing(live)} and was killed")
            self.lifecycle.kill(live)

    def _wind_up(self) -> None:
        """The last word to files and people."""
        try:
            self._observers.hear("on_experiment_end")
            self._observers.report(self.status, done=True)
        finally:
            self._pool.close()
            self.directory.close()

    # ------------------------------------------------------------------ how it stands

    def status(self) -> dict[str, Any]:
        """What a reporter shows beside the trials."""
        return {
            "scheduler": self.scheduler.debug_string(),
            "used": dict(self._pool.used),
            "total": dict(self._pool.total),
            "directory": str(self.directory.path),
            "elapsed_s": time.monotonic() - self._began,
        }


def _is_of_files(error: OSError, path: Path) -> bool:
    """Whether the experiment's own files in `path` could not be written.

    Notes mark what a user's callback raised. A write to an open file fails without a name, but with a number; errors
    of network libraries have neither.
    """
    is_the_systems = error.errno is not None and not isinstance(error, (ConnectionError, TimeoutError))
    if getattr(error, "__notes__", None) or not is_the_systems:
        return False
    return not isinstance(error.filename, (str, bytes)) or Path(os.fsdecode(error.filename)).is_relative_to(path)


def _what_happened(error: OSError, path: Path, trials: list[Trial]) -> str:
    finished = sum(trial.is_finished for trial in trials)
    what = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else f"{error}"
    return (
        f"the experiment in {path} cannot write its files: {what}. {finished} of its trials have ended, and their "
        "results are kept. Make room, then run it again with resume=True."
    )


class Interrupts:
    """Inside it the first Ctrl-C sets `seen`, and only the second raises KeyboardInterrupt.

    Only in the main thread, where Python handles signals, and where SIGINT is not ignored.
    """

    def __init__(self):
        self.seen = False

    def __enter__(self):
        self._before = None
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *exc_info) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True
