"""From records to episodes: where each begins, how it ended, and what followed each step.

Files differ in what they say. Some number the episodes, some flag only their ends, some flag nothing. Some have one
flag for an end of the task and for a time limit. Next observations may be missing, or be those after a reset. The rules
here hold for every format, and everything that they repair is counted in `Records.notices`.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib import sample_batch as sb
from rllib.offline.options import ReadOptions
from rllib.offline.records import AFTER_GAP, DONES, UNSAID, Records, T, refuse_no_numbers
from rllib.offline.writing.metadata import HAS_NEXT

# Two observations are the same if no number differs by more.
_SAME = 1e-5
# Data is refused if more than this share of its steps do not follow from the ones before.
_BREAKS_ALLOWED = 0.01
# A length counts as a time limit if it is that of more than half of the episodes, of at least this number, and of this
# length.
_LEAST_EPISODES, _LEAST_LIMIT = 5, 50


@dataclass(frozen=True)
class Episodes:
    """Records in order, as episodes.

    Attributes:
        records: with the columns terminateds and truncateds, and one flag at the end of each episode; with new_obs.
        starts: int64 [episodes + 1], first row of each episode, and the number of rows.
        has_next: bool [rows], whether new_obs holds what followed.
        time_limit: steps after which episodes were cut, if that is known or was found out.
        is_reordered: whether the rows of an episode were apart, and were put together.
    """

    records: Records
    starts: np.ndarray
    has_next: np.ndarray
    time_limit: int | None = None
    is_reordered: bool = False


def assembled(records: Records, options: ReadOptions, max_episode_steps: int | None = None) -> Episodes:
    """Finds the episodes of records.

    Args:
        records: at least the columns obs and actions.
        options: options of reading.
        max_episode_steps: time limit of the environment, if it is known.

    Raises:
        ValueError: if steps do not follow from one another, or an episode continues after its end.
    """
    _refuse_two_shapes(records)
    given = records = _with_gaps_counted(records)
    records, starts = _in_order(records, options)
    starts = _cut_at_gaps(records, starts)
    columns = dict(records.columns)
    terminateds, truncateds, limit = _ends(records, starts, options, max_episode_steps)
    last = starts[1:] - 1
    inside = np.ones(len(records), bool)
    inside[last] = False
    if (wrong := np.flatnonzero((terminateds | truncateds) & inside)).size:
        raise ValueError(
            f"{records.where(int(wrong[0]))}: the episode has ended, but the next row has the same episode id. "
            "The episode ids, or the flags of ends, are wrong."
        )
    both = terminateds & truncateds
    if both.any():
        records.notices.append(f"{both.sum():,} rows are both terminated and truncated: they count as terminated")
        truncateds &= ~both
    unmarked = ~(terminateds | truncateds)[last]
    if unmarked.any():
        records.notices.append(f"{unmarked.sum():,} of {len(last):,} episodes end without a flag: truncated there")
        truncateds[last[unmarked]] = True
    columns |= {sb.TERMINATEDS: terminateds, sb.TRUNCATEDS: truncateds}
    columns[sb.NEXT_OBS], has_next = _following(records, starts, terminateds, options)
    for name in (DONES, HAS_NEXT, AFTER_GAP):
        columns.pop(name, None)
    done = Records(columns, records.source, records.parts, records.metadata, records.notices)
    return Episodes(done, starts, has_next, limit, records is not given)


# ---------------------------------------------------------------------- where episodes begin


def _in_order(records: Records, options: ReadOptions) -> tuple[Records, np.ndarray]:
    """The records with each episode's rows one after the other, and where the episodes begin."""
    columns = records.columns
    if sb.EPS_ID not in columns:
        return records, _starts_without_ids(records, options)
    ids = _counts(records, sb.EPS_ID)
    changes = np.flatnonzero(ids[1:] != ids[:-1]) + 1
    blocks = ids[np.append(0, changes)] if len(ids) else ids
    if len(np.unique(blocks)) < len(blocks):  # an id comes again: environments sampled in turns, or another episode
        _, first, group = np.unique(ids, return_index=True, return_inverse=True)
        order = np.argsort(first[group.reshape(-1)], kind="stable")
        grouped = records.taking(order)
        # Rows behind which there were others in between before the next one of the same id.
        seams = np.flatnonzero((np.diff(order) != 1) & (ids[order[1:]] == ids[order[:-1]]))
        follows = _follows(grouped, seams)
        if 2 * follows.sum() > len(seams) - set_flags(grouped)[seams].sum():
            grouped.notices.append("episodes are interleaved: their rows were put together by eps_id")
            begins = _begins_of_ids(grouped)
            begins[seams[~follows]] = True
            return grouped, _starts(begins, len(grouped))
    return records, _starts(_begins_of_ids(records), len(records))


