"""One run or trial: its state, and its row in the table.

The state follows from the run's files alone; `reason` names the evidence:

| state    | a run of `rllib train`                            | a trial of Tune                                    |
|----------|---------------------------------------------------|----------------------------------------------------|
| running  | a process has the directory locked                | RUNNING in the journal, which a process has locked |
| waiting  |                                                   | PENDING or PAUSED, likewise                        |
| finished | its last result has reached a stop criterion      | TERMINATED                                         |
| failed   | error.txt is newer than its results               | ERROR                                              |
| stopped  | none of these: it was interrupted or killed       | the experiment's process ended before the trial    |
| unknown  | there is no run.json, or locks cannot be read     | locks cannot be read                               |

A run of `.reporting(log_dir=)` has no run.json, but its params.json names the algorithm: it counts as stopped when no
process has the directory locked.
"""

import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rllib.cli.run_directory import SEEDS, SPEC
from rllib.cli.spec import RunSpec
from rllib.dashboard.journals import Experiment
from rllib.dashboard.result_file import ResultFile, read_last, read_object
from rllib.dashboard.series import Sparkline
from rllib.notices import why_raised
from rllib.progress import mean_rate
from rllib.runs.entries import has_entry, is_number, lookup
from rllib.runs.files import UNREADABLE
from rllib.storage.checkpoint import checkpoints_in
from rllib.tune.experiment.directory import lock_held
from rllib.tune.experiment.stoppers import threshold_reached
from rllib.tune.experiment.trial import Trial
from rllib.tune.states import ERROR, RUNNING, TERMINATED

RESULTS = "result.json"
_FILES = (RESULTS, SPEC, "error.txt", "params.json")
_RETURN, _BARE_NUMBER = "episode_reward_mean", "_metric"
_CHUNK_BYTES = 4 << 20


class Summary:
    """Best and last value, and sparkline, of one metric over all results of a run, read in pieces.

    Args:
        path: path of result.json.
        metric: result key or "a/b" path; None only counts the results.
        mode: whether "max" or "min" is best.
    """

    def __init__(self, path: Path, metric: str | None, mode: str):
        self.metric, self.mode = metric, mode
        self.file = ResultFile(path, [metric or "training_iteration"])
        self._begin()

    def _begin(self) -> None:
        self.best: float | None = None
        self.last: float | None = None
        self.sparkline = Sparkline()
        self._restarts = self.file.restarts

    def advance(self) -> None:
        """Reads the next 4 MiB at most."""
        values = self.file.read(_CHUNK_BYTES)[:, 0]
        if self.file.restarts != self._restarts:
            self._begin()
        if self.metric is None:
            return
        values = np.where(np.isfinite(values), values, np.nan)
        self.sparkline.add(values)
        if not np.isnan(values).all():
            best = float((np.nanmax if self.mode == "max" else np.nanmin)(values))
            known = best if self.best is None else self.best
            self.best = max(best, known) if self.mode == "max" else min(best, known)
            self.last = float(values[~np.isnan(values)][-1])


