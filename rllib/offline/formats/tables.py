"""Tables of pandas, polars and pyarrow with a row a step, known by their attributes: none of them is imported."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib.offline.formats.arrow_columns import arrays_of
from rllib.offline.records import EPISODE_NAMES, Records, episode_numbers, refuse_no_numbers


def is_table(value: Any) -> bool:
    """Whether a value is a table of pandas, polars or pyarrow."""
    if isinstance(value, Mapping | np.ndarray | type):
        return False
    return _is_arrow(value) or (hasattr(value, "columns") and hasattr(value, "__getitem__"))


def _is_arrow(value: Any) -> bool:
    return hasattr(value, "column_names") and hasattr(value, "schema") and hasattr(value, "combine_chunks")


def records_of_table(table: Any) -> Records:
    """The rows of a table; columns of lists are arrays, whose rows need equal shapes.

    Raises:
        ValueError: if they have not, with the column and the row; and as `refuse_no_numbers`.
    """
    source = f"the {type(table).__module__.partition('.')[0]} table"
    if _is_arrow(table):
        if len(set(table.column_names)) < len(table.column_names):
            raise ValueError(f"{source} has several columns with one name: {', '.join(table.column_names)}")
        return Records(dict(arrays_of(table, {}, source)), source)
    columns, names = {}, [str(name) for name in table.columns]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{source} has {names.count(twice[0])} columns with the name {twice[0]}")
    for name in table.columns:
        column = np.asarray(table[name].to_numpy())
        if str(name) in EPISODE_NAMES and column.dtype.kind in "OU" and all(isinstance(each, str) for each in column):
            column = episode_numbers(column)
        if column.dtype == object:
            column = _stacked(str(name), column, source)
        if column is not None and column.dtype.kind in "fiub":
            columns[str(name)] = column
        else:
            refuse_no_numbers(str(name), names, str(table[name].dtype), source)
    return Records(columns, source)


def _stacked(name: str, column: np.ndarray, source: str) -> np.ndarray | None:
    """A column of numbers, lists or arrays as one array; None for other objects, such as texts."""
    if len(column) and all(isinstance(row, int | float | np.number | np.bool_) for row in column):
        return np.asarray(column.tolist())
    if not len(column) or not all(isinstance(row, list | tuple | np.ndarray) for row in column):
        return None
    rows = [np.asarray(row) for row in column]
    for number, row in enumerate(rows):
        if row.shape != rows[0].shape:
            raise ValueError(
                f"{source}, row {number}: {name} has the shape {row.shape}, but {rows[0].shape} in the rows before"
            )
    stacked = np.stack(rows)
    # Rows of rows, as polars and pandas have images.
    return np.asarray(stacked.tolist()) if stacked.dtype == object else stacked
