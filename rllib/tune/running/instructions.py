"""Instructions about the trials of an experiment: given by trials.py, carried out by runner.py."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rllib.tune.experiment.trial import Trial, TrialCheckpoint


class Start(NamedTuple):
    """Start a process that makes the trainable, from a checkpoint directory if one is given; that is its first call."""

    trial: Trial
    restore: str | None


class Ask(NamedTuple):
    """Call a method of the trial's process: step, save, export, rest or close (running/actor.py)."""

    trial: Trial
    what: str
    arguments: tuple = ()


class Leave(NamedTuple):
    """End the trial's process; one that has ended in order may be kept for another trial."""

    trial: Trial
    in_order: bool


class Record(NamedTuple):
    """Append to the journal."""

    record: dict[str, Any]


class WriteResult(NamedTuple):
    """Append to result.json and progress.csv."""

    trial: Trial
    result: dict[str, Any]


class WriteConfig(NamedTuple):
    """Write params.json and params.pkl."""

    trial: Trial


class WriteError(NamedTuple):
    """Write error.txt and error.pkl."""

    trial: Trial


class WriteText(NamedTuple):
    """Write, or append to, a file in the experiment's directory."""

    name: str
    text: str
    append: bool


class RollBack(NamedTuple):
    """Remove everything after the trial's newest checkpoint from its files; then report `rolled_back`."""

    trial: Trial


class Adopt(NamedTuple):
    """Copy the newest checkpoint of `source` into the trial's directory; then report `adopted`."""

    trial: Trial
    source: Trial
    config: dict[str, Any]


class Remove(NamedTuple):
    """Remove a checkpoint's directory."""

    trial: Trial
    checkpoint: TrialCheckpoint


class CallHook(NamedTuple):
    """Call a hook of all callbacks (experiment/callbacks.py)."""

    hook: str
    trial: Trial
    more: Mapping[str, Any] = {}