class Run:
    """A run of `rllib train`, or a trial.

    Args:
        id: path below the directory that is shown, by which the page requests it.
        path: its directory; None for a trial that has none yet.
        name: shown in the table.

    Attributes:
        row: content of its row in the table.
        version: version of the index at the row's last change.
        is_behind: whether the row lacks results that are in the file.
    """

    def __init__(self, id: str, path: Path | None, name: str):
        self.id, self.path, self.name = id, path, name
        self.row: dict[str, Any] = {}
        self.version, self.is_behind = 0, False
        self.last_result: dict[str, Any] = {}
        self.experiment: Experiment | None = None
        self.trial: Trial | None = None
        self.summary: Summary | None = None
        self._seen: tuple | None = None
        self._is_running: bool | None = None

    @property
    def folder(self) -> str | None:
        """The folder of several seeds (`rllib train --seeds`) in which it is, by its path below the shown directory."""
        if self.path is None or not (self.path.parent / SEEDS).is_file():
            return None
        return self.id.rpartition("/")[0] or self.path.parent.resolve().name

    def refresh(self) -> bool:
        """Looks for changes of files, lock and journal. Returns whether the row has changed."""
        directory = os.fspath(self.path) if self.path else None
        stats = [_stat(os.path.join(directory, name)) if directory else None for name in _FILES]
        seen = tuple(each and (each.st_ino, each.st_size, each.st_mtime_ns) for each in stats)
        if self.trial is not None:
            seen += (self.trial.status, self.trial.num_failures, self.experiment.is_running)
        if seen == self._seen and not self._is_running:
            return False
        was = self._is_running
        if self.trial is None:
            self._is_running = lock_held(self.path)
        if seen == self._seen and was == self._is_running:
            return False
        results_changed = self._seen is None or seen[0] != self._seen[0]
        self._seen = seen
        if results_changed and self.path:
            self.last_result = read_last(self.path / RESULTS)
            self.is_behind = stats[0] is not None or self.summary is not None
        self._describe(dict(zip(_FILES, stats)))
        return True

    def advance(self) -> bool:
        """Reads a piece of the results. Returns whether it was the last one."""
        metric, mode = self._objective()
        if self.summary is None or (self.summary.metric, self.summary.mode) != (metric, mode):
            self.summary = Summary(self.path / RESULTS, metric, mode)
        self.summary.advance()
        self.is_behind = self.summary.file.behind_bytes > 0
        if not self.is_behind:
            self.row |= self._measured()
        return not self.is_behind

    def _objective(self) -> tuple[str | None, str]:
        header = self.experiment.header if self.experiment else {}
        if header.get("metric"):
            objectives = self.experiment.objectives  # a table has the first of several
            return objectives[0] if objectives else (str(header["metric"]), "max")
        known = [key for key in (_RETURN, _BARE_NUMBER) if key in self.last_result]
        return (known[0] if known else None), "min" if header.get("mode") == "min" else "max"

    # ------------------------------------------------------------------ the row

    def _describe(self, stats: dict[str, os.stat_result | None]) -> None:
        """Makes the row again. It does not raise for damaged files, but lists them as problems."""
        times = [each.st_mtime for each in stats.values() if each]
        self.row = {
            "id": self.id,
            "name": self.name,
            "kind": "run" if self.trial is None else "trial",
            "experiment": self.experiment.id if self.experiment else None,
            "folder": self.folder,
            "algorithm": "",
            "env": None,
            "status": "unknown",
            "reason": "its files are damaged",
            "seed": None,
            "updated": max(times) if times else None,
            "params": {},
            "problems": [],
            **self._progress(),
        }
        problems = self.row["problems"]
        unreadable = [name for name, each in stats.items() if each and not os.access(self.path / name, os.R_OK)]
        problems += [f"{name}: there is no permission to read it" for name in unreadable]
        if stats[RESULTS] and not stat.S_ISREG(stats[RESULTS].st_mode):
            problems.append(f"{RESULTS}: it is no regular file")
        try:
            self.row |= self._asked_for(stats, problems)
        except (TypeError, ValueError, AttributeError, OSError) as error:
            problems.append(f"what was asked for cannot be read: {error}")
        self.row |= self._measured()

    def _progress(self) -> dict[str, Any]:
        result = self.last_result
        steps, time_s = _count(result.get("timesteps_total")), _count(result.get("time_total_s"))
        return {
            "steps": steps,
            "iteration": _count(result.get("training_iteration")),
            "time_s": time_s,
            "rate": mean_rate(result),
        }

    def _asked_for(self, stats, problems: list[str]) -> dict[str, Any]:
        """Columns of the specification: algorithm, environment, seed, settings that a search chose, and the state."""
        params = _object(self.path / "params.json", problems) if stats["params.json"] else {}
        if self.trial is not None:
            status, reason = self._state_of_trial()
            algorithm, env = self.trial.trainable_name, lookup(self.trial.config, "env")
            seed = self.trial.config.get("seed", params.get("seed"))
        else:
            spec = self._spec(problems) if stats[SPEC] else None
            status, reason = self._state_of_run(spec, stats)
            of_log_dir = params.get("log_dir") is not None
            logged = params.get("algorithm", "") if of_log_dir else ""
            algorithm, env = (spec.algorithm, spec.env) if spec else (logged, params.get("env"))
            if of_log_dir and status == "unknown" and self._is_running is False and not stats[SPEC]:
                status, reason = "stopped", "it has ended; a run of log_dir does not say what its goal was"
            seed = params.get("seed", spec.seed if spec else None)
        return {
            "algorithm": str(algorithm),
            "env": env if env is None else str(env),
            "status": status,
            "reason": reason,
            "seed": seed if is_number(seed) else None,
            "params": dict(self.trial.evaluated_params) if self.trial else {},
        }

    def _measured(self) -> dict[str, Any]:
        metric, mode = self._objective()
        last = lookup(self.last_result, metric) if metric else None
        if metric and self.summary and not has_entry(self.last_result, metric):
            last = self.summary.last  # of an earlier result: evaluations come with some of them only
        measured = {"metric": metric, "mode": mode, "last": last if is_number(last) else None, "damage": ""}
        if self.summary is None:
            return {**measured, "best": None, "spark": [], "results": None}
        file = self.summary.file
        return {
            **measured,
            "best": self.summary.best,
            "spark": [float(f"{value:.4g}") for value in self.summary.sparkline.points()],
            "results": file.count,
            "damage": self._damage(file),
        }

    def _damage(self, file: ResultFile) -> str:
        found = []
        if file.bad_lines:
            lines = "1 line" if file.bad_lines == 1 else f"{file.bad_lines} lines"
            found.append(f"{lines} of {RESULTS} cannot be read; {file.first_bad}")
        if file.unfinished_bytes and self.row.get("status") != "running":
            found.append(f"the last line of {RESULTS} is cut off after {file.unfinished_bytes} bytes")
        return "; ".join(found)

    def _spec(self, problems: list[str]) -> RunSpec | None:
        try:
            return msgspec.convert(read_object(self.path / SPEC), RunSpec)
        except (OSError, *UNREADABLE) as error:
            problems.append(f"{SPEC}: {error}")
            return None

    def _state_of_run(self, spec: RunSpec | None, stats) -> tuple[str, str]:
        if self._is_running:
            return "running", "a process is training here"
        error, others = stats["error.txt"], [stats[name].st_mtime for name in (RESULTS, SPEC) if stats[name]]
        if error and error.st_mtime >= max(others, default=0):
            return "failed", "error.txt is newer than its results"
        try:
            reached = threshold_reached(spec.stop, self.last_result) if spec else None
        except ValueError:
            reached = None  # the result has no number under that key
        if reached:
            return "finished", reached
        if spec is None or self._is_running is None:
            return "unknown", "locks cannot be read here" if spec else f"there is no readable {SPEC}"
        goal = "before its goal" if spec.stop else "without a goal"
        newest = max(checkpoints_in(self.path), default=None)
        if newest is not None and newest == self.last_result.get("training_iteration"):
            return "stopped", f"ended {goal}, saved at iteration {newest}"
        return "stopped", f"ended {goal} and without saving its last state: killed, or lost with its machine"

    def _state_of_trial(self) -> tuple[str, str]:
        status, live = self.trial.status, self.experiment.is_running
        if status == TERMINATED:
            return "finished", self.trial.stopped_by or "it was done"
        if status == ERROR:
            return "failed", why_raised(self.trial.error or "") or "it raised"
        if live is None:
            return "unknown", f"{status}, and locks cannot be read here"
        if not live:
            return "stopped", f"{status} when the experiment's process ended"
        return ("running", "the trial runs") if status == RUNNING else ("waiting", status.lower())


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _object(path: Path, problems: list[str]) -> dict[str, Any]:
    """Reads the JSON object in a file; for a damaged file returns {} and adds to `problems`."""
    try:
        return read_object(path)
    except (OSError, *UNREADABLE) as error:
        problems.append(f"{path.name}: {error}")
        return {}


def _count(value) -> float | int | None:
    return value if is_number(value) else None
