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
import io
import itertools
import logging
import math
import mmap
import os
import socket
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import msgspec

from rllib.errors import DamagedFileError, NotFiniteError
from rllib.result import stored_names
from rllib.storage.checkpoint import newest_checkpoint
from rllib.storage.foreign_files import read_inside
from rllib.storage.tensor_file import TensorFile

logger = logging.getLogger(__name__)

# Path of a video in the run's directory, a GIF, where an iteration has one.
VIDEO = "evaluation/video"
FAILING_BATCH = "failing_batch.safetensors"
_VIDEOS, _LARGEST_VIDEO_BYTES = "videos", 2**26
# The settings are in params.json; here they would be most of every line.
_LEFT_OUT = ("config",)
# What reading and decoding a damaged file raises; JSON that is nested deeply is a RecursionError.
UNREADABLE = (DamagedFileError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)


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
    """The numbers of a result that are worth a chart, under "a/b" names: no NaN or infinity, no number twice."""
    numbers = {key: value for key, value in flatten(result) if isinstance(value, (int, float)) and _is_finite(value)}
    return {key: value for key, value in numbers.items() if key not in _NO_CHART and _original(key) not in numbers}


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that no float holds
        return False


# Numbers that say nothing of the training.
_NO_CHART = frozenset(("pid", "timestamp", "done"))
# Ray's further names of a number -> the one that is drawn.
_ORIGINALS = {
    "num_env_steps_sampled": "timesteps_total",
    "num_env_steps_sampled_this_iter": "timesteps_this_iter",
    "num_steps_trained_this_iter": "num_env_steps_trained_this_iter",
    "agent_timesteps_total": "timesteps_total",
    "timesteps_since_restore": "timesteps_total",
    "iterations_since_restore": "training_iteration",
    "time_since_restore": "time_total_s",
    "policy_reward_min/default_policy": "episode_reward_min",
    "policy_reward_mean/default_policy": "episode_reward_mean",
    "policy_reward_max/default_policy": "episode_reward_max",
}


def _original(key: str) -> str | None:
    """The key that has the same number; None if this is not a copy."""
    if key.startswith("num_agent_steps_"):  # there is one agent
        key = key.replace("agent", "env", 1)
        return _ORIGINALS.get(key, key)
    parent, _, name = key.partition("/")
    if parent == "counters":
        return name if name.startswith("num_env_steps_") else f"info/{name}"
    return name if parent in ("info", "fault_tolerance") else _ORIGINALS.get(key)


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


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError raised inside names the file: that of a failed write, as on a full disk, does not by itself."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_whole(path: Path, content: bytes, is_synced: bool = True) -> None:
    """Replaces a file in one step.

    Args:
        path: of the file.
        content: of the file.
        is_synced: have it on the disk first, so that a power failure leaves the old or the new one, too.
    """
    draft = path.with_name(f".{path.name}.tmp")
    try:
        with naming(path), open(draft, "wb") as file:
            file.write(content)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def read_params(directory: Path) -> dict[str, Any]:
    """The settings in params.json by "a/b" path; {} if there is none, or, with a warning, none that can be read."""
    return dict(settings_by_path(_read_object(directory / "params.json")))


def read_goals(directory: Path) -> dict[str, float]:
    """The thresholds at which a run of `rllib train` stops, by result key; {} where there is none."""
    stop = _read_object(directory / "run.json").get("stop")
    return {key: value for key, value in stop.items() if is_number(value)} if isinstance(stop, dict) else {}


def _read_object(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(read_inside(path.parent, path.name), type=dict)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, *UNREADABLE) as error:
        logger.warning("%s cannot be read (%s); left out", path, error)
        return {}


