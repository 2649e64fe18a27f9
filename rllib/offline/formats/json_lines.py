"""RLlib's JSON files: one object a line, a batch of steps or a single step.

| a line                                        | written by                                  |
|-----------------------------------------------|---------------------------------------------|
| {"type": "SampleBatch", COLUMN: [...], ...}   | RLlib's JsonWriter of all releases          |
| {"type": "MultiAgentBatch", "policy_batches"} | the same, with several policies             |
| {COLUMN: value, ...}                          | RLlib 2.3x, a step a line; other programs   |

Columns are lists, or packed (packed.py). Lines are made into arrays some thousand at once, since a file may have a step
a line; where that fails, line by line, which finds the line that is wrong.
"""

import codecs
import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from rllib import sample_batch as sb
from rllib.offline.formats.packed import Unpacker, is_packed
from rllib.offline.options import ReadOptions
from rllib.offline.records import (
    AFTER_GAP,
    DONES,
    EPISODE_NAMES,
    FOREIGN_NAMES,
    NUMBERS,
    Records,
    completed,
    episode_numbers,
    joined,
    must_hold_numbers,
)

# Columns without which a line has no steps, if others have them.
_NEEDED = (sb.OBS, sb.ACTIONS, sb.REWARDS, sb.TERMINATEDS, DONES)
_DECODER = msgspec.json.Decoder()
# Keys of a line that are no columns.
NO_COLUMNS = frozenset(("type", "count", "policy_batches"))
# Characters of the lines that are made into arrays at once: Python's objects take several times as much memory.
_AT_ONCE = 2 << 20


@dataclass
class _Line:
    """The columns of a line: lists or arrays of equal lengths."""

    number: int
    columns: dict[str, Any]
    rows: int
    after_gap: bool = False  # lines before it were left out


def records_of_lines(
    lines: Iterable[bytes], source: str, options: ReadOptions, piece_bytes: int | None = None
) -> Iterator[Records]:
    """Reads the lines of one file.

    Args:
        lines: lines of the file.
        source: its name.
        options: with on_error="skip", lines that cannot be read are left out and counted.
        piece_bytes: bytes of the lines of a piece, about; None: all are one piece.

    Raises:
        ValueError: with the file, the line, and what is wrong with it.
        ImportError: if a column is packed, and lz4 is not installed.
    """
    reader = _Reader(source, options)
    pieces, size = [], 0
    for block, bytes_of_block in _blocks(lines):
        if (records := reader.records(block)) is None:
            continue
        pieces.append(records)
        size += bytes_of_block
        if piece_bytes is not None and size >= piece_bytes:
            yield joined(pieces, source)
            pieces, size = [], 0
    if reader.skipped:
        notice = f"{reader.skipped:,} lines of {source} could not be read and were left out"
        if pieces:
            pieces[0].notices.append(notice)
        elif reader.found:  # all of it was given away already: a piece without rows says it
            empty = reader.last.taking(np.empty(0, np.int64))
            empty.notices.append(notice)
            pieces.append(empty)
    if not reader.found:
        raise ValueError(f"{source} has no steps")
    if pieces:
        yield joined(pieces, source)


def _blocks(lines: Iterable[bytes]) -> Iterator[tuple[list[tuple[int, bytes]], int]]:
    """Numbered lines that are made into arrays at once, with their size."""
    block, size = [], 0
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line or line.isspace():
            continue
        block.append((number, line))
        size += len(line)
        if size >= _AT_ONCE:
            yield block, size
            block, size = [], 0
    if block:
        yield block, size


