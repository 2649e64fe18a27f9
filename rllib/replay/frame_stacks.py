"""Stacks of the last k frames, each frame stored once.

An observation of k stacked frames shares k - 1 of them with the observation before it, and the next observation
of one row is the observation of a later one. So frames go into a ring, and a stack is the positions of its frames. A
frame is found by its bytes among the last ones written: nothing is assumed about the order of rows, their environments,
episodes or padding. Stacks are read as they were written, to the bit.
"""

import hashlib
import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Frames more than there are rows, as a share of the rows: an episode of T rows takes T + 1 frames at least.
SPARE = 1 / 8


class Frames(NamedTuple):
    """A ring of frames, described: number of frames that it has room for, shape and dtype of one."""

    count: int
    shape: tuple[int, ...]
    dtype: str


class FrameStacks:
    """A ring of frames.

    Args:
        shape: shape of a stack.
        dtype: dtype of a frame.
        axis: axis of the frames in a stack, the oldest first; 0 or -1.
        num_rows: rows, of two stacks each, that there is to be room for.
        zeros: `zeros(shape, dtype)` makes the ring. Where that is no array in this process's memory but a GpuArray,
            frames are distinguished by a digest alone (BLAKE2, 128 bits: no two frames have the same one).
        spare: frames more than rows, as a share of the rows.

    Attributes:
        length: k, frames of a stack.
        written: frames written so far; the position of the next one.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        axis: int,
        num_rows: int,
        zeros: Callable[..., np.ndarray] = np.zeros,
        spare: float = SPARE,
    ):
        self._axis = axis
        self.length = shape[axis]
        frame = tuple(np.delete(shape, axis).tolist())
        self._frames = zeros((_frames_for(num_rows, self.length, spare), *frame), dtype)
        self.written = 0
        # How far back a frame is looked for: half of the spare room, so that it stays as long as the row.
        self._reach = (len(self._frames) - num_rows) // 2
        self._can_compare = isinstance(self._frames, np.ndarray)
        self._keys: deque[int | bytes] = deque()  # of the last frames, at most `reach`, in the order of their positions
        self._positions: dict[int | bytes, int] = {}  # key -> the newest position of a frame that has it

    @staticmethod
    def bytes_for(shape: tuple[int, ...], dtype: str, axis: int, num_rows: int, spare: float = SPARE) -> int:
        """Size of the ring."""
        return _frames_for(num_rows, shape[axis], spare) * math.prod(shape) // shape[axis] * np.dtype(dtype).itemsize

    @property
    def form(self) -> Frames:
        """What a saved ring has to be, to be restored here."""
        return Frames(len(self._frames), tuple(self._frames.shape[1:]), str(self._frames.dtype))

    @property
    def oldest(self) -> int:
        """The least position whose frame has not been overwritten."""
        return max(self.written - len(self._frames), 0)

    @property
    def least_next(self) -> int:
        """A bound from below of all positions that `append` gives from now on."""
        return max(self.written - self._reach, 0)

    def append(self, stack: np.ndarray) -> list[int]:
        """The positions [k] of the frames of a stack [*shape]; writes new frames."""
        return [self._position_of(frame) for frame in np.ascontiguousarray(np.moveaxis(stack, self._axis, 0))]

    def _position_of(self, frame: np.ndarray) -> int:
        data = frame.tobytes()
        key = self._key_of(data)
        position = self._positions.get(key)
        if position is not None and (not self._can_compare or self._bytes_at(position) == data):
            return position
        self._frames[self.written % len(self._frames)] = frame
        self._remember(key, self.written)
        self.written += 1
        return self.written - 1

    def _bytes_at(self, position: int) -> bytes:
        return self._frames[position % len(self._frames)].tobytes()

    def _key_of(self, data: bytes) -> int | bytes:
        """Equal for equal frames; of others, where they cannot be compared, never."""
        return hash(data) if self._can_compare else hashlib.blake2b(data, digest_size=16).digest()

    def _remember(self, key: int | bytes, position: int) -> None:
        if len(self._keys) == self._reach:
            forgotten = self._keys.popleft()
            if self._positions[forgotten] == position - self._reach:
                del self._positions[forgotten]
        self._keys.append(key)
        self._positions[key] = position

    def take(self, positions: np.ndarray) -> np.ndarray:
        """The stacks [B, *shape] whose frames lie at these positions [B, k]; a tensor where frames are kept in one."""
        frames = self._frames[positions % len(self._frames)]
        axis = 1 if self._axis == 0 else -1
        return np.moveaxis(frames, 1, axis) if isinstance(frames, np.ndarray) else frames.movedim(1, axis)

    def get_state(self) -> dict[str, np.ndarray]:
        """Named arrays: the frames (a view) and how many were written."""
        return {"frames": self._frames[: self.written], "written": np.array(self.written)}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Restores a state of `get_state`; the shapes must be the same."""
        self._frames[: len(state["frames"])] = state["frames"]
        self.written = int(state["written"])
        self._keys.clear()
        self._positions.clear()
        for position in range(max(self.written - self._reach, 0), self.written):
            self._remember(self._key_of(self._bytes_at(position)), position)


def _frames_for(num_rows: int, length: int, spare: float) -> int:
    """Number of frames to keep for `num_rows` rows with stacks of `length` frames."""
    return num_rows + int(num_rows * spare) + 8 * length