class AppendedFile:
    """A file to whose end pieces are written, each by one system call: a full disk leaves all of a piece or nothing.

    Args:
        path: of the file; made if it is not there.
    """

    def __init__(self, path: Path):
        self.path = path
        self._file = open(path, "ab+", buffering=0)  # noqa: SIM115 (closed in close())

    def fileno(self) -> int:
        return self._file.fileno()

    def cut_half_line(self) -> None:
        """Cuts the file behind its last whole line: a writer that was killed may have left half of the next."""
        size = os.fstat(self.fileno()).st_size
        if size:
            with mmap.mmap(self.fileno(), 0, access=mmap.ACCESS_READ) as content:
                end = content.rfind(b"\n") + 1
            if end < size:
                os.ftruncate(self.fileno(), end)

    def append(self, piece: bytes) -> None:
        """Writes a piece.

        Raises:
            OSError: naming the file, which is as before.
        """
        size = os.fstat(self.fileno()).st_size
        try:
            with naming(self.path):
                left = memoryview(piece)
                while left:
                    left = left[self._file.write(left) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self.fileno(), size)
            raise

    def close(self) -> None:
        self._file.close()


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
    write_whole(directory / "params.json", text + b"\n", is_synced=False)


class JsonLogger:
    """Appends each result as a line to result.json."""

    def __init__(self, directory: Path):
        self._file = AppendedFile(directory / "result.json")
        self._file.cut_half_line()

    def on_result(self, result: Mapping) -> None:
        """Writes one line."""
        self._file.append(encode({key: value for key, value in result.items() if key not in _LEFT_OUT}) + b"\n")

    def close(self) -> None:
        self._file.close()


def read_results(directory: Path) -> list[dict]:
    """The results in a directory's result.json.

    Half a line at its end is left out, as are, with a warning, lines that hold no result.

    Raises:
        ValueError: if result.json is no file.
    """
    return [result for result, _ in _read_lines(directory / "result.json")]


def _read_lines(path: Path) -> list[tuple[dict, int]]:
    """Each result with the position at which its line ends, in bytes."""
    try:
        lines = read_inside(path.parent, path.name).split(b"\n")
    except FileNotFoundError:
        return []
    decoder = msgspec.json.Decoder(dict)
    found, bad, end = [], [], 0
    for number, line in enumerate(lines[:-1], 1):
        end += len(line) + 1
        try:
            result = decoder.decode(line)
            if not is_number(result.get("training_iteration", 0)):
                raise msgspec.ValidationError(f"training_iteration is {result['training_iteration']!r:.40}")
            found.append((result, end))
        except UNREADABLE as error:
            bad.append(f"line {number} holds no result ({error})")
    if bad:
        more = f", nor do {len(bad) - 1} more" if len(bad) > 1 else ""
        logger.warning("%s: %s%s; left out", path, bad[0], more)
    return found