class _Reader:
    """Makes records of the lines of a file.

    Attributes:
        skipped: lines that could not be read.
        found: whether there was a step.
        last: the newest records.
    """

    def __init__(self, source: str, options: ReadOptions):
        self.skipped, self.found = 0, False
        self.last: Records | None = None
        self._source, self._options = source, options
        self._unpack = Unpacker()
        self._is_after_gap = False  # whether the lines before the next ones were left out

    def records(self, block: list[tuple[int, bytes]]) -> Records | None:
        """The records of some lines; None if none of them could be read."""
        lines = []
        for number, line in block:
            try:
                lines.append(self._line(number, line))
            except ValueError as error:
                self._refuse(number, error)
            else:
                lines[-1].after_gap, self._is_after_gap = self._is_after_gap, False
        columns = _columns_at_once(lines)
        notices: list[str] = []
        if columns is None:
            lines = self._all_checked(lines)
            self._refuse_incomplete(lines)
            columns = _columns(lines, self._source, notices) if lines else {}
        if not lines:
            return None
        parts, first = [], 0
        for line in lines:
            parts.append((first, f"{self._source} line {line.number}"))
            first += line.rows
        if any(line.after_gap for line in lines):
            columns[AFTER_GAP] = np.zeros(first, np.int8)
            columns[AFTER_GAP][[first for (first, _), line in zip(parts, lines) if line.after_gap]] = 1
        self.found = True
        self.last = Records(columns, self._source, parts, {}, notices)
        return self.last

    def _refuse(self, number: int, error: ValueError) -> None:
        if not self._options.skips_errors:
            raise ValueError(
                f"{self._source} line {number}: {error}. input_config={{'on_error': 'skip'}} leaves it out."
            ) from None
        self.skipped += 1
        self._is_after_gap = True

    def _line(self, number: int, line: bytes) -> _Line:
        """The values of a line, with packed ones unpacked."""
        try:
            batch = _decoded(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"not JSON ({error}); the file may have been cut off, or have an object on several lines"
            ) from None
        if not isinstance(batch, dict):
            raise ValueError(f"a line is one JSON object, a batch or a step, not {type(batch).__name__}")
        if batch.get("type") == "MultiAgentBatch":
            batch = _of_policy(batch, self._options.policy)
        is_step = "type" not in batch and any(_is_of_a_step(name, value) for name, value in batch.items())
        columns = {}
        for name, value in batch.items():
            if name in NO_COLUMNS:
                continue
            if type(value) is str and is_packed(value):
                try:
                    value = self._unpack(value)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
            if is_step:
                columns[name] = [value]
            elif type(value) is list or (isinstance(value, np.ndarray) and value.ndim):
                columns[name] = value
        if not columns:
            raise ValueError(f"there is no column; the keys are {', '.join(sorted(batch))}")
        lengths = set(map(len, columns.values()))
        if len(lengths) > 1:
            sizes = {name: len(column) for name, column in columns.items()}
            longest, shortest = max(sizes, key=sizes.get), min(sizes, key=sizes.get)
            raise ValueError(f"{longest} has {sizes[longest]} rows, {shortest} {sizes[shortest]}")
        return _Line(number, columns, lengths.pop())

    def _all_checked(self, lines: list[_Line]) -> list[_Line]:
        """The lines that can be read, with arrays."""
        found, waiting = [], self._is_after_gap  # lines behind all of these were left out
        all_checked = [self._checked(line) for line in lines]
        if self._options.skips_errors:
            all_checked = self._alike(all_checked)
        self._is_after_gap = False
        for line, checked in zip(lines, all_checked):
            if checked is not None:
                found.append(dataclasses.replace(checked, after_gap=line.after_gap or self._is_after_gap))
                self._is_after_gap = False
            else:
                self._is_after_gap = True
        self._is_after_gap |= waiting
        return found

    def _refuse_incomplete(self, lines: list[_Line]) -> None:
        """Refuses lines without obs or actions, where others have them."""
        for ours in () if self._options.schema else (sb.OBS, sb.ACTIONS):
            lacking = [line for line in lines if ours not in map(_head, line.columns)]
            if lacking and len(lacking) < len(lines):
                raise ValueError(
                    f"{self._source} line {lacking[0].number} has no {ours}, which other lines have. "
                    "input_config={'on_error': 'skip'} leaves it out."
                )

    def _alike(self, lines: list[_Line | None]) -> list[_Line | None]:
        """The lines, with None for those that lack columns of steps which most rows have, or have others' shapes."""
        forms = [line and _form(line) for line in lines]
        rows: Counter[frozenset] = Counter()
        for form, line in zip(forms, lines):
            if form is not None:
                rows[form] += line.rows
        if len(rows) < 2:
            return lines
        most, _ = rows.most_common(1)[0]
        alike = []
        for form, line in zip(forms, lines):
            if form is not None and form != most:
                others = ", ".join(f"{name} {list(shape)}" for name, shape in sorted(form ^ most))
                self._refuse(line.number, ValueError(f"columns, or shapes of rows, are not those of most: {others}"))
            alike.append(line if form == most else None)
        return alike

    def _checked(self, line: _Line) -> _Line | None:
        """The line with arrays; None if it cannot be read and is left out."""
        try:
            arrays = {name: _array(name, value, line.columns) for name, value in line.columns.items()}
            columns = {name: column for name, column in arrays.items() if column is not None}
            if not columns:
                raise ValueError("no column holds numbers")
        except ValueError as error:
            self._refuse(line.number, error)
            return None
        return _Line(line.number, columns, line.rows)


