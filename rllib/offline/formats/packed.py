"""Packed columns of RLlib's files: base64 of an lz4 frame of a pickled array, read without running code.

The pickles are read as data (storage/pickled_data.py). Files with a step a line have tens of thousands of pickles
that differ in the bytes of their numbers alone: once one of them was read, others of the same form are not interpreted
again.
"""

import binascii
from dataclasses import dataclass

import numpy as np

from rllib.offline.formats.packages import package
from rllib.storage.pickled_data import read_pickle

# First bytes of an lz4 frame.
_MAGIC = b"\x04\x22\x4d\x18"
_HAS_SIZE = 8
# A packed column may not grow to more bytes than this.
_LARGEST = 1 << 32


@dataclass(frozen=True)
class _Form:
    """A pickle of an array but for the bytes of its numbers.

    What stands before and after these bytes decides how a pickle is read, and the bytes are an argument, whose length
    stands before them. So a pickle with the same beginning, end and length is the same array with other numbers.
    """

    before: bytes
    after: bytes
    size: int
    count: int
    dtype: np.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, content: bytes, array: np.ndarray) -> "_Form | None":
        """The form of a pickle that was read; None if its numbers do not stand in it as one argument."""
        numbers = array.tobytes()
        place = content.find(numbers) if numbers else -1
        if place < 0 or content.find(numbers, place + 1) >= 0:
            return None
        before, size = content[:place], len(numbers)
        # The opcodes SHORT_BINBYTES, BINBYTES and BYTEARRAY8, with the length.
        is_argument = before.endswith((b"\x96" + size.to_bytes(8, "little"), b"B" + size.to_bytes(4, "little")))
        is_argument |= size < 256 and before.endswith(b"C" + bytes([size]))
        if not is_argument:
            return None
        return cls(before, content[place + size :], size, array.size, array.dtype, array.shape)

    def array(self, content: bytes) -> np.ndarray | None:
        """The array of another pickle of this form; None if it is of another."""
        place = len(self.before)
        is_same = len(content) == place + self.size + len(self.after)
        if not (is_same and content.startswith(self.before) and content.endswith(self.after)):
            return None
        array = np.frombuffer(content, self.dtype, self.count, place)
        return array if len(self.shape) == 1 else array.reshape(self.shape)


class Unpacker:
    """Reads the packed columns of one file."""

    def __init__(self):
        self._form: _Form | None = None
        self._frames = None

    def __call__(self, value: str):
        """The array, or the list of values, that was packed.

        Raises:
            ValueError: if it is no packed array; nothing of it was run.
            ImportError: if lz4 is not installed.
        """
        if self._frames is None:
            self._frames = package("lz4.frame", "a packed column")
        content = _content(value, self._frames)
        array = None if self._form is None else self._form.array(content)
        if array is not None:
            return array
        found = _unpickled(content)
        if isinstance(found, np.ndarray):
            self._form = _Form.of(content, found) or self._form
        return found


def is_packed(value) -> bool:
    """Whether a value of a file is a packed column: its first bytes are those of an lz4 frame, in base64."""
    return isinstance(value, str) and value.startswith("BCJNG")


def _content(value: str, frames) -> bytes:
    """The pickle in a packed column."""
    try:
        frame = binascii.a2b_base64(value, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"the packed column is no base64 ({error})") from None
    if not frame.startswith(_MAGIC):
        raise ValueError("the packed column is no lz4 frame")
    # A frame's header: magic, flags, block size, and the size of the content if a flag says so.
    size = int.from_bytes(frame[6:14], "little") if len(frame) > 14 and frame[4] & _HAS_SIZE else 0
    if not 0 < size <= _LARGEST:
        raise ValueError("the packed column cannot be unpacked (its size is not said, or too large)")
    try:
        return frames.decompress(frame)
    except (RuntimeError, EOFError) as error:
        raise ValueError(f"the packed column cannot be unpacked ({error})") from None


def _unpickled(content: bytes):
    found = read_pickle(content, "the packed column")
    return np.asarray(found) if isinstance(found, np.ndarray) else found
