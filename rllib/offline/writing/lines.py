"""Lines of RLlib's JSON files, as its JsonWriter writes them: {"type": "SampleBatch", COLUMN: [...], ...}.

In addition to RLlib's columns there are actions_normalized and densities_normalized, since nothing else in such a file
says the units of actions and of their densities.
"""

import base64
import pickle
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import numpy as np

from rllib import sample_batch as sb
from rllib.offline.formats.json_lines import NO_COLUMNS
from rllib.offline.writing.metadata import ACTIONS_NORMALIZED, DENSITIES_NORMALIZED, HAS_NEXT, NORMALIZED

# Columns of RLlib's batches that others can be computed from, or that say nothing where there is one agent.
ACTION_PROB, UNROLL_ID, AGENT_INDEX = "action_prob", "unroll_id", "agent_index"
# The protocol of RLlib's files; arrays of later ones are made of other names.
_PICKLE_PROTOCOL = 4


def line_of(
    columns: Mapping[str, np.ndarray], metadata: Mapping[str, Any], packed: Collection[str] = (), number: int = 0
) -> bytes:
    """One line of a file.

    Args:
        columns: name -> array [rows, ...]; those that hold no numbers are left out.
        metadata: facts about the steps; with them the columns that RLlib's workers add are added.
        packed: columns that are packed, where lz4 is installed.
        number: number of the line, its unroll_id.

    Raises:
        ValueError: for a number that is NaN.
    """
    if reserved := NO_COLUMNS & columns.keys():
        raise ValueError(
            f"JSON has no place for a column {', '.join(map(repr, sorted(reserved)))}: lines of RLlib say something "
            "else under this name. Leave it out, give it another name, or write another format."
        )
    content: dict[str, Any] = {"type": "SampleBatch"}
    if metadata:
        columns = {**columns, **_as_of_workers(columns, metadata, number)}
    for name, column in columns.items():
        column = np.asarray(column)
        if column.dtype.kind in "fiub":
            if name == sb.NEXT_OBS and HAS_NEXT in columns:
                column = _zero_where_unknown(column, columns[HAS_NEXT])
            content[name] = _pack(column) if name in packed and _lz4() else _finite(name, column).tolist()
    return msgspec.json.encode(content) + b"\n"


def _as_of_workers(
    columns: Mapping[str, np.ndarray], metadata: Mapping[str, Any], number: int
) -> dict[str, np.ndarray]:
    rows = len(columns[sb.ACTIONS])
    added = {
        UNROLL_ID: np.full(rows, number),
        AGENT_INDEX: np.zeros(rows, np.int64),
        ACTIONS_NORMALIZED: np.full(rows, metadata["actions"] == NORMALIZED),
    }
    if sb.ACTION_LOGP in columns:
        with np.errstate(over="ignore"):  # densities of actions near their bounds
            added[ACTION_PROB] = np.exp(columns[sb.ACTION_LOGP])
    units = metadata.get("densities")
    if units is not None and any(name in columns or name in added for name in sb.PROBABILITIES):
        added[DENSITIES_NORMALIZED] = np.full(rows, units == NORMALIZED)
    return {name: column for name, column in added.items() if name not in columns}


def _zero_where_unknown(next_obs: np.ndarray, has_next: np.ndarray) -> np.ndarray:
    """Observations that are not read where they are not known, and that may be anything there."""
    if has_next.all():
        return next_obs
    next_obs = next_obs.copy()
    next_obs[~has_next] = 0
    return next_obs


def _finite(name: str, column: np.ndarray) -> np.ndarray:
    """The column with the largest number for infinity, which JSON does not know: logits of illegal actions."""
    if column.dtype.kind != "f" or np.isfinite(column).all():
        return column
    if np.isnan(column).any():
        raise ValueError(
            f"{name} has NaN, which JSON does not know. Write another format, such as Parquet or npz, or leave out the "
            "column."
        )
    return np.nan_to_num(column)


def _pack(column: np.ndarray) -> str:
    """Base64 of an lz4 frame of the pickled array, as RLlib packs columns."""
    pickled = pickle.dumps(np.ascontiguousarray(column), protocol=_PICKLE_PROTOCOL)
    return base64.b64encode(_lz4().compress(pickled)).decode("ascii")


def _lz4():
    """The module lz4.frame, or None: then columns are lists, as RLlib writes them without it."""
    try:
        import lz4.frame
    except ImportError:
        return None
    return lz4.frame
