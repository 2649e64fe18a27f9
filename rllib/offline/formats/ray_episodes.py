"""Episodes as Ray 2.40 and later write them: states of SingleAgentEpisode in msgpack, an episode a row.

Arrays are dicts with the keys of msgpack_numpy: nd, type, kind, shape and data. An array of objects is a pickle there,
and is read as nothing: infos are such arrays, and no column that is learned from may be one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from rllib import sample_batch as sb
from rllib.offline.nested import leaves
from rllib.offline.records import Records, T, episode_numbers, joined

# Name of the only column of such files.
ITEM = "item"
_LARGEST_DIMENSIONS = 32


def records_of_items(items: Sequence[bytes], source: str, first: int = 0) -> Records:
    """The steps of episodes.

    Args:
        items: the packed episodes.
        source: name of the file.
        first: number of the first of them in it.

    Raises:
        ValueError: if one of them is no such episode; with its number.
    """
    records, names = [], []
    for number, item in enumerate(items, first):
        try:
            state = _state(item)
            columns = _columns(state)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            raise ValueError(f"episode {number} cannot be read ({error})") from None
        if columns is not None:
            names.append(_name(state) or f"{source} {number}")
            records.append(Records(columns, f"{source} episode {number}"))
    if not records:
        raise ValueError("there is no episode with steps")
    together = joined(records, source)
    together.columns[sb.EPS_ID] = np.repeat(episode_numbers(np.array(names)), list(map(len, records)))
    return together


def _state(item: bytes) -> Mapping[str, Any]:
    """The state of an episode."""
    state = msgspec.msgpack.decode(item)
    if not isinstance(state, dict) or not {"observations", "actions", "rewards"} <= state.keys():
        raise ValueError("it is no state of a SingleAgentEpisode")
    return state


def _name(state: Mapping[str, Any]) -> str | None:
    """The name that an episode has in all files. Parts of a cut episode have the number of their first step in it."""
    return f"{state['id_']} {state.get('t_started') or 0}" if state.get("id_") is not None else None


def _columns(state: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
    """The columns of an episode; None if it has no steps."""
    rewards = _rows(state["rewards"], "rewards")["rewards"].astype(np.float64)
    steps = len(rewards)
    if not steps:
        return None
    columns = {sb.REWARDS: rewards}
    for name, column in _rows(state["observations"], sb.OBS).items():
        if len(column) != steps + 1:
            raise ValueError(f"{name} has {len(column)} rows, but {steps} steps have {steps + 1} observations")
        columns[name] = column[:-1]
        columns[sb.NEXT_OBS + name.removeprefix(sb.OBS)] = column[1:]
    columns |= _rows(state["actions"], sb.ACTIONS)
    for name, buffer in (state.get("extra_model_outputs") or {}).items():
        if name in (sb.ACTION_LOGP, sb.ACTION_DIST_INPUTS, "action_prob") and buffer:
            columns |= _rows(buffer, name)
    last = np.arange(steps) == steps - 1
    columns[sb.TERMINATEDS] = last & bool(state.get("is_terminated"))
    columns[sb.TRUNCATEDS] = last & ~columns[sb.TERMINATEDS]
    columns[T] = np.arange(steps) + int(state.get("t_started") or 0)
    return columns


def _rows(buffer: Mapping[str, Any], name: str) -> dict[str, np.ndarray]:
    """The rows of an InfiniteLookbackBuffer after what it looks back to, by the names of their parts."""
    data, lookback = _decoded(buffer["data"]), int(buffer.get("lookback") or 0)
    found = leaves(name, _stacked(data))
    for each, column in found.items():
        if column.dtype.kind not in "fiub" or not column.ndim:
            raise ValueError(f"{each} holds no numbers")
    return {each: column[lookback:] for each, column in found.items()}


def _stacked(data: Any) -> Any:
    """Rows as one array, or as a Dict or Tuple of arrays; a list has a row for each item."""
    if not isinstance(data, list):
        return data
    if data and isinstance(data[0], dict):
        return {key: _stacked([row[key] for row in data]) for key in data[0]}
    if data and isinstance(data[0], tuple):
        return tuple(_stacked([row[index] for row in data]) for index in range(len(data[0])))
    return np.asarray(data)


def _decoded(value: Any) -> Any:
    """The value with arrays in place of the dicts that represent them."""
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if b"nd" not in value:
        return {key: _decoded(item) for key, item in value.items()}
    if value.get(b"kind") not in (b"", None) or not isinstance(value.get(b"type"), str | bytes):
        return None  # of objects, or of records
    kind, data = value[b"type"], value[b"data"]
    dtype = np.dtype(kind.decode() if isinstance(kind, bytes) else kind)
    if dtype.kind not in "fiub" or not isinstance(data, bytes):
        return None
    shape = tuple(value.get(b"shape") or ()) if value[b"nd"] else ()
    if len(shape) > _LARGEST_DIMENSIONS or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"{shape!r:.40} is no shape")
    return np.frombuffer(data, dtype).reshape(shape)
