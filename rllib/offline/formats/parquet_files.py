"""Parquet files with a row a step: ours, those of Ray 2.3x to 2.60, and of other programs; and Ray's with episodes.

Our writer leaves, as JSON, what it knows about the data in the schema's metadata, under the key `rllib`: the spaces,
the environment, the units of actions; and under "columns" the shape and dtype of columns of bytes, such as images:
{"obs": {"shape": [84, 84, 4], "dtype": "uint8"}}.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

from rllib.offline.formats.arrow_columns import arrays_of
from rllib.offline.formats.packages import package
from rllib.offline.formats.ray_episodes import ITEM, records_of_items
from rllib.offline.options import ReadOptions
from rllib.offline.records import Records
from rllib.storage.foreign_files import json_object

# Key of our metadata in the schema, and of descriptions of columns in it.
METADATA, COLUMNS = b"rllib", "columns"


def records_of_parquet(
    file: BinaryIO, source: str, options: ReadOptions, piece_bytes: int | None = None
) -> Iterator[Records]:
    """Reads a Parquet file; pieces are row groups.

    Raises:
        ValueError: if it is no whole Parquet file, or a column cannot be an array; with the row.
        ImportError: without pyarrow.
    """
    opened = _opened(file, source)
    metadata = _metadata(opened.schema_arrow.metadata)
    described = metadata.pop(COLUMNS, {})
    described = described if isinstance(described, dict) else {}
    first = 0
    for groups in _pieces(opened, piece_bytes):
        try:
            # Parallel reading would make the order of errors, and the load of a shared machine, a matter of chance.
            table = opened.read_row_groups(groups, use_threads=False)
        except MemoryError:
            raise
        except Exception as error:
            raise ValueError(f"{source} is damaged after row {first} ({_short(error)})") from None
        try:
            yield _records(table, source, metadata, described, first)
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None
        first += len(table)


def size_of_parquet(file: BinaryIO, source: str) -> int:
    """Bytes of the columns of all row groups, unpacked; raises as `records_of_parquet`."""
    footer = _opened(file, source).metadata
    return sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))


def _opened(file: BinaryIO, source: str):
    """The file, with its footer read."""
    parquet = package("pyarrow.parquet", source)
    try:
        return parquet.ParquetFile(file)
    except MemoryError:
        raise
    except Exception as error:  # pyarrow raises OSError, ArrowInvalid, and others for damaged footers
        raise ValueError(
            f"{source} is no whole Parquet file ({_short(error)}): it was cut off, or not closed. Its rows cannot be "
            "recovered."
        ) from None


def _records(table, source: str, metadata: dict[str, Any], described: dict, first: int) -> Records:
    if table.column_names == [ITEM]:
        return records_of_items(table.column(ITEM).to_pylist(), source, first)
    return Records(dict(arrays_of(table, described)), source, [(-first, source)], dict(metadata))


def _pieces(opened, piece_bytes: int | None) -> Iterator[list[int]]:
    """Numbers of the row groups of each piece."""
    groups: list[int] = []
    size = 0
    for number in range(opened.num_row_groups):
        size_of_group = opened.metadata.row_group(number).total_byte_size
        if piece_bytes is not None and groups and size + size_of_group > piece_bytes:
            yield groups
            groups, size = [], 0
        groups.append(number)
        size += size_of_group
    yield groups


def _metadata(of_schema) -> dict[str, Any]:
    said = (of_schema or {}).get(METADATA)
    return {} if said is None else json_object(said)


def _short(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
