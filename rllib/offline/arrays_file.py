"""Files of named arrays: NumPy's .npz, by our names or by those of D4RL (observations, terminals, timeouts)."""

import zipfile
from typing import BinaryIO

import numpy as np

from rllib.offline.options import ReadOptions
from rllib.offline.records import Records
from rllib.storage.foreign_files import json_object

# The array of a .npz file in which our writer leaves metadata, as JSON in bytes.
METADATA = "metadata"


def records_of_npz(file: BinaryIO, source: str, options: ReadOptions) -> Records:
    """Reads a .npz file; arrays of Python objects are refused, since to read them runs code.

    Raises:
        ValueError: if it is no whole .npz file, or holds objects.
    """
    try:
        with np.load(file, allow_pickle=False) as arrays:
            columns = {name: arrays[name] for name in arrays.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, KeyError) as error:
        raise ValueError(f"{source} is no whole .npz file of numbers ({error})") from None
    metadata = {}
    if METADATA in columns:
        metadata = json_object(columns.pop(METADATA).tobytes())
    rows = {name: column for name, column in columns.items() if column.ndim}
    return Records(rows, source, [], metadata)
