"""Continues an experiment: restores the state of searcher, scheduler and trials from the journal.

The state of searcher and scheduler was saved at some record of the journal. Later records are replayed to them in
order, so that their state and decisions are the same as without the interruption. Departure: a takeover from a trial
that had not been saved yet takes the weights of that trial's last checkpoint.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib.algorithms.base.places import refuse_places
from rllib.errors import DamagedFileError
from rllib.result import as_result, stored_names
from rllib.runs.files import read_results
from rllib.tune.experiment.directory import ExperimentDirectory
from rllib.tune.experiment.files import as_paused, roll_back, start_over
from rllib.tune.experiment.journal_values import ValueReader
from rllib.tune.experiment.records import apply_record, as_numbers, with_numbers
from rllib.tune.experiment.trial import Trial, TrialCheckpoint
from rllib.tune.running.places import drawn_by_functions, held_configs, possible_with, working_directory
from rllib.tune.running.trials import Trials
from rllib.tune.running.verdicts import Verdicts
from rllib.tune.states import ERROR, PAUSED, PENDING, RUNNING, TERMINATED
from rllib.tune.trainables.checkpoint import refuse_foreign_pickle
from rllib.tune.trainables.resolve import Resolved, settings_of, settings_one_by_one

_ERRORED_TOO = ("ERRORED_ONLY", "AUTO+ERRORED", "RESTART_ERRORED")


def take_up(
    trials: Trials,
    directory: ExperimentDirectory,
    resume,
    resolved: Resolved,
    config_of: ValueReader,
    moves: bool = True,
) -> list | None:
    """Restores the trials of the journal, and the state of searcher and scheduler, in `trials`.

    Args:
        trials: none yet.
        directory: of the experiment.
        resume: as in an ExperimentSpec.
        resolved: the trainable.
        config_of: reads the configurations of records.
        moves: the setting chdir_to_trial_dir.

    Returns:
        The saved states of callbacks; None if there are none.

    Raises:
        ValueError: if files are damaged, or hold code that is not to be loaded; nothing has been changed then.
        UnschedulableError: if an unfinished trial can never fit into this session; nothing has been changed either.
    """
    if not directory.past:
        return None
    is_function = resolved.is_function
    snapshot = directory.read_snapshot()
    try:
        if snapshot:
            # The driver may have run on for a while after it wrote this state.
            trials.set_state(snapshot, max(0.0, directory.journal.written_at - snapshot.get("time", math.inf)))
        known = snapshot.get("position", 1) - 1
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise DamagedFileError(
            f"{directory.path / 'search_state.json'} is damaged, or of other classes: {type(error).__name__}: {error}"
        ) from error
    replay = Replay(trials.verdicts, directory.path, directory.past, is_function, config_of)
    replay.run(known)
    directory.past = []

    def may_continue(trial: Trial) -> bool:
        if trial.trial_id in replay.stopped:
            return False
        if trial.status == ERROR:
            return resume in _ERRORED_TOO
        return trial.status != TERMINATED and resume != "ERRORED_ONLY"

    # Looked at before any file changes.
    continuing = {trial.trial_id for trial in replay.by_id.values() if may_continue(trial)}
    is_foreign = not config_of.load_user_code
    if is_foreign and (continuing or held_configs(trials.verdicts.searcher)):
        _refuse_places(trials, directory.path, replay, resolved, config_of.given, moves)
    if is_foreign and continuing:
        for trial in replay.by_id.values():
            for checkpoint in Path(trial.logdir).glob("checkpoint_*"):
                refuse_foreign_pickle(checkpoint)
    for trial in replay.by_id.values():
        if trial.trial_id not in continuing:
            continue
        trials.request_anew(trial)
        if trial.status != ERROR:  # one that has failed may fail again
            trial.resources.within(trials.total, str(trial))
    for name, text, append in replay.texts:
        directory.complete_text(name, text, append)
    queue = replay.queue()
    left: dict[str, tuple[list, list[TrialCheckpoint]]] = {}
    # Those that take over come last: a checkpoint of their source may be there without a record.
    for trial_id in sorted(filter(continuing.__contains__, replay.by_id), key=replay.exploits.__contains__):
        trial = replay.by_id[trial_id]
        if trial.status == ERROR and resume == "RESTART_ERRORED":
            start_over(trial)
        goes_back_later = is_function and trial.status == PAUSED  # when it starts, if it does
        left[trial_id] = (as_paused if goes_back_later or _takes_over(trial_id, replay, left) else roll_back)(trial)
    for trial in replay.by_id.values():
        trials.take_up(trial, left.get(trial.trial_id), is_paused=is_function and trial.status == PAUSED)
    trials.queue_up(queue)
    for trial in replay.stopped.values():
        # The journal has the statistics of trials that have ended alone.
        trials.end_as_left(trial, *as_paused(trial), "the scheduler")
    for trial_id, (source_id, config) in replay.exploits.items():
        if trial_id in trials.waiting:
            trials.exploit(replay.by_id[trial_id], replay.by_id[source_id], config)
    return snapshot.get("callbacks")


def _refuse_places(
    trials: Trials, path: Path, replay: "Replay", resolved: Resolved, space: Mapping[str, Any], moves: bool
) -> None:
    """Refuses configurations of the journal that name places to write to, of ended trials too: others may take them.

    The search space, the searcher and the scheduler are the program's, or were looked at before (running/tuner.py).

    Raises:
        CheckpointError: with the setting.
    """
    of_trials = [(Path(trial.logdir), trial.config) for trial in replay.trials]
    of_trials += [(Path(replay.by_id[id].logdir), config) for id, (_, config) in replay.exploits.items()]
    of_trials += [(path / "trial", config) for config in held_configs(trials.verdicts.searcher)]
    meant = possible_with(resolved, space, trials.verdicts.searcher, trials.verdicts.scheduler)
    meant += drawn_by_functions(resolved, space, replay.first_configs)
    for directory, config in of_trials:
        try:
            settings = [settings_of(resolved, config)]
        except (TypeError, ValueError):  # no trial can be built with it as it is
            settings = settings_one_by_one(resolved, config)
        refuse_places(settings, path, meant, f"a trial of {path}", working_directory(directory, moves))


def _takes_over(trial_id: str, replay: "Replay", left: Mapping[str, tuple[list, list[TrialCheckpoint]]]) -> bool:
    """Whether a trial is to continue from another one's checkpoint: its own state does not, and its results count.

    Args:
        trial_id: id of the trial.
        replay: of the whole journal.
        left: trial id -> results and checkpoints that its files have, of those that were looked at already.
    """
    if trial_id not in replay.exploits:
        return False
    source = replay.by_id[replay.exploits[trial_id][0]]
    return bool(left[source.trial_id][1] if source.trial_id in left else source.checkpoints)


class Replay:
    """Replays a journal to searcher and scheduler, as their runner (schedulers/base.py).

    A command of the scheduler has been carried out already if a later record says so; the others are kept.

    Args:
        verdicts: verdicts of searcher and scheduler.
        path: path of the experiment.
        records: records of its journal, without the header.
        is_function: whether the trainable is a function, which saves its own checkpoints.
        config_of: reads the configuration in a record.

    Attributes:
        by_id: the trials as they were at the current record.
        stopped: trial id -> trial that the scheduler has ended, while the journal does not have its end.
        exploits: trial id -> (source, configuration) of a takeover that is still to be done.
        first_configs: configurations with which trials began.
        texts: name, text and whether it is appended, of what the scheduler has written to files.
    """

    def __init__(self, verdicts: Verdicts, path: Path, records: list[dict], is_function: bool, config_of: ValueReader):
        self.by_id: dict[str, Trial] = {}
        self.stopped: dict[str, Trial] = {}
        self.exploits: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self.first_configs: list[Mapping[str, Any]] = []
        self.texts: list[tuple[str, str, bool]] = []
        self._verdicts, self._path, self._records, self._is_function = verdicts, path, records, is_function
        self._config_of = config_of
        self._waiting: dict[str, Trial] = {}
        self._adopting: dict[str, Trial] = {}  # have another trial's checkpoint; their process is to end

    @property
    def trials(self) -> list[Trial]:
        """All trials up to the current record, in the order of creation."""
        return list(self.by_id.values())

    def queue(self) -> list[Trial]:
        """The trials that wait (PENDING or PAUSED), in their order."""
        adopting = {**self._adopting, **{trial_id: self.by_id[trial_id] for trial_id in self.exploits}}
        for trial_id, trial in adopting.items():
            if trial.status == RUNNING:
                trial.status = PENDING
                self._waiting[trial_id] = trial
        return list(self._waiting.values())

    def run(self, known: int) -> None:
        """Replays the journal.

        Args:
            known: number of records at its beginning that the state of searcher and scheduler covers.
        """
        for record in self._records[:known]:
            self._apply(record)
        results = _results(self._path, self._records, known)
        for number, record in enumerate(self._records[known:], known):
            getattr(self, f"_replay_{record['type']}", self._apply)(record, results.get(number))

    def _apply(self, record: dict, result: None = None) -> None:
        """Brings the trials to their state after a record, and notes takeovers and waiting trials."""
        apply_record(record, self.by_id, self._path, self._config_of)
        trial = self.by_id.get(record.get("id"))
        kind = record["type"]
        if kind == "trial":
            self.first_configs.append(trial.config)
        if kind == "exploit":
            self.exploits[trial.trial_id] = (record["source"], self._config_of(record))
        elif kind == "ending":  # which calls off what waited for its state
            self.exploits = {id: exploit for id, exploit in self.exploits.items() if exploit[0] != trial.trial_id}
        elif kind == "config" and "iteration" in record:
            self.exploits.pop(trial.trial_id, None)
            self._adopting[trial.trial_id] = trial
        elif kind in ("trial", "status"):
            self._waiting.pop(trial.trial_id, None)
            self._adopting.pop(trial.trial_id, None)
            if trial.status != RUNNING and not trial.is_finished:
                self._waiting[trial.trial_id] = trial
            self.stopped.pop(trial.trial_id, None)

    # ------------------------------------------------------------------ records

    def _replay_trial(self, record: dict, result: None) -> None:
        self._apply(record)
        trial = self.by_id[record["id"]]
        searcher = self._verdicts.searcher
        if searcher.suggest(trial.trial_id) != trial.config:
            searcher.on_trial_complete(trial.trial_id, error=True)
        self._verdicts.scheduler.on_trial_add(self, trial)

    def _replay_result(self, record: dict, result: dict | None) -> None:
        self._apply(record)
        trial = self.by_id[record["id"]]
        if result is not None:
            self._take(trial, result, record)
            self._verdicts.report(self, trial, trial.last_result)

    def _take(self, trial: Trial, result: Mapping, record: Mapping) -> None:
        """Makes a result of a file the trial's last one; a null in place of a metric was infinite, or else NaN."""
        infinite = as_numbers(record.get("infinite", {}))
        numbers = {
            name: infinite.get(metric, math.nan)
            for metric in self._verdicts.metrics
            for name in (metric, *stored_names(metric))
        }
        trial.last_result = as_result({**with_numbers(result, numbers), "config": trial.config})

    def _replay_ending(self, record: dict, result: None) -> None:
        self._apply(record)
        trial = self.by_id[record["id"]]
        if "last_result" in record:
            self._take(trial, record["last_result"], record)
        self._verdicts.leave(self, trial)

    def _replay_config(self, record: dict, result: None) -> None:
        self._apply(record)
        if "iteration" in record:
            self._verdicts.adopted(self, self.by_id[record["id"]], record["iteration"])

    def _replay_status(self, record: dict, result: None) -> None:
        trial = self.by_id[record["id"]]
        is_known = trial.trial_id in self.stopped
        by_scheduler = (record.get("stopped_by") or "").startswith("the scheduler")
        if trial.trial_id in self._waiting and (record["status"] == RUNNING or by_scheduler):
            # The scheduler chose this trial to run, and may have ended other trials with that.
            self._verdicts.scheduler.choose_trial_to_run(self)
            is_known = is_known or trial.trial_id in self.stopped
        if record["status"] == RUNNING:
            self._verdicts.started(trial)
        self._apply(record)
        if trial.is_finished and not is_known:
            self._verdicts.end(self, trial)

    # ------------------------------------------------------------------ the runner of schedulers

    def waiting_trials(self) -> list[Trial]:
        return [trial for trial_id, trial in self._waiting.items() if trial_id not in self.exploits]

    def has_resources_for(self, trial: Trial) -> bool:
        """True: a trial that was chosen had them."""
        return True

    def write_file(self, name: str, text: str, append: bool = False) -> None:
        """Notes a text; the file has it, unless the driver died between the record and the writing."""
        self.texts.append((name, text, append))

    def pause_trial(self, trial: Trial) -> None:
        """Without effect: if the trial was paused, a later record says so."""

    def stop_trial(self, trial: Trial) -> None:
        if trial.is_finished:
            return
        trial.status = TERMINATED
        self._waiting.pop(trial.trial_id, None)
        self.stopped[trial.trial_id] = trial
        self._verdicts.end(self, trial)

    def saved_state(self, trial: Trial) -> Mapping[str, float] | None:
        if trial.status == RUNNING and not self._is_function:
            return None
        return trial.checkpoint.metrics if trial.checkpoint else {}

    def exploit(self, trial: Trial, source: Trial, config: Mapping[str, Any]) -> None:
        """Notes a takeover, which is still to be done unless a later record says otherwise."""
        self.exploits[trial.trial_id] = (source.trial_id, config)


def _results(path: Path, records: list[dict], known: int) -> dict[int, dict]:
    """Number of a "result" record -> its result, for records from number `known` on.

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
