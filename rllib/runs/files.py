"""The files of a run: result.json, progress.csv, params.json and the batch of a failed update.

| file                      | written by         | content                                                         |
|---------------------------|--------------------|-----------------------------------------------------------------|
| params.json               | write_params       | the settings                                                    |
| result.json               | JsonLogger         | a result a line, without the settings; NaN and infinity as null |
| progress.csv              | CsvLogger          | the numbers and strings, nested ones as "a/b" columns           |
| failing_batch.safetensors | keep_failing_batch | columns of a batch from which no finite gradient came           |

TensorBoard events (events.py) and curve.png (drawing.py) need libraries that take longer to load than short runs take
to train: `sidecar.py` writes them in a separate process that reads result.json.
"""

import csv
import io
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec

from rllib.errors import DamagedFileError, NotFiniteError
from rllib.notices import log_once
from rllib.runs.entries import LEFT_OUT, encode, flatten, for_people, is_number, settings_by_path
from rllib.runs.safe_files import AppendedFile, write_whole
from rllib.storage.checkpoint import newest_checkpoint
from rllib.storage.foreign_files import read_inside
from rllib.storage.tensor_file import TensorFile

logger = logging.getLogger(__name__)

FAILING_BATCH = "failing_batch.safetensors"
PROFILE = "profile.json"
# Errors of reading and decoding a damaged file; JSON that is nested deeply is a RecursionError.
UNREADABLE = (DamagedFileError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# Warnings of lines that hold no result. Taking up a run reads its file several times, and one is enough.
_warned: set[str] = set()


def read_params(directory: Path) -> dict[str, Any]:
    """Reads the settings in params.json by "a/b" path; {} without the file, or, with a warning, if it is damaged."""
    return dict(settings_by_path(_read_object(directory / "params.json")))


def is_run(directory: Path) -> bool:
    """Whether a directory is that of a run, or of a trial: it has its settings, its results or its specification."""
    return any((directory / name).is_file() for name in ("params.json", "result.json", "run.json"))


def read_goals(directory: Path) -> dict[str, float]:
    """Reads the thresholds at which a run of `rllib train` stops, by result key; {} if there are none."""
    stop = _read_object(directory / "run.json").get("stop")
    return {key: value for key, value in stop.items() if is_number(value)} if isinstance(stop, dict) else {}


def read_algorithm(directory: Path) -> str:
    """Reads the name of the algorithm of a run of `rllib train`; "" for another directory."""
    return str(_read_object(directory / "run.json").get("algorithm") or "")


def _read_object(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(read_inside(path.parent, path.name), type=dict)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, *UNREADABLE) as error:
        log_once(f"{path}: {error}", f"{path} cannot be read ({error}); left out", logging.WARNING)
        return {}


def keep_failing_batch(directory: Path, error: NotFiniteError) -> None:
    """Writes the batch from which no finite gradient came, and adds its path to the error's message."""
    path = directory / FAILING_BATCH
    try:
        with open(path, "wb") as file:
            file.writelines(TensorFile(error.batch).parts())
        kept = f"The batch is in {path}, as safetensors.numpy.load_file reads it."
    except (OSError, TypeError) as problem:  # a full disk, or a column of the user's that is no array of numbers
        kept = f"The batch could not be kept: {problem}."
    checkpoint = newest_checkpoint(directory)
    back = f"The newest checkpoint is {checkpoint}." if checkpoint else f"{directory} has no checkpoint yet."
    error.args = (f"{error} {kept} {back}",)


def write_params(directory: Path, params: Mapping) -> None:
    """Writes params.json."""
    text = msgspec.json.format(encode(for_people(params)), indent=2)
    write_whole(directory / "params.json", text + b"\n", is_synced=False)


class JsonLogger:
    """Appends each result as a line to result.json."""

    def __init__(self, directory: Path):
        self._file = AppendedFile(directory / "result.json")
        self._file.cut_half_line()

    def on_result(self, result: Mapping) -> None:
        self._file.append(encode({key: value for key, value in result.items() if key not in LEFT_OUT}) + b"\n")

    def close(self) -> None:
        self._file.close()


def read_results(directory: Path) -> list[dict]:
    """Reads the results in a directory's result.json.

    An unfinished line at its end is left out, as are lines that hold no result, with one warning in a process.

    Raises:
        ValueError: if result.json is no regular file.
    """
    return [result for result, _ in _read_lines(directory / "result.json")]


def _read_lines(path: Path) -> list[tuple[dict, int]]:
    """Reads each result, with the position of its line's end in bytes."""
    try:
        lines = read_inside(path.parent, path.name).split(b"\n")
    except FileNotFoundError:
        return []
    found, bad, end = [], [], 0
    for number, line in enumerate(lines[:-1], 1):
        end += len(line) + 1
        try:
            found.append((_result_in(line), end))
        except UNREADABLE as error:
            bad.append(f"line {number} holds no result ({error})")
    if bad:
        more = f", nor do {len(bad) - 1} more" if len(bad) > 1 else ""
        _warn_once(f"{path}: {bad[0]}{more}; left out")
    return found


def results_in(lines: bytes) -> Iterator[dict]:
    """Yields the results in whole lines. Lines that hold none are skipped; `read_results` warns of them."""
    for line in lines.split(b"\n"):
        with suppress(*UNREADABLE):
            yield _result_in(line)


def _result_in(line: bytes) -> dict:
    """Decodes a line; raises one of UNREADABLE if it holds no result."""
    result = msgspec.json.decode(line, type=dict)
    if not is_number(result.get("training_iteration", 0)):
        raise msgspec.ValidationError(f"training_iteration is {result['training_iteration']!r:.40}")
    return result


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        logger.warning("%s", message)


def drop_results_after(directory: Path, iteration: int) -> list[dict]:
    """Removes the results of later iterations from result.json and progress.csv.

    A kill at any time loses no other results: result.json is cut in one step, and progress.csv, which has the same
    results, is replaced.

    Returns:
        the remaining results, the oldest first.
    """
    path = directory / "result.json"
    lines = _read_lines(path)
    while lines and lines[-1][0].get("training_iteration", 0) > iteration:
        lines.pop()
    if path.exists():
        os.truncate(path, lines[-1][1] if lines else 0)
    kept = [result for result, _ in lines]
    _write_table(directory / "progress.csv", [dict(flatten(result)) for result in kept])
    return kept


class CsvLogger:
    """Appends each result as a row to progress.csv. For a new key the file is replaced by one with its column."""

    def __init__(self, directory: Path):
        self._path = directory / "progress.csv"
        self._columns: dict[str, None] = {}  # an ordered set
        self._file: AppendedFile | None = None
        if self._path.exists():
            self._open()
            self._columns = dict.fromkeys(_read_rows(self._path)[0])

    def on_result(self, result: Mapping) -> None:
        row = dict(flatten(result))
        if new := [key for key in row if key not in self._columns]:
            self._add_columns(new)
        self._file.append(_as_csv([[row.get(column, "") for column in self._columns]]))

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _open(self) -> None:
        self._file = AppendedFile(self._path)
        self._file.cut_half_line()

    def _add_columns(self, new: list[str]) -> None:
        self.close()
        header, rows = _read_rows(self._path) if self._path.exists() else ([], [])
        self._columns = dict.fromkeys([*header, *new])
        write_whole(self._path, _as_csv([self._columns, *(row + [""] * len(new) for row in rows)]))
        self._open()


def _read_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    with open(path, newline="", errors="replace") as file:
        header, *rows = list(csv.reader(file)) or [[]]
    return header, rows


def _write_table(path: Path, rows: Sequence[Mapping]) -> None:
    """Writes a file of rows with all of their columns; without rows the file is removed."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if rows:
        write_whole(path, _as_csv([columns, *([row.get(column, "") for column in columns] for row in rows)]))
    else:
        path.unlink(missing_ok=True)


def _as_csv(rows: Iterable[Iterable]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


class ResultFiles:
    """The result.json and progress.csv of a run, to which results are appended.

    Args:
        directory: directory of the run.
    """

    def __init__(self, directory: Path):
        self._loggers = [JsonLogger(directory), CsvLogger(directory)]

    def on_result(self, result: Mapping) -> None:
        for each in self._loggers:
            each.on_result(result)

    def close(self) -> None:
        close_all(self._loggers)


def close_all(loggers: Sequence) -> None:
    """Closes all loggers even if some raise, then raises the last of their exceptions."""
    with ExitStack() as stack:
        for each in reversed(loggers):
            stack.callback(each.close)
