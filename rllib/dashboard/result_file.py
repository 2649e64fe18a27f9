"""Incremental reading of result.json: only new lines, and of these only the requested keys."""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rllib.errors import DamagedFileError
from rllib.result import stored_names
from rllib.runs.entries import lookup
from rllib.runs.files import UNREADABLE
from rllib.storage.foreign_files import open_inside, read_inside
from rllib.storage.growing_lines import GrowingLines

_CHUNK_BYTES = 4 << 20
_TAIL_BYTES = 1 << 16
_LONGEST_TAIL_BYTES = 1 << 24
# In place of a number that a result has no entry for; no number in JSON is infinite.
ABSENT = -math.inf


def read_object(path: Path) -> dict[str, Any]:
    """Reads the JSON object in a small file of a run.

    Raises:
        OSError: if there is no such file.
        one of UNREADABLE: if it is damaged, no regular file, or larger than such a file is.
    """
    return msgspec.json.decode(read_inside(path.parent, path.name, _LONGEST_TAIL_BYTES), type=dict)


class ResultFile:
    """Reads columns of numbers from a result.json that may grow, be cut, be replaced or be damaged.

    Args:
        path: path of the file, which need not exist yet.
        keys: result keys or "a/b" paths. Decoding skips everything else in a line.

    Attributes:
        count: number of results read.
        bad_lines: number of lines that are no JSON object.
        first_bad: number and error of the first of them; "" if there is none.
        unfinished_bytes: number of bytes after the end of the last line.
        behind_bytes: number of bytes that have not been read yet.
        restarts: number of times that the file was another one, and was read from its beginning.
    """

    def __init__(self, path: Path, keys: Sequence[str]):
        self.keys, self.restarts = tuple(keys), 0
        self._lines, self.unfinished_bytes, self.behind_bytes = GrowingLines(path), 0, 0
        # Each number may be stored under other names (result.py).
        self._names = {key: (key, *stored_names(key)) for key in keys}
        names = (name for names in self._names.values() for name in names)
        self._decoder, self._value_of = _row_decoder(
            dict.fromkeys(top for name in names for top in (name, name.partition("/")[0]))
        )
        self._begin()

    def _begin(self) -> None:
        self.count = self.bad_lines = 0
        self.first_bad = ""

    def read(self, most_bytes: int = _CHUNK_BYTES) -> np.ndarray:
        """Reads the next results.

        Args:
            most_bytes: largest number of bytes to read; a longer line is read as a whole.

        Returns:
            [N, K] float64, of N results the K keys; ABSENT where a result has no such entry, NaN where it is no
            number. If `restarts` has grown, these are the first results of the new file.
        """
        try:
            lines, is_other = self._lines.read(most_bytes), self._lines.was_replaced
        except (OSError, DamagedFileError):
            lines, is_other = b"", self._lines.position > 0
            self._lines = GrowingLines(self._lines.path)
        if is_other:
            self._begin()
            self.restarts += 1
        self.unfinished_bytes, self.behind_bytes = self._lines.unfinished_bytes, self._lines.behind_bytes
        return self._numbers(lines)

    def _numbers(self, lines: bytes) -> np.ndarray:
        try:
            rows = self._decoder.decode_lines(lines)
        except UNREADABLE:
            rows = self._readable(lines)
        self.count += len(rows)
        return np.stack([self._named(rows, key) for key in self.keys], axis=1)

    def _readable(self, lines: bytes) -> list:
        rows = []
        for line in filter(None, lines.split(b"\n")):
            try:
                rows.append(self._decoder.decode(line))
            except UNREADABLE as error:
                self.bad_lines += 1
                number = self.count + len(rows) + self.bad_lines
                self.first_bad = self.first_bad or f"line {number}: {error}"
        return rows

    def _named(self, rows: list, key: str) -> np.ndarray:
        first, *others = (self._column(rows, name) for name in self._names[key])
        for other in others:
            is_better = np.isfinite(other) | (first == ABSENT)
            first = np.where(~np.isfinite(first) & is_better, other, first)
        return first

    def _column(self, rows: list, key: str) -> np.ndarray:
        values = [self._value_of(row, key) for row in rows]
        top, slash, rest = key.partition("/")
        if slash:
            nested = (self._value_of(row, top) for row in rows)
            inner = (lookup(each, rest, msgspec.UNSET) if isinstance(each, dict) else msgspec.UNSET for each in nested)
            values = [other if value is msgspec.UNSET else value for value, other in zip(values, inner)]
        return np.array([_number(value) for value in values], float)


def _row_decoder(names: Iterable[str]) -> tuple[msgspec.json.Decoder, Callable[[Any, str], Any]]:
    """Makes the decoder of a line, and a function (row, name) -> value, UNSET without such an entry.

    Only the named fields are decoded, unless one has a name that msgspec cannot look for: then whole lines are.
    """
    try:
        fields = {name: f"f{number}" for number, name in enumerate(names)}
        row = msgspec.defstruct(
            "Row", [(field, Any, msgspec.field(name=name, default=msgspec.UNSET)) for name, field in fields.items()]
        )
        return msgspec.json.Decoder(row), lambda row, name: getattr(row, fields[name])
    except ValueError:
        return msgspec.json.Decoder(dict), lambda row, name: row.get(name, msgspec.UNSET)


def _number(value) -> float:
    if type(value) is float:
        return value
    if value is msgspec.UNSET:
        return ABSENT
    try:
        return float(value) if type(value) is int else math.nan
    except OverflowError:
        return math.nan


def read_last(path: Path) -> dict[str, Any]:
    """Reads the last whole result in a result.json from the end of the file; {} if there is none."""
    length = _TAIL_BYTES
    try:
        with open_inside(path.parent, path.name) as file:
            size = os.fstat(file.fileno()).st_size
            while True:
                length = min(length, size)
                file.seek(size - length)
                # The first piece is the end of a line, unless the file begins there.
                lines = file.read(length).split(b"\n")[length < size : -1]
                for line in reversed(lines):
                    if (result := _decoded(line)) is not None:
                        return result
                if length in (size, _LONGEST_TAIL_BYTES):
                    return {}
                length = min(4 * length, _LONGEST_TAIL_BYTES)
    except (OSError, DamagedFileError):
        return {}


def _decoded(line: bytes) -> dict | None:
    try:
        return msgspec.json.decode(line, type=dict)
    except UNREADABLE:
        return None
