"""From start to end of single trials: what they are asked, and what follows from their answers.

A trial that runs is an actor with a queue of calls of which the oldest is waited for. Results go to files and to
searcher and scheduler, whose decision lets the trial go on, stand still or end. A trial that is to end has its `ending`
set and is asked to close; when it has, or has not in time, it is buried.
"""

import logging
import time
from collections.abc import Mapping
from pathlib import Path

import runtime
from rllib.tune import hangs, trial_files
from rllib.tune.experiment_callbacks import Observers
from rllib.tune.run_settings import RunSettings
from rllib.tune.trial import ERROR, PAUSED, PENDING, TERMINATED, Trial, TrialCheckpoint
from rllib.tune.trial_decisions import TrialDecisions
from rllib.tune.trial_pool import Live, TrialPool
from rllib.tune.trial_records import TrialRecords
from runtime.errors import RuntimeFailure, TaskError

logger = logging.getLogger(__name__)

# How long a trial may take to end.
_CLOSE_S = 20.0


class TrialLifecycle:
    """Leads trials through their lives; schedulers know it as their runner (schedulers/base.py).

    Args:
        records: of the trials as they stand.
        pool: that they run in.
        decisions: of searcher and scheduler, whether they go on.
        settings: how they are run.
        observers: hear of what happens.
        is_function: whether the trainable is a function, which saves itself.

    Attributes:
        trials: all so far, in the order of creation.
        first_failed: the first trial that has failed for good.
    """

    def __init__(
        self,
        records: TrialRecords,
        pool: TrialPool,
        decisions: TrialDecisions,
        settings: RunSettings,
        observers: Observers,
        is_function: bool,
    ):
        self.trials = records.trials
        self.first_failed: Trial | None = None
        self._records, self._pool, self._decisions, self._settings = records, pool, decisions, settings
        self._observers, self._is_function = observers, is_function
        self._live = pool.live
        self._exploits: dict[str, list[tuple[Trial, dict]]] = {}  # source -> who waits for its next checkpoint

    # ------------------------------------------------------------------ what schedulers see

    def has_resources_for(self, trial: Trial) -> bool:
        """Whether the trial could start now."""
        limit = self._settings.max_concurrent
        if limit and len(self._live) >= limit:
            return False
        return self._pool.fits(trial.resources)

    def waiting_trials(self) -> list[Trial]:
        """Those that are PENDING or PAUSED, in the order in which they came to be so."""
        return list(self._records.waiting.values())

    def write_file(self, name: str, text: str, append: bool = False) -> None:
        """Writes, or appends to, a file in the experiment's directory."""
        with open(self._records.directory.path / name, "a" if append else "w") as file:
            file.write(text)

    def pause_trial(self, trial: Trial) -> None:
        """Saves the trial and gives its resources free; `choose_trial_to_run` may have it go on later."""
        live = self._live.get(trial.trial_id)
        if live and live.ending is None:
            self.end(live, PAUSED, None, save=not self._is_function)

    def stop_trial(self, trial: Trial) -> None:
        """Ends the trial, whatever it is doing."""
        live = self._live.get(trial.trial_id)
        if live is None:
            if not trial.is_finished:
                self.finish(trial, TERMINATED, "the scheduler")
        elif live.calls and live.ending is None:
            live.ending = (TERMINATED, "the scheduler")
            self.bury(live)
        elif live.ending is None:
            self.end(live, TERMINATED, "the scheduler")
        else:
            live.ending = (TERMINATED, "the scheduler")

    def saved_state(self, trial: Trial) -> Mapping[str, float] | None:
        """See schedulers/base.py."""
        live = self._live.get(trial.trial_id)
        is_saved_on_demand = live is not None and not self._is_function
        if is_saved_on_demand and (live.ending is None or live.ending[0] == PAUSED):
            return None
        if trial.checkpoint is None:
            self._observers.warn_once(f"state {trial}", f"{trial} has no checkpoint for another trial to go on from")
            return {}
        return trial.checkpoint.metrics

    def exploit(self, trial: Trial, source: Trial, config: dict) -> None:
        """Has the trial go on from the newest checkpoint of another one, with another configuration."""
        live = self._live.get(source.trial_id)
        if self._live.get(trial.trial_id):
            self._live[trial.trial_id].waits_for += 1
        if live is None or self._records.is_saved(source) or self._is_function:
            self._take_over(trial, source, config)
            return
        self._records.directory.exploit_planned(trial, source, config)
        self._exploits.setdefault(source.trial_id, []).append((trial, config))
        if live.ending is None:
            self.ask(live, "save", self._records.place_for_checkpoint(source))

    def _take_over(self, trial: Trial, source: Trial, config: dict) -> None:
        """The second half of `exploit`: the source's checkpoint is there, if it could be made."""
        live = self._live.get(trial.trial_id)
        if live:
            live.waits_for -= 1
        if source.checkpoint is None:
            self._observers.warn_once(f"exploit {source}", f"{source} has no checkpoint that {trial} could go on from")
            if live and not live.calls and live.ending is None:
                self.ask(live, "step")
            return
        self._records.adopt(trial, source, config)
        self._decisions.goes_over(trial, trial.checkpoint.iteration)
        if live and live.ending is None:
            self.end(live, PENDING, None)

    def _release_exploits(self, source: Trial) -> None:
        for trial, config in self._exploits.pop(source.trial_id, []):
            self._take_over(trial, source, config)

    # ------------------------------------------------------------------ starting and asking

    def start(self, trial: Trial) -> None:
        """A trial that waits starts, or goes on from its checkpoint."""
        if trial.status == PAUSED and self._is_function:
            # It could not be saved when it was paused, and does again what came after its own last checkpoint.
            trial_files.roll_back(trial)
            self._decisions.goes_back(trial)
        restore = self._restored_from(trial)
        live = self._pool.start(trial, restore)
        self._records.started(trial)
        self._decisions.goes_on(trial)
        self.ask(live, "step")
        if restore:
            self._observers.hear("on_trial_restore", trial=trial)

    def _restored_from(self, trial: Trial) -> str | None:
        return trial.checkpoint_path(trial.checkpoint) if trial.checkpoint else self._settings.restore

    def ask(self, live: Live, what: str, *arguments) -> None:
        """Asks the trial for something; one that cannot be asked has failed."""
        if self._live.get(live.trial.trial_id) is not live:
            return
        try:
            self._pool.ask(live, what, *arguments)
        except RuntimeFailure as error:
            self._fail(live, error)

    def take_answer(self, live: Live) -> None:
        """The oldest question of this trial has been answered."""
        if self._live.get(live.trial.trial_id) is not live or not live.calls:
            return  # ended meanwhile, by what another trial's result led to
        what, reference = live.take_answered()
        try:
            answer = runtime.get(reference)
        except RuntimeFailure as error:
            if what == "save" and isinstance(error, TaskError) and live.ending is None:
                self._release_exploits(live.trial)
            self._fail(live, error)
            return
        getattr(self, f"_on_{what}")(live, answer)

    # ------------------------------------------------------------------ answers

    def _on_start(self, live: Live, answer: dict) -> None:
        live.trial.pid, live.trial.hostname = answer["pid"], answer["hostname"]
        self._observers.hear("on_trial_start", trial=live.trial)

    def _on_reset(self, live: Live, answer: dict | None) -> None:
        """An actor of an ended trial has been asked to start over; if it cannot, a new one is started."""
        if answer:
            self._on_start(live, answer)
            return
        live.calls.clear()
        self._pool.start_anew(live, self._restored_from(live.trial))
        self.ask(live, "step")

    def _on_step(self, live: Live, answer: tuple[dict, str | None]) -> None:
        result, checkpoint = answer
        trial = live.trial
        if result.get("no_report"):
            trial.last_result["done"] = True
            if checkpoint:
                self._take_checkpoint(trial, checkpoint)
            self._complete(live, None)
            return
        self._take_result(live, result, checkpoint)
        if live.ending is not None:
            return
        reached = self._settings.stopper.reached(trial.trial_id, result)
        if result.get("done") or reached:
            result["done"] = True
            self._complete(live, reached)
            return
        self._follow(live, result, self._decisions.decide(self, trial, result))

    def _take_result(self, live: Live, result: dict, checkpoint: str | None) -> None:
        """Everybody has the result, and the checkpoint that came with it."""
        trial = live.trial
        result["config"] = trial.config
        trial.take(result)
        live.files.on_result(result)
        self._decisions.see(result)
        if checkpoint:
            self._take_checkpoint(trial, checkpoint)
        self._observers.hear("on_trial_result", trial=trial, result=result)

    def _follow(self, live: Live, result: dict, decision: str) -> None:
        """Does what was decided after this result."""
        trial = live.trial
        if live.ending is not None or self._live.get(trial.trial_id) is not live:
            return  # the scheduler has seen to it
        if decision == "STOP":
            result["done"] = True
            self._complete(live, "the scheduler")
        elif decision == "PAUSE":
            self.pause_trial(trial)
        else:
            if self._is_due(trial):
                self.ask(live, "save", self._records.place_for_checkpoint(trial))
            if not live.waits_for:
                self.ask(live, "step")

    def _is_due(self, trial: Trial) -> bool:
        """Whether its checkpoint_freq wants a checkpoint now."""
        frequency = self._settings.checkpoint_freq
        return bool(frequency) and trial.last_result["training_iteration"] % frequency == 0

    def _take_checkpoint(self, trial: Trial, path: str) -> None:
        """A checkpoint has been written, and belongs to the trial's last result."""
        iteration = trial.last_result.get("training_iteration", 0)
        numbers = {key: stats["last"] for key, stats in trial.metric_analysis.items()}
        self._records.add_checkpoint(trial, TrialCheckpoint(Path(path).name, iteration, numbers))

    def _on_save(self, live: Live, path: str) -> None:
        trial = live.trial
        self._take_checkpoint(trial, path)
        self._observers.hear("on_trial_save", trial=trial)
        self._release_exploits(trial)

    def _on_export(self, live: Live, written: dict[str, str]) -> None:
        logger.info("%s has exported %s", live.trial, ", ".join(written.values()))

    def _on_close(self, live: Live, problem: str | None) -> None:
        if problem:
            logger.warning("%s could not end well:\n%s", live.trial, problem)
        self.bury(live)

    def _on_rest(self, live: Live, nothing: None) -> None:
        self.bury(live)

    # ------------------------------------------------------------------ ending

    def _complete(self, live: Live, reason: str | None) -> None:
        """A trial has come to its end by itself."""
        save = self._settings.checkpoint_at_end or self._is_due(live.trial)
        if self._is_function and live.trial.last_result.get("done") and reason is None:
            live.ending = (TERMINATED, None)  # the function has returned: there is nothing to close
            self.bury(live)
        else:
            self.end(live, TERMINATED, reason, save)

    def end(self, live: Live, status: str, reason: str | None, save: bool = False) -> None:
        """Has the trial close; it ends with this status when it has, or when its time for that is over."""
        live.ending = (status, reason)
        live.deadline = time.monotonic() + _CLOSE_S
        trial = live.trial
        if save and trial.last_result and not self._records.is_saved(trial):
            self.ask(live, "save", self._records.place_for_checkpoint(trial))
        if status == TERMINATED and self._settings.export_formats and trial.last_result:
            self.ask(live, "export", list(self._settings.export_formats))
        self.ask(live, "rest" if self._pool.reuses_actors and status == TERMINATED else "close")

    def bury(self, live: Live) -> None:
        """The trial's process is ended, its resources are free, and it gets its status."""
        trial = live.trial
        status, reason = live.ending
        self._leave(live, in_order=status == TERMINATED)
        if status in (PENDING, PAUSED):
            self._records.stands_still(trial, status)
            self._release_exploits(trial)
        else:
            self.finish(trial, status, reason)

    def _leave(self, live: Live, in_order: bool = False) -> None:
        live.trial.pid = None
        self._pool.leave(live, in_order)

    def finish(self, trial: Trial, status: str, reason: str | None) -> None:
        """The trial has ended for good: everybody hears of it."""
        self._records.finished(trial, status, reason)
        self._release_exploits(trial)
        self._decisions.end(self, trial)
        if status == ERROR:
            self._observers.hear("on_trial_error", trial=trial)
        else:
            self._observers.hear("on_trial_complete", trial=trial)
            self._decisions.refuse_missing_metric(trial)

    def _fail(self, live: Live, error: BaseException) -> None:
        """The trial has raised, or its process has died."""
        trial = live.trial
        if self._live.get(trial.trial_id) is not live:
            return
        self._leave(live)
        allowed = self._settings.max_failures
        tries_again = live.ending is None and (allowed < 0 or trial.num_failures < allowed)
        self._records.failed(trial, error, tries_again, allowed)
        if tries_again:
            self._decisions.goes_back(trial)
            self._release_exploits(trial)
            return
        self.first_failed = self.first_failed or trial
        self.finish(trial, ERROR, "an error")
        if self._settings.fail_fast == "raise":
            raise trial.exception

    # ------------------------------------------------------------------ by force

    def check_deadlines(self) -> None:
        """Ends the trials that do not answer."""
        now = time.monotonic()
        for live in list(self._live.values()):
            if live.deadline is not None and live.deadline < now:
                self.kill(live)
            elif reason := hangs.overdue(live, self._settings.trial_time_s):
                live.ending = (TERMINATED, reason)
                self.kill(live)

    def kill(self, live: Live) -> None:
        """Ends a trial that does not answer, and says so."""
        logger.warning("%s hangs in %s, and its process is killed; its results so far are kept", live.trial,
                       hangs.doing(live))  # fmt: skip
        self.bury(live)

    def abandon(self) -> None:
        """Kills what runs, in spite of everything; nothing is written any more."""
        for live in list(self._live.values()):
            try:
                self._leave(live)
            except Exception:
                logger.debug("while giving up %s", live.trial, exc_info=True)
