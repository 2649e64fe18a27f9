"""Steps as a source holds them, before they are understood as episodes: what every reader returns.

A reader gives the columns of its source by our names (`sample_batch.py`), with the values that it has found. What they
mean, and whether they can be right, is decided for all formats in one place (`assembly.py`).
"""

import dataclasses
import hashlib
import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rllib import sample_batch as sb
from rllib.did_you_mean import did_you_mean
from rllib.offline.writing.metadata import ACTIONS_NORMALIZED, DENSITIES_NORMALIZED, HAS_NEXT, NORMALIZED

# Flags of files that do not say whether an episode ended by itself or was cut: RLlib before 2.3, Gym before 0.26.
DONES = "dones"
# Number of the step in its episode.
T = "t"
# 1 at rows in front of which something of the source could not be read and was left out.
AFTER_GAP = "after_gap"
# In the columns of _MAY_BE_UNSAID: the source of the row says nothing.
UNSAID = -1
# Names of a column in files of other programs -> ours. A name represents the first column that has it.
FOREIGN_NAMES = {
    "observations": sb.OBS,
    "observation": sb.OBS,
    "observation.state": sb.OBS,
    "next_observations": sb.NEXT_OBS,
    "next_observation": sb.NEXT_OBS,
    "next_obs": sb.NEXT_OBS,
    "action": sb.ACTIONS,
    "reward": sb.REWARDS,
    "next.reward": sb.REWARDS,
    "terminal": sb.TERMINATEDS,
    "terminals": sb.TERMINATEDS,
    "terminations": sb.TERMINATEDS,
    "terminated": sb.TERMINATEDS,
    "timeout": sb.TRUNCATEDS,
    "timeouts": sb.TRUNCATEDS,
    "truncations": sb.TRUNCATEDS,
    "truncated": sb.TRUNCATEDS,
    "done": DONES,
    "next.done": DONES,
    "end": DONES,
    "episode": sb.EPS_ID,
    "episode_id": sb.EPS_ID,
    "episode_index": sb.EPS_ID,
    "trajectory_id": sb.EPS_ID,
    "timestep": T,
    "frame_index": T,
    "infos/action_log_probs": sb.ACTION_LOGP,
}


# Columns of facts that hold for each source by itself, so that it may lack them.
_MAY_BE_UNSAID = (ACTIONS_NORMALIZED, DENSITIES_NORMALIZED, HAS_NEXT, AFTER_GAP)
EPISODE_NAMES = (sb.EPS_ID, *(name for name, ours in FOREIGN_NAMES.items() if ours == sb.EPS_ID))
# Columns by which episodes, returns and estimates would be others if they were left out; and their names elsewhere.
_OF_STEPS = (sb.OBS, sb.NEXT_OBS, sb.ACTIONS, sb.REWARDS, sb.TERMINATEDS, sb.TRUNCATEDS, DONES, sb.EPS_ID, T)
NUMBERS = frozenset((*_OF_STEPS, *sb.PROBABILITIES, *FOREIGN_NAMES))
_KNOWN = NUMBERS | {ACTIONS_NORMALIZED, DENSITIES_NORMALIZED, HAS_NEXT, AFTER_GAP}
# Columns that may have several numbers a row, and so may be several columns of a source.
_VECTORS = (sb.OBS, sb.NEXT_OBS, sb.ACTIONS, sb.ACTION_DIST_INPUTS)
_NUMBERED = re.compile(r"(?P<base>.*[^\d_\[ ])(?:_| |\[)?(?P<number>\d+)\]?")
# Our name of a column -> that of the source, or those of several columns of single numbers.
Schema = Mapping[str, str | Sequence[str]]


def without_meaning(columns: Mapping[str, np.ndarray]) -> list[str]:
    """Names of columns of numbers that none of our columns is called in any program."""
    return [name for name, column in columns.items() if name not in _KNOWN and column.dtype.kind in "fiub"]


