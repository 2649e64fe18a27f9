"""Records of trials in the journal: written from trials, and applied to restore them.

JSON has no NaN and no infinity. Where a record has numbers alone, null is NaN, and "inf" and "-inf" are infinite. In
results null represents all three, and may have been None, too: it becomes the number that is known to have been there.
"""

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import msgspec

from rllib.errors import DamagedFileError
from rllib.result import as_result
from rllib.runs.entries import lookup
from rllib.storage.foreign_files import inside, printable
from rllib.tune.experiment.journal_values import written
from rllib.tune.experiment.trial import MetricAnalysis, Trial, TrialCheckpoint
from rllib.tune.states import ERROR, PAUSED, PENDING, RUNNING, TERMINATED
from rllib.tune.trainables.resources import Resources


def trial_record(trial: Trial) -> dict[str, Any]:
    return {
        "type": "trial",
        "id": trial.trial_id,
        "index": trial.index,
        "trainable": trial.trainable_name,
        "name": trial.custom_name,
        "dir": trial.dirname,
        "tag": trial.experiment_tag,
        "params": trial.evaluated_params,
        "resources": [dict(trial.resources.own), dict(trial.resources.others)],
        "status": PENDING,
        **written(trial.config),
    }


# Fields of the header that a program which resumes the experiment may change.
_OF_SETTINGS = ("settings", "metric", "mode", "num_samples")


