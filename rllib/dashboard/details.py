"""Details of one run: settings, checkpoints, logs, newest result."""

import csv
import os
from pathlib import Path
from typing import Any

import msgspec

from rllib.cli.run_directory import SPEC
from rllib.dashboard.result_file import read_object
from rllib.dashboard.run import Run
from rllib.errors import DamagedFileError
from rllib.result import stored_names
from rllib.runs.entries import encode, flatten, is_number, settings_by_path
from rllib.runs.files import UNREADABLE
from rllib.runs.naming import ALGORITHM, SEED, learning_settings
from rllib.storage.checkpoint import checkpoints_in
from rllib.storage.foreign_files import open_inside
from rllib.tune.reporting.runs import algorithm_called, defaults_of, with_defaults

_LOGS = {"error.txt", "stdout", "stderr"}
_LOG_ENDINGS = (".log", ".out", ".err", ".txt")
TAIL_BYTES = 64 << 10


def describe(run: Run) -> dict[str, Any]:
    """Describes a run, without its curves.

    Returns:
        "row": its row in the table; "config": [{key, value, default, differs}], `differs` None where the default is
        unknown; "checkpoints", the newest first; "logs", names and sizes; "newest": the last result by "a/b" path;
        "metrics": keys that can be drawn.
    """
    return {
        "row": run.row,
        "config": _config(run),
        "stop": _decoded(run.path / SPEC).get("stop", {}) if run.path else {},
        "checkpoints": checkpoints(run),
        "logs": [{"name": path.name, "size": path.stat().st_size} for path in logs(run)],
        "newest": dict(flatten(run.last_result)),
        "metrics": metrics(run),
        "path": str(run.path) if run.path else None,
    }


def metrics(run: Run) -> list[str]:
    """Names of the numbers in the results: columns of progress.csv, and keys of the last result."""
    last = dict(flatten(run.last_result))
    names = dict.fromkeys([*_csv_columns(run.path), *last]) if run.path else {}
    metric = run.row["metric"]
    if metric and set(stored_names(metric)) & set(names):
        names[metric] = None
    return [name for name in names if name not in last or is_number(last[name]) or last[name] != last[name]]


def logs(run: Run) -> list[Path]:
    """Paths of the run's logs and other texts; no links."""
    if run.path is None:
        return []
    with os.scandir(run.path) as entries:
        return sorted(
            Path(entry.path)
            for entry in entries
            if entry.is_file(follow_symlinks=False) and (entry.name in _LOGS or entry.name.endswith(_LOG_ENDINGS))
        )


def tail(path: Path) -> tuple[str, int]:
    """Reads the last 64 KiB of a text file, from the start of a line on, and the number of bytes before."""
    with open_inside(path.parent, path.name) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(size - TAIL_BYTES, 0))
        content = file.read(TAIL_BYTES)
    if size > TAIL_BYTES:
        content = content[content.find(b"\n") + 1 :]
    return content.decode(errors="replace"), size - len(content)


def learned_with(run: Run) -> dict[str, Any]:
    """Algorithm and all settings of a run, by "a/b" path, for `names_by_difference`."""
    settings = _settings(run)
    return {ALGORITHM: algorithm_called(run.row["algorithm"]), **learning_settings(settings), SEED: settings.get(SEED)}


def _settings(run: Run) -> dict[str, Any]:
    """The settings of a run by "a/b" path, those that keep their default too; {} if the given ones are not known."""
    given = _decoded(run.path / "params.json") if run.path else {}
    if not given and run.trial is not None and isinstance(run.trial.config, dict):
        given = msgspec.json.decode(encode(run.trial.config))
    given = dict(settings_by_path(given))
    if given.get("log_dir") is not None:
        given.pop(ALGORITHM, None)  # the row has it
    return with_defaults(run.row["algorithm"], given) if given else {}


def _config(run: Run) -> list[dict[str, Any]]:
    defaults = defaults_of(run.row["algorithm"])
    return [
        {
            "key": key,
            "value": value,
            "default": (defaults or {}).get(key),
            "differs": None if defaults is None else value != defaults.get(key),
        }
        for key, value in _settings(run).items()
    ]


def checkpoints(run: Run) -> list[dict[str, Any]]:
    if run.path is None:
        return []
    found = {path.name: iteration for iteration, path in checkpoints_in(run.path).items()}
    if run.trial is not None:
        known = {each.name: each.iteration for each in run.trial.checkpoints}
        found |= {name: known[name] for name in known if name == Path(name).name and (run.path / name).is_dir()}
    listed = [{"name": name, "iteration": iteration, **_size(run.path / name)} for name, iteration in found.items()]
    return sorted(listed, key=lambda each: (each["iteration"], each["name"]), reverse=True)


def _size(path: Path) -> dict[str, float | None]:
    """Size of a checkpoint in bytes, and time of its last change."""
    try:
        files = [each.stat() for each in path.rglob("*") if each.is_file() and not each.is_symlink()]
        times = [file.st_mtime for file in files]
        return {"size": sum(file.st_size for file in files), "time": max(times, default=None)}
    except OSError:
        return {"size": None, "time": None}  # it is being replaced


def _csv_columns(path: Path) -> list[str]:
    try:
        with open_inside(path, "progress.csv") as file:
            return next(csv.reader([file.readline(TAIL_BYTES).decode(errors="replace")]), [])
    except (OSError, DamagedFileError, csv.Error):
        return []


def _decoded(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except (OSError, *UNREADABLE):
        return {}
