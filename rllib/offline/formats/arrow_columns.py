"""Columns of Arrow, from Parquet files and tables, as arrays with a row a step."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rllib.offline.records import EPISODE_NAMES, episode_numbers, refuse_no_numbers

# Names of the types that Ray gives tensors; their shape stands in the metadata next to the name.
_RAYS_TENSORS = ("ray.data.arrow_tensor", "ray.data.arrow_tensor_v2")
_TEXTS = ("string", "large_string", "string_view")
_NAME, _ABOUT = b"ARROW:extension:name", b"ARROW:extension:metadata"


def arrays_of(table, described: Mapping[str, Any], source: str | None = None) -> Iterator[tuple[str, np.ndarray]]:
    """(name, array [rows, ...]) of the columns that hold numbers; a struct gives a column for each field.

    Args:
        table: of pyarrow.
        described: name -> {"shape", "dtype"} of columns of bytes; see parquet_files.py.
        source: name of the table, for a message about a column; None: the caller adds it.

    Raises:
        ValueError: for a list that has another length than the first, and for bytes of another size, by column and row;
            and as `refuse_no_numbers`.
    """
    for field, column in zip(table.schema, table.columns):
        chunks = [chunk.storage if hasattr(chunk, "storage") else chunk for chunk in column.chunks]
        arrays = list(_arrays(field.name, chunks, described.get(field.name)))
        if chunks and not arrays and str(chunks[0].type) != "null":
            refuse_no_numbers(field.name, table.column_names, str(chunks[0].type), source)
        for name, array in arrays:
            shape = _shape_of_tensor(field) or _shape_of_list(described.get(field.name))
            yield name, array.reshape(len(array), *shape) if shape and array[:1].size == np.prod(shape) else array


def _shape_of_list(described: Mapping | None) -> list[int]:
    """The shape of rows of numbers that our writer has written as one list."""
    shape = described.get("shape") if isinstance(described, Mapping) else None
    return shape if isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape) else []


def _shape_of_tensor(field) -> list[int]:
    about = field.metadata or {}
    if about.get(_NAME, b"").decode(errors="replace") not in _RAYS_TENSORS:
        return []
    try:
        shape = json.loads(about.get(_ABOUT, b"[]"))
    except ValueError:
        return []
    return shape if isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape) else []


def _arrays(name: str, chunks: list, described: Mapping | None) -> Iterator[tuple[str, np.ndarray]]:
    kind = str(chunks[0].type) if chunks else ""
    if kind.removeprefix("dictionary<values=").startswith(_TEXTS) and name in EPISODE_NAMES:
        yield name, episode_numbers(np.array([text for chunk in chunks for text in chunk.to_pylist()], str))
        return
    if kind.startswith("struct"):
        for index in range(chunks[0].type.num_fields):
            inner = f"{name}.{chunks[0].type.field(index).name}"
            # Flattened: the fields of a struct that is missing are missing, too.
            yield from _arrays(inner, [chunk.flatten()[index] for chunk in chunks], described)
        return
    parts, first = [], 0
    for chunk in chunks:
        part = _of_bytes(name, chunk, described, first) if "binary" in kind else _numbers(name, chunk, first)
        if part is None:
            return
        parts.append(part)
        first += len(chunk)
    filled = [part for part in parts if len(part)] or parts[:1]
    if any(part.shape[1:] != filled[0].shape[1:] for part in filled):
        raise ValueError(f"rows of {name} have different shapes")
    if filled:
        yield name, filled[0] if len(filled) == 1 else np.concatenate(filled)


def _numbers(name: str, chunk, first: int) -> np.ndarray | None:
    """A chunk of numbers, or of lists of them, [rows, ...]; None if it holds others."""
    kind = str(chunk.type)
    if "list" in kind.partition("<")[0]:
        return _of_lists(name, chunk, first)
    is_number = kind.startswith(("int", "uint", "float", "double", "half", "bool"))
    if not is_number:
        return None
    if chunk.null_count:
        row = first + int(np.flatnonzero(np.asarray(chunk.is_null()))[0])
        raise ValueError(f"row {row} has no {name}")
    return np.asarray(chunk.to_numpy(zero_copy_only=False))


def _of_lists(name: str, chunk, first: int) -> np.ndarray | None:
    if chunk.null_count:
        row = first + int(np.flatnonzero(np.asarray(chunk.is_null()))[0])
        raise ValueError(f"row {row} has no {name}")
    inner = chunk.flatten()
    if str(chunk.type).startswith("fixed_size_list"):
        size = chunk.type.list_size
    else:
        lengths = np.diff(np.asarray(chunk.offsets))
        size = int(lengths[0]) if len(lengths) else 0
        if (wrong := np.flatnonzero(lengths != size)).size:
            raise ValueError(
                f"row {first + int(wrong[0])}: {name} has {lengths[wrong[0]]} numbers, but {size} in the rows before"
            )
    values = _numbers(name, inner, first * max(size, 1))
    return None if values is None else values.reshape(len(chunk), size, *values.shape[1:])


def _of_bytes(name: str, chunk, described: Mapping | None, first: int) -> np.ndarray | None:
    """A chunk of bytes, such as images, [rows, *shape]; None if nothing says what they are."""
    if described is None:
        return None
    shape, dtype = described.get("shape"), described.get("dtype", "uint8")
    is_shape = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
    if not is_shape or dtype not in _DTYPES:
        raise ValueError(f"{name} is described as {dtype!r:.40} of the shape {shape!r:.40}, which are no numbers")
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if str(chunk.type) == f"fixed_size_binary[{size}]" and size and not chunk.null_count:
        content = np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * size, chunk.offset * size)
        return content.view(dtype).reshape(len(chunk), *shape)
    values = chunk.to_pylist()
    for row, value in enumerate(values):
        if value is None or len(value) != size:
            has = "nothing" if value is None else f"{len(value)} bytes"
            raise ValueError(f"row {first + row}: {name} has {has}, but {dtype} of the shape {shape} are {size}")
    return np.frombuffer(b"".join(values), dtype).reshape(len(values), *shape)


_DTYPES = ("uint8", "int8", "int16", "uint16", "int32", "int64", "float16", "float32", "float64", "bool")