def _refuse_two_shapes(records: Records) -> None:
    """Raises a ValueError if observations before and after steps have other shapes: they are compared."""
    before, after = (records.columns.get(name, records.columns[sb.OBS]).shape[1:] for name in (sb.OBS, sb.NEXT_OBS))
    if before != after:
        raise ValueError(
            f"{records.source}: rows of obs have the shape {before}, but those of new_obs {after}. Both are "
            "observations of one space: give both in the same form, or leave new_obs out."
        )


def _with_gaps_counted(records: Records) -> Records:
    """The records with the number of gaps before each row, where the source tells of gaps."""
    if AFTER_GAP not in records.columns:
        return records
    count = np.cumsum(records.columns[AFTER_GAP] == 1)
    return dataclasses.replace(records, columns={**records.columns, AFTER_GAP: count}, notices=records.notices)


def _cut_at_gaps(records: Records, starts: np.ndarray) -> np.ndarray:
    """The starts, and one behind each gap in an episode: it is not known how many of its steps were left out."""
    columns = records.columns
    if AFTER_GAP not in columns:
        return starts
    before = np.setdiff1d(np.flatnonzero(np.diff(columns[AFTER_GAP])), starts - 1)
    goes_on = np.zeros(len(before), bool)
    if T in columns:
        steps = _counts(records, T)
        goes_on |= steps[before + 1] == steps[before] + 1
    if sb.NEXT_OBS in columns:
        goes_on |= _same(columns[sb.NEXT_OBS][before], columns[sb.OBS][before + 1])
    if goes_on.all():
        return starts
    cuts = before[~goes_on] + 1
    records.notices.append(f"{len(cuts):,} episodes are cut where steps of them may have been left out")
    return np.union1d(starts, cuts)


def _begins_of_ids(records: Records) -> np.ndarray:
    """Whether each row but the first begins an episode, by its number or that of its step; bool [rows - 1]."""
    ids = _counts(records, sb.EPS_ID)
    begins = ids[1:] != ids[:-1]
    if T in records.columns:
        steps = _counts(records, T)
        begins |= steps[1:] <= steps[:-1]
    return begins


def _follows(records: Records, rows: np.ndarray) -> np.ndarray:
    """Whether the row after each of these seems to be the next step of the same episode, bool [rows given]."""
    columns = records.columns
    ends = set_flags(records)
    follows = ~ends[rows]
    if T in columns:
        steps = _counts(records, T)
        return follows & (steps[rows + 1] > steps[rows])
    if sb.NEXT_OBS not in columns:
        # Flags of all ends tell as well; if most of the rows are ends, numbers are given again.
        has_all_ends = (sb.TRUNCATEDS in columns or DONES in columns) and ends.any()
        return follows & (has_all_ends and 2 * follows.sum() > len(rows))
    return follows & _same(columns[sb.NEXT_OBS][rows], columns[sb.OBS][rows + 1])


def set_flags(records: Records) -> np.ndarray:
    """Rows at which a flag says that the episode has ended, bool [rows]."""
    ends = np.zeros(len(records), bool)
    for name in (sb.TERMINATEDS, sb.TRUNCATEDS, DONES):
        if name in records.columns:
            ends |= _flags(records, name)
    return ends


def _flags(records: Records, name: str) -> np.ndarray:
    """The flags [rows] or [rows, 1] of a column as bool [rows].

    Raises:
        ValueError: for another shape, and for a value that is neither 0 nor 1.
    """
    column = _one_a_row(records, name)
    if column.dtype != bool:
        values = column if column.dtype.kind in "fiu" else np.array([_as_flag(value) for value in column.tolist()])
        if (wrong := np.flatnonzero((values != 0) & (values != 1))).size:
            row = int(wrong[0])
            raise ValueError(
                f"{records.where(row)}: {name} is {column.tolist()[row]!r:.40}, but a flag is True or False, 1 or 0 "
                f"({wrong.size:,} of {len(column):,} rows)"
            )
        column = values
    return column.astype(bool)


