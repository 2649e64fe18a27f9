"""Encoders: turn stored observations into the rows that a fully connected network reads.

Batches keep observations as the environment gives them (a Discrete one stays an integer). Every encoded row ends with a
1, so that biases are one more row of the weights. If `as_stored` is true, nothing is encoded: the network reads the
stored rows themselves.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from rllib.storage.json_dataclass import Described, as_lists, as_tuples, from_json


@dataclass(frozen=True)
class BoxEncoder(Described):
    """An encoder that casts arrays to float32, flattens and scales them.

    Attributes:
        shape: shape of one observation.
        scale: factor; 1/255 takes pixels to [0, 1].
    """

    shape: tuple[int, ...]
    scale: float = 1.0
    kind = "box"
    as_stored = False

    @property
    def size(self) -> int:
        """Numbers in an encoded observation, without the closing 1."""
        return math.prod(self.shape)

    def encode(self, observations: np.ndarray, out: np.ndarray) -> None:
        """Writes observations [B, *shape] of any numeric dtype into out [B, size + 1] float32."""
        rows = len(observations)
        if observations.ndim != 2:
            observations = observations.reshape(rows, self.size)
        np.copyto(out[:, :-1], observations, casting="unsafe")
        if self.scale != 1.0:
            out[:, :-1] *= np.float32(self.scale)


@dataclass(frozen=True)
class FlatEncoder(Described):
    """An encoder of flat rows of several parts (Dict, Tuple), some of which are pixels.

    Attributes:
        size: numbers in a row.
        pixels: columns (start, stop) that are scaled from 0 ... 255 to [0, 1].
    """

    size: int
    pixels: tuple[tuple[int, int], ...]
    kind = "flat"
    as_stored = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one stored observation."""
        return (self.size,)

    def encode(self, observations: np.ndarray, out: np.ndarray) -> None:
        """Writes observations [B, size] into out [B, size + 1] float32."""
        np.copyto(out[:, :-1], observations, casting="unsafe")
        for start, stop in self.pixels:
            out[:, start:stop] *= np.float32(1 / 255)


@dataclass(frozen=True)
class RowsEncoder(Described):
    """An encoder that changes nothing: the network's torso reads the stored observations."""

    shape: tuple[int, ...]
    kind = "rows"
    as_stored = True

    @property
    def size(self) -> int:
        """Numbers in an observation."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class OneHotEncoder(Described):
    """An encoder of the integers start ... start + num_values - 1 as one-hot rows."""

    num_values: int
    start: int = 0
    kind = "one_hot"
    as_stored = False
    shape = ()

    @property
    def size(self) -> int:
        """Numbers in an encoded observation, without the closing 1."""
        return self.num_values

    def encode(self, observations: np.ndarray, out: np.ndarray) -> None:
        """Writes observations [B] of integers into out [B, size + 1] float32.

        Raises:
            ValueError: if an observation lies outside of the space.
        """
        indices = observations - self.start if self.start else observations
        self._check(indices)
        if len(indices) <= FEW and self.num_values <= LARGEST_TABLE:
            np.take(_one_hot_table(self.num_values), indices, axis=0, out=out)
        else:
            out[:, :-1] = 0
            out[np.arange(len(indices)), indices] = 1

    def _check(self, indices: np.ndarray) -> None:
        if not len(indices):
            return
        # For the few rows of an acting step, Python's own minimum is several times faster than numpy's.
        values = indices.tolist() if len(indices) <= FEW else (int(indices.min()), int(indices.max()))
        if min(values) < 0 or max(values) >= self.num_values:
            low, high = self.start, self.start + self.num_values - 1
            raise ValueError(
                f"an observation of a Discrete space lies outside of {low} ... {high}: got values from "
                f"{min(values) + low} to {max(values) + low}"
            )


FEW = 64
LARGEST_TABLE = 512


@functools.lru_cache(maxsize=4)
def _one_hot_table(num_values: int) -> np.ndarray:
    """Encoded rows of all values, [num_values, num_values + 1]."""
    table = np.eye(num_values, num_values + 1, dtype=np.float32)
    table[:, -1] = 1
    return table


@dataclass(frozen=True)
class MaskedEncoder(Described):
    """An encoder of flat rows that hold an action mask (masks.py); it puts the mask's columns first.

    Attributes:
        inner: encodes the other columns.
        ranges: columns (start, stop) of the mask in a stored row, in order, together one for each choice of an action;
            0: illegal. Several where each member of a group has its own mask.
        shown: the network reads whole rows as they are stored, the mask among them; `inner` has their shape.
    """

    inner: "Encoder"
    ranges: tuple[tuple[int, int], ...]
    shown: bool = False
    kind = "masked"

    @property
    def as_stored(self) -> bool:
        """Whether the network reads the stored rows themselves, in which the mask keeps its place."""
        return self.inner.as_stored

    @functools.cached_property
    def num_choices(self) -> int:
        """Number of numbers in the mask, one for each choice."""
        return sum(stop - start for start, stop in self.ranges)

    @property
    def size(self) -> int:
        """Numbers in an encoded observation, without the closing 1."""
        return self.inner.size if self.shown else self.num_choices + self.inner.size

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one stored observation."""
        return (self.size,)

    @property
    def other_ranges(self) -> tuple[tuple[int, int], ...]:
        """Columns (start, stop) of a stored row that the network reads."""
        if self.shown:
            return ((0, self.size),)
        starts, stops = zip(*self.ranges)
        return tuple((start, stop) for start, stop in zip((0, *stops), (*starts, self.size)) if start < stop)

    @functools.cached_property
    def _mask(self) -> slice | np.ndarray:
        return columns_of(self.ranges)

    @functools.cached_property
    def _others(self) -> slice | np.ndarray:
        return columns_of(self.other_ranges)

    def encode(self, observations: np.ndarray, out: np.ndarray) -> None:
        """Writes observations [B, size] into out [B, size + 1] float32."""
        out[:, : self.num_choices] = observations[:, self._mask]
        self.inner.encode(observations[:, self._others], out[:, self.num_choices :])

    def mask(self, observations: np.ndarray) -> np.ndarray:
        """The masks [B, num_choices] of stored observations [B, size]."""
        return observations[:, self._mask]

    def split(self, inputs) -> tuple:
        """Splits encoded inputs, arrays or tensors, into masks [B, num_choices] and the inputs of the network."""
        if self.as_stored:
            return inputs[:, self._mask], inputs[:, self._others]
        return inputs[:, : self.num_choices], inputs[:, self.num_choices :]

    def to_json(self) -> dict:
        own = {"ranges": as_lists(self.ranges), "shown": self.shown}
        return {"kind": self.kind, "inner": self.inner.to_json(), **own}


def columns_of(ranges: tuple[tuple[int, int], ...]) -> slice | np.ndarray:
    """Index of the columns in ranges (start, stop): a slice, which makes views, if there is one range."""
    return slice(*ranges[0]) if len(ranges) == 1 else np.concatenate([np.arange(*each) for each in ranges])


Encoder = BoxEncoder | FlatEncoder | RowsEncoder | OneHotEncoder | MaskedEncoder


def encoder_from_json(data: dict) -> Encoder:
    """The encoder that `to_json` described."""
    if data["kind"] == MaskedEncoder.kind:
        # Earlier versions knew masks of one range alone.
        ranges = data["ranges"] if "ranges" in data else [[data["start"], data["stop"]]]
        return MaskedEncoder(encoder_from_json(data["inner"]), as_tuples(ranges), data["shown"])
    return from_json(data, (BoxEncoder, OneHotEncoder, FlatEncoder, RowsEncoder))