def drop_results_after(directory: Path, iteration: int) -> list[dict]:
    """Cuts what came after the last result of this or an earlier iteration off result.json, and off progress.csv.

    A kill at any time loses nothing but these: result.json is cut in one step, and progress.csv, which has the same
    results, is replaced.

    Returns:
        the results that are left, the oldest first.
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
    """Appends each result as a row to progress.csv; a new key has the file replaced by one with its column."""

    def __init__(self, directory: Path):
        self._path = directory / "progress.csv"
        self._columns: dict[str, None] = {}  # in order; the values mean nothing
        self._file: AppendedFile | None = None
        if self._path.exists():
            self._open()
            self._columns = dict.fromkeys(_read_rows(self._path)[0])

    def on_result(self, result: Mapping) -> None:
        """Writes one row."""
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
    """Writes rows with all of their columns; without a row there is no file."""
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
    """A run's result.json and progress.csv, to whose ends results are written.

    Args:
        directory: of the run.
    """

    def __init__(self, directory: Path):
        self._loggers = [JsonLogger(directory), CsvLogger(directory)]

    def on_result(self, result: Mapping) -> None:
        for each in self._loggers:
            each.on_result(result)

    def close(self) -> None:
        close_all(self._loggers)


def close_all(loggers: Sequence) -> None:
    """Closes each of them, though another raises; then raises what the last of these raised."""
    with ExitStack() as stack:
        for each in reversed(loggers):
            stack.callback(each.close)


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


def _of_tensorboard() -> tuple:
    """The classes of events and summaries, and the checksum of records.

    Raises:
        ImportError: if tensorboardX is not installed.
    """
    with _hidden("torch"):
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary
        from tensorboardX.record_writer import masked_crc32c

    return Event, Summary, masked_crc32c


class TensorBoardLogger:
    """Writes the numbers of each result to an event file, by environment steps.

    Importing tensorboardX imports torch where it is installed (1.6 s, 200 MB) to convert tensors, of which there are
    none here, so torch is hidden from it. Its writer is not used: that has a thread which dies on a full disk, and
    whoever writes later waits for it without end.

    Attributes:
        points_per_poll: number of results that are written in each half second at most; more come from very short
            iterations.
    """

    points_per_poll = 100
    what = "TensorBoard events are"
    # The end of the names of its files, by which they are told from event files that a user's code writes there.
    _SUFFIX = ".rllib"

    def __init__(self, directory: Path):
        self._event, self._summary, self._checksum = _of_tensorboard()
        self._directory, self._has_refused = directory, False
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}{self._SUFFIX}"
        self._file = AppendedFile(directory / name)
        self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))

    @classmethod
    def anew(cls, directory: Path) -> "TensorBoardLogger":
        """One that gets all results again: the event files of earlier ones are removed."""
        _of_tensorboard()
        for file in directory.glob(f"events.out.tfevents*{cls._SUFFIX}"):
            file.unlink(missing_ok=True)
        return cls(directory)

    def on_result(self, result: Mapping) -> None:
        """Adds one point to every curve, in a single event: one for each number takes seven times as long."""
        values = [self._summary.Value(tag=key, simple_value=value) for key, value in finite_numbers(result).items()]
        if video := lookup(result, VIDEO):
            values += self._video(video)
        steps = (result.get(key) for key in ("timesteps_total", "training_iteration"))
        now = result.get("timestamp")
        self._write(self._event(
            summary=self._summary(value=values),
            step=int(next((step for step in steps if step and is_number(step) and _is_finite(step)), 0)),
            wall_time=now if is_number(now) and _is_finite(now) else time.time(),
        ))  # fmt: skip

    def _video(self, name) -> list:
        """The video of a result, which may come from others: one of the run's own, or none."""
        try:
            gif = read_video(self._directory, name)
        except (OSError, ValueError) as error:
            if not self._has_refused:
                logger.warning("a video is left out of the TensorBoard events: %s", error)
            self._has_refused = True
            return []
        width, height = struct.unpack("<HH", gif[6:10])
        image = self._summary.Image(width=width, height=height, colorspace=3, encoded_image_string=gif)
        return [self._summary.Value(tag=VIDEO, image=image)]

    def _write(self, event) -> None:
        """A record is the length, its checksum, the event, its checksum."""
        content = event.SerializeToString()
        length = struct.pack("<Q", len(content))
        checksums = [struct.pack("<I", self._checksum(part)) for part in (length, content)]
        self._file.append(length + checksums[0] + content + checksums[1])

    def add_hparams(self, params: Mapping, result: Mapping) -> None:
        """Writes what TensorBoard's page of hyperparameters shows of the run.

        Args:
            params: "a/b" path -> value of what was chosen for it.
            result: its last one.
        """
        from tensorboardX.summary import hparams

        simple = (bool, int, float, str)
        given = {key: value for key, value in params.items() if value is not None}
        shown = {key: value if isinstance(value, simple) else str(value) for key, value in given.items()}
        for summary in hparams(shown, finite_numbers(result)):
            self._write(self._event(summary=summary, wall_time=time.time()))

    def close(self) -> None:
        self._file.close()


def read_video(directory: Path, name: str) -> bytes:
    """A GIF in the videos of a run, by the name that a result has for it.

    Raises:
        ValueError: if it is none, or anywhere else.
        OSError: if it cannot be read, as a link cannot.
    """
    folder, _, plain_name = str(name).partition("/")
    if folder != _VIDEOS or not plain_name or "/" in plain_name or plain_name == "..":
        raise ValueError(f"{name!r:.200} is no file in {directory / _VIDEOS}")
    content = read_inside(directory, str(name), _LARGEST_VIDEO_BYTES)
    if len(content) < 10 or content[:6] not in (b"GIF87a", b"GIF89a"):
        raise ValueError(f"{name!r:.200} is no GIF")
    return content
