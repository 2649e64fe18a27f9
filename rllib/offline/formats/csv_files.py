"""CSV files with a row a step: numbers in columns that the first line names, as simulators and robots log them.

Cells are numbers, true or false, or lists of numbers in brackets. Texts name episodes, and are left out elsewhere.
Columns of single numbers become vectors afterwards, as for every format (`records.gathered`).
"""

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from rllib.offline.options import ReadOptions
from rllib.offline.records import AFTER_GAP, EPISODE_NAMES, NUMBERS, Records, base_of_numbered, episode_numbers, listed
from rllib.sample_batch import EPS_ID

_DELIMITERS = ",;\t"
# Cells that are texts at once: each takes some 60 bytes.
_CELLS = 400_000
_FLAGS = {"true": 1.0, "false": 0.0}
# Bytes of a file from which the sizes of all its columns are estimated.
_SAMPLE_BYTES = 1 << 16


def records_of_csv(
    file: BinaryIO, source: str, options: ReadOptions, piece_bytes: int | None = None
) -> Iterator[Records]:
    """Reads a CSV file in UTF-8, with commas, semicolons or tabs between the cells.

    Raises:
        ValueError: without a first line of names, and for a line or cell that cannot be read; the message says which.
    """
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    try:
        yield from _Table(text, source, options).pieces(piece_bytes)
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} is no text in UTF-8 ({error})") from None
    finally:
        text.detach()  # the file is its opener's to close


