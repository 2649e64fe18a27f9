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
# Longest time (seconds) for reading what new runs are, before the page gets those that are known.
_LOOK_S = 0.5
# Least time between two looks for the page, as a multiple of what one takes.
_LOOK_SHARE = 4


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
        self._looked_at, self._look_s = float("-inf"), 0.0
        self._has_unseen = False

    def refresh(self, older_than_s: float = 0.0, budget_s: float = 0.3) -> None:
        """Looks for changes, unless the last look was too recent, and reads on in results that it lacks.

        Args:
            older_than_s: least time since the last look, which grows with what a look takes; 0: look in any case.
            budget_s: time for reading results; later calls read the rest.
        """
        with self._lock:
            began = time.monotonic()
            share = _LOOK_SHARE if older_than_s else 0.0
            if began - self._looked_at >= max(older_than_s, share * self._look_s):
                self._look()
                self._looked_at = time.monotonic()
                self._look_s = self._looked_at - began
            if self._has_unseen:
                self._look_at_unseen(time.monotonic() + _LOOK_S)
            self._read_results(budget_s)

    def _look(self) -> None:
        """Finds runs, and looks for changes of those that it knows."""
        self._find()
        for experiment in self.experiments.values():
            if experiment.refresh():
                self._add_trials(experiment)
        for run in self.runs.values():
            if run.row:
                self._refresh_run(run)
            else:
                self._has_unseen = True

    def _look_at_unseen(self, deadline: float) -> None:
        """Reads what new runs are."""
        unseen = [run for run in self.runs.values() if not run.row]
        for run in unseen:
            self._refresh_run(run)
            if time.monotonic() > deadline:
                break
        self._has_unseen = not all(run.row for run in unseen)

    def _refresh_run(self, run: Run) -> None:
        if run.refresh():
            run.version = self._next_version()
            if run.experiment:
                self._experiment_versions[run.experiment.id] = self.version

    def run(self, id: str) -> Run | None:
        """Returns the run with this id, or None. Waits for a refresh under way; its row is filled."""
        with self._lock:
            run = self.runs.get(id)
            if run is not None and not run.row:
                self._refresh_run(run)
            return run

    @property
    def is_behind(self) -> bool:
        """Whether there are runs to look at, or results to be read."""
        return self._has_unseen or any(run.is_behind for run in list(self.runs.values()))

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
                    _described(experiment, [run.row for run in self._seen_of(experiment)])
                    for id, experiment in self.experiments.items()
                    if self._experiment_versions[id] > since
                ],
                "removed": [id for version, id in self._removed if version > since] if since else [],
            }

    def _seen_of(self, experiment: Experiment) -> list[Run]:
        return [run for run in self.runs.values() if run.experiment is experiment and run.row]

    def _next_version(self) -> int:
        self.version += 1
        return self.version

    def _find(self) -> None:
        runs, experiments = {}, {}
        for id, path, is_run, is_experiment in _directories(self.root, ".", _DEEPEST):
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


def _directories(root: Path, id: str, depth: int) -> Iterator[tuple[str, Path, bool, bool]]:
    """Yields (id, directory, is a run or trial, is an experiment); skips checkpoints, hidden directories and links.

    Ids are the paths below the directory that is shown, "." for itself.
    """
    try:
        with os.scandir(root) as entries:
            below = list(entries)
    except OSError:
        return
    names = {entry.name for entry in below}
    is_run = bool(names & {RESULTS, SPEC})
    is_experiment = any(name.startswith("experiment_state-") and name.endswith(".json") for name in names)
    if is_run or is_experiment:
        yield id, root, is_run, is_experiment
    if depth and (is_experiment or not is_run):
        for entry in below:
            if not entry.name.startswith((".", "checkpoint_")) and entry.is_dir(follow_symlinks=False):
                below_id = entry.name if id == "." else f"{id}/{entry.name}"
                yield from _directories(root / entry.name, below_id, depth - 1)