def _as_flag(value: Any) -> float:
    """A value of Python's as a number; NaN for what is none, such as a text or a missing value."""
    return float(value) if isinstance(value, int | float) else np.nan


def _counts(records: Records, name: str) -> np.ndarray:
    """The numbers [rows] of episodes or steps, by the name of their column.

    Raises:
        ValueError: for another shape, and for a row without a number.
    """
    column = _one_a_row(records, name)
    if name == T and column.dtype.kind not in "fiub":
        refuse_no_numbers(name, records.columns, str(column.dtype), records.source)
    if column.dtype.kind == "f" and (wrong := np.flatnonzero(~np.isfinite(column))).size:
        row = int(wrong[0])
        raise ValueError(f"{records.where(row)}: {name} is {column[row]}, which numbers nothing")
    return column


def _one_a_row(records: Records, name: str) -> np.ndarray:
    """A column [rows] or [rows, 1] as [rows]; raises a ValueError for another shape."""
    column = records.columns[name]
    if column.shape[1:] not in ((), (1,)):
        raise ValueError(f"{records.where(0)}: {name} must be one value a row, but has the shape {column.shape[1:]}")
    return column.reshape(len(column))


def _starts_without_ids(records: Records, options: ReadOptions) -> np.ndarray:
    columns, rows = records.columns, len(records)
    if T in columns:
        steps = _counts(records, T)
        return _starts(steps[1:] <= steps[:-1], rows)
    ends, begins = set_flags(records), np.zeros(max(rows - 1, 0), bool)
    if ends.any() or options.ends == "flags":
        begins |= ends[:-1]
    else:  # each line or file is one episode
        begins[[first - 1 for first, _ in records.parts if first > 0]] = True
    return _starts(begins, rows)


def _starts(begins: np.ndarray, rows: int) -> np.ndarray:
    """Starts from flags [rows - 1] of the rows after the first."""
    if not rows:
        return np.zeros(1, np.int64)
    return np.concatenate([[0], np.flatnonzero(begins) + 1, [rows]]).astype(np.int64)


# ---------------------------------------------------------------------- how they ended


def _ends(
    records: Records, starts: np.ndarray, options: ReadOptions, max_episode_steps: int | None
) -> tuple[np.ndarray, np.ndarray, int | None]:
    """The columns terminateds and truncateds, bool [rows], and the time limit."""
    columns, rows = records.columns, len(records)
    given = {name: _flags(records, name) for name in (sb.TERMINATEDS, sb.TRUNCATEDS, DONES) if name in columns}
    terminateds, truncateds = (given.get(name, np.zeros(rows, bool)) for name in (sb.TERMINATEDS, sb.TRUNCATEDS))
    if sb.TERMINATEDS in given or DONES not in given:
        return terminateds, truncateds, max_episode_steps
    dones = given[DONES] & ~truncateds
    limit = max_episode_steps
    if options.dones != "auto":
        is_limit = np.full(rows, options.dones == "truncated")
    else:
        is_limit, limit = _at_time_limit(records, starts, dones, max_episode_steps)
    return dones & ~is_limit, truncateds | (dones & is_limit), limit


def _at_time_limit(
    records: Records, starts: np.ndarray, dones: np.ndarray, max_episode_steps: int | None
) -> tuple[np.ndarray, int | None]:
    """Rows at which an episode is as long as its environment allows, bool [rows], and this length."""
    lengths = np.diff(starts)
    limit, why = max_episode_steps or records.metadata.get("max_episode_steps"), "the environment's limit"
    # Data may have been recorded with another limit than the environment has by now.
    is_reached = limit is not None and (lengths == limit).any()
    longest = lengths.max()
    is_common = len(lengths) >= _LEAST_EPISODES and longest >= _LEAST_LIMIT and (lengths == longest).mean() > 0.5
    if is_common and not is_reached:
        limit, why = int(longest), "the length of most episodes"
    at_limit = np.zeros(len(dones), bool)
    if limit is not None:
        at_limit[starts[1:][lengths == limit] - 1] = True
    if count := int((at_limit & dones).sum()):
        records.notices.append(
            f"{count:,} episodes are done after {limit} steps, {why}: they count as truncated, not terminated. "
            "dones='terminated' in input_config says otherwise."
        )
    return at_limit, limit