def size_of_csv(file: BinaryIO, source: str) -> int:
    """Bytes of the columns that are read, about: as many rows of numbers as its first lines let expect."""
    begin = file.read(_SAMPLE_BYTES)
    size = file.seek(0, io.SEEK_END)
    numbers = sum(begin.count(each.encode()) for each in _DELIMITERS) + begin.count(b"\n")
    return size if not begin else 8 * numbers * -(-size // len(begin))


@dataclass
class _Table:
    """A file that is read from its beginning to its end.

    Attributes:
        text: text of the file.
        source: its name, for messages.
        options: options of reading.
    """

    text: io.TextIOWrapper
    source: str
    options: ReadOptions
    _left_out: list[str] = field(default_factory=list)  # why lines were
    _is_after_gap: bool = False

    def __post_init__(self):
        header = self.text.readline()
        delimiter = max(_DELIMITERS, key=header.count)
        self._names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter), [])]
        self._check_names()
        self._rows = csv.reader(self.text, delimiter=delimiter, strict=True)
        schema = self.options.schema or {}
        said = [name for names in schema.values() for name in listed(names)]
        self._needed = {
            name for name in self._names if name in NUMBERS or name in said or base_of_numbered(name) is not None
        }
        self._episodes = {*EPISODE_NAMES, *listed(schema.get(EPS_ID, ()))}

    def _check_names(self) -> None:
        names = [name for name in self._names if name]
        if not names:
            raise ValueError(f"{self.source} is empty: its first line has to name the columns")
        if all(_is_number(name) for name in names):
            raise ValueError(
                f"{self.source}: its first line has to name the columns, as in episode,obs_0,obs_1,action,reward,end, "
                f"but it holds numbers: {','.join(names):.60}"
            )
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{self.source} has {names.count(twice[0])} columns with the name {twice[0]}")

    def pieces(self, piece_bytes: int | None) -> Iterator[Records]:
        """The records of consecutive rows; raises as `records_of_csv`."""
        waiting: list[dict[str, np.ndarray]] = []
        first = size = 0
        for columns in self._chunks():
            waiting.append(columns)
            size += sum(column.nbytes for column in columns.values())
            if piece_bytes is not None and size >= piece_bytes:
                piece = self._joined(waiting, first)
                yield piece
                waiting, size, first = [], 0, first + len(piece)
        if waiting or not first:
            last = self._joined(waiting or [self._converted([], [])], first)
            if self._left_out:
                last.notices.append(
                    f"{len(self._left_out):,} lines of {self.source} were left out; the first: {self._left_out[0]}"
                )
            yield last

    def _joined(self, chunks: Sequence[dict[str, np.ndarray]], first: int) -> Records:
        """One piece; a column that has texts in one chunk alone is left out of all."""
        names = [name for name in chunks[0] if all(name in chunk for chunk in chunks)]
        for name in names:
            shapes = {chunk[name].shape[1:] for chunk in chunks}
            if len(shapes) > 1:
                raise ValueError(f"{self.source}: the lists in {name} have different lengths: {sorted(shapes)}")
        columns = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}
        return Records(columns, self.source, [(-first, self.source)])

    def _chunks(self) -> Iterator[dict[str, np.ndarray]]:
        """The columns of some rows after the others."""
        rows: list[list[str]] = []
        lines: list[int] = []
        most = max(1, _CELLS // len(self._names))
        while True:
            try:
                row = next(self._rows)
            except StopIteration:
                break
            except csv.Error as error:
                raise ValueError(f"{self.source}, line {self._rows.line_num + 1}: {error}") from None
            if not row:  # an empty line
                continue
            rows.append(row)
            lines.append(self._rows.line_num + 1)  # the line of names is before
            if len(rows) == most:
                yield self._converted(rows, lines)
                rows, lines = [], []
        if rows:
            yield self._converted(rows, lines)

    def _converted(self, rows: list[list[str]], lines: list[int]) -> dict[str, np.ndarray]:
        """The columns of rows, without those that cannot be read if such are skipped."""
        gaps = np.zeros(len(rows), np.int8)
        gaps[:1] |= self._is_after_gap
        while True:
            wrong = self._wrong_lengths(rows)
            try:
                columns = {} if wrong else self._columns(rows)
            except _Cells as error:
                wrong = error.wrong
            if not wrong:
                break
            row, why = next(iter(wrong.items()))
            if not self.options.skips_errors:
                raise ValueError(f"{self.source}, line {lines[row]}: {why}")
            self._left_out += [f"line {lines[each]}: {reason}" for each, reason in wrong.items()]
            rows, lines, gaps = self._without(rows, lines, gaps, wrong)
        if len(rows):
            self._is_after_gap = False
        if self.options.skips_errors:
            columns[AFTER_GAP] = gaps
        return columns

    def _without(self, rows, lines, gaps, wrong: Collection[int]) -> tuple[list, list, np.ndarray]:
        kept = [index for index in range(len(rows)) if index not in wrong]
        follows = np.zeros(len(rows) + 1, np.int8)
        follows[np.array(sorted(wrong)) + 1] = 1
        pending, marks = 0, []
        for index in range(len(rows)):
            pending |= int(follows[index]) | int(gaps[index])
            if index not in wrong:
                marks.append(pending)
                pending = 0
        self._is_after_gap |= bool(pending or follows[len(rows)])
        return [rows[i] for i in kept], [lines[i] for i in kept], np.array(marks, np.int8)

    def _wrong_lengths(self, rows: Sequence[Sequence[str]]) -> dict[int, str]:
        count = len(self._names)
        return {
            index: f"it has {len(row)} cells, but the first line names {count} columns"
            for index, row in enumerate(rows)
            if len(row) != count
        }

    def _columns(self, rows: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
        """The columns of rows that have as many cells as there are names.

        Raises:
            _Cells: for cells of needed columns that hold no numbers.
        """
        columns = {}
        for name, cells in zip(self._names, zip(*rows) if rows else [()] * len(self._names)):
            if not name:  # the index that pandas writes
                continue
            column = _numbers(cells, as_counted=name in self._needed)
            if column is None and name in self._episodes:
                column = episode_numbers(np.array(cells))
            if column is not None:
                columns[name] = column
            elif name in self._needed:
                raise _Cells(name, cells)
        return columns


class _Cells(Exception):
    """Cells that hold no numbers.

    Attributes:
        wrong: row -> what is wrong with its cell.
    """

    def __init__(self, name: str, cells: Sequence[str]):
        width = next((len(row) for cell in cells if (row := _list(cell)) is not None), None)
        self.wrong = {}
        for index, cell in enumerate(cells):
            row = _list(cell)
            if width is None and not (_is_number(cell) or cell.strip().lower() in _FLAGS):
                what = f"{cell!r:.40}, which is no number" if cell.strip() else "empty"
                self.wrong[index] = f"{name} is {what}"
            elif width is not None and (row is None or len(row) != width):
                self.wrong[index] = f"{name} is {cell!r:.40}, which is no list of {width} numbers as in the rows before"


def _numbers(cells: Sequence[str], as_counted: bool) -> np.ndarray | None:
    """A column of numbers, flags or lists of numbers; None for other texts.

    Args:
        cells: of the column.
        as_counted: whether whole numbers are int64; other columns are float64 throughout, wherever a piece ends.
    """
    try:
        if as_counted:
            return np.array(cells, dtype=np.int64)
    except (ValueError, OverflowError):
        pass
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        pass
    lowered = [cell.strip().lower() for cell in cells]
    if all(cell in _FLAGS or _is_number(cell) for cell in lowered):
        return np.array([_FLAGS[cell] if cell in _FLAGS else float(cell) for cell in lowered])
    rows = [_list(cell) for cell in cells]
    if any(row is None for row in rows) or len({len(row) for row in rows}) > 1:
        return None
    try:
        return np.array(rows, dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(rows, dtype=np.float64)


def _list(cell: str) -> list[str] | None:
    """The numbers of a list in a cell, as Python, JSON and NumPy write them; None if it is none."""
    cell = cell.strip()
    if not (cell.startswith("[") and cell.endswith("]")):
        return None
    numbers = cell[1:-1].replace(",", " ").split()
    return numbers if all(map(_is_number, numbers)) else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
