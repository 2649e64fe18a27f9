"""An experiment that goes on: searcher, scheduler and trials get to know again what they knew.

The state of searcher and scheduler was written at some record of the journal. What came after it is told them again, in
its order, so that they know, and say, what they would have without the interruption. Departure: a trial that was to
take over the weights of one that had not been saved yet takes those of its last checkpoint.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib.tune.experiment import ExperimentDirectory
from rllib.tune.loggers import read_results
from rllib.tune.trial import ERROR, PENDING, RUNNING, TERMINATED, Trial
from rllib.tune.trial_files import roll_back, start_over
from rllib.tune.trial_records import apply_record, config_of
from rllib.tune.trials import Trials, Verdicts

_ERRORED_TOO = ("ERRORED_ONLY", "AUTO+ERRORED", "RESTART_ERRORED")


def take_up(trials: Trials, directory: ExperimentDirectory, resume, is_function: bool) -> None:
    """Puts the trials of the journal, and what searcher and scheduler knew, into `trials`."""
    if not directory.past:
        return
    snapshot = directory.read_snapshot()
    if snapshot:
        trials.set_state(snapshot)
    told = Retelling(trials.verdicts, directory.path, directory.past, is_function)
    told.retell(snapshot.get("position", 1) - 1)
    directory.past = []

    def runs_on(trial: Trial) -> bool:
        if trial.trial_id in told.stopped:
            return False
        if trial.status == ERROR:
            if resume == "RESTART_ERRORED":
                start_over(trial)
            return resume in _ERRORED_TOO
        return trial.status != TERMINATED and resume != "ERRORED_ONLY"

    queue = told.queue()
    for trial in told.by_id.values():
        trials.take_up(trial, roll_back(trial) if runs_on(trial) else None)
    trials.queue_up(queue)
    for trial in told.stopped.values():
        trials.record_end(trial, TERMINATED, "the scheduler")
    for trial_id, (source_id, config) in told.exploits.items():
        if trial_id in trials.waiting:
            trials.exploit(told.by_id[trial_id], told.by_id[source_id], config)


class Retelling:
    """Tells searcher and scheduler what is in the journal; they know it as their runner (schedulers/base.py).

    What they order now has been done already, if the journal says so in what follows; else it is kept.

    Args:
        verdicts: of searcher and scheduler.
        path: of the experiment.
        records: of its journal, without the header.
        is_function: whether the trainable is a function, which saves itself.

    Attributes:
        by_id: the trials as they are at the record that is told.
        stopped: trial id -> trial that the scheduler has ended, and the journal does not know it.
        exploits: trial id -> (source, configuration) that it is to take over and has not.
    """

    def __init__(self, verdicts: Verdicts, path: Path, records: list[dict], is_function: bool):
        self.by_id: dict[str, Trial] = {}
        self.stopped: dict[str, Trial] = {}
        self.exploits: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._verdicts, self._path, self._records, self._is_function = verdicts, path, records, is_function
        self._waiting: dict[str, Trial] = {}
        self._going_over: dict[str, Trial] = {}  # that have another's checkpoint, and whose process is to end

    @property
    def trials(self) -> list[Trial]:
        """All so far, in the order of creation."""
        return list(self.by_id.values())

    def queue(self) -> list[Trial]:
        """Those that wait, in their order; they are PENDING or PAUSED."""
        going_over = {**self._going_over, **{trial_id: self.by_id[trial_id] for trial_id in self.exploits}}
        for trial_id, trial in going_over.items():
            if trial.status == RUNNING:
                trial.status = PENDING
                self._waiting[trial_id] = trial
        return list(self._waiting.values())

    def retell(self, known: int) -> None:
        """Goes through the journal.

        Args:
            known: number of records at its beginning that searcher and scheduler know already.
        """
        for record in self._records[:known]:
            apply_record(record, self.by_id, self._path)
            self._follow(record)
        results = _results(self._path, self._records, known)
        for number, record in enumerate(self._records[known:], known):
            getattr(self, f"_tell_{record['type']}", self._apply)(record, results.get(number))

    def _follow(self, record: dict) -> None:
        """What is remembered of a record that was applied."""
        trial = self.by_id.get(record.get("id"))
        kind = record["type"]
        if kind == "exploit":
            self.exploits[trial.trial_id] = (record["source"], config_of(record))
        elif kind == "config" and "iteration" in record:
            self.exploits.pop(trial.trial_id, None)
            self._going_over[trial.trial_id] = trial
        elif kind in ("trial", "status"):
            self._waiting.pop(trial.trial_id, None)
            self._going_over.pop(trial.trial_id, None)
            if trial.status != RUNNING and not trial.is_finished:
                self._waiting[trial.trial_id] = trial
            self.stopped.pop(trial.trial_id, None)

    def _apply(self, record: dict, result: None = None) -> None:
        apply_record(record, self.by_id, self._path)
        self._follow(record)

    # ------------------------------------------------------------------ records

    def _tell_trial(self, record: dict, result: None) -> None:
        self._apply(record)
        trial = self.by_id[record["id"]]
        searcher = self._verdicts.searcher
        if searcher.suggest(trial.trial_id) != trial.config:
            searcher.on_trial_complete(trial.trial_id, error=True)
        self._verdicts.scheduler.on_trial_add(self, trial)

    def _tell_result(self, record: dict, result: dict | None) -> None:
        trial = self.by_id[record["id"]]
        if result is not None:
            trial.last_result = {**result, "config": trial.config}
            self._verdicts.hear(self, trial, trial.last_result)

    def _tell_config(self, record: dict, result: None) -> None:
        self._apply(record)
        if "iteration" in record:
            self._verdicts.goes_over(self.by_id[record["id"]], record["iteration"])

    def _tell_status(self, record: dict, result: None) -> None:
        trial = self.by_id[record["id"]]
        is_known = trial.trial_id in self.stopped
        by_scheduler = (record.get("stopped_by") or "").startswith("the scheduler")
        if trial.trial_id in self._waiting and (record["status"] == RUNNING or by_scheduler):
            # That came of asking the scheduler whom to run, which may have ended others, too.
            self._verdicts.scheduler.choose_trial_to_run(self)
            is_known = is_known or trial.trial_id in self.stopped
        self._apply(record)
        if trial.status == RUNNING:
            self._verdicts.goes_on(trial)
        elif trial.is_finished and not is_known:
            self._verdicts.end(self, trial)

    # ------------------------------------------------------------------ what schedulers see

    def waiting_trials(self) -> list[Trial]:
        """Those that were PENDING or PAUSED."""
        return list(self._waiting.values())

    def has_resources_for(self, trial: Trial) -> bool:
        """Whoever was chosen had them."""
        return True

    def write_file(self, name: str, text: str, append: bool = False) -> None:
        """It was written then."""

    def pause_trial(self, trial: Trial) -> None:
        """The journal says so in what follows, or the trial goes on."""

    def stop_trial(self, trial: Trial) -> None:
        """Ends the trial."""
        if trial.is_finished:
            return
        trial.status = TERMINATED
        self._waiting.pop(trial.trial_id, None)
        self.stopped[trial.trial_id] = trial
        self._verdicts.end(self, trial)

    def saved_state(self, trial: Trial) -> Mapping[str, float] | None:
        """See schedulers/base.py."""
        if trial.status == RUNNING and not self._is_function:
            return None
        return trial.checkpoint.metrics if trial.checkpoint else {}

    def exploit(self, trial: Trial, source: Trial, config: Mapping[str, Any]) -> None:
        """Is still to be done, unless the journal says that it was."""
        self.exploits[trial.trial_id] = (source.trial_id, config)


def _results(path: Path, records: list[dict], known: int) -> dict[int, dict]:
    """Number of a record -> the result that it tells of, for those that come after the known ones.

    Records and the lines of result.json have the same order, but lines may have been taken out and written again; so
    they are matched by iteration, from the end.
    """
    directories = {record["id"]: path / record["dir"] for record in records if record["type"] == "trial"}
    lines: dict[str, list[dict]] = {}
    found = {}
    for number in range(len(records) - 1, known - 1, -1):
        record = records[number]
        if record["type"] != "result":
            continue
        trial_id = record["id"]
        if trial_id not in lines:
            lines[trial_id] = read_results(directories[trial_id])
        left = lines[trial_id]
        same = (i for i in reversed(range(len(left))) if left[i]["training_iteration"] == record["iteration"])
        if (index := next(same, None)) is not None:
            found[number] = left[index]
            del left[index:]
    return found
