"""Faults of recorded steps, all at once, where reading stops at the first."""

import os
from collections.abc import Iterator, Sequence

import numpy as np
from gymnasium import Space

from rllib import sample_batch as sb
from rllib.offline import values
from rllib.offline.assembly import assembled
from rllib.offline.dataset import refuse_other_spaces, spaces_of
from rllib.offline.files import read_records, sources_of
from rllib.offline.nested import is_nested, joined_parts
from rllib.offline.options import ReadOptions
from rllib.offline.records import Records


def faults(
    paths: Sequence[str | os.PathLike],
    options: ReadOptions,
    observation_space: Space | None = None,
    action_space: Space | None = None,
) -> list[str]:
    """A sentence for each fault; [] if the data can be learned from.

    Args:
        paths: as for read_records.
        options: options of reading.
        observation_space, action_space: that the steps have to be of; None: what the data says, or seems to be of.
    """
    found: list[str] = []
    readable: list[str | os.PathLike] = []
    for path in paths:
        try:
            sources = sources_of(path)
        except (ValueError, OSError) as error:
            found.append(str(error))
            continue
        for file in sources:
            try:
                read_records(file, options)
            except (ValueError, OSError, ImportError) as error:
                found.append(str(error))
            else:
                readable.append(file)
    if readable:
        try:
            records = read_records(readable, options)
        except ValueError as error:
            return [*found, str(error)]
        found += _faults_of(records, options, observation_space, action_space)
    return found


def _faults_of(
    records: Records, options: ReadOptions, observation_space: Space | None, action_space: Space | None
) -> Iterator[str]:
    missing = [name for name in (sb.OBS, sb.ACTIONS) if name not in records.columns and not is_nested(records, name)]
    if missing or not len(records):
        yield f"{records.source} has no {' and no '.join(missing) or 'rows'}"
        return
    for given in ({"observation_space": observation_space}, {"action_space": action_space}):
        try:
            refuse_other_spaces(records, **given)
        except ValueError as error:
            yield str(error)
    try:
        spaces = spaces_of(records, observation_space, action_space)
        records = joined_parts(records, *spaces)
    except ValueError as error:
        yield str(error)
        return
    known = np.ones(len(records), bool)
    try:
        episodes = assembled(records, options, options.max_episode_steps)
        records, known = episodes.records, episodes.has_next
    except ValueError as error:
        yield str(error)
    checks = [(_check_observations, (name, spaces[0], known if name == sb.NEXT_OBS else None)) for name in _SEEN]
    checks += [(values.checked_actions, (spaces[1], options)), (_check_rewards, ()), (_check_log_probs, ())]
    for check, arguments in checks:
        try:
            check(records, *arguments)
        except ValueError as error:
            yield str(error)


_SEEN = (sb.OBS, sb.NEXT_OBS)


def _check_observations(records: Records, name: str, space: Space, known: np.ndarray | None) -> None:
    if name in records.columns:
        values.checked_observations(records, name, space, known)


def _check_rewards(records: Records) -> None:
    if sb.REWARDS in records.columns:
        values.checked_rewards(records)


def _check_log_probs(records: Records) -> None:
    log_probs = records.columns.get(sb.ACTION_LOGP)
    if log_probs is not None and (wrong := np.flatnonzero(np.isnan(log_probs))).size:
        raise ValueError(f"{records.where(int(wrong[0]))}: action_logp is not a number, in {wrong.size:,} rows")
