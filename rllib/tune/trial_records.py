"""Trials as records of the journal: what is written of them, and the trials that a journal tells of."""

import base64
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudpickle

from rllib.result import as_result
from rllib.tune.resources import Resources
from rllib.tune.trial import PENDING, RUNNING, MetricAnalysis, Trial, TrialCheckpoint

_PLAIN = (str, int, float, bool, type(None))


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
        **_written(trial.config),
    }


def config_record(trial: Trial, iteration: int | None = None) -> dict[str, Any]:
    """A trial has another configuration; with the iteration of the checkpoint that it has taken over, if it has."""
    record = {"type": "config", "id": trial.trial_id, **_written(trial.config)}
    return record if iteration is None else {**record, "iteration": iteration}


def result_record(trial: Trial, iteration: int) -> dict[str, Any]:
    """Searcher and scheduler are about to hear of a trial's result, which is in its files."""
    return {"type": "result", "id": trial.trial_id, "iteration": iteration}


def exploit_record(trial: Trial, source: Trial, config: Mapping[str, Any]) -> dict[str, Any]:
    """A trial is to go on from another one's next checkpoint, with this configuration."""
    return {"type": "exploit", "id": trial.trial_id, "source": source.trial_id, **_written(config)}


def checkpoint_record(trial: Trial, checkpoint: TrialCheckpoint) -> dict[str, Any]:
    return {"type": "checkpoint", "id": trial.trial_id, **vars(checkpoint)}


def removed_record(trial: Trial, checkpoint: TrialCheckpoint) -> dict[str, Any]:
    return {"type": "removed", "id": trial.trial_id, "name": checkpoint.name}


def status_record(trial: Trial) -> dict[str, Any]:
    """A trial has started, waits, or has ended."""
    record = {"type": "status", "id": trial.trial_id, "status": trial.status, "failures": trial.num_failures}
    if trial.status != RUNNING:
        last = {key: value for key, value in trial.last_result.items() if key != "config"}
        record |= {"stopped_by": trial.stopped_by, "error": trial.error, "last_result": last}
    if trial.is_finished:
        record["metric_analysis"] = trial.metric_analysis
    return record


def apply_record(record: Mapping, trials: dict[str, Trial], directory: Path, load_objects: bool = True) -> None:
    """Brings the trials, by id, to where they were after this record."""
    kind = record["type"]
    if kind == "trial":
        config = config_of(record, load_objects)
        trial = Trial(
            record["id"], record["index"], record["trainable"], config, record["params"], directory,
            Resources(*record["resources"]),
        )  # fmt: skip
        trial.custom_name, trial.dirname, trial.experiment_tag = record["name"], record["dir"], record["tag"]
        trials[trial.trial_id] = trial
        return
    trial = trials.get(record.get("id"))
    if trial is None:
        return
    if kind == "config":
        trial.config = config_of(record, load_objects)
    elif kind == "checkpoint":
        trial.checkpoints.append(TrialCheckpoint(record["name"], record["iteration"], record["metrics"]))
    elif kind == "removed":
        trial.checkpoints = [c for c in trial.checkpoints if c.name != record["name"]]
    elif kind == "status":
        trial.status, trial.num_failures = record["status"], record["failures"]
        trial.stopped_by, trial.error = record.get("stopped_by"), record.get("error")
        if "last_result" in record:
            trial.last_result = as_result({**record["last_result"], "config": trial.config})
        if "metric_analysis" in record:
            trial.analysis = MetricAnalysis()
            trial.analysis._stats = record["metric_analysis"]


def as_text(value) -> str:
    """A value pickled, as JSON can hold it."""
    return base64.b64encode(cloudpickle.dumps(value)).decode()


def from_text(text: str):
    """What `as_text` was given. Unpickles: only for experiments of one's own."""
    return pickle.loads(base64.b64decode(text))


def config_of(record: Mapping[str, Any], load_objects: bool = True):
    """The configuration in a record.

    Args:
        record: of the kinds "trial", "config" and "exploit".
        load_objects: unpickle what JSON cannot hold; it runs code, so only for one's own files.
    """
    return from_text(record["pickle"]) if load_objects and "pickle" in record else record["config"]


def _written(config) -> dict[str, Any]:
    return {"config": config} if _is_plain(config) else {"config": config, "pickle": as_text(config)}


def _is_plain(value) -> bool:
    """Whether JSON gives back exactly this value."""
    if type(value) is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    if type(value) is list:
        return all(map(_is_plain, value))
    return type(value) in _PLAIN and value == value and value not in (float("inf"), float("-inf"))
