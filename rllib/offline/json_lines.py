"""RLlib's JSON files: one object a line, a batch of steps or a single step.

| a line                                        | written by                                  |
|-----------------------------------------------|---------------------------------------------|
| {"type": "SampleBatch", COLUMN: [...], ...}   | RLlib's JsonWriter of all releases          |
| {"type": "MultiAgentBatch", "policy_batches"} | the same, with several policies             |
| {COLUMN: value, ...}                          | RLlib 2.3x, a step a line; other programs   |

Columns are lists, or packed (packed.py).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from rllib import sample_batch as sb
from rllib.offline.options import ReadOptions
from rllib.offline.packed import is_packed, unpacked
from rllib.offline.records import Records

# Keys of a batch that are no columns.
_NO_COLUMNS = ("type", "count", "policy_batches")
_DECODER = msgspec.json.Decoder()


def records_of_lines(lines: Iterable[bytes], source: str, options: ReadOptions) -> Records:
    """Reads the lines of one file.

    Args:
        lines: of the file.
        source: its name.
        options: with on_error="skip", lines that cannot be read are left out and counted.

    Raises:
        ValueError: with the file, the line, and what is wrong with it.
        ImportError: if a column is packed, and lz4 is not installed.
    """
    batches: list[tuple[int, Mapping[str, Any]]] = []
    skipped = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            batches.append((number, _columns_of_line(line, options)))
        except ValueError as error:
            if not options.skips_errors:
                raise ValueError(
                    f"{source} line {number}: {error}. input_config={{'on_error': 'skip'}} leaves it out."
                ) from None
            skipped += 1
    notices = [f"{skipped:,} lines of {source} could not be read and were left out"] if skipped else []
    if not batches:
        raise ValueError(f"{source} has no steps")
    names = _shared_names(batches, source, notices)
    columns = {name: _column(name, batches, source) for name in names}
    parts, first = [], 0
    for number, batch in batches:
        parts.append((first, f"{source} line {number}"))
        first += len(batch[names[0]])
    return Records(columns, source, parts, {}, notices)


def _columns_of_line(line: bytes, options: ReadOptions) -> dict[str, np.ndarray]:
    """The columns of a line, arrays of equal lengths."""
    try:
        batch = _DECODER.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"not JSON ({error}); the file may have been cut off") from None
    if not isinstance(batch, dict):
        raise ValueError(f"a line is one JSON object, a batch or a step, not {type(batch).__name__}")
    if batch.get("type") == "MultiAgentBatch":
        batch = _of_policy(batch, options.policy)
    is_step = "type" not in batch and isinstance(batch.get(sb.REWARDS, batch.get("reward")), int | float)
    columns = {}
    for name, value in batch.items():
        if name not in _NO_COLUMNS and (column := _array(name, value, is_step)) is not None:
            columns[name] = column
    if not columns:
        raise ValueError(f"there is no column; the keys are {', '.join(sorted(batch))}")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        longest, shortest = max(lengths, key=lengths.get), min(lengths, key=lengths.get)
        raise ValueError(f"{longest} has {lengths[longest]} rows, {shortest} {lengths[shortest]}")
    return columns


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


def _array(name: str, value: Any, is_step: bool) -> np.ndarray | None:
    """A column of a line as an array [rows, ...]; None for values that are no numbers, such as infos."""
    if is_packed(value):
        try:
            value = unpacked(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if is_step:
        value = [value]
    if not isinstance(value, list | np.ndarray):
        return None
    try:
        column = np.asarray(value)
    except ValueError:
        if name in (sb.OBS, sb.NEXT_OBS, sb.ACTIONS, sb.REWARDS):
            raise ValueError(f"rows of {name} have different shapes") from None
        return None
    if column.dtype.kind not in "fiub":
        if name in (sb.OBS, sb.NEXT_OBS, sb.ACTIONS, sb.REWARDS):
            raise ValueError(f"{name} holds no numbers, but {column.dtype}")
        return None
    return column if column.ndim else None


def _shared_names(batches: list[tuple[int, Mapping]], source: str, notices: list[str]) -> list[str]:
    names = [name for name in batches[0][1] if all(name in batch for _, batch in batches)]
    lost = sorted({name for _, batch in batches for name in batch} - set(names))
    if lost:
        notices.append(f"not all lines of {source} have {', '.join(lost)}: these columns are left out")
    if not names:
        raise ValueError(f"the lines of {source} have no column in common")
    return names


def _column(name: str, batches: list[tuple[int, Mapping[str, np.ndarray]]], source: str) -> np.ndarray:
    parts = [batch[name] for _, batch in batches]
    for (number, _), part in zip(batches, parts):
        if part.shape[1:] != parts[0].shape[1:]:
            raise ValueError(
                f"{source} line {number}: a row of {name} has the shape {part.shape[1:]}, but in line {batches[0][0]} "
                f"{parts[0].shape[1:]}"
            )
    return np.concatenate(parts)


