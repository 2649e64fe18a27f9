"""State machine of the trials of an experiment: events in, instructions out.

`Trials._start_trials` decides which trial starts, and `Trials._on_step` which one stops: by the stop criterion first,
then by searcher and scheduler (verdicts.py).

It uses no process, file or clock. Each event is a method; the instructions that follow are collected, and handed over
by `take()` in the order in which they are to be carried out: the journal has a record before anything follows from it.

| event              | comes from                                                            |
|--------------------|-----------------------------------------------------------------------|
| begin, tick        | the runner's loop (running/runner.py)                                   |
| answered, failed   | the pool of processes (running/pool.py), about a trial's oldest call    |
| rolled_back        | the files (experiment/files.py), which a RollBack has changed              |
| adopted            | the files, after an Adopt                                             |
| stop, interrupt    | the runner, when the whole experiment is to end                       |

A trial waits (PENDING, PAUSED), runs or has ended (TERMINATED, ERROR). A running trial has a queue of calls, which its
process answers in order. Results go to the files and to searcher and scheduler, whose decision lets the trial continue,
pause or end. To end a trial its `ending` is set and its process is asked to close; when it has closed, or has not in
time, the process is ended and the trial gets its status. Schedulers command trials while an event is reported to them
(schedulers/base.py); a Trials is their `runner`.
"""

import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rllib.notices import why_raised
from rllib.progress import counted
from rllib.result import Result
from rllib.tune.checks import NotANumberError, check_key
from rllib.tune.experiment import stoppers
from rllib.tune.experiment.records import config_record, ending_record, result_record, status_record, trial_record
from rllib.tune.experiment.spec import ExperimentSpec
from rllib.tune.experiment.trial import Trial, TrialCheckpoint
from rllib.tune.reporting.reporters import AUTOMATIC_KEYS
from rllib.tune.running import instructions
from rllib.tune.running.checkpoints import Checkpoints, Takeover, Takeovers
from rllib.tune.running.running_trial import RunningTrial
from rllib.tune.running.verdicts import Verdicts
from rllib.tune.states import ERROR, PAUSED, PENDING, RUNNING, TERMINATED
from runtime.errors import UnschedulableError

logger = logging.getLogger(__name__)

# Seconds that a trial has to end after Ctrl-C.
INTERRUPTED_CLOSE_S = 2.5
# Seconds that it has when the experiment ends, and by which a step may exceed the trial's time.
GRACE_S = 5.0
# Number of trials made before they can start, so that tables show them as pending; and of trials that can never start,
# of which none fits, after which an experiment gives up.
_PENDING_AHEAD = 8
# As in Ray: with 1, keys that the first result lacks are waited for.
_NOT_STRICT = "TUNE_DISABLE_STRICT_METRIC_CHECKING"


