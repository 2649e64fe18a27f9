"""Statistics of Ray's MeanStdFilter as the state of a filter here.

Ray divides by the standard deviation of a sample plus 1e-8, filters here by the root of the variance plus EPSILON. The
sum of squares is converted so that both divide by the same number.
"""

import binascii
import io
import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib.errors import DamagedFileError
from rllib.models.observations.filters import EPSILON
from rllib.storage.pickled_data import Record

SMALL_NUMBER = 1e-8  # Ray's
_COUNTS, _MEANS = ("num_pushes", "_n"), ("mean_array", "_M")
_SQUARES = ("sum_sq_diff_array", "std_array", "_S")
_HEADER = 2**12


@dataclass(frozen=True)
class FilterStatistics:
    """Statistics of a MeanStdFilter of Ray's.

    Attributes:
        settings: settings of the config here.
        count: number of observations.
        mean: [size].
        squares: [size], sum of squared deviations.
        what: the checkpoint, for messages.
    """

    settings: dict[str, Any]
    count: float
    mean: np.ndarray
    squares: np.ndarray
    what: str

    def state(self, size: int) -> dict[str, np.ndarray]:
        """State of the filter here, of observations of `size` numbers.

        Raises:
            ValueError: if the statistics are of other observations.
        """
        if self.mean.size != size or self.squares.size != size:
            raise ValueError(
                f"{self.what} has statistics of {self.mean.size} numbers, and observations of this environment have "
                f"{size}: it belongs to another environment"
            )
        deviation = np.sqrt(np.maximum(self.squares, 0) / max(self.count - 1, 1)) + SMALL_NUMBER
        m2 = np.maximum(np.square(deviation) - EPSILON, 0) * self.count
        if not (np.isfinite(self.mean).all() and np.isfinite(m2).all()):
            raise DamagedFileError(f"{self.what} has statistics that are no finite numbers")
        return {"count": np.asarray(self.count), "mean": self.mean, "m2": m2}


def filter_of(state, what: str) -> FilterStatistics | None:
    """The statistics of a filter.

    Args:
        state: the pickled filter, or its state among the connectors.
        what: the checkpoint, for messages.

    Returns:
        the statistics; None for Ray's NoFilter.

    Raises:
        ValueError: for other objects, and for a filter that only shifts or only scales.
    """
    if isinstance(state, Record) and state.path.endswith("NoFilter"):
        return None
    fields = state.attributes if isinstance(state, Record) else state
    if not isinstance(fields, dict):
        raise DamagedFileError(f"{what} has {state!r:.60} instead of an observation filter")
    for names in (("demean", "de_mean_to_zero"), ("destd", "de_std_to_one")):
        if not _first(fields, names, True):
            raise ValueError(f"{what} has an observation filter with {names[0]}=False, and filters here do both")
    parts = fields.get("running_stats", fields.get("rs"))
    found = [_moments(part, what) for part in (parts if isinstance(parts, list | tuple) and parts else [parts])]
    mean, squares = (np.concatenate([each[place].reshape(-1) for each in found]) for place in (1, 2))
    clip = _first(fields, ("clip", "clip_by_value"), None)
    if clip is not None and not isinstance(clip, int | float):
        raise DamagedFileError(f"{what} has an observation filter with clip={clip!r:.40}")
    settings = {"observation_filter": "MeanStdFilter", "observation_clip": float(clip) if clip else None}
    return FilterStatistics(settings, found[0][0], mean, squares, what)


def _moments(part, what: str) -> tuple[float, np.ndarray, np.ndarray]:
    """Count, mean and sum of squared deviations of a RunningStat."""
    fields = part.attributes if isinstance(part, Record) else part
    if not isinstance(fields, dict):
        raise DamagedFileError(f"{what} has {part!r:.60} instead of statistics")
    values = [_first(fields, names, None) for names in (_COUNTS, _MEANS, _SQUARES)]
    count, mean, squares = (array_of(each) if isinstance(each, str) else each for each in values)
    if not isinstance(count, int | float | np.generic) or count < 0 or not math.isfinite(count):
        raise DamagedFileError(f"{what} has {count!r:.40} as the number of observations that were counted")
    return float(count), np.asarray(mean, np.float64), np.asarray(squares, np.float64)


def _first(fields: dict, names: tuple[str, ...], default):
    return next((fields[name] for name in names if name in fields), default)


def array_of(text: str) -> np.ndarray:
    """The array that Ray wrote as base64 of a compressed .npy file.

    Raises:
        ValueError: for another text, and for an array of objects.
    """
    try:
        packed = binascii.a2b_base64(text, strict_mode=True)
        unpacker = zlib.decompressobj()
        # Statistics are few numbers: what grows far beyond them is none.
        content = unpacker.decompress(packed, 1000 * len(packed) + _HEADER)
        if unpacker.unconsumed_tail:
            raise ValueError("it is larger than an array of statistics")
        return np.load(io.BytesIO(content), allow_pickle=False)
    except (binascii.Error, zlib.error, ValueError, EOFError, SyntaxError) as error:
        raise DamagedFileError(f"an array of the observation filter cannot be read ({error})") from None