# ---------------------------------------------------------------------- what followed


def _following(
    records: Records, starts: np.ndarray, terminateds: np.ndarray, options: ReadOptions
) -> tuple[np.ndarray, np.ndarray]:
    """The column new_obs, and the rows in which it is known."""
    obs, last = records.columns[sb.OBS], starts[1:] - 1
    if sb.NEXT_OBS not in records.columns:
        following = np.zeros_like(obs)
        following[:-1] = obs[1:]
        following[last] = 0
        known = np.ones(len(obs), bool)
        known[last] = False
    else:
        following, known = records.columns[sb.NEXT_OBS], np.ones(len(obs), bool)
        breaks, compared = _breaks(records, starts)
        if options.check and len(breaks) > _BREAKS_ALLOWED * compared:
            raise ValueError(
                f"{records.where(int(breaks[0]))}: new_obs is not the obs of the next row, nor in {len(breaks):,} of "
                f"{compared:,} rows. The rows are shuffled, or the episode ids are wrong. input_config={{'check': "
                "False} takes them as they are."
            )
        resets, ended = followed_by_resets(obs, following, starts), terminateds[last]
        # Nothing is recorded behind the last end, which is like the others if all of these were resets.
        resets[-1:] = resets[:-1].size > 0 and resets[:-1].all() and set_flags(records)[-1]
        known[last] = ~resets
        # After terminations a few may be alike by chance. Environments that reset themselves give no other ones.
        of_ended = resets[:-1][ended[:-1]]
        known[last[ended]] = not (of_ended.size and of_ended.all())
        if HAS_NEXT in records.columns:  # our own files say it
            said = records.columns[HAS_NEXT].reshape(len(obs))
            known = np.where(said == UNSAID, known, said != 0)
        if (resets := int((~(known | terminateds)).sum())) > 0:
            records.notices.append(
                f"new_obs of {resets:,} episodes' last rows is the first observation of the next episode"
            )
    if (lost := int((~(known | terminateds)).sum())) > 0:
        records.notices.append(
            f"the observation after {lost:,} truncated episodes is not known: what bootstraps takes them as cut before "
            "their last step, whose observation is known"
        )
    return following, known


def followed_by_resets(obs: np.ndarray, following: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Whether the observation after each episode is the first one of the next, bool [episodes].

    Args:
        obs, following: [rows, ...], observations before and after each step.
        starts: int64 [episodes + 1], as in `Episodes`.
    """
    last = starts[1:-1] - 1
    return np.append(_equal(following[last], obs[last + 1]), np.zeros(min(len(starts) - 1, 1), bool))


def _breaks(records: Records, starts: np.ndarray) -> tuple[np.ndarray, int]:
    """Rows inside of episodes whose new_obs is not the next row's obs, and the number of rows that were compared."""
    if sb.NEXT_OBS not in records.columns or len(records) < 2:
        return np.empty(0, np.int64), 0
    inside, differs = np.ones((2, len(records) - 1), bool)
    inside[starts[1:-1] - 1] = False
    obs, following = records.columns[sb.OBS], records.columns[sb.NEXT_OBS]
    step = max(1, (4 << 20) // max(obs[:1].nbytes, 1))  # not all differences in memory at once
    for first in range(0, len(inside), step):
        some = slice(first, min(first + step, len(inside)))
        differs[some] = ~_same(following[some], obs[first + 1 : some.stop + 1])
    return np.flatnonzero(differs & inside), int(inside.sum())


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rows [N] in which two observations are the same but for rounding."""
    same = _equal(a, b)
    if a.dtype.kind == "f" and not same.all():  # most are equal to the bit
        rows = np.flatnonzero(~same)
        a, b = a[rows].astype(np.float64), b[rows].astype(np.float64)
        # NaN equals NaN here: the check of observations reports it.
        close = (np.abs(a - b) <= _SAME * np.maximum(1, np.abs(b))) | (np.isnan(a) & np.isnan(b))
        same[rows] = close.all(tuple(range(1, close.ndim)))
    return same


def _equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rows [N] in which two observations are equal to the bit."""
    return (a == b).all(tuple(range(1, a.ndim)))
