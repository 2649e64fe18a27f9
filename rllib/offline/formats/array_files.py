"""Files of named arrays: NumPy's .npz and HDF5, by our names or by those of D4RL (observations, terminals, timeouts).

OGBench's files have neither rewards nor timeouts. There each trajectory has a row more than steps, the observation
after its last one, which `terminals` marks.
"""

from collections.abc import Iterator, Mapping
from typing import BinaryIO

import numpy as np

from rllib import sample_batch as sb
from rllib.offline.formats.packages import package
from rllib.offline.options import ReadOptions
from rllib.offline.records import EPISODE_NAMES, Records, episode_numbers, listed, our_names, refuse_no_numbers
from rllib.storage.foreign_files import json_object

# The array of a .npz file in which our writer leaves metadata, as JSON in bytes.
METADATA = "metadata"
# The attribute of an HDF5 file in which it leaves the same.
ATTRIBUTE = "rllib"
# Arrays in groups of D4RL's files that are read without being asked for.
_IN_GROUPS = ("infos/action_log_probs",)


def records_of_npz(
    file: BinaryIO, source: str, options: ReadOptions, piece_bytes: int | None = None
) -> Iterator[Records]:
    """Reads a .npz file, in one piece; arrays of Python objects are refused, since to read them runs code.

    Raises:
        ValueError: if it is no whole .npz file, or holds objects.
    """
    try:
        with np.load(file, allow_pickle=False) as arrays:
            columns = {name: arrays[name] for name in arrays.files}
    except Exception as error:  # zipfile, zlib and numpy raise anything for a damaged file
        if isinstance(error, MemoryError):
            raise
        raise ValueError(f"{source} is no whole .npz file of numbers ({error})") from None
    metadata = {}
    if METADATA in columns:
        try:
            metadata = json_object(columns.pop(METADATA).tobytes())
        except ValueError as error:
            raise ValueError(f"{source}: its array {METADATA!r} is to be JSON in bytes, but {error}") from None
    rows = {}
    for name, column in columns.items():
        if name in EPISODE_NAMES and column.dtype.kind == "U" and column.ndim == 1:
            rows[name] = episode_numbers(column)
        elif column.dtype.kind not in "fiub":
            refuse_no_numbers(name, columns, str(column.dtype), source)
        elif column.ndim:
            rows[name] = column
    yield _records(rows, source, metadata)


def records_of_hdf5(
    file: BinaryIO, source: str, options: ReadOptions, piece_bytes: int | None = None
) -> Iterator[Records]:
    """Reads an HDF5 file of arrays with a row a step, as D4RL has them.

    Arrays in groups (infos/qpos) are read where `options.schema` names them. Links to other files are not followed.

    Raises:
        ValueError: if it is no whole HDF5 file, or has no array of rows.
        ImportError: without h5py.
    """
    h5py = package("h5py", source)
    try:
        with h5py.File(file, "r") as opened:
            found = dict(_datasets(opened, h5py, options, source))
            metadata = json_object(str(opened.attrs[ATTRIBUTE]).encode()) if ATTRIBUTE in opened.attrs else {}
            if not found:
                raise _Refused(f"it has no arrays of numbers, but {', '.join(sorted(opened)[:10]) or 'nothing'}")
            lengths = {name: len(dataset) for name, dataset in found.items()}
            rows = lengths.get("actions", next(iter(lengths.values())))
            if piece_bytes is None or _is_ogbench(found):
                pieces = [slice(0, rows)]
            else:
                row_bytes = sum(each.dtype.itemsize * int(np.prod(each.shape[1:])) for each in found.values())
                step = max(1, piece_bytes // max(row_bytes, 1))
                pieces = [slice(first, first + step) for first in range(0, rows, step)] or [slice(0, 0)]
            if len(set(lengths.values())) > 1:
                _records(found, source, {})  # which names the two that differ
            for piece in pieces:
                columns = {name: dataset[piece] for name, dataset in found.items()}
                yield _records(columns, source, metadata, piece.start)
    except _DAMAGED as error:
        raise _no_whole_file(source, error) from None


def size_of_hdf5(file: BinaryIO, source: str) -> int:
    """Bytes of the arrays that are read; raises as `records_of_hdf5`."""
    h5py = package("h5py", source)
    try:
        with h5py.File(file, "r") as opened:
            return sum(dataset.nbytes for _, dataset in _datasets(opened, h5py, ReadOptions(), source))
    except _DAMAGED as error:
        raise _no_whole_file(source, error) from None


class _Refused(Exception):
    """A reason why a file is not read."""


# What h5py raises for a damaged file.
_DAMAGED = (_Refused, OSError, RuntimeError, KeyError, TypeError, OverflowError)


def _no_whole_file(source: str, error: Exception) -> ValueError:
    return ValueError(f"{source} is no whole HDF5 file of recorded steps ({error})")


def _datasets(opened, h5py, options: ReadOptions, source: str) -> Iterator[tuple[str, Mapping]]:
    """(name, array in the file) of those that are read."""
    names = [*opened, *(name for name in _IN_GROUPS if name in opened)]
    said = [name for entry in (options.schema or {}).values() for name in listed(entry)]
    names += [name for name in said if "/" in name and name in opened]
    for name in dict.fromkeys(names):
        link = opened.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise _Refused(f"{name!r} is a link, which is not followed")
        dataset = opened[name]
        if not isinstance(dataset, h5py.Dataset):
            continue
        if dataset.dtype.kind not in "fiub":
            refuse_no_numbers(name, names, str(dataset.dtype), source)
            continue
        if not dataset.ndim:
            continue
        if dataset.external or dataset.is_virtual:
            raise _Refused(f"the numbers of {name!r} lie in another file, which is not opened")
        yield name, dataset


def _records(columns: Mapping[str, np.ndarray], source: str, metadata: Mapping, first: int = 0) -> Records:
    records = Records(dict(columns), source, [(-first, source)], dict(metadata))
    return _without_last_rows(records) if _is_ogbench(columns) else records


def _is_ogbench(columns: Mapping) -> bool:
    return {"observations", "actions", "terminals"} <= columns.keys() and not {"rewards", "timeouts"} & columns.keys()


def _without_last_rows(records: Records) -> Records:
    """The steps of a file whose trajectories end with a row that has an observation alone, marked by `terminals`."""
    terminals = records.columns["terminals"].astype(bool).reshape(len(records))
    if not terminals.any() or not terminals[-1]:
        raise ValueError(
            f"{records.source} has terminals without rewards and timeouts, as OGBench's files, but its last row is not "
            "marked: the file may have been cut off"
        )
    kept = np.flatnonzero(~terminals)
    names = our_names(list(records.columns))
    columns = {names[name]: column[kept] for name, column in records.columns.items() if name != "terminals"}
    columns[sb.NEXT_OBS] = records.columns["observations"][kept + 1]
    columns[sb.TRUNCATEDS] = terminals[kept + 1]
    columns[sb.TERMINATEDS] = np.zeros(len(kept), bool)
    notice = f"{int(terminals.sum()):,} rows that terminals marks hold the observation after a trajectory alone"
    return Records(columns, records.source, [(0, records.source)], records.metadata, [*records.notices, notice])
