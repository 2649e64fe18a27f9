"""Faults of recorded steps, all at once, where reading stops at the first."""

import os
from collections.abc import Iterator, Sequence

import numpy as np
from gymnasium import Space

from rllib import sample_batch as sb
from rllib.offline import values
from rllib.offline.assembly import assembled
from rllib.offline.files import files_of, read_records
from rllib.offline.options import ReadOptions
from rllib.offline.records import Records, our_names
from rllib.storage.encoding import space_from_json


def faults(
    paths: Sequence[str | os.PathLike],
    options: ReadOptions,
    observation_space: Space | None = None,
    action_space: Space | None = None,
) -> list[str]:
    """A sentence for each fault; [] if the data can be learned from.

    Args:
        paths: as for read_records.
        options: of reading.
        observation_space, action_space: that the steps have to be of; None: what the data says, or seems to be of.
    """
    found: list[str] = []
    readable: list[os.PathLike] = []
    for path in paths:
        try:
            files = files_of(path)
        except OSError as error:
            found.append(str(error))
            continue
        for file in files:
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
    names = our_names(list(records.columns), options.schema)
    columns = {names[name]: column for name, column in records.columns.items()}
    records = Records(columns, records.source, records.parts, records.metadata, list(records.notices))
    missing = [name for name in (sb.OBS, sb.ACTIONS) if name not in columns]
    if missing or not len(records):
        yield f"{records.source} has no {' and no '.join(missing) or 'rows'}"
        return
    given = {"observation_space": observation_space, "action_space": action_space}
    for name, space in given.items():
        if space is None or records.metadata.get(name) is None:
            continue
        if (said := space_from_json(records.metadata[name])) != space:
            yield f"{records.source} has the {name} {said}, not {space}"
    known = np.ones(len(records), bool)
    try:
        episodes = assembled(records, options, options.max_episode_steps)
        records, known = episodes.records, episodes.has_next
    except ValueError as error:
        yield str(error)
    said = {name: records.metadata.get(name) for name in given}
    checks = [(_check_observations, (name, known if name == sb.NEXT_OBS else None)) for name in (sb.OBS, sb.NEXT_OBS)]
    checks += [(_check_actions, (options,)), (_check_rewards, ()), (_check_log_probs, ())]
    spaces = {name: given[name] or (said[name] and space_from_json(said[name])) for name in given}
    for check, arguments in checks:
        try:
            check(records, spaces, *arguments)
        except ValueError as error:
            yield str(error)


def _check_observations(records: Records, spaces: dict[str, Space | None], name: str, known: np.ndarray | None) -> None:
    if name in records.columns:
        space = spaces["observation_space"] or values.observation_space_of(records)
        values.checked_observations(records, name, space, known)


def _check_actions(records: Records, spaces: dict[str, Space | None], options: ReadOptions) -> None:
    values.checked_actions(records, spaces["action_space"] or values.action_space_of(records), options)


def _check_rewards(records: Records, spaces: dict[str, Space | None]) -> None:
    if sb.REWARDS in records.columns:
        values.checked_rewards(records)


def _check_log_probs(records: Records, spaces: dict[str, Space | None]) -> None:
    log_probs = records.columns.get(sb.ACTION_LOGP)
    if log_probs is not None and (wrong := np.flatnonzero(np.isnan(log_probs))).size:
        raise ValueError(f"{records.where(int(wrong[0]))}: action_logp is not a number, in {wrong.size:,} rows")
