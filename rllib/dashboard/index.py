"""The runs and experiments below a directory, and their changes since a version."""

import os
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rllib.cli.run_directory import SPEC
from rllib.dashboard.journals import Experiment
from rllib.dashboard.run import RESULTS, Run

_DEEPEST = 8


class Index:
    """All runs below a directory. Safe to use from several threads.

    Args:
        root: the directory; it may itself be a run or an experiment.

    Attributes:
        boot: random id of this index; versions belong to one id.
        version: number that grows with every change.
        runs, experiments: by id.
    """

    def __init__(self, root: Path):
        self.root, self.boot = root, secrets.token_hex(4)
        self.version, self.runs, self.experiments = 1, {}, {}
        self._experiment_versions: dict[str, int] = {}
        self._removed: list[tuple[int, str]] = []
        self._lock = threading.Lock()
        self._refreshed_at = float("-inf")

    def refresh(self, older_than_s: float = 0.0, budget_s: float = 0.3) -> None:
        """Looks for changes, unless the last look was too recent.

        Args:
            older_than_s: least time since the last look.
            budget_s: time for reading results; later calls read the rest.
        """
        with self._lock:
            if not self.is_behind and time.monotonic() - self._refreshed_at < older_than_s:
                return
            self._find()
            for experiment in self.experiments.values():
                if experiment.refresh():
                    self._add_trials(experiment)
            for run in self.runs.values():
                if run.refresh():
                    run.version = self._next_version()
                    if run.experiment:
                        self._experiment_versions[run.experiment.id] = self.version
            self._read_results(budget_s)
            self._refreshed_at = time.monotonic()

    def run(self, id: str) -> Run | None:
        """Returns the run with this id, or None. Waits for a refresh under way, which fills the row."""
        with self._lock:
            return self.runs.get(id)

    @property
    def is_behind(self) -> bool:
        """Whether there are results to be read."""
        return any(run.is_behind for run in list(self.runs.values()))

    def changes(self, since: int = 0) -> dict[str, Any] | None:
        """Describes the changes after a version for the page; None without changes.

        Args:
            since: the version; 0 describes everything.
        """
        with self._lock:
            if since >= self.version:
                return None
            return {
                "version": self.version,
                "boot": self.boot,
                "root": str(self.root.resolve()),
                "whole": since == 0,
                "runs": [run.row for run in self.runs.values() if run.version > since],
                "experiments": [
                    _described(experiment, [run.row for run in self.runs.values() if run.experiment is experiment])
                    for id, experiment in self.experiments.items()
                    if self._experiment_versions[id] > since
                ],
                "removed": [id for version, id in self._removed if version > since] if since else [],
            }

    def _next_version(self) -> int:
        self.version += 1
        return self.version

    def _find(self) -> None:
        runs, experiments = {}, {}
        for path, is_run, is_experiment in _directories(self.root, _DEEPEST):
            id = path.relative_to(self.root).as_posix()
            if is_run:
                runs[id] = path
            if is_experiment:
                experiments[id] = path
        for id in experiments.keys() - self.experiments.keys():
            self.experiments[id] = Experiment(experiments[id], id)
            self._experiment_versions[id] = self._next_version()
        for id in self.experiments.keys() - experiments.keys():
            del self.experiments[id], self._experiment_versions[id]
            self._remove(id)
            for run in [run for run in self.runs.values() if run.experiment and run.experiment.id == id]:
                self._drop(run.id)
        for id in runs.keys() - self.runs.keys():
            self.runs[id] = Run(id, runs[id], id if id != "." else self.root.resolve().name)
        for id, run in list(self.runs.items()):
            run.path = runs.get(id)
            if run.path is None and run.trial is None:
                self._drop(id)

    def _drop(self, id: str) -> None:
        if self.runs.pop(id, None):
            self._remove(id)

    def _remove(self, id: str) -> None:
        self._removed = [*self._removed[-9999:], (self._next_version(), id)]

    def _add_trials(self, experiment: Experiment) -> None:
        """Connects the journal's trials with their directories, by name and never by a path in the journal."""
        for trial in experiment.trials.values():
            id = trial.dirname if experiment.id == "." else f"{experiment.id}/{trial.dirname}"
            run = self.runs.setdefault(id, Run(id, None, trial.name))
            run.trial, run.experiment = trial, experiment
            run.name = trial.name if experiment.id == "." else f"{experiment.id}/{trial.name}"
        self._experiment_versions[experiment.id] = self._next_version()

    def _read_results(self, budget_s: float) -> None:
        """Reads new results: of running runs first, then of the others by their last change."""
        behind = [run for run in self.runs.values() if run.is_behind and run.path]
        behind.sort(key=lambda run: (run.row["status"] != "running", -(run.row["updated"] or 0)))
        deadline = time.monotonic() + budget_s
        for run in behind:
            while time.monotonic() < deadline:
                if run.advance():
                    run.version = self._next_version()
                    break


def _described(experiment: Experiment, rows: list[dict]) -> dict[str, Any]:
    """Description of an experiment for the page: header, state, and number of trials in each state."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    if experiment.is_running:
        status = "running"
    elif not experiment.header or experiment.is_running is None:
        status = "unknown"
    else:
        status = "finished" if rows and set(counts) <= {"finished", "failed"} else "stopped"
    header = experiment.header
    return {
        "id": experiment.id,
        "name": header.get("name") or experiment.path.name,
        "trainable": header.get("trainable"),
        "objectives": [{"metric": metric, "mode": mode} for metric, mode in experiment.objectives],
        "created": header.get("created"),
        "status": status,
        "counts": counts,
        "problem": experiment.problem,
    }


def _directories(root: Path, depth: int) -> Iterator[tuple[Path, bool, bool]]:
    """Yields (directory, is a run or trial, is an experiment); skips checkpoints, hidden directories and links."""
    try:
        with os.scandir(root) as entries:
            below = list(entries)
    except OSError:
        return
    names = {entry.name for entry in below}
    is_run = bool(names & {RESULTS, SPEC})
    is_experiment = any(name.startswith("experiment_state-") and name.endswith(".json") for name in names)
    if is_run or is_experiment:
        yield root, is_run, is_experiment
    if depth and (is_experiment or not is_run):
        for entry in below:
            if not entry.name.startswith((".", "checkpoint_")) and entry.is_dir(follow_symlinks=False):
                yield from _directories(root / entry.name, depth - 1)