def must_hold_numbers(name: str, names: Collection[str]) -> bool:
    """Whether a column is one of NUMBERS that is read; of two that mean the same, the one with our name is.

    Args:
        name: name of the column in the source.
        names: names of all columns there.
    """
    ours = FOREIGN_NAMES.get(name, name)
    return name in NUMBERS and (name == ours or ours not in names)


def refuse_no_numbers(name: str, names: Collection[str], held: str, source: str | None = None) -> None:
    """Refuses a column without numbers that `must_hold_numbers`; others are left out, such as infos.

    Args:
        name, names: as there.
        held: what it holds.
        source: its name, for the message; None: the caller adds it.

    Raises:
        ValueError: naming the column.
    """
    if must_hold_numbers(name, names):
        at = "" if source is None else f"{source}: "
        raise ValueError(
            f"{at}{name} holds no numbers, but {held}: texts, or rows without a value. Convert it, or leave it out."
        )


def episode_numbers(names: np.ndarray) -> np.ndarray:
    """A number for each episode whose name is a text, the same in all files, int64 [rows]."""
    texts, index = np.unique(names.astype(str), return_inverse=True)
    digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts.tolist())
    numbers = np.array([int.from_bytes(digest, "little") >> 1 for digest in digests], np.int64)
    return numbers[index.reshape(-1)]


def listed(names: str | Sequence[str]) -> list[str]:
    """The columns that an entry of a schema names."""
    return [names] if isinstance(names, str) else list(names)


def base_of_numbered(name: str) -> str | None:
    """The name of a vector of which a column is one number, "obs" for obs_0, obs[0] and obs0; None for others."""
    found = _NUMBERED.fullmatch(name)
    return found["base"] if found and FOREIGN_NAMES.get(found["base"], found["base"]) in _VECTORS else None