def _form(line: _Line) -> frozenset[tuple[str, tuple[int, ...]]]:
    """(name, shape of a row) of the columns without which there is no step."""
    return frozenset((name, column.shape[1:]) for name, column in line.columns.items() if _head(name) in _NEEDED)


def _head(name: str) -> str:
    """Our name of a column, or of that which it is a part of: obs of "observations.position"."""
    return FOREIGN_NAMES.get(name) or FOREIGN_NAMES.get(name.partition(".")[0], name.partition(".")[0])


def _is_of_a_step(name: str, value: Any) -> bool:
    """Whether a column has one value and no list, so that its line holds one step."""
    if isinstance(value, str):
        return name in EPISODE_NAMES and not is_packed(value)
    return name in NUMBERS and isinstance(value, int | float)


def _decoded(line: bytes) -> Any:
    """The value of a line; also with NaN and Infinity, which are no JSON, but which Python's writers give."""
    try:
        return _DECODER.decode(line)
    except msgspec.DecodeError:
        if not any(name in line for name in (b"NaN", b"Infinity")):
            raise
    return json.loads(line)


def _columns_at_once(lines: list[_Line]) -> dict[str, np.ndarray] | None:
    """The columns of lines that have all the same ones, with numbers; None if something is irregular."""
    if not lines or any(line.columns.keys() != lines[0].columns.keys() for line in lines):
        return None
    columns = {}
    for name in lines[0].columns:
        values = [line.columns[name] for line in lines]
        try:
            if all(type(value) is list for value in values):
                column = np.asarray(list(chain.from_iterable(values)))
            else:
                column = np.concatenate(values)
        except ValueError:
            column = None
        if column is not None and column.dtype.kind == "U" and name in EPISODE_NAMES and column.ndim == 1:
            columns[name] = episode_numbers(column)
        elif column is not None and column.dtype.kind in "fiub" and column.ndim:
            columns[name] = column
        elif must_hold_numbers(name, lines[0].columns):
            return None
    return columns or None


def _of_policy(batch: Mapping[str, Any], policy: str | None) -> dict[str, Any]:
    batches = batch.get("policy_batches")
    if not isinstance(batches, dict) or not all(isinstance(each, dict) for each in batches.values()):
        raise ValueError("a MultiAgentBatch has policy_batches, a dict by policy")
    if policy is None and len(batches) == 1:
        (policy,) = batches
    if policy not in batches:
        chosen = f"no policy {policy!r}, but" if policy is not None else "several policies,"
        raise ValueError(
            f"the batch has {chosen} {', '.join(map(repr, sorted(batches)))}. input_config={{'policy': ...}} chooses"
        )
    return {"type": "SampleBatch", **batches[policy]}


def _array(name: str, value: Any, names: Collection[str]) -> np.ndarray | None:
    """A column of a line as an array [rows, ...]; None for values that are no numbers, such as infos."""
    try:
        column = np.asarray(value)
    except ValueError:
        if must_hold_numbers(name, names):
            raise ValueError(f"rows of {name} have different shapes") from None
        return None
    if column.dtype.kind == "U" and name in EPISODE_NAMES and column.ndim == 1:
        return episode_numbers(column)
    if column.dtype.kind not in "fiub":
        if must_hold_numbers(name, names):
            raise ValueError(f"{name} holds no numbers, but {column.dtype}")
        return None
    return column if column.ndim else None


def _columns(lines: list[_Line], source: str, notices: list[str]) -> dict[str, np.ndarray]:
    """The columns that all lines have, and the ones that `completed` adds.

    Raises:
        ValueError: as `completed`; and if there is none.
    """
    named = [f"{source} line {line.number}" for line in lines]
    all_columns = completed([line.columns for line in lines], named)
    lines = [_Line(line.number, own, line.rows) for line, own in zip(lines, all_columns)]
    names = [name for name in lines[0].columns if all(name in line.columns for line in lines)]
    lost = sorted({name for line in lines for name in line.columns} - set(names))
    if lost:
        notices.append(f"not all lines of {source} have {', '.join(lost)}: these columns are left out")
    if not names:
        raise ValueError(f"the lines of {source} have no column in common")
    return {name: _column(name, lines, source) for name in names}


def _column(name: str, lines: list[_Line], source: str) -> np.ndarray:
    parts = [line.columns[name] for line in lines]
    for line, part in zip(lines, parts):
        if part.shape[1:] != parts[0].shape[1:]:
            raise ValueError(
                f"{source} line {line.number}: a row of {name} has the shape {part.shape[1:]}, but in line "
                f"{lines[0].number} {parts[0].shape[1:]}"
            )
    return np.concatenate(parts)