def settings_record(header: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment that is resumed has other settings from now on, those of this header."""
    return {"type": "settings", **{name: header[name] for name in _OF_SETTINGS if name in header}}


def with_settings(header: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """The header with the settings of a `settings_record`.

    Raises:
        ValueError: for a record of another form.
    """
    if not isinstance(record.get("settings", {}), Mapping):
        raise ValueError(f"settings must be a mapping, but are {record['settings']!r:.60}")
    return {**header, **{name: record[name] for name in _OF_SETTINGS if name in record}}


def config_record(trial: Trial, iteration: int | None = None) -> dict[str, Any]:
    """A trial has another configuration, and the iteration of the checkpoint that it has taken over, if any."""
    record = {"type": "config", "id": trial.trial_id, **written(trial.config)}
    return record if iteration is None else {**record, "iteration": iteration}


def result_record(trial: Trial, metrics: Collection[str]) -> dict[str, Any]:
    """A trial's last result, which is in its files, is about to be reported to searcher and scheduler.

    It has the numbers that are infinite, which they are not in the files, and the metrics under their own names.
    """
    iteration = trial.last_result["training_iteration"]
    record = {"type": "result", "id": trial.trial_id, "iteration": iteration}
    infinite = {**_written(trial.infinite.get(iteration, {})), **_infinite(trial.last_result, metrics)}
    return {**record, "infinite": infinite} if infinite else record


def ending_record(trial: Trial, metrics: Collection[str], with_result: bool) -> dict[str, Any]:
    """A trial has ended by its last result, which the record has if it was not reported to searcher and scheduler."""
    record = {"type": "ending", "id": trial.trial_id}
    if not with_result:
        return record
    last = {key: value for key, value in trial.last_result.items() if key != "config"}
    return {**record, "last_result": last, "infinite": _infinite(last, metrics)}


def _infinite(result: Mapping[str, Any], metrics: Collection[str]) -> dict[str, str]:
    """Metric -> "inf" or "-inf", of those that are infinite."""
    values = {metric: lookup(result, metric) for metric in metrics}
    return {metric: str(value) for metric, value in values.items() if value in (math.inf, -math.inf)}


def exploit_record(trial: Trial, source: Trial, config: Mapping[str, Any]) -> dict[str, Any]:
    """A trial is to continue from the next checkpoint of another one, with this configuration."""
    return {"type": "exploit", "id": trial.trial_id, "source": source.trial_id, **written(config)}


def checkpoint_record(trial: Trial, checkpoint: TrialCheckpoint) -> dict[str, Any]:
    record = {"type": "checkpoint", "id": trial.trial_id, **vars(checkpoint)}
    return {**record, "metrics": _written(checkpoint.metrics)}


def removed_record(trial: Trial, checkpoint: TrialCheckpoint) -> dict[str, Any]:
    return {"type": "removed", "id": trial.trial_id, "name": checkpoint.name}


def status_record(trial: Trial) -> dict[str, Any]:
    """A trial has started, waits, or has ended."""
    record = {"type": "status", "id": trial.trial_id, "status": trial.status, "failures": trial.num_failures}
    if trial.status != RUNNING:
        last = {key: value for key, value in trial.last_result.items() if key != "config"}
        record |= {"stopped_by": trial.stopped_by, "error": trial.error, "last_result": last}
    if trial.is_finished:
        record["metric_analysis"] = {key: _written(of_key) for key, of_key in trial.metric_analysis.items()}
    return record


_INFINITE = {"inf": math.inf, "-inf": -math.inf}
# Required fields of each kind of record, and optional ones (NotRequired).
_FIELDS: dict[str, dict[str, Any]] = {
    "trial": {
        "index": int, "trainable": str, "config": Any, "params": dict[str, Any], "name": str | None, "dir": str,
        "tag": str, "resources": tuple[dict[str, float], dict[str, float]],
    },
    "config": {"config": Any, "iteration": NotRequired[float]},
    "exploit": {"config": Any, "source": str},
    "result": {"iteration": float, "infinite": NotRequired[dict[str, str]]},
    "ending": {"last_result": NotRequired[dict[str, Any]], "infinite": NotRequired[dict[str, str]]},
    "checkpoint": {"name": str, "iteration": float, "metrics": dict[str, Any]},
    "removed": {"name": str},
    "status": {
        "status": Literal[PENDING, RUNNING, PAUSED, TERMINATED, ERROR], "failures": int,
        "error": NotRequired[str | None], "stopped_by": NotRequired[str | None],
        "last_result": NotRequired[dict[str, Any]], "metric_analysis": NotRequired[dict[str, dict[str, Any]]],
    },
}  # fmt: skip
_SCHEMAS = {kind: TypedDict(f"{kind} record", {"id": str, **fields}) for kind, fields in _FIELDS.items()}


def check_record(record: Mapping[str, Any], trials: Mapping[str, Trial]) -> None:
    """Checks the form of a record, and that its trial exists.

    Raises:
        ValueError: with the mistake.
    """
    kind = record.get("type")
    if kind not in _SCHEMAS:  # of a newer version
        return
    msgspec.convert(record, _SCHEMAS[kind])
    for name in ("id", "source") if kind != "trial" else ():
        if record.get(name, record["id"]) not in trials:
            raise ValueError(f"there is no trial {record[name]!r}")


def _written(numbers: Mapping[str, float]) -> dict[str, float | str]:
    """Numbers for a record, of which `as_numbers` makes them again."""
    return {key: str(value) if value in (math.inf, -math.inf) else value for key, value in numbers.items()}


def as_numbers(numbers: Mapping[str, float | str | None]) -> dict[str, float]:
    """Numbers of a record, with NaN instead of null, and infinity by its name."""
    return {
        key: math.nan if value is None else _INFINITE[value] if isinstance(value, str) else value
        for key, value in numbers.items()
    }


def not_finite(numbers: Mapping[str, float]) -> dict[str, float]:
    """Picks the numbers that files of results have as null: NaN and infinite ones."""
    return {key: value for key, value in numbers.items() if value in (math.inf, -math.inf) or value != value}


def with_numbers(result: Mapping[str, Any], numbers: Mapping[str, float], prefix: str = "") -> dict[str, Any]:
    """A result of a file, with these numbers, by "a/b" path, in the places where it has null."""
    restored = {}
    for key, value in result.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            value = with_numbers(value, numbers, f"{path}/")
        restored[key] = numbers[path] if value is None and path in numbers else value
    return restored


def with_infinite(results: Sequence[Mapping[str, Any]], trial: Trial) -> list[dict[str, Any]]:
    """Results of a trial's file with the numbers that were infinite."""
    return [with_numbers(result, trial.infinite.get(result.get("training_iteration"), {})) for result in results]


def shown_config(record: Mapping[str, Any]):
    """The configuration in a record as people read it: with names in place of all that JSON cannot hold."""
    return record["config"]


def apply_record(
    record: Mapping[str, Any],
    trials: dict[str, Trial],
    directory: Path,
    config_of: Callable[[Mapping[str, Any]], Any] = shown_config,
) -> None:
    """Brings the trials to their state after this record.

    Args:
        record: a record of the journal.
        trials: trial id -> trial; a new one is added.
        directory: the experiment's directory, out of which no name in a record may lead.
        config_of: reads the configuration in a record (journal_values.py).

    Raises:
        ValueError: for a name that leads out of its directory.
        another error: for a record of another form.
    """
    kind = record["type"]
    if kind == "trial":
        trial = Trial(
            str(record["id"]), record["index"], record["trainable"], config_of(record), record["params"], directory,
            Resources(*record["resources"]),
        )  # fmt: skip
        trial.custom_name = record["name"] and printable(record["name"])
        trial.dirname, trial.experiment_tag = record["dir"], printable(record["tag"])
        inside(directory, trial.dirname, "a trial's directory")
        path = os.fspath(directory)
        for part in Path(os.path.normpath(trial.dirname)).parts:
            path = os.path.join(path, part)
            if os.path.islink(path):
                raise DamagedFileError(f"{path!r} is reached by a symbolic link, which is not followed")
        trials[trial.trial_id] = trial
        return
    trial = trials.get(record.get("id"))
    if trial is None:
        return
    if kind == "config":
        trial.config = config_of(record)
    elif kind == "checkpoint":
        inside(Path(trial.logdir), record["name"], "a checkpoint")
        trial.checkpoints.append(TrialCheckpoint(record["name"], record["iteration"], as_numbers(record["metrics"])))
    elif kind == "result" and "infinite" in record:
        trial.infinite[record["iteration"]] = as_numbers(record["infinite"])
    elif kind == "removed":
        trial.checkpoints = [c for c in trial.checkpoints if c.name != record["name"]]
    elif kind == "status":
        trial.status, trial.num_failures = record["status"], record["failures"]
        trial.stopped_by = record.get("stopped_by")
        trial.error = record.get("error") and printable(record["error"])
        stats = {key: as_numbers(of_key) for key, of_key in record.get("metric_analysis", {}).items()}
        if record.get("last_result"):
            last = not_finite({key: of_key.get("last", 0) for key, of_key in stats.items()})
            trial.last_result = as_result({**with_numbers(record["last_result"], last), "config": trial.config})
        if "metric_analysis" in record:
            trial.analysis = MetricAnalysis()
            trial.analysis._stats = stats