def gathered(columns: Mapping[str, np.ndarray], schema: Schema | None) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Columns in which those of single numbers are vectors; and the schema, without what this has settled.

    The schema may name several columns for one of ours. Others are told by their names: obs_0, obs_1, ...

    Raises:
        ValueError: if the schema names columns that are not there or have no single numbers, or several where one
            number a row is needed.
    """
    columns, left = dict(columns), {}
    for ours, names in (schema or {}).items():
        if isinstance(names, str):
            left[ours] = names
            continue
        if ours not in _VECTORS and len(names) != 1:
            raise ValueError(f"input_read_schema has {len(names)} columns for {ours}, which is one number a row")
        if missing := [name for name in names if name not in columns]:
            raise _missing(missing, columns)
        left_alone = {name: column for name, column in columns.items() if name not in names and name != ours}
        columns = {**left_alone, ours: _vector({name: columns[name] for name in names})}
    numbered: dict[str, dict[int, str]] = {}
    for name in columns:
        if (base := base_of_numbered(name)) is not None and name not in left.values():
            numbered.setdefault(base, {})[int(_NUMBERED.fullmatch(name)["number"])] = name
    for base, by_number in numbered.items():
        ours, order = FOREIGN_NAMES.get(base, base), sorted(by_number)
        is_whole = order[0] in (0, 1) and order == list(range(order[0], order[0] + len(order)))
        if not is_whole or base in columns or ours in columns or ours in left:
            continue
        parts = {by_number[number]: columns[by_number[number]] for number in order}
        if all(part.ndim == 1 for part in parts.values()):
            columns = {name: column for name, column in columns.items() if name not in parts}
            columns[ours] = _vector(parts)
    return columns, left


def _vector(parts: Mapping[str, np.ndarray]) -> np.ndarray:
    """Columns of single numbers as one [rows, columns]."""
    if wrong := [name for name, part in parts.items() if part.ndim != 1 or part.dtype.kind not in "fiub"]:
        raise ValueError(f"{wrong[0]} has no single number in each row, so that it cannot be one of {', '.join(parts)}")
    return np.stack(list(parts.values()), 1)


def _missing(missing: Sequence[str], names: Collection[str]) -> ValueError:
    return ValueError(
        f"input_read_schema names the columns {', '.join(map(repr, missing))}, but there are "
        f"{', '.join(map(repr, sorted(names)))}.{did_you_mean(missing[0], names)}"
    )


def our_names(names: Sequence[str], schema: Mapping[str, str] | None = None) -> dict[str, str]:
    """Column of a file -> its name here; columns that have no name here keep theirs.

    Args:
        names: names of the file's columns.
        schema: our name -> the file's, where the user says so (`input_read_schema`).

    Raises:
        ValueError: if the schema names a column that the file does not have.
    """
    schema = dict(schema or {})
    if missing := sorted(set(schema.values()) - set(names)):
        raise _missing(missing, names)
    chosen = {column: name for name, column in schema.items()}
    taken = {*chosen.values(), *(name for name in names if name not in chosen)}
    for name in names:
        head, dot, path = name.partition(".")
        ours = FOREIGN_NAMES.get(name)
        if ours is None and dot and head in FOREIGN_NAMES:  # a part of a Dict or Tuple: observations.position
            ours = f"{FOREIGN_NAMES[head]}.{path}"
        if name not in chosen and ours is not None and ours not in taken:
            chosen[name] = ours
            taken.add(ours)
    return {name: chosen.get(name, name) for name in names}


@dataclass
class Records:
    """Steps of one source, in its order.

    Attributes:
        columns: our name -> array [rows, ...]; equal lengths.
        source: its name, for messages: a file, "a dict of arrays".
        parts: (first row, name) of the lines or files that the rows come from, in ascending order; below 0 where the
            first rows of a file are in records before.
        metadata: what the source says about its data, as JSON has it: "observation_space" and "action_space" (as
            storage/encoding.py writes them), "env", "max_episode_steps", "actions" ("environment" or "normalized").
        notices: what was left out or changed so far, one sentence each.
    """

    columns: dict[str, np.ndarray]
    source: str
    parts: list[tuple[int, str]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)

    def __post_init__(self):
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            name, least = min(lengths.items(), key=lambda item: item[1])
            longest, most = max(lengths.items(), key=lambda item: item[1])
            raise ValueError(f"{self.source}: {longest} has {most} rows, {name} {least}; all columns need as many")
        if not self.parts:
            self.parts = [(0, self.source)]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def where(self, row: int) -> str:
        """A row for a message: its line or file, and its number there."""
        first, name = self.parts[bisect_right(self.parts, row, key=lambda part: part[0]) - 1]
        return f"{name}, row {row - first}"

    def taking(self, rows: np.ndarray) -> "Records":
        """The records of these rows, in their order; parts are kept where the order is."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        parts = [(0, self.source)]
        if len(rows) and (np.diff(rows) == 1).all():
            begin, end = int(rows[0]), int(rows[-1])
            index = max(bisect_right(self.parts, begin, key=lambda part: part[0]) - 1, 0)
            parts = [(first - begin, name) for first, name in self.parts[index:] if first <= end]
        elif len(rows) and (np.diff(rows) > 0).all():
            parts = [(int(np.searchsorted(rows, first)), name) for first, name in self.parts]
        return Records(columns, self.source, parts, self.metadata, list(self.notices))


def renamed(records: Records, schema: Schema | None) -> Records:
    """The records with our names for columns, without those that the schema replaces.

    Raises:
        ValueError: as `gathered` and `our_names`.
    """
    try:
        columns, said = gathered(records.columns, schema)
        names = our_names(list(columns), said)
    except ValueError as error:
        raise ValueError(f"{records.source}: {error}") from None
    columns = {names[name]: column for name, column in columns.items() if said.get(names[name], name) == name}
    return Records(columns, records.source, records.parts, records.metadata, list(records.notices))


