"""The files of a run: one small class each, which gets every result. Files are whole if the process dies at any time.

| file                 | class             | content                                                        |
|----------------------|-------------------|----------------------------------------------------------------|
| params.json          | write_params      | the settings                                                   |
| result.json          | JsonLogger        | a result a line, without the settings; NaN and infinity as null |
| progress.csv         | CsvLogger         | the numbers and strings, nested ones as "a/b" columns          |
| events.out.tfevents* | TensorBoardLogger | the numbers, by environment steps                              |
| curve.png            | CurveLogger       | return by environment steps                                    |
| failing_batch.safetensors | keep_failing_batch | columns of a batch from which no finite gradient came    |

The last two need libraries that take longer to load than short runs do to train. `sidecar.py` runs them in a separate
process that reads result.json.
"""

import csv
import itertools
import math
import os
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import msgspec

from rllib.checkpoint import newest_checkpoint
from rllib.errors import NotFiniteError
from rllib.result import stored_names
from rllib.tensor_file import TensorFile

# Path of a video in the run's directory, a GIF, where an iteration has one.
VIDEO = "evaluation/video"
FAILING_BATCH = "failing_batch.safetensors"
# The settings are in params.json; here they would be most of every line.
_LEFT_OUT = ("config",)


def plain(value):
    """A value that JSON can hold in place of one that it cannot: numpy by content, all else by its repr."""
    if hasattr(value, "tolist") and not isinstance(value, type):
        return value.tolist()
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if isinstance(value, Real):
        return float(value)
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}:{name}" if name else repr(value)


def encode(value) -> bytes:
    """A value as JSON; NaN and infinity become null."""
    return msgspec.json.encode(value, enc_hook=plain)


def flatten(result: Mapping, prefix: str = "") -> Iterator[tuple[str, float | int | str]]:
    """The numbers and strings of a result under "a/b" names; lists and the settings are left out."""
    for key, value in result.items():
        if key in _LEFT_OUT and not prefix:
            continue
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}/")
        elif isinstance(value := scalar(value), (int, float, str)):
            yield f"{prefix}{key}", value


def finite_numbers(result: Mapping) -> dict[str, float]:
    """The numbers of a result under "a/b" names, without NaN and infinity."""
    return {
        key: value for key, value in flatten(result) if isinstance(value, (int, float)) and math.isfinite(value)
    }


def lookup(result: Mapping, key: str):
    """The value under a key, an "a/b" path or a name of later versions (result.py); None where there is none."""
    values = (_at(result, name) for name in (key, *stored_names(key)))
    return scalar(next((value for value in values if value is not None), None))


def scalar(value):
    """A number of numpy, torch, `fractions` or `decimal` as Python's own; all else as it is."""
    if value is None or isinstance(value, (int, float, str)):
        return value
    if getattr(value, "ndim", None) == 0:
        return value.item()
    return float(value) if isinstance(value, (Real, Decimal)) else value


