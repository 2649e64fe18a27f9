"""Formats that steps can be written in, by name and by the ending of a file's name."""

import importlib.util
import itertools
import os
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rllib.did_you_mean import did_you_mean
from rllib.extras import install_hint
from rllib.offline.formats.packages import package
from rllib.offline.writing.column_files import write_hdf5, write_npz, write_parquet
from rllib.offline.writing.minari_sets import PREFIX, write_minari
from rllib.offline.writing.open_files import ColumnsFile, LinesFile, StepFile
from rllib.storage.local_path import local_path

JSON, PARQUET, NPZ, HDF5 = "json", "parquet", "npz", "hdf5"
_OPEN = {
    JSON: LinesFile,
    PARQUET: partial(ColumnsFile, write=write_parquet),
    NPZ: partial(ColumnsFile, write=write_npz),
    HDF5: partial(ColumnsFile, write=write_hdf5),
}
FORMATS = tuple(_OPEN)
# Formats in which runs write while they sample.
OF_RUNS = (PARQUET, JSON, NPZ)
# Ending of a name -> format.
SUFFIXES = {".json": JSON, ".jsonl": JSON, ".parquet": PARQUET, ".npz": NPZ, ".hdf5": HDF5, ".h5": HDF5}
# Modules that formats need.
_MODULES = {PARQUET: "pyarrow.parquet", HDF5: "h5py"}


def default_format() -> str:
    """Format where none is chosen: Parquet, or RLlib's JSON where pyarrow is not installed."""
    return PARQUET if is_installed(PARQUET) else JSON


def is_installed(name: str) -> bool:
    """Whether the package that a format needs is installed."""
    return name not in _MODULES or importlib.util.find_spec(_MODULES[name].partition(".")[0]) is not None


def checked_format(name: str, formats: Collection[str] = FORMATS) -> str:
    """The name of a format, after a check that it is one of these and its package is installed.

    Raises:
        ValueError: if it is not.
    """
    if name not in formats:
        raise ValueError(f"there is no format {name!r}.{did_you_mean(name, formats)} There are {', '.join(formats)}.")
    if not is_installed(name):
        raise ValueError(f"the format {name!r} needs {_MODULES[name].partition('.')[0]}: {install_hint('offline')}")
    return name


def format_of(path: str | os.PathLike) -> str:
    """The format that the ending of a file's name says.

    Raises:
        ValueError: if it says none.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"the name of {os.fspath(path)!r} says no format. Files end in {', '.join(SUFFIXES)}; or name the format, "
            f"one of {', '.join(FORMATS)}."
        )
    return SUFFIXES[suffix]


def open_steps(path: Path, format_: str, metadata: Mapping[str, Any], packed: Collection[str] = ()) -> StepFile:
    """Opens a file for steps.

    Args:
        path: path of the file.
        format_: one of FORMATS.
        metadata: facts about the steps.
        packed: columns that JSON packs.

    Raises:
        ImportError: without the package of the format.
    """
    if format_ in _MODULES:  # now: where a program ends, and its last files are closed, nothing can be imported
        package(_MODULES[format_], str(path))
    return LinesFile(path, metadata, packed) if format_ == JSON else _OPEN[format_](path, metadata)


def write_steps(
    path: str | os.PathLike,
    columns: Mapping[str, np.ndarray],
    starts: np.ndarray,
    metadata: Mapping[str, Any],
    format_: str | None = None,
) -> None:
    """Writes whole data at once; a file that is there is replaced, unless an error occurs.

    Args:
        path: path of the file, or "minari:NAMESPACE/NAME-v0".
        columns: name -> array [rows, ...], episode after episode.
        starts: int64 [episodes + 1], first row of each episode, and the number of rows.
        metadata: facts about the steps.
        format_: one of FORMATS; None: as the name of the file says.

    Raises:
        ValueError: for an unknown format, or a name that says none.
        ImportError: without the package of the format.
        OSError: if it cannot be written.
    """
    if os.fspath(path).startswith(PREFIX):
        write_minari(os.fspath(path).removeprefix(PREFIX), columns, starts, metadata)
        return
    file = open_steps(local_path(path), checked_format(format_ or format_of(path)), metadata)
    is_by_line = isinstance(file, LinesFile)
    ranges = itertools.pairwise(starts.tolist()) if is_by_line else [(0, starts[-1])]
    try:
        for start, stop in ranges:
            file.add({name: column[start:stop] for name, column in columns.items()})
        file.close()
    except BaseException:
        file.discard()  # a part is no whole data, and may not replace a file that is
        raise
