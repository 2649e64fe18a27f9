"""Files of whole columns: Parquet, NumPy's .npz, and HDF5 by the names of D4RL."""

import json
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rllib import sample_batch as sb
from rllib.offline.formats.packages import package
from rllib.offline.writing.metadata import ACTIONS_NORMALIZED, NORMALIZED

# Key of metadata in a Parquet schema and among the attributes of an HDF5 file, and of descriptions of columns in it.
METADATA, COLUMNS = "rllib", "columns"
# The array of a .npz file that holds metadata, as JSON in bytes.
METADATA_ARRAY = "metadata"
ROW_GROUP = 1 << 16
# Names of D4RL's files.
D4RL_NAMES = {
    sb.OBS: "observations",
    sb.NEXT_OBS: "next_observations",
    sb.ACTIONS: "actions",
    sb.REWARDS: "rewards",
    sb.TERMINATEDS: "terminals",
    sb.TRUNCATEDS: "timeouts",
    sb.ACTION_LOGP: "infos/action_log_probs",
}


def refuse_columns(format_: str, names: Collection[str], why: str) -> None:
    """Refuses columns that a format has no place for, or would read as others.

    Raises:
        ValueError: if there are any.
    """
    if names:
        raise ValueError(
            f"{format_} has no place for a column {why}: {', '.join(map(repr, sorted(names)))}. Leave "
            "it out, give it another name, or write another format."
        )


def write_parquet(path: Path, columns: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> None:
    """Writes a Parquet file: a row a step, numbers of a row as a list of fixed size, images as bytes.

    Images are compressed, numbers are not: their noise takes time and gives little.

    Raises:
        ImportError: without pyarrow.
    """
    refuse_columns(
        "Parquet", [name for name, column in columns.items() if not all(column.shape[1:])], "without numbers"
    )
    arrow, parquet = package("pyarrow", str(path)), package("pyarrow.parquet", str(path))
    arrays, described, compression = {}, {}, {}
    for name, column in columns.items():
        column = np.ascontiguousarray(column)
        if column.dtype == np.uint8 and column.ndim > 2:
            size = int(np.prod(column.shape[1:]))
            arrays[name] = arrow.FixedSizeBinaryArray.from_buffers(
                arrow.binary(size), len(column), [None, arrow.py_buffer(column)]
            )
            described[name] = {"shape": list(column.shape[1:]), "dtype": "uint8"}
            compression[name] = "zstd"
        elif column.ndim == 1:
            arrays[name] = _array(arrow, column)
        else:
            size = int(np.prod(column.shape[1:], dtype=int))
            arrays[name] = arrow.FixedSizeListArray.from_arrays(_array(arrow, column.reshape(-1)), size)
            if column.ndim > 2:
                described[name] = {"shape": list(column.shape[1:]), "dtype": str(column.dtype)}
    about = {METADATA: json.dumps({**metadata, COLUMNS: described})}
    table = arrow.table(arrays).replace_schema_metadata(about)
    parquet.write_table(table, path, row_group_size=ROW_GROUP, use_dictionary=False, compression=compression or "none")


def _array(arrow, column: np.ndarray):
    """An Arrow array of numbers over their memory: pyarrow.array would import pandas."""
    content = np.packbits(column, bitorder="little") if column.dtype == bool else column
    kind = arrow.from_numpy_dtype(column.dtype)
    return arrow.Array.from_buffers(kind, len(column), [None, arrow.py_buffer(content)])


def write_npz(path: Path, columns: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> None:
    """Writes a .npz file: the columns by our names, and metadata as JSON in bytes."""
    refuse_columns("npz", {METADATA_ARRAY} & columns.keys(), "of this name")
    about = np.frombuffer(json.dumps(metadata).encode(), np.uint8)
    with zipfile.ZipFile(path, "w") as archive:  # np.savez takes names of columns for its arguments
        for name, column in {**columns, METADATA_ARRAY: about}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(column), allow_pickle=False)


def write_hdf5(path: Path, columns: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> None:
    """Writes an HDF5 file with arrays by the names of D4RL; other columns keep ours.

    Raises:
        ImportError: without h5py.
    """
    ours = {D4RL_NAMES.get(name, name) for name in columns if name in D4RL_NAMES}
    foreign = columns.keys() - D4RL_NAMES.keys()
    refuse_columns("HDF5", {name for name in foreign if name in ours or not name or "/" in name}, "of this name")
    h5py = package("h5py", str(path))
    rows = len(next(iter(columns.values())))
    units = {ACTIONS_NORMALIZED: np.full(rows, metadata.get("actions") == NORMALIZED)}
    with h5py.File(path, "w") as file:
        for name, column in {**columns, **units}.items():
            file.create_dataset(D4RL_NAMES.get(name, name), data=column)
        file.attrs[METADATA] = json.dumps(metadata)
