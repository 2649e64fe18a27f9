"""Observations and actions of Dict and Tuple spaces in columns of their parts.

A part has its own column, whose name has the keys that lead to it: obs.position, obs.camera.0. So do files, and
records. In a dataset they are one column again, in the form in which env/spaces/observations.py stores them.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib import sample_batch as sb
from rllib.env.spaces.observations import observation_column
from rllib.models.observations.flat_spaces import flat_leaves, next_to_zero, parts, values_of_leaves
from rllib.offline.records import Records

# Columns that may be of a Dict or Tuple space.
_STRUCTURED = (sb.OBS, sb.NEXT_OBS, sb.ACTIONS)


def leaves(name: str, value: Any) -> dict[str, np.ndarray]:
    """The columns of a value: its parts, where it is a dict or a tuple, by the keys that lead to them; else one."""
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, tuple):
        items = enumerate(value)
    else:
        return {name: np.asarray(value)}
    return {path: column for key, part in items for path, column in leaves(f"{name}.{key}", part).items()}


def is_nested(records: Records, name: str) -> bool:
    """Whether a column is there in its parts alone."""
    return name not in records.columns and any(each.startswith(f"{name}.") for each in records.columns)


def nested_space(records: Records, name: str, leaf_space) -> spaces.Space:
    """The space that the parts of a column seem to be of: a Tuple where all keys count from 0, else a Dict.

    Args:
        records: in which the column `is_nested`.
        name: name of the column.
        leaf_space: leaf_space(records, name) is the space of a part.
    """
    below = sorted({each[len(name) + 1 :].partition(".")[0] for each in records.columns if each.startswith(f"{name}.")})

    def space_of(key: str) -> spaces.Space:
        inner = f"{name}.{key}"
        return leaf_space(records, inner) if inner in records.columns else nested_space(records, inner, leaf_space)

    if below == sorted(map(str, range(len(below)))):
        return spaces.Tuple([space_of(str(index)) for index in range(len(below))])
    return spaces.Dict({key: space_of(key) for key in below})


def joined_parts(records: Records, observation_space: spaces.Space, action_space: spaces.Space) -> Records:
    """The records with one column in place of the parts of observations and actions.

    Raises:
        ValueError: if a part that the space has is missing, or cannot be one.
    """
    columns = dict(records.columns)
    for name in _STRUCTURED:
        if is_nested(records, name):
            space = action_space if name == sb.ACTIONS else observation_space
            values = _value(records, name, space)
            columns[name] = _action_rows(space, values) if name == sb.ACTIONS else _rows(records, name, space, values)
            columns = {each: column for each, column in columns.items() if not each.startswith(f"{name}.")}
    return Records(columns, records.source, records.parts, records.metadata, records.notices)


def with_unread_parts(
    records: Records, space: spaces.Space, read: Collection[str], said: spaces.Space | None
) -> Records:
    """The records with parts of Dict observations that they lack, the same in all rows, unless these are read.

    Args:
        records: with observations in their parts, or flat, of the space `said`.
        space: space of observations.
        read: keys that are read.
        said: the space that the data says; None: nothing.
    """
    columns = dict(records.columns)
    if isinstance(said, spaces.Dict) and said != space:
        for name in [name for name in (sb.OBS, sb.NEXT_OBS) if name in columns]:
            columns[name] = _moved(columns[name], said, space)
    for name in [name for name in (sb.OBS, sb.NEXT_OBS) if is_nested(records, name)]:
        for key, part in parts(space) or ():
            whole = f"{name}.{key}"
            if key not in read and whole not in columns and not is_nested(records, whole):
                columns |= leaves(whole, _in_all_rows(next_to_zero(part), len(records)))
    return dataclasses.replace(records, columns=columns)


def _moved(rows: np.ndarray, said: spaces.Dict, space: spaces.Space) -> np.ndarray:
    """Flat rows of a space in the form of another one that has its parts, and more."""
    places = {leaf.path: leaf for leaf in flat_leaves(space)}
    if rows.ndim != 2 or any(leaf.path not in places for leaf in flat_leaves(said)):
        return rows
    moved = np.tile(spaces.flatten(space, next_to_zero(space)).astype(rows.dtype), (len(rows), 1))
    for leaf in flat_leaves(said):
        place = places[leaf.path]
        if place.shape == leaf.shape:
            moved[:, place.start : place.stop] = rows[:, leaf.start : leaf.stop]
    return moved


def _in_all_rows(value: Any, rows: int) -> Any:
    if isinstance(value, dict):
        return {key: _in_all_rows(part, rows) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_in_all_rows(part, rows) for part in value)
    return np.broadcast_to(value, (rows, *np.shape(value)))


def _value(records: Records, name: str, space: spaces.Space) -> Any:
    """The parts of a column in the form of a batch of the space."""
    inner = parts(space)
    if inner is None:
        if name not in records.columns:
            has = sorted(each for each in records.columns if "." in each)
            raise ValueError(f"{records.source} has no {name}, which the space has; its parts are {', '.join(has)}")
        return records.columns[name]
    values = [(key, _value(records, f"{name}.{key}", part)) for key, part in inner]
    return tuple(value for _, value in values) if isinstance(space, spaces.Tuple) else dict(values)


def _rows(records: Records, name: str, space: spaces.Space, values: Any) -> np.ndarray:
    stored = observation_column(space)
    rows = np.empty((len(records), *stored.shape), stored.dtype)
    try:
        stored.write_batch(values, rows)
    except ValueError as error:
        raise ValueError(f"{records.source}: {name} does not fit {space} ({error})") from None
    return rows


def _action_rows(space: spaces.Space, values: Any) -> np.ndarray:
    return np.concatenate([part.reshape(len(part), -1) for part in values_of_leaves(space, values)], 1)
