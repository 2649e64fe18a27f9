"""The event loop of an experiment: starts trials as they fit, waits for their answers, and tells everybody concerned.

One thread, one wait. A trial that runs is an actor with a queue of calls of which the oldest is waited for; what its
answer means is decided here: results go to files, searcher and scheduler, whose decision lets the trial go on, stand
still or end. All that has to survive the driver is in the journal (experiment.py) before anything follows from it.
"""

import errno
import logging
import shutil
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import runtime
from rllib.errors import TuneError
from rllib.tune import hangs, trial_files
from rllib.tune.callbacks import Callback
from rllib.tune.checkpoint_keeper import CheckpointKeeper
from rllib.tune.experiment import ExperimentDirectory
from rllib.tune.interrupts import Interrupts
from rllib.tune.run_settings import RunSettings
from rllib.tune.stopping import lookup
from rllib.tune.trainables import Resolved
from rllib.tune.trial import ERROR, PAUSED, PENDING, RUNNING, TERMINATED, Trial, TrialCheckpoint
from rllib.tune.trial_pool import Live, TrialPool
from runtime.errors import RuntimeFailure, TaskError

logger = logging.getLogger(__name__)

# The loop looks at clocks (reports, time limits, Ctrl-C) at least so often.
_TICK_S = 0.2
# How long a trial may take to end, in the course of things and after Ctrl-C.
_CLOSE_S = 20.0
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
        callbacks: hooks.
        make_trial: (trial_id, index, config) -> Trial.
        reporter: shows how it goes; None: nothing is shown.

    Attributes:
        trials: all so far, in the order of creation.
        interrupted: whether Ctrl-C ended it.
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
        make_trial: Callable[[str, int, dict], Trial],
        callbacks: Sequence[Callback] = (),
        reporter=None,
    ):
        self.trials: list[Trial] = []
        self.interrupted = False
        self.searcher, self.scheduler = searcher, scheduler
        self.settings = settings
        self.directory = directory
        self._trainable = trainable
        self._keeper, self._make_trial = keeper, make_trial
        self._callbacks, self._reporter = list(callbacks), reporter
        self._prefix = directory.header["id"]
        self._pool = pool
        self._waiting: dict[str, Trial] = {}  # PENDING and PAUSED ones
        self._live = pool.live
        self._saves: dict[str, list] = {}  # source -> what is to be done with its next checkpoint
        self._exhausted = False
        self._steps = 0
        self._began = time.monotonic()
        self._first_failed: Trial | None = None
        self._seen_metric = False
        self._told: set[str] = set()

    # ------------------------------------------------------------------ what schedulers see

    def has_resources_for(self, trial: Trial) -> bool:
        """Whether the trial could start now."""
        limit = self.settings.max_concurrent
        if limit and len(self._live) >= limit:
            return False
        return self._pool.fits(trial.resources)

    def waiting_trials(self) -> list[Trial]:
        """Those that are PENDING or PAUSED, in the order in which they came to be so."""
        return list(self._waiting.values())

    def write_file(self, name: str, text: str, append: bool = False) -> None:
        """Writes, or appends to, a file in the experiment's directory."""
        with open(self.directory.path / name, "a" if append else "w") as file:
            file.write(text)

    def pause_trial(self, trial: Trial) -> None:
        """Saves the trial and gives its resources free; `choose_trial_to_run` may have it go on later."""
        live = self._live.get(trial.trial_id)
        if live and live.ending is None:
            self._end(live, PAUSED, None, save=not self._trainable.is_function)

    def stop_trial(self, trial: Trial) -> None:
        """Ends the trial, whatever it is doing."""
        live = self._live.get(trial.trial_id)
        if live is None:
            if not trial.is_finished:
                self._finish(trial, TERMINATED, "the scheduler")
        elif live.calls and live.ending is None:
            live.ending = (TERMINATED, "the scheduler")
            self._bury(live)
        elif live.ending is None:
            self._end(live, TERMINATED, "the scheduler")
        else:
            live.ending = (TERMINATED, "the scheduler")

    def exploit(self, trial: Trial, source: Trial, config: dict) -> None:
        """Has the trial go on from the newest checkpoint of another one, with another configuration."""
        live = self._live.get(source.trial_id)
        checkpoint = source.checkpoint
        is_newest = checkpoint and checkpoint.iteration == source.last_result.get("training_iteration")
        if self._live.get(trial.trial_id):
            self._live[trial.trial_id].waits_for += 1
        if live is None or is_newest or self._trainable.is_function:
            self._take_over(trial, source, config)
            return
        self._saves.setdefault(source.trial_id, []).append((trial, config))
        if live.ending is None:
            self._ask(live, "save", self._checkpoint_place(source))

    def _take_over(self, trial: Trial, source: Trial, config: dict) -> None:
        """The second half of `exploit`: the source's checkpoint is there, if it could be made."""
        live = self._live.get(trial.trial_id)
        if live:
            live.waits_for -= 1
        if source.checkpoint is None:
            self._tell(f"exploit {source}", f"{source} has no checkpoint that {trial} could go on from")
            if live and not live.calls and live.ending is None:
                self._ask(live, "step")
            return
        copied = self._keeper.adopt(trial, source)
        trial.config = config
        self.directory.config_changed(trial)
        trial_files.write_config(trial)
        self._register(trial, copied)
        if live and live.ending is None:
            self._end(live, PENDING, None)

    # ------------------------------------------------------------------ the loop

    def resume(self, trials: Sequence[Trial], which: Callable[[Trial], bool]) -> None:
        """Takes in the trials of the journal; those that `which` picks run on, or again."""
        for trial in trials:
            self.trials.append(trial)
            if which(trial):
                trial.status, trial.stopped_by, trial.error, trial.num_failures = PENDING, None, None, 0
                trial_files.roll_back(trial)
                self._waiting[trial.trial_id] = trial

    def run(self) -> None:
        """Runs everything.

        Raises:
            KeyboardInterrupt: after Ctrl-C, when everything is in order.
            TuneError: if the experiment cannot go on, for a full disk for instance.
            the trial's own exception: with fail_fast="raise".
        """
        for callback in self._callbacks:
            callback.setup(num_samples=self.settings.num_samples, total_num_samples=self.settings.num_samples)
        interrupts = Interrupts()
        try:
            self.directory.snapshot(self._search_state, now=True)
            with interrupts:
                self._finish_those_at_their_end()
                while not interrupts.seen and self._step():
                    pass
                if interrupts.seen:
                    self.interrupted = True
                    self._give_up(_INTERRUPTED_CLOSE_S, save=True)
        except OSError as error:
            self._abandon()
            raise TuneError(_what_happened(error, self.directory.path, self.trials)) from error
        except BaseException:
            self._abandon()
            raise
        finally:
            self._wind_up()
        if self.interrupted:
            raise KeyboardInterrupt

    def _finish_those_at_their_end(self) -> None:
        """An experiment may have been interrupted when a trial had its last result, but had not been told to end."""
        for trial in list(self._waiting.values()):
            reached = trial.last_result and self.settings.stop(trial.trial_id, trial.last_result)
            if reached:
                self._finish(trial, TERMINATED, reached)

    def _step(self) -> bool:
        """One round; whether there is more to come."""
        self._steps += 1
        reason = self._why_all_stops()
        if reason:
            self._tell("end", f"the experiment ends: {reason}")
            self._exhausted = True
            self._stop_everything(reason)
            return False
        self._add_trials()
        self._start_trials()
        if not self._live:
            if not self._waiting:
                return not self._exhausted
            self._settle_deadlock()
            return True
        self._for_callbacks("on_step_begin")
        for live in self._pool.wait(_TICK_S):
            self._take_answer(live)
        self._check_deadlines()
        self.directory.sync()
        self.directory.snapshot(self._search_state)
        self._for_callbacks("on_step_end")
        self._report()
        return True

    def _why_all_stops(self) -> str | None:
        budget = self.settings.time_budget_s
        if budget is not None and time.monotonic() - self._began >= budget:
            return f"its time budget of {budget:g} s is used up"
        if self.settings.fail_fast and self._first_failed is not None:
            return f"{self._first_failed} has failed, and fail_fast is set"
        return self.settings.stop_all()

    def _add_trials(self) -> None:
        """Asks the searcher for configurations, a few ahead of what runs."""
        counts_itself = self.searcher.is_exhaustive  # for grids num_samples is how often they are gone through
        ahead = _PENDING_AHEAD if counts_itself else 1
        while not self._exhausted and sum(t.status == PENDING for t in self._waiting.values()) < ahead:
            index = len(self.trials)
            if not counts_itself and 0 <= self.settings.num_samples <= index:
                self._exhausted = True
                return
            trial_id = f"{self._prefix}_{index:05d}"
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
            self._tell("oversubscribed", notice)
        trial_files.write_config(trial)
        self.directory.trial_added(trial)
        self.trials.append(trial)
        self._waiting[trial.trial_id] = trial
        self.scheduler.on_trial_add(self, trial)

    def _start_trials(self) -> None:
        while self._waiting and not self._pool.is_full:
            trial = self.scheduler.choose_trial_to_run(self)
            if trial is None:
                return
            self._start(trial)
            self._add_trials()

    def _settle_deadlock(self) -> None:
        """Nothing runs, something waits, and the scheduler starts none of it."""
        before = len(self._waiting)
        if self.scheduler.choose_trial_to_run(self) is None and len(self._waiting) == before and self._exhausted:
            for trial in list(self._waiting.values()):
                self._finish(trial, TERMINATED, "the scheduler, which lets it go on no more")

    # ------------------------------------------------------------------ starting and asking

    def _start(self, trial: Trial) -> None:
        del self._waiting[trial.trial_id]
        checkpoint = trial.checkpoint
        restore = trial.checkpoint_path(checkpoint) if checkpoint else self.settings.restore
        live = self._pool.start(trial, restore)
        trial.status = RUNNING
        self.directory.status_changed(trial)
        self._ask(live, "step")
        if restore:
            self._for_callbacks("on_trial_restore", trial=trial)

    def _ask(self, live: Live, what: str, *arguments) -> None:
        """Asks the trial for something; one that cannot be asked has failed."""
        if self._live.get(live.trial.trial_id) is not live:
            return
        try:
            self._pool.ask(live, what, *arguments)
        except RuntimeFailure as error:
            self._failed(live, error)

    def _take_answer(self, live: Live) -> None:
        if self._live.get(live.trial.trial_id) is not live or not live.calls:
            return  # ended meanwhile, by what another trial's result led to
        what, reference = live.take_answered()
        try:
            answer = runtime.get(reference)
        except RuntimeFailure as error:
            if what == "save" and isinstance(error, TaskError) and live.ending is None:
                self._release_exploits(live.trial)
            self._failed(live, error)
            return
        getattr(self, f"_on_{what}")(live, answer)

    def _on_start(self, live: Live, answer: dict) -> None:
        live.trial.pid, live.trial.hostname = answer["pid"], answer["hostname"]
        self._for_callbacks("on_trial_start", trial=live.trial)

    def _on_reset(self, live: Live, answer: dict | None) -> None:
        """An actor of an ended trial has been asked to start over; if it cannot, a new one is started."""
        if answer:
            self._on_start(live, answer)
            return
        live.calls.clear()
        checkpoint = live.trial.checkpoint
        self._pool.start_anew(live, live.trial.checkpoint_path(checkpoint) if checkpoint else self.settings.restore)
        self._ask(live, "step")

    def _on_step(self, live: Live, answer: tuple[dict, str | None]) -> None:
        result, checkpoint = answer
        trial = live.trial
        if result.get("no_report"):
            trial.last_result["done"] = True
            self._complete(live, None)
            return
        result["config"] = trial.config
        numbers = trial.take(result)
        live.files.on_result(result)
        self._check_metric(trial, result)
        if checkpoint:
            self._register(trial, TrialCheckpoint(Path(checkpoint).name, result["training_iteration"], numbers))
        self._for_callbacks("on_trial_result", trial=trial, result=result)
        if live.ending is not None:
            return
        reached = self.settings.stop(trial.trial_id, result)
        if result.get("done") or reached:
            result["done"] = True
            self._complete(live, reached)
            return
        self._decide(live, result)

    def _decide(self, live: Live, result: dict) -> None:
        trial = live.trial
        decision = "CONTINUE"
        if self._is_comparable(result):
            self.searcher.on_trial_result(trial.trial_id, result)
            decision = self.scheduler.on_trial_result(self, trial, result)
        if live.ending is not None or self._live.get(trial.trial_id) is not live:
            return  # the scheduler has seen to it
        if decision == "STOP":
            result["done"] = True
            self._complete(live, "the scheduler")
        elif decision == "PAUSE":
            self.pause_trial(trial)
        else:
            if self._is_due(trial):
                self._ask(live, "save", self._checkpoint_place(trial))
            if not live.waits_for:
                self._ask(live, "step")

    def _is_due(self, trial: Trial) -> bool:
        """Whether its checkpoint_freq wants a checkpoint now."""
        frequency = self.settings.checkpoint_freq
        return bool(frequency) and trial.last_result["training_iteration"] % frequency == 0

    def _is_comparable(self, result: dict) -> bool:
        return self.settings.metric is None or lookup(result, self.settings.metric) is not None

    def _check_metric(self, trial: Trial, result: dict) -> None:
        self._seen_metric = self._seen_metric or self._is_comparable(result)

    def _refuse_missing_metric(self, trial: Trial) -> None:
        """At the end of the first trial: a metric that it never reported is a mistake."""
        if self._seen_metric or not trial.last_result:
            return
        have = ", ".join(sorted(trial.metric_analysis))
        message = f"the results of {trial} have no metric {self.settings.metric!r}; they have: {have}"
        if getattr(self.scheduler, "needs_metric", False) or getattr(self.searcher, "needs_metric", False):
            raise ValueError(f"{message}. Trials cannot be compared by it")
        self._tell("metric", message)

    def _checkpoint_place(self, trial: Trial) -> str:
        return str(Path(trial.logdir) / f"checkpoint_{trial.last_result.get('training_iteration', 0):06d}")

    def _on_save(self, live: Live, path: str) -> None:
        trial = live.trial
        iteration = trial.last_result.get("training_iteration", 0)
        numbers = {key: stats["last"] for key, stats in trial.metric_analysis.items()}
        self._register(trial, TrialCheckpoint(Path(path).name, iteration, numbers))
        self._for_callbacks("on_trial_save", trial=trial)
        self._release_exploits(trial)

    def _release_exploits(self, source: Trial) -> None:
        for trial, config in self._saves.pop(source.trial_id, []):
            self._take_over(trial, source, config)

    def _register(self, trial: Trial, checkpoint: TrialCheckpoint) -> None:
        trial.checkpoints.append(checkpoint)
        self.directory.checkpoint_added(trial, checkpoint)
        self._for_callbacks("on_checkpoint", trial=trial, checkpoint=checkpoint)
        for old in self._keeper.superfluous(trial):
            trial.checkpoints.remove(old)
            self.directory.checkpoint_removed(trial, old)
            shutil.rmtree(trial.checkpoint_path(old), ignore_errors=True)

    # ------------------------------------------------------------------ ending

    def _complete(self, live: Live, reason: str | None) -> None:
        """A trial has come to its end by itself."""
        save = self.settings.checkpoint_at_end or self._is_due(live.trial)
        if self._trainable.is_function and live.trial.last_result.get("done") and reason is None:
            live.ending = (TERMINATED, None)  # the function has returned: there is nothing to close
            self._bury(live)
        else:
            self._end(live, TERMINATED, reason, save)

    def _end(self, live: Live, status: str, reason: str | None, save: bool = False) -> None:
        """Has the trial close; it ends with this status when it has, or when its time for that is over."""
        live.ending = (status, reason)
        live.deadline = time.monotonic() + _CLOSE_S
        trial = live.trial
        if save and trial.last_result and not self._is_saved(trial):
            self._ask(live, "save", self._checkpoint_place(trial))
        self._ask(live, "rest" if self._pool.reuses_actors and status == TERMINATED else "close")

    @staticmethod
    def _is_saved(trial: Trial) -> bool:
        checkpoint = trial.checkpoint
        return bool(checkpoint) and checkpoint.iteration == trial.last_result.get("training_iteration")

    def _on_close(self, live: Live, problem: str | None) -> None:
        if problem:
            logger.warning("%s could not end well:\n%s", live.trial, problem)
        self._bury(live)

    def _on_rest(self, live: Live, nothing: None) -> None:
        self._bury(live)

    def _bury(self, live: Live) -> None:
        """The trial's process is ended, its resources are free, and it gets its status."""
        trial = live.trial
        status, reason = live.ending
        self._leave(live, in_order=status == TERMINATED)
        if status in (PENDING, PAUSED):
            trial.status = status
            self._waiting[trial.trial_id] = trial
            self.directory.status_changed(trial)
            self._release_exploits(trial)
        else:
            self._finish(trial, status, reason)

    def _leave(self, live: Live, in_order: bool = False) -> None:
        live.trial.pid = None
        self._pool.leave(live, in_order)

    def _finish(self, trial: Trial, status: str, reason: str | None) -> None:
        """The trial has ended for good: everybody hears of it."""
        self._waiting.pop(trial.trial_id, None)
        trial.status, trial.stopped_by = status, reason
        trial.analysis.settle()
        self.directory.status_changed(trial)
        self._release_exploits(trial)
        failed = status == ERROR
        if failed:
            self.scheduler.on_trial_error(self, trial)
            self.searcher.on_trial_complete(trial.trial_id, error=True)
            self._for_callbacks("on_trial_error", trial=trial)
            return
        comparable = bool(trial.last_result) and self._is_comparable(trial.last_result)
        if comparable:
            self.scheduler.on_trial_complete(self, trial, trial.last_result)
        else:
            self.scheduler.on_trial_remove(self, trial)
        self.searcher.on_trial_complete(trial.trial_id, trial.last_result if comparable else None)
        self._for_callbacks("on_trial_complete", trial=trial)
        self._refuse_missing_metric(trial)

    def _failed(self, live: Live, error: BaseException) -> None:
        """The trial has raised, or its process has died."""
        trial = live.trial
        if self._live.get(trial.trial_id) is not live:
            return
        self._leave(live)
        trial.num_failures += 1
        trial.exception = getattr(error, "cause", None) or error
        failure = getattr(error, "failure", None)
        trial.error = failure.traceback if failure else "".join(traceback.format_exception_only(error)).rstrip()
        trial_files.write_error(trial)
        allowed = self.settings.max_failures
        if live.ending is None and (allowed < 0 or trial.num_failures <= allowed):
            logger.warning("%s has failed (%d of at most %s times) and starts again from %s: %s", trial,
                           trial.num_failures, allowed if allowed >= 0 else "any number of",
                           trial.checkpoint.name if trial.checkpoint else "the beginning",
                           trial.error.splitlines()[-1])  # fmt: skip
            trial_files.roll_back(trial)
            trial.status = PENDING
            self._waiting[trial.trial_id] = trial
            self.directory.status_changed(trial)
            self._release_exploits(trial)
            return
        self._first_failed = self._first_failed or trial
        self._finish(trial, ERROR, "an error")
        if self.settings.fail_fast == "raise":
            raise trial.exception

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for live in list(self._live.values()):
            if live.deadline is not None and live.deadline < now:
                self._kill(live)
            elif reason := hangs.overdue(live, self.settings.trial_time_s):
                live.ending = (TERMINATED, reason)
                self._kill(live)

    def _kill(self, live: Live) -> None:
        """Ends a trial that does not answer, and says so."""
        logger.warning("%s hangs in %s, and its process is killed; its results so far are kept", live.trial,
                       hangs.doing(live))  # fmt: skip
        self._bury(live)

    def _stop_everything(self, reason: str) -> None:
        """Ends all trials: those that answer in time as they like, the others by force."""
        for trial in list(self._waiting.values()):
            if trial.status == PAUSED or trial.last_result:
                self._finish(trial, TERMINATED, reason)
        for live in list(self._live.values()):
            if live.ending is None or live.ending[0] in (PENDING, PAUSED):
                live.ending = (TERMINATED, reason)
                save = self.settings.checkpoint_at_end and not self._trainable.is_function
                if not live.calls:
                    self._end(live, TERMINATED, reason, save)
                else:
                    self._ask(live, "close")
        self._drain(hangs.GRACE_S)

    def _give_up(self, seconds: float, save: bool) -> None:
        """Everything stands still: trials are saved where that can be done in time, and remain unfinished."""
        for live in list(self._live.values()):
            if live.ending is None:
                live.ending = (PENDING, None)
                if save and not self._trainable.is_function:
                    self._ask(live, "save", self._checkpoint_place(live.trial))
                self._ask(live, "close")
        self._drain(seconds)

    def _drain(self, seconds: float) -> None:
        """Takes answers in until all have ended; after so many seconds the rest is killed."""
        deadline = time.monotonic() + seconds
        while self._live and time.monotonic() < deadline:
            for live in self._pool.wait(_TICK_S):
                self._take_answer(live)
        for live in list(self._live.values()):
            status, reason = live.ending
            live.ending = (status, reason and f"{reason}; it hung in {hangs.doing(live)} and was killed")
            self._kill(live)

    def _abandon(self) -> None:
        """Kills what runs, in spite of everything."""
        for live in list(self._live.values()):
            try:
                self._leave(live)
            except Exception:
                logger.debug("while giving up %s", live.trial, exc_info=True)

    def _wind_up(self) -> None:
        """The last word to files and people."""
        try:
            self.directory.snapshot(self._search_state, now=True)
            self._for_callbacks("on_experiment_end")
            self._report(done=True)
        finally:
            self._pool.close()
            self.directory.close()

    # ------------------------------------------------------------------ telling others

    def _search_state(self) -> dict:
        return {
            "num_trials": len(self.trials),
            "searcher": self.searcher.get_state(),
            "scheduler": self.scheduler.get_state(),
        }

    def _for_callbacks(self, hook: str, **more) -> None:
        for callback in self._callbacks:
            getattr(callback, hook)(iteration=self._steps, trials=self.trials, **more)

    def _report(self, done: bool = False) -> None:
        if self._reporter is not None and self._reporter.should_report(self.trials, done=done):
            self._reporter.report(self.trials, done, self.status())

    def status(self) -> dict[str, Any]:
        """What a reporter shows beside the trials."""
        return {
            "scheduler": self.scheduler.debug_string(),
            "used": dict(self._pool.used),
            "total": dict(self._pool.total),
            "directory": str(self.directory.path),
            "elapsed_s": time.monotonic() - self._began,
        }

    def _tell(self, topic: str, message: str) -> None:
        """Once per topic."""
        if topic not in self._told:
            self._told.add(topic)
            logger.warning("%s", message)


def _what_happened(error: OSError, path: Path, trials: list[Trial]) -> str:
    finished = sum(trial.is_finished for trial in trials)
    what = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else f"{error}"
    return (
        f"the experiment in {path} cannot write its files: {what}. {finished} of its trials have ended, and their "
        "results are kept. Make room, then run it again with resume=True."
    )