class Trials:
    """The trials of an experiment, and the decisions about them.

    Args:
        spec: the experiment's settings; `stop` is a Stopper, `time_budget_s` a number.
        searcher: suggests configurations.
        scheduler: decides which trials continue.
        make_trial: (trial id, index, configuration) -> Trial.
        total: resource -> quantity of the session.
        experiment_id: the trials' ids begin with it.
        is_function: whether the trainable is a function, which saves its own checkpoints.

    Attributes:
        trials: all trials, in the order of creation.
        waiting: trial id -> trial that is PENDING or PAUSED, the one that has waited longest first.
        running: trial id -> trial that has a process.
        used: resource -> quantity that running trials hold.
        verdicts: decisions of searcher and scheduler.
        takeovers: takeovers of other trials' states (running/checkpoints.py).
        first_failed: the first trial that has failed for good.
        is_over: whether nothing runs, and no trial is to come.
    """

    def __init__(
        self,
        spec: ExperimentSpec,
        searcher,
        scheduler,
        make_trial: Callable[[str, int, dict], Trial],
        total: Mapping[str, float],
        experiment_id: str,
        is_function: bool = False,
    ):
        self.trials: list[Trial] = []
        self.waiting: dict[str, Trial] = {}
        self.running: dict[str, RunningTrial] = {}
        self.total, self.used = dict(total), dict.fromkeys(total, 0.0)
        self.first_failed: Trial | None = None
        self.is_over = False
        self.verdicts = Verdicts(searcher, scheduler, spec.metric, self._warn_once)
        self._spec, self._searcher, self._scheduler, self._make_trial = spec, searcher, scheduler, make_trial
        self._experiment_id, self._is_function = experiment_id, is_function
        self._instructions: list = []
        self._dirnames: set[str] = set()
        self._interrupted: list[Trial] = []  # by the end of an earlier driver; they start before all others
        self._checkpoints = Checkpoints(spec.checkpoints, self._do)
        self.takeovers = Takeovers(self.running, is_function, self._do, self._warn_once)
        self._exhausted = False  # the searcher suggests no more
        self._is_closing = False  # nothing starts any more
        self._has_started = False  # a trial, since this driver began
        self._names_checked = False  # of what stop, metric and checkpoints ask of results
        self._warned: set[str] = set()
        self._unfit: list[Trial] = []  # have failed, since they can never start
        self._any_fits = False

    def take(self) -> list:
        """The instructions of the events so far, in the order in which they are to be carried out."""
        taken, self._instructions = self._instructions, []
        return taken

    def _do(self, instruction) -> None:
        self._instructions.append(instruction)

    def _record(self, record: dict[str, Any]) -> None:
        self._do(instructions.Record(record))

    def _warn_once(self, topic: str, message: str) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            logger.warning("%s", message)

    # ------------------------------------------------------------------ a resumed experiment

    def get_state(self) -> dict[str, Any]:
        """State of searcher, scheduler and stopper."""
        return {**self.verdicts.get_state(), "stopper": stoppers.saved(self._spec.stop)}

    def set_state(self, state: Mapping[str, Any], since_s: float = 0.0) -> None:
        """Restores a state of `get_state`, taken `since_s` seconds before the experiment was interrupted."""
        self.verdicts.set_state(state)
        stoppers.restore(self._spec.stop, state.get("stopper"))
        self._spec.stop.add_time(since_s)

    def request_anew(self, trial: Trial) -> None:
        """Finds what a trial of the journal needs: that may have been its error, and be another thing now."""
        made = self._make_trial(trial.trial_id, trial.index, trial.config)
        trial.resources, trial.exception = made.resources, made.exception

    def take_up(
        self, trial: Trial, left: tuple[Sequence[Mapping], list[TrialCheckpoint]] | None, is_paused: bool = False
    ) -> None:
        """Adds a trial of the journal.

        Args:
            trial: as it was when the experiment was interrupted.
            left: its remaining results and checkpoints, as in `rolled_back`; None: the trial does not continue.
            is_paused: whether it remains PAUSED.
        """
        self._join(trial)
        self._any_fits = self._any_fits or left is None
        if left is not None:
            if trial.status == RUNNING:
                self._interrupted.append(trial)
            problem = self._fit(trial)
            trial.status, trial.stopped_by, trial.error, trial.num_failures = PENDING, None, None, 0
            if is_paused:
                trial.status = PAUSED
            self._checkpoints.go_back(trial, *left)
            self.waiting[trial.trial_id] = trial
            self.verdicts.rolled_back(trial)
            if problem is not None:
                self._refuse(trial, problem)
        if trial.last_result:
            self.verdicts.see(trial.last_result)

    def queue_up(self, trials: Sequence[Trial]) -> None:
        """Puts the waiting ones of these trials behind all others, in this order."""
        for trial in trials:
            if trial.trial_id in self.waiting:
                self.waiting[trial.trial_id] = self.waiting.pop(trial.trial_id)

    def begin(self) -> None:
        """Begins or continues the experiment: decides about results that an interrupted driver has left undecided.

        The stopper, which may be another one now, is asked again about these results, but does not count them twice.
        """
        stopper = self._spec.stop
        for trial in [trial for trial in self.waiting.values() if trial.last_result]:
            before = stoppers.saved(stopper)
            try:
                self.verdicts.check_type(trial.last_result)
                reached = stopper.reached(trial.trial_id, trial.last_result)
            except NotANumberError as error:
                self._fail(trial, error)
                continue
            finally:
                stoppers.restore(stopper, before)
            decision = "CONTINUE" if reached else self._decision(trial, trial.last_result, is_new=False)
            if reached or decision == "STOP":
                self._finish(trial, TERMINATED, reached or "the scheduler")
            elif decision == "PAUSE":
                trial.status = PAUSED
                self.queue_up([trial])

    # ------------------------------------------------------------------ time passes

    def tick(self, elapsed_s: float, unanswered_s: Mapping[str, float]) -> None:
        """Ends trials that hang, and the experiment when its time is over; starts what fits.

        Args:
            elapsed_s: seconds since the experiment began.
            unanswered_s: trial id -> seconds for which its process has been at an unanswered call.
        """
        for running in list(self.running.values()):
            self._end_if_it_hangs(running, elapsed_s, unanswered_s.get(running.trial.trial_id))
        if not self._is_closing and (reason := self._why_all_stops(elapsed_s)):
            self._warn_once("end", f"the experiment ends: {reason}")
            self.stop(reason)
        if not self._is_closing:
            self._add_trials()
            self._refuse_what_never_fits()
            self._start_trials()
            if self.waiting and not self.running:
                self._settle_deadlock()
        self.is_over = not self.running and (self._is_closing or (self._exhausted and not self.waiting))
        if self.is_over and not self.trials and not self._is_closing:
            name = type(self._searcher).__name__
            self._warn_once("none", f"{name} suggested no configuration, so there are no trials")
        elif self.is_over and not self._is_closing and not self._has_started:
            self._warn_once("none", self._nothing_left())

    def _nothing_left(self) -> str:
        """A sentence for an experiment that was resumed, and whose trials had all ended."""
        ends = Counter(trial.stopped_by or ("it failed" if trial.status == ERROR else "done") for trial in self.trials)
        (most, number), *_ = ends.most_common(1)
        return (
            f"nothing was left to resume: the experiment's {counted(len(self.trials), 'trial')} had ended ({number} "
            f"because: {most}). A trial that has ended does not continue, also with another stop or time budget; more "
            "samples add trials, and its checkpoint can begin another experiment."
        )

    def _end_if_it_hangs(self, running: RunningTrial, elapsed_s: float, unanswered_s: float | None) -> None:
        """Counts time by steps, as `time_total_s` does: setup may take the trial's time once more.

        The grace is at least as long as the last step, so that the result of a step that ends a bit late is taken.
        """
        limit_s = self._spec.stop.time_limit_s
        if running.ending is not None:
            if running.deadline_s is None:
                running.deadline_s = elapsed_s + running.patience_s
            elif running.deadline_s < elapsed_s:
                self._kill(running)
        elif limit_s is not None and unanswered_s is not None:
            last = running.trial.last_result
            used_s = last.get("time_total_s", 0.0) if running.calls[0] != "start" else 0.0
            if used_s + unanswered_s >= limit_s + max(GRACE_S, last.get("time_this_iter_s", 0.0)):
                running.ending = (TERMINATED, f"time_total_s >= {limit_s:,.10g}")
                self._kill(running)

    def _kill(self, running: RunningTrial) -> None:
        doing, (status, reason) = running.doing, running.ending
        logger.warning("%s hangs in %s, and its process is killed; its results are kept", running.trial, doing)
        running.ending = (status, reason and f"{reason}: it hung in {doing} and was killed")
        self._bury(running)

    def _why_all_stops(self, elapsed_s: float) -> str | None:
        spec = self._spec
        if spec.time_budget_s is not None and elapsed_s >= spec.time_budget_s:
            return f"its time budget of {spec.time_budget_s:g} s is used up"
        if spec.failures.fail_fast and self.first_failed is not None:
            return f"{self.first_failed} has failed, and fail_fast is set"
        return str(spec.stop) if spec.stop.stop_all() else None

    def stop(self, reason: str) -> None:
        """Ends all trials, also waiting ones, with a checkpoint at their end if one is asked for.

        The process of a trial that does not answer in time is killed.
        """
        self._is_closing = True
        for trial in list(self.waiting.values()):
            self._finish(trial, TERMINATED, reason)
        for running in list(self.running.values()):
            if running.ending is None:
                self._end(running, TERMINATED, reason, save=self._checkpoints.at_end)
            elif running.ending[0] in (PENDING, PAUSED):
                running.ending = (TERMINATED, reason)
            running.patience_s, running.deadline_s = GRACE_S, None

    def interrupt(self, patience_s: float = INTERRUPTED_CLOSE_S) -> None:
        """Stops everything: trials are saved if that can be done in time, and remain unfinished."""
        self._is_closing = True
        for running in list(self.running.values()):
            if running.ending is None:
                self._end(running, PENDING, None, save=True)
            running.patience_s, running.deadline_s = patience_s, None

    # ------------------------------------------------------------------ new trials

    def _add_trials(self) -> None:
        """Asks the searcher for configurations, a few ahead of what runs."""
        counts_itself = self._searcher.is_exhaustive  # for grids num_samples is how often they are gone through
        ahead = _PENDING_AHEAD if counts_itself else 1
        unfit = len(self._unfit)
        while (
            not self._exhausted
            and sum(trial.status == PENDING for trial in self.waiting.values()) < ahead
            and len(self._unfit) < unfit + _PENDING_AHEAD  # the others' turn, and Ctrl-C's
        ):
            index = len(self.trials)
            if not counts_itself and 0 <= self._spec.num_samples <= index:
                self._exhausted = True
                return
            trial_id = f"{self._experiment_id}_{index:05d}"
            config = self._searcher.suggest(trial_id)
            if not isinstance(config, dict):
                # With None it waits for results, unless there is no trial that could bring one.
                self._exhausted = config is not None or not (self.running or self.waiting)
                return
            self._add(self._make_trial(trial_id, index, config))

    def _fit(self, trial: Trial) -> Exception | None:
        """Fits the trial's resources into the session's; the error if that can never be, or they could not be found."""
        if trial.exception is not None:
            return trial.exception
        try:
            trial.resources, notice = trial.resources.within(self.total, f"a trial of {trial.trainable_name}")
        except UnschedulableError as error:
            return error
        if notice:
            self._warn_once("oversubscribed", notice)
        self._any_fits = True
        return None

    def _refuse(self, trial: Trial, problem: Exception) -> None:
        """Lets a trial that can never start fail, alone."""
        self._unfit.append(trial)
        self._fail(trial, problem)

    def _refuse_what_never_fits(self) -> None:
        """Raises the first trial's error if no trial can ever start: it is a mistake of the whole experiment then."""
        if self._any_fits or not self._unfit:
            return
        are_alike = all(trial.resources == self._unfit[0].resources for trial in self._unfit)
        if self._exhausted or (len(self._unfit) >= _PENDING_AHEAD and (are_alike or self._spec.num_samples == -1)):
            raise self._unfit[0].exception

    def _add(self, trial: Trial) -> None:
        problem = self._fit(trial)
        numbered = (f"{trial.dirname}_{number}" for number in itertools.count(trial.index))
        trial.dirname = next(name for name in itertools.chain([trial.dirname], numbered) if name not in self._dirnames)
        self._do(instructions.WriteConfig(trial))
        self._record(trial_record(trial))
        self._join(trial)
        self.waiting[trial.trial_id] = trial
        suggested = trial.config
        self._scheduler.on_trial_add(self, trial)
        if trial.config is not suggested:
            self._configure(trial, trial.config)
        if problem is not None:
            self._refuse(trial, problem)

    def _join(self, trial: Trial) -> None:
        self.trials.append(trial)
        self._dirnames.add(trial.dirname)

    def _configure(self, trial: Trial, config: dict, iteration: int | None = None) -> None:
        trial.config = config
        self._record(config_record(trial, iteration))
        self._do(instructions.WriteConfig(trial))

    def _start_trials(self) -> None:
        while self.waiting and any(self.used[name] < quantity for name, quantity in self.total.items()):
            trial = self._next_trial()
            if trial is None:
                return
            self._start(trial)
            self._add_trials()

    def _next_trial(self) -> Trial | None:
        """The scheduler's choice, after the trials that an interrupted driver left running."""
        while self._interrupted:
            trial = self._interrupted.pop(0)
            if trial.status == PENDING and self.has_resources_for(trial):
                return trial
        return self._scheduler.choose_trial_to_run(self)

    def _settle_deadlock(self) -> None:
        """Ends waiting trials that the scheduler does not start although nothing runs."""
        before = len(self.waiting)
        chosen = self._scheduler.choose_trial_to_run(self)
        if chosen is None and len(self.waiting) == before and self._exhausted:
            for trial in list(self.waiting.values()):
                self._finish(trial, TERMINATED, "the scheduler, which does not let it continue")

    # ------------------------------------------------------------------ running

    def _start(self, trial: Trial) -> None:
        """Gives a waiting trial its resources and a process.

        A function could not be saved when it was paused: it repeats what came after its own last checkpoint.
        """
        self._has_started = True
        held = trial.resources.total()
        for name, quantity in held.items():
            self.used[name] = self.used.get(name, 0.0) + quantity
        del self.waiting[trial.trial_id]
        running = self.running[trial.trial_id] = RunningTrial(trial, held, self._do)
        if trial.status == PAUSED and self._is_function:
            self._do(instructions.RollBack(trial))
        else:
            self._launch(running)

    def _launch(self, running: RunningTrial) -> None:
        trial = running.trial
        restore = trial.checkpoint_path(trial.checkpoint) if trial.checkpoint else self._spec.restore
        self._do(instructions.Start(trial, restore))
        running.calls.append("start")
        self.verdicts.started(trial)
        trial.status = RUNNING
        self._record(status_record(trial))
        running.is_restored = bool(restore)
        running.ask("step")

    def rolled_back(self, trial: Trial, results: Sequence[Mapping], checkpoints: list[TrialCheckpoint]) -> None:
        """A trial is at its last checkpoint, or at its beginning: a paused one that starts, or one that has failed.

        Args:
            trial: the trial.
            results: its remaining results, the oldest first.
            checkpoints: its remaining checkpoints, the oldest first.
        """
        self._checkpoints.go_back(trial, results, checkpoints)
        self.verdicts.rolled_back(trial)
        if running := self.running.get(trial.trial_id):
            self._launch(running)
        else:
            self._stand_still(trial, trial.status)

    def answered(self, trial: Trial, answer) -> None:
        """The oldest call of a trial has been answered."""
        running = self.running.get(trial.trial_id)
        if running is None:
            return
        getattr(self, f"_on_{running.calls.popleft()}")(running, answer)

    def _on_start(self, running: RunningTrial, answer: Mapping[str, Any]) -> None:
        trial = running.trial
        trial.pid, trial.hostname = answer["pid"], answer["hostname"]
        if answer.get("seed") is not None and trial.config.get("seed") is None:
            trial.seed = answer["seed"]
            self._do(instructions.WriteConfig(trial))
        self._do(instructions.CallHook("on_trial_start", running.trial))
        if running.is_restored:
            self._do(instructions.CallHook("on_trial_restore", running.trial))

    def _on_step(self, running: RunningTrial, answer: tuple[dict, str | None]) -> None:
        (result, checkpoint), trial = answer, running.trial
        if result.get("no_report"):  # a function has returned nothing
            trial.is_done()
            if checkpoint:
                self._checkpoints.take(trial, checkpoint)
            self._complete(running, None)
            return
        result["config"] = trial.config
        trial.take(result)
        result = trial.last_result  # answers to all names of its keys
        self._do(instructions.WriteResult(trial, result))
        self._check_names(result)
        self.verdicts.see(result)
        if checkpoint:
            self._checkpoints.take(trial, checkpoint)
        self._do(instructions.CallHook("on_trial_result", trial, {"result": result}))
        if running.ending is not None:
            return
        try:
            self.verdicts.check_type(result)
            reached = self._spec.stop.reached(trial.trial_id, result)
        except NotANumberError as error:
            self._leave(running)
            self._fail(trial, error)
            return
        if result.get("done") or reached:
            self._complete(running, reached)
        else:
            self._follow(running, self._decision(trial, result))

    def _check_names(self, result: Result) -> None:
        """Refuses, with the first result, settings that name a key which no result has: trials might run for ever.

        A key that an interrupted driver has seen need not be in this result.
        """
        if self._names_checked or (result.get("done") and not set(result) - AUTOMATIC_KEYS):
            return
        self._names_checked = True
        for what, key in self._spec.result_keys():
            try:
                check_key(result, key, what)
            except ValueError as error:
                if any(key in trial.metric_analysis for trial in self.trials):
                    continue
                if os.environ.get(_NOT_STRICT, "0") == "0":
                    raise ValueError(
                        f"{error} Report a key that comes later as NaN from the beginning on, or set {_NOT_STRICT}=1."
                    ) from None
                self._warn_once(key, f"{error} Trials continue until a result has it.")

    def _decision(self, trial: Trial, result: dict, is_new: bool = True) -> str:
        """The decision of searcher and scheduler; the journal has the result before it is reported to them."""
        standing = self.verdicts.standing(trial, result, is_new)
        if standing is not None:
            return standing
        self._record(result_record(trial, self.verdicts.metrics))
        return self.verdicts.report(self, trial, result)

    def _follow(self, running: RunningTrial, decision: str) -> None:
        """Carries out the decision about a result, unless the scheduler has commanded it already."""
        trial = running.trial
        if running.ending is not None or self.running.get(trial.trial_id) is not running:
            return
        if decision == "STOP":
            self._complete(running, "the scheduler")
        elif decision == "PAUSE":
            self.pause_trial(trial)
        elif not self.takeovers.is_to_come(trial):
            if self._checkpoints.is_due(trial) and not running.is_saving:
                running.save()
            if "step" not in running.calls:
                running.ask("step")

    def _on_save(self, running: RunningTrial, path: str) -> None:
        self._checkpoints.take(running.trial, path)
        self._do(instructions.CallHook("on_trial_save", running.trial))
        self.takeovers.release(running.trial)

    def _on_export(self, running: RunningTrial, written: Mapping[str, str]) -> None:
        logger.info("%s has exported %s", running.trial, ", ".join(written.values()))

    # ------------------------------------------------------------------ ending

    def _complete(self, running: RunningTrial, reason: str | None) -> None:
        """Ends a trial that is done, has reached a stop criterion, or is stopped by the scheduler."""
        trial = running.trial
        trial.is_done()
        running.ending = (TERMINATED, reason)
        self._record(ending_record(trial, self.verdicts.metrics, with_result=not self.verdicts.has_judged(trial)))
        self.verdicts.leave(self, trial)
        if self._is_function and reason is None:
            self._bury(running)  # the function has returned: there is nothing to close
        else:
            self._end(running, TERMINATED, reason, self._checkpoints.at_end or self._checkpoints.is_due(trial))

    def _end(self, running: RunningTrial, status: str, reason: str | None, save: bool = False) -> None:
        """Asks the process to close; the trial gets this status when it has, or when its time for that is over."""
        running.ending = (status, reason)
        trial = running.trial
        if trial.status != RUNNING:  # its process has not been started
            self._bury(running)
            return
        is_being_saved = trial.is_saved or running.is_saving  # what is asked for before a step is written before it
        has_news = "step" in running.calls or (bool(trial.last_result) and not is_being_saved)
        if save and has_news and not self._is_function:
            running.save()
        if status == TERMINATED and self._spec.export_formats and trial.last_result:
            running.ask("export", list(self._spec.export_formats))
        running.ask("rest" if self._spec.reuse_actors and status == TERMINATED else "close")

    def _on_close(self, running: RunningTrial, problem: str | None) -> None:
        if problem:
            logger.warning("%s could not end well:\n%s", running.trial, problem)
        self._bury(running)

    _on_rest = _on_close

    def _bury(self, running: RunningTrial) -> None:
        """Ends the trial's process, frees its resources and gives it its status."""
        status, reason = running.ending
        self._leave(running, in_order=status == TERMINATED)
        if status in (PENDING, PAUSED):
            self._stand_still(running.trial, status)
        else:
            self._finish(running.trial, status, reason)

    def _leave(self, running: RunningTrial, in_order: bool = False) -> None:
        trial = running.trial
        del self.running[trial.trial_id]
        for name, quantity in running.held.items():
            self.used[name] -= quantity
        trial.pid = None
        self._do(instructions.Leave(trial, in_order))

    def _stand_still(self, trial: Trial, status: str) -> None:
        """Lets a trial wait, PENDING or PAUSED."""
        trial.status = status
        self.waiting[trial.trial_id] = trial
        self._record(status_record(trial))
        self.takeovers.release(trial)

    def _finish(self, trial: Trial, status: str, reason: str | None) -> None:
        self.record_end(trial, status, reason)
        self.takeovers.release(trial)
        self.verdicts.end(self, trial)
        self._do(instructions.CallHook("on_trial_error" if status == ERROR else "on_trial_complete", trial))
        if status != ERROR:
            self.verdicts.refuse_missing_metric(trial)

    def record_end(self, trial: Trial, status: str, reason: str | None) -> None:
        """Records the end of a trial that has been reported to searcher and scheduler."""
        self.waiting.pop(trial.trial_id, None)
        trial.status, trial.stopped_by = status, reason
        trial.settle()
        self._record(status_record(trial))

    def end_as_left(
        self, trial: Trial, results: Sequence[Mapping], checkpoints: list[TrialCheckpoint], reason: str
    ) -> None:
        """Records the end of a trial of the journal, with the results and checkpoints that its files have."""
        self._checkpoints.go_back(trial, results, checkpoints)
        self.record_end(trial, TERMINATED, reason)

    def failed(self, trial: Trial, exception: BaseException, text: str) -> None:
        """A trial has raised, or its process has died; it starts again from its last checkpoint if it may.

        One that was about to be paused is paused at that checkpoint. One that was about to end ends with the error.

        Args:
            trial: the trial.
            exception: the one that it raised, or the death of its process.
            text: the traceback, or the exception as text.
        """
        running = self.running.get(trial.trial_id)
        if running is None:
            return
        self._leave(running)
        allowed = self._spec.failures.max_failures
        is_to_continue = running.ending is None or running.ending[0] in (PENDING, PAUSED)
        if is_to_continue and (allowed < 0 or trial.num_failures < allowed):
            trial.status = running.ending[0] if running.ending else PENDING
            self._note_failure(trial, exception, text)
            logger.warning("%s has failed (%d of at most %s times) and starts again from %s: %s", trial,
                           trial.num_failures, allowed if allowed >= 0 else "any number of",
                           trial.checkpoint.name if trial.checkpoint else "the beginning",
                           why_raised(text))  # fmt: skip
            self._do(instructions.CallHook("on_trial_recover", trial))
            self._do(instructions.RollBack(trial))
            return
        self._fail(trial, exception, text)

    def _fail(self, trial: Trial, exception: BaseException, text: str = "") -> None:
        """Lets a trial that has no process fail for good."""
        self._note_failure(trial, exception, text or f"{type(exception).__name__}: {exception}")
        self.first_failed = self.first_failed or trial
        self._finish(trial, ERROR, "an error")

    def _note_failure(self, trial: Trial, exception: BaseException, text: str) -> None:
        trial.num_failures, trial.exception, trial.error = trial.num_failures + 1, exception, text
        self._do(instructions.WriteError(trial))

    # ------------------------------------------------------------------ the runner of schedulers (schedulers/base.py)

    def has_resources_for(self, trial: Trial) -> bool:
        limit = self._spec.max_concurrent_trials
        if limit and len(self.running) >= limit:
            return False
        need = trial.resources.total()
        return all(self.used.get(name, 0) + q <= self.total.get(name, 0) + 1e-6 for name, q in need.items())

    def waiting_trials(self) -> list[Trial]:
        return [trial for trial in self.waiting.values() if not self.takeovers.is_to_come(trial)]

    def write_file(self, name: str, text: str, append: bool = False) -> None:
        self._do(instructions.WriteText(name, text, append))

    def pause_trial(self, trial: Trial) -> None:
        running = self.running.get(trial.trial_id)
        if running and running.ending is None:
            self._end(running, PAUSED, None, save=True)

    def stop_trial(self, trial: Trial) -> None:
        running = self.running.get(trial.trial_id)
        if running is None:
            if not trial.is_finished:
                self._finish(trial, TERMINATED, "the scheduler")
        elif running.ending is not None:
            running.ending = (TERMINATED, "the scheduler")
        else:
            self._end(running, TERMINATED, "the scheduler", save=self._checkpoints.at_end)

    def saved_state(self, trial: Trial) -> Mapping[str, float] | None:
        return self.takeovers.state_of(trial)

    def exploit(self, trial: Trial, source: Trial, config: dict) -> None:
        self.takeovers.begin(Takeover(trial, source, config))

    def adopted(self, trial: Trial, checkpoint: TrialCheckpoint, config: dict) -> None:
        """A checkpoint of another trial has been copied into the trial's directory; the trial continues from it."""
        self.takeovers.adopted(trial)
        self._checkpoints.add(trial, checkpoint)
        self._configure(trial, config, checkpoint.iteration)
        self.verdicts.adopted(self, trial, checkpoint.iteration)
        running = self.running.get(trial.trial_id)
        if running and running.ending is None:
            self._end(running, PENDING, None)
