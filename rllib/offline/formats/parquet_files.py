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
# Bytes of a value, which may be encoded in a fraction of a bit.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# Row groups up to this size (bytes) are not divided.
_LEAST_PART = 1 << 20


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
    first, tables = 0, _tables(opened, file, source, piece_bytes)
    while True:
        try:
            table = next(tables, None)
        except MemoryError:
            raise
        except Exception as error:
            raise ValueError(f"{source} is damaged after row {first} ({_short(error)})") from None
        if table is None:
            return
        try:
            yield _records(table, source, metadata, described, first)
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None
        first += len(table)


def size_of_parquet(file: BinaryIO, source: str) -> int:
    """Bytes of the columns of all row groups, as arrays; raises as `records_of_parquet`."""
    return sum(_sizes_of_groups(_opened(file, source), file, source))


def _sizes_of_groups(opened, file: BinaryIO, source: str) -> list[int]:
    """Bytes of the columns of each row group, as arrays: what the file has may be a few values and how often they come.

    Raises:
        ValueError: if the file is damaged.
    """
    footer, sizes = opened.metadata, []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        size = 0
        for index in range(group.num_columns):
            column = group.column(index)
            width = _WIDTHS.get(column.physical_type) or footer.schema.column(index).length
            if column.physical_type == "BYTE_ARRAY":
                width = _longest(file, number, column, source)
            size += max(column.num_values * width, column.total_uncompressed_size)
        sizes.append(size)
    return sizes


def _longest(file: BinaryIO, group: int, column, source: str) -> int:
    """Most bytes of a value of a column of texts or bytes that names its values by number; 0 if it holds each."""
    if "DELTA_BYTE_ARRAY" in column.encodings:  # a value may be the one before and a letter more
        return column.total_uncompressed_size
    if not {"RLE_DICTIONARY", "PLAIN_DICTIONARY"} & set(column.encodings):
        return 0
    try:
        parquet, compute = package("pyarrow.parquet", source), package("pyarrow.compute", source)
        by_number = parquet.ParquetFile(file, read_dictionary=[column.path_in_schema])
        batch = next(by_number.iter_batches(1, [group], columns=[column.path_in_schema], use_threads=False))
        return compute.max(compute.binary_length(batch.column(0).dictionary)).as_py() or 0
    except AttributeError:  # below a list or a struct it is no dictionary
        return column.total_uncompressed_size
    except Exception as error:
        raise ValueError(f"{source} is damaged ({_short(error)})") from None


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


def _tables(opened, file: BinaryIO, source: str, piece_bytes: int | None) -> Iterator:
    """The tables of the pieces: row groups, and parts of those that are larger than a piece."""
    if piece_bytes is None:
        # Parallel reading would make the order of errors, and the load of a shared machine, a matter of chance.
        yield opened.read(use_threads=False)
        return
    arrow, sizes = package("pyarrow", source), _sizes_of_groups(opened, file, source)
    waiting: list[int] = []
    for number, size in enumerate(sizes):
        if waiting and sum(sizes[each] for each in waiting) + size > piece_bytes:
            yield opened.read_row_groups(waiting, use_threads=False)
            waiting = []
        if size <= max(piece_bytes, _LEAST_PART):
            waiting.append(number)
            continue
        if waiting:
            yield opened.read_row_groups(waiting, use_threads=False)
            waiting = []
        rows = opened.metadata.row_group(number).num_rows * max(piece_bytes, _LEAST_PART) // size
        for batch in opened.iter_batches(max(rows, 1), [number], use_threads=False):
            yield arrow.Table.from_batches([batch])
    if waiting:
        yield opened.read_row_groups(waiting, use_threads=False)


def _metadata(of_schema) -> dict[str, Any]:
    said = (of_schema or {}).get(METADATA)
    return {} if said is None else json_object(said)


def _short(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
