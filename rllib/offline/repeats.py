"""Rows with which files repeat the ones before them, as the newest writer of RLlib leaves them.

That writer empties its buffer only if the number of rows of a file is limited. So each of its writes, a file or a
directory of files, begins with all steps that its worker has written before. Only this is taken for a repetition:
from the beginning of a file on, all rows since an earlier file's beginning come again, the same in all columns. Equal
rows alone say nothing: in a small world different episodes have many of them, and files may each count from 0.
"""

import numpy as np

from rllib import sample_batch as sb
from rllib.offline.assembly import set_flags
from rllib.offline.records import Records, T


class RowsOfFiles:
    """The rows of files that are compared: 25 bytes of each are kept.

    Args:
        num_files: number of files.
    """

    def __init__(self, num_files: int):
        self._lengths = np.zeros(num_files, np.int64)
        self._columns: dict[str, list[np.ndarray]] = {_DIGESTS: [], _ENDS: [], sb.EPS_ID: [], T: []}

    def add(self, file: int, records: Records) -> None:
        """Adds the next rows, whose columns have our names, of the file with this number; files come in order."""
        self._lengths[file] += len(records)
        found = {_DIGESTS: row_digests(records), _ENDS: set_flags(records), **records.columns}
        for name, parts in list(self._columns.items()):
            if name in found:
                parts.append(found[name])
            else:  # as in joined data, a column is there if all have it
                del self._columns[name]

    def repeated(self) -> np.ndarray:
        """Number of the first rows of each file that repeat earlier ones, int64 [files].

        All are 0 if the numbers of episodes are no names, as some of the files that are left count them again.
        """
        lengths = self._lengths
        columns = {name: np.concatenate(parts) for name, parts in self._columns.items() if parts}
        if sb.EPS_ID not in columns:
            return np.zeros_like(lengths)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        repeated = _repeated_rows(columns[_DIGESTS], starts)
        if _numbers_come_again({name: column[~repeated] for name, column in columns.items()}):
            return np.zeros_like(lengths)
        sums = np.concatenate([[0], np.cumsum(repeated)])
        return sums[starts[1:]] - sums[starts[:-1]]


_DIGESTS, _ENDS = "digests", "ends"


def row_digests(records: Records) -> np.ndarray:
    """A number of each row, the same in this process where all columns are; int64 [rows].

    Numbers of equal values are equal: lines say 1 in one file where they say 1.0 in the next.
    """
    if not len(records):
        return np.empty(0, np.int64)
    parts = []
    for name, column in sorted(records.columns.items()):
        if name != sb.EPS_ID and column.dtype != np.uint8:
            column = column.astype(np.float64)
        parts.append(np.ascontiguousarray(column).reshape(len(column), -1).view(np.uint8))
    rows = np.concatenate(parts, 1)
    return np.fromiter((hash(row.tobytes()) for row in rows), np.int64, len(rows))


def _repeated_rows(digests: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Whether each row repeats an earlier one, bool [rows]; in a file only first ones do.

    Args:
        digests: int64 [rows], equal for equal rows.
        starts: int64 [files + 1], first row of each file, and the number of rows.
    """
    repeated = np.zeros(len(digests), bool)
    begins: dict[int, int] = {}  # first row's digest -> where the newest file with it begins
    for start in np.unique(starts[:-1][np.diff(starts) > 0]).tolist():
        first = int(digests[start])
        if first in begins:
            before = digests[begins[first] : start]
            if np.array_equal(before, digests[start : start + len(before)]):
                repeated[start : start + len(before)] = True
        begins[first] = start
    return repeated


def _numbers_come_again(columns: dict[str, np.ndarray]) -> bool:
    """Whether the number of an episode comes again after its end, so that it is that of another episode."""
    order = np.argsort(columns[sb.EPS_ID], kind="stable")
    ids = columns[sb.EPS_ID][order]
    goes_on = ids[1:] == ids[:-1]
    if T in columns:
        steps = columns[T][order]
        return bool((goes_on & (steps[1:] <= steps[:-1])).any())
    return bool((goes_on & columns[_ENDS][order][:-1]).any())