def joined(all_records: Sequence[Records], source: str) -> Records:
    """Records of several files, one after the other.

    Columns that some of them lack are left out, but for the ones that `completed` adds. Metadata is kept where all
    agree; units of actions, or of densities, in which they do not are a column.

    Args:
        all_records: in the order of their rows; at least one.
        source: name of the whole.

    Raises:
        ValueError: if a column has rows of different shapes; and as `completed`.
    """
    if len(all_records) == 1:
        return all_records[0]
    notices = list(dict.fromkeys(notice for each in all_records for notice in each.notices))
    # A source without rows has no columns to lack.
    all_records = [each for each in all_records if len(each)] or all_records[:1]
    for name, column in (("actions", ACTIONS_NORMALIZED), ("densities", DENSITIES_NORMALIZED)):
        if len({each.metadata.get(name) for each in all_records}) > 1:
            all_records = [_with_units(each, name, column) for each in all_records]
    completed_columns = completed([each.columns for each in all_records], [each.source for each in all_records])
    all_records = [dataclasses.replace(each, columns=own) for each, own in zip(all_records, completed_columns)]
    names = [name for name in all_records[0].columns if all(name in each.columns for each in all_records)]
    left_out = sorted({name for each in all_records for name in each.columns} - set(names))
    columns = {name: _concatenated(name, all_records) for name in names}
    if left_out:
        notices.append(f"not all files of {source} have {', '.join(left_out)}: these columns are left out")
    parts, first = [], 0
    for each in all_records:
        shifted = [(first + row, name) for row, name in each.parts]
        parts += shifted[1:] if parts[-1:] == shifted[:1] else shifted  # a file continues
        first += len(each)
    metadata = {
        key: value
        for key, value in all_records[0].metadata.items()
        if all(each.metadata.get(key) == value for each in all_records)
    }
    return Records(columns, source, parts, metadata, notices)


def completed(
    all_columns: Sequence[Mapping[str, np.ndarray]], sources: Sequence[str]
) -> list[Mapping[str, np.ndarray]]:
    """Columns of sources that are joined, with the ones that some lack and that must not be left out.

    truncateds is False where it is missing; those of _MAY_BE_UNSAID are `UNSAID`.

    Args:
        all_columns: name -> array [rows, ...], of each source.
        sources: their names.

    Raises:
        ValueError: if some sources have the flag dones, and others terminateds or none: neither could be kept.
    """
    flags = [_named(columns, sb.TERMINATEDS) or _named(columns, DONES) for columns in all_columns]
    if len(set(flags)) > 1:
        other = next(index for index, flag in enumerate(flags) if flag != flags[0])
        raise ValueError(
            f"{sources[other]} has {flags[other] or 'no column'} as the flag of ends, but {sources[0]} has "
            f"{flags[0] or 'none'}. Give both the same column, or read them apart: Dataset.concat([...])."
        )
    present = {name for columns in all_columns for name in columns}
    added: dict[str, Any] = {name: np.int8(UNSAID) for name in _MAY_BE_UNSAID if name in present}
    added |= {name: np.False_ for columns in all_columns if (name := _named(columns, sb.TRUNCATEDS))}
    return [
        {**{name: np.full(len(next(iter(columns.values()))), value) for name, value in added.items()}, **columns}
        if added.keys() - columns.keys()
        else columns
        for columns in all_columns
    ]


def _named(columns: Mapping[str, np.ndarray], ours: str) -> str | None:
    """The name that the column `ours` has; None if there is none."""
    return next((name for name in columns if FOREIGN_NAMES.get(name, name) == ours), None)


def _with_units(records: Records, name: str, column: str) -> Records:
    """The records with the units that their metadata says under this name as a column in its place."""
    said = records.metadata.get(name)
    if said is None:
        return records
    units = {column: np.full(len(records), said == NORMALIZED)}
    metadata = {key: value for key, value in records.metadata.items() if key != name}
    return dataclasses.replace(records, columns=records.columns | units, metadata=metadata)


def _concatenated(name: str, all_records: Sequence[Records]) -> np.ndarray:
    columns = [each.columns[name] for each in all_records]
    for each, column in zip(all_records, columns):
        if column.shape[1:] != columns[0].shape[1:]:
            raise ValueError(
                f"{each.source}: rows of {name} have the shape {column.shape[1:]}, but in {all_records[0].source} "
                f"{columns[0].shape[1:]}"
            )
    return np.concatenate(columns)
