"""Curves for the page: columns of a run's results, reduced to a bounded number of points."""

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rllib.dashboard.result_file import ABSENT, ResultFile

MOST_POINTS = 2000
_ITERATION = "training_iteration"
_MOST_BYTES = 256 << 20
_MOST_COLUMNS = 200


class RunColumns:
    """Columns of one run's results, which grow with its file.

    Args:
        path: path of result.json.
        keys: result keys or "a/b" paths.
    """

    def __init__(self, path: Path, keys: Sequence[str]):
        self._file, self.keys = ResultFile(path, keys), tuple(keys)
        self._chunks: list[np.ndarray] = []
        self._restarts = 0

    def read(self) -> dict[str, np.ndarray]:
        """Reads key -> [N] float64 of all N results, with the newest."""
        while True:
            chunk = self._file.read()
            if self._file.restarts != self._restarts:
                self._chunks, self._restarts = [], self._file.restarts
            self._chunks.append(chunk)
            if not self._file.behind_bytes:
                break
        self._chunks = [np.concatenate(self._chunks)]
        return dict(zip(self.keys, self._chunks[0].T))

    @property
    def size_bytes(self) -> int:
        return sum(chunk.nbytes for chunk in self._chunks)


class SeriesReader:
    """Curves of any number of runs. The columns read last stay in memory, up to 256 MiB."""

    def __init__(self):
        self._columns: OrderedDict[Path, RunColumns] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: Path, keys: Sequence[str], x: str, points: int = MOST_POINTS) -> list[dict]:
        """Makes a curve for each key, see `curve`, of the results that have an entry for it.

        Evaluations come with some of the results only; a curve with a gap between any two of them would be invisible.

        Args:
            path: path of result.json.
            keys: result keys of the curves.
            x: result key of the horizontal axis; where a result has none, its training_iteration, else its number.
            points: largest number of points of each curve.
        """
        with self._lock:
            columns = self._read_columns(path, {*keys, x, _ITERATION})
        number = np.arange(1.0, len(columns[x]) + 1)
        iteration = np.where(np.isfinite(columns[_ITERATION]), columns[_ITERATION], number)
        places = np.where(np.isfinite(columns[x]), columns[x], iteration)
        order = np.argsort(places, kind="stable")
        having = {key: order[columns[key][order] != ABSENT] for key in keys}
        return [curve(places[having[key]], columns[key][having[key]], points) for key in keys]

    def last(self, path: Path, keys: Sequence[str]) -> list[float]:
        """The last finite number of each key in result.json; NaN where there is none."""
        with self._lock:
            columns = self._read_columns(path, set(keys))
        known = (columns[key][np.isfinite(columns[key])] for key in keys)
        return [float(values[-1]) if len(values) else math.nan for values in known]

    def _read_columns(self, path: Path, keys: set[str]) -> dict[str, np.ndarray]:
        columns = self._columns.pop(path, None)
        if columns is None or not keys <= set(columns.keys):
            known = columns.keys if columns and len(columns.keys) < _MOST_COLUMNS else ()
            columns = RunColumns(path, sorted(keys.union(known)))
        self._columns[path] = columns
        read = columns.read()
        while len(self._columns) > 1 and sum(each.size_bytes for each in self._columns.values()) > _MOST_BYTES:
            self._columns.popitem(last=False)
        return read


def curve(x: np.ndarray, y: np.ndarray, points: int = MOST_POINTS) -> dict:
    """Reduces a column to a curve from its first to its last finite number.

    Args:
        x, y: [N] float64; x ascending. Numbers in y that are not finite are gaps.
        points: largest number of points.

    Returns:
        "x" and "y": lists of equal length. With more than `points` numbers they are the means of bins of equal counts,
        and "low" and "high" are each bin's least and greatest, so no peak is lost. "count": number of finite numbers.
    """
    finite = np.isfinite(y)
    known = np.flatnonzero(finite)
    if not len(known):
        return {"x": [], "y": [], "count": 0}
    inside = slice(known[0], known[-1] + 1)
    x, y, finite = x[inside], y[inside], finite[inside]
    if len(y) <= points:
        return {"x": x.tolist(), "y": np.where(finite, y, np.nan).tolist(), "count": len(known)}
    starts = np.linspace(0, len(y), max(points // 2, 1), endpoint=False).astype(int)
    counts = np.add.reduceat(finite.astype(float), starts)
    sizes = np.diff(np.append(starts, len(y)))
    y = np.where(finite, y, np.nan)
    with np.errstate(invalid="ignore"):
        mean = np.add.reduceat(np.where(finite, y, 0.0), starts) / counts
    low, high = np.fmin.reduceat(y, starts), np.fmax.reduceat(y, starts)
    return {
        "x": (np.add.reduceat(x, starts) / sizes).tolist(),
        "y": np.clip(mean, low, high).tolist(),  # rounding would put ripples on a constant curve
        "low": low.tolist(),
        "high": high.tolist(),
        "count": len(known),
    }


class Sparkline:
    """A curve of few points that can grow without bound: when there are too many, pairs are replaced by their mean.

    Args:
        most: largest number of points.
    """

    def __init__(self, most: int = 60):
        self._most, self._stride = most, 1
        self._values = self._waiting = np.empty(0)  # too few for a mean yet

    def add(self, values: np.ndarray) -> None:
        """Appends [N] float64; NaN is left out of the means."""
        values = np.concatenate([self._waiting, values])
        whole = len(values) - len(values) % self._stride
        self._waiting = values[whole:]
        self._values = np.concatenate([self._values, _means(values[:whole], self._stride)])
        while len(self._values) > 32 * self._most:
            self._values, self._stride = _means(self._values, 2), 2 * self._stride

    def points(self) -> list[float]:
        values = np.append(self._values, _means(self._waiting, self._stride))
        values = values[~np.isnan(values)]
        return _means(values, -(-len(values) // self._most) or 1).tolist()


def _means(values: np.ndarray, width: int) -> np.ndarray:
    """[ceil(N / width)]: mean of each group without its NaN; NaN for a group of NaN alone."""
    if width == 1 or not len(values):
        return values
    starts = np.arange(0, len(values), width)
    counts = np.add.reduceat(~np.isnan(values), starts, dtype=float)
    with np.errstate(invalid="ignore"):
        return np.add.reduceat(np.nan_to_num(values), starts) / counts