def _at(result: Mapping, key: str):
    try:
        return result[key]
    except KeyError:
        pass
    value = result
    for part in key.split("/"):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def settings_by_path(settings: Mapping, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of a configuration by "a/b" path; an empty mapping is a value."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from settings_by_path(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def is_number(value) -> bool:
    """Whether it can be compared: an int or float, but neither a bool nor NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def numbered(path: Path) -> Iterator[Path]:
    """PATH, PATH_2, PATH_3, ...: where to look for a free name."""
    yield path
    yield from (path.with_name(f"{path.name}_{number}") for number in itertools.count(2))


def write_whole(path: Path, content: bytes) -> None:
    """Replaces a file in one step, with its content on the disk before."""
    draft = path.with_name(f".{path.name}.tmp")
    try:
        with open(draft, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def keep_failing_batch(directory: Path, error: NotFiniteError) -> None:
    """Writes the batch from which no finite gradient came, and adds to the message what is kept and where."""
    path = directory / FAILING_BATCH
    try:
        with open(path, "wb") as file:
            file.writelines(TensorFile(error.batch).parts())
        kept = f"The batch is in {path}, as safetensors.numpy.load_file reads it."
    except (OSError, TypeError) as problem:  # the disk is full, or a column of the user's is no array of numbers
        kept = f"The batch could not be kept: {problem}."
    checkpoint = newest_checkpoint(directory)
    back = f"The newest checkpoint is {checkpoint}." if checkpoint else f"{directory} has no checkpoint yet."
    error.args = (f"{error} {kept} {back}",)


def write_params(directory: Path, params: Mapping) -> None:
    """Writes params.json."""
    text = msgspec.json.format(encode(params), indent=2)
    (directory / "params.json").write_bytes(text + b"\n")


class JsonLogger:
    """Appends each result as a line to result.json."""

    def __init__(self, directory: Path):
        self._file = open(directory / "result.json", "ab")  # noqa: SIM115 (closed in close())

    def on_result(self, result: Mapping) -> None:
        """Writes and flushes one line."""
        self._file.write(encode({key: value for key, value in result.items() if key not in _LEFT_OUT}) + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_results(directory: Path) -> list[dict]:
    """The results in a directory's result.json; half a line at its end is left out."""
    try:
        content = (directory / "result.json").read_bytes()
    except FileNotFoundError:
        return []
    return msgspec.json.Decoder().decode_lines(content[: content.rfind(b"\n") + 1])


def drop_results_after(directory: Path, iteration: int) -> list[dict]:
    """Takes the results of later iterations out of result.json and progress.csv.

    Returns:
        the results that are left, the oldest first.
    """
    results = read_results(directory)
    kept = [result for result in results if result.get("training_iteration", 0) <= iteration]
    if len(kept) < len(results) or not kept:
        for name in ("result.json", "progress.csv"):
            (directory / name).unlink(missing_ok=True)
        if kept:
            files = ResultFiles(directory)
            for result in kept:
                files.on_result(result)
            files.close()
    return kept


class CsvLogger:
    """Appends each result as a row to progress.csv; when a new key appears, the file is rewritten with its column."""

    def __init__(self, directory: Path):
        self._path = directory / "progress.csv"
        self._columns: dict[str, None] = {}  # in order; the values mean nothing
        self._file = None
        if self._path.exists():
            self._columns = dict.fromkeys(_read_rows(self._path)[0])
            self._open("a")

    def on_result(self, result: Mapping) -> None:
        """Writes and flushes one row."""
        row = dict(flatten(result))
        if new := [key for key in row if key not in self._columns]:
            self._add_columns(new)
        self._writer.writerow([row.get(column, "") for column in self._columns])
        self._file.flush()

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _open(self, mode: str) -> None:
        self._file = open(self._path, mode, newline="")  # noqa: SIM115 (closed in close())
        self._writer = csv.writer(self._file)

    def _add_columns(self, new: list[str]) -> None:
        self.close()
        header, rows = _read_rows(self._path) if self._path.exists() else ([], [])
        self._columns = dict.fromkeys([*header, *new])
        draft = self._path.with_suffix(".csv.tmp")
        with open(draft, "w", newline="") as file:
            csv.writer(file).writerows([self._columns, *(row + [""] * len(new) for row in rows)])
        os.replace(draft, self._path)
        self._open("a")


def _read_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    with open(path, newline="") as file:
        header, *rows = list(csv.reader(file)) or [[]]
    return header, rows


class ResultFiles:
    """A run's result.json and progress.csv, to whose ends results are written.

    Args:
        directory: of the run.
    """

    def __init__(self, directory: Path):
        self._loggers = [JsonLogger(directory), CsvLogger(directory)]

    def on_result(self, result: Mapping) -> None:
        for logger in self._loggers:
            logger.on_result(result)

    def close(self) -> None:
        for logger in self._loggers:
            logger.close()


@contextmanager
def _hidden(module: str) -> Iterator[None]:
    """Importing this module fails inside, unless it has been imported before."""
    was_there = module in sys.modules
    sys.modules.setdefault(module, None)
    try:
        yield
    finally:
        if not was_there:
            del sys.modules[module]


class TensorBoardLogger:
    """Writes the numbers of each result to an event file, by environment steps.

    Importing tensorboardX imports torch where it is installed (1.6 s, 200 MB) to convert tensors, of which there are
    none here, so torch is hidden from it.

    Attributes:
        points_per_poll: number of results that are written in each half second at most; more come from very short
            iterations.
    """

    points_per_poll = 100

    def __init__(self, directory: Path):
        with _hidden("torch"):
            import tensorboardX
            from tensorboardX.proto.summary_pb2 import Summary

        self._writer, self._summary = tensorboardX.FileWriter(str(directory), flush_secs=1), Summary
        self._directory = directory

    def on_result(self, result: Mapping) -> None:
        """Adds one point to every curve, in a single event: one for each number takes seven times as long."""
        values = [self._summary.Value(tag=key, simple_value=value) for key, value in finite_numbers(result).items()]
        if video := lookup(result, VIDEO):
            values.append(self._summary.Value(tag=VIDEO, image=self._image((self._directory / video).read_bytes())))
        step = result.get("timesteps_total") or result.get("training_iteration")
        self._writer.add_summary(self._summary(value=values), step)

    def _image(self, gif: bytes):
        width, height = struct.unpack("<HH", gif[6:10])
        return self._summary.Image(width=width, height=height, colorspace=3, encoded_image_string=gif)

    def add_hparams(self, params: Mapping, result: Mapping) -> None:
        """Writes what TensorBoard's page of hyperparameters shows of the run.

        Args:
            params: "a/b" path -> value of what was chosen for it.
            result: its last one.
        """
        from tensorboardX.summary import hparams

        simple = (bool, int, float, str)
        shown = {key: value if isinstance(value, simple) else str(value) for key, value in params.items()}
        for summary in hparams(shown, finite_numbers(result)):
            self._writer.add_summary(summary)

    def close(self) -> None:
        self._writer.close()
