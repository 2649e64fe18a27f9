"""Readers of files of recorded steps, a module a format: the table of them by the endings of names.

A reader is called with an open binary file, its name for messages, the options of reading, and the bytes of a piece at
most. It yields Records, piece after piece; where a format cannot be read in parts, or None is given, one piece. All of
them raise ValueError for a file that is damaged, with its name and the line or row, and never run code from a file.
"""

from collections.abc import Callable, Iterator
from typing import BinaryIO

from rllib.offline.formats import tables
from rllib.offline.formats.array_files import records_of_hdf5, records_of_npz, size_of_hdf5
from rllib.offline.formats.csv_files import records_of_csv, size_of_csv
from rllib.offline.formats.json_lines import records_of_lines
from rllib.offline.formats.minari_episodes import records_of_minari
from rllib.offline.formats.parquet_files import records_of_parquet, size_of_parquet
from rllib.offline.options import ReadOptions
from rllib.offline.records import Records

__all__ = ["FORMATS", "MINARI", "SIZES", "is_table", "records_of_minari", "records_of_table"]

# Ending of a name -> reader of such a file
FORMATS: dict[str, Callable[[BinaryIO, str, ReadOptions, int | None], Iterator[Records]]] = {
    ".json": records_of_lines,
    ".jsonl": records_of_lines,
    ".parquet": records_of_parquet,
    ".npz": records_of_npz,
    ".hdf5": records_of_hdf5,
    ".h5": records_of_hdf5,
    ".csv": records_of_csv,
    ".tsv": records_of_csv,
}
# Ending of a name -> function of such a file and its name: the bytes that its columns take in memory
SIZES: dict[str, Callable[[BinaryIO, str], int]] = {
    ".parquet": size_of_parquet,
    ".hdf5": size_of_hdf5,
    ".h5": size_of_hdf5,
    ".csv": size_of_csv,
    ".tsv": size_of_csv,
}
# Beginning of the name of a Minari dataset: "minari:D4RL/door/human-v2".
MINARI = "minari:"
is_table = tables.is_table
records_of_table = tables.records_of_table
