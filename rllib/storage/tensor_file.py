"""Files of named arrays in the safetensors format, written and read without a copy of the arrays in memory.

A file is the length of its header in 8 bytes, the header in JSON with dtype, shape and place of each array, and the
arrays in C order, little-endian. The library `safetensors` reads and writes the same files, but holds the content of a
file in memory, several times: too much for the rows of a large replay.
"""

import ctypes
import json
import math
import mmap
from collections.abc import Iterator, Mapping

import numpy as np

# Name of a dtype in numpy -> in the format.
DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "float32": "F32", "float64": "F64",
}  # fmt: skip
_NAMES = {short: name for name, short in DTYPES.items()}
# None on Windows, which reads ahead as it likes.
_libc = ctypes.CDLL(None) if hasattr(mmap, "MADV_WILLNEED") else None
# Number of bytes in a part of the content.
PART = 2**24
# Number of bytes that the kernel is asked to read at once; of more it would read only the first part.
READ_AHEAD = 2**17


class TensorFile:
    """The content of a file, to be written part by part.

    Args:
        arrays: by name; they must not change until they are written.

    Raises:
        TypeError: if one is no array, or of a dtype that the format does not have.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray) or array.dtype.name not in DTYPES:
                kind = array.dtype.name if isinstance(array, np.ndarray) else type(array).__name__
                raise TypeError(f"a file of tensors takes arrays of numbers, but {name!r} is {kind}: {array!r:.80}")
        # Larger items first, so that each array is aligned to its items.
        order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
        self._arrays = [arrays[name] for name in order]
        ends = np.cumsum([0, *(array.nbytes for array in self._arrays)]).tolist()
        entries = {
            name: {"dtype": DTYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": [start, end]}
            for name, array, start, end in zip(order, self._arrays, ends, ends[1:])
        }
        header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
        header += b" " * (-len(header) % 8)
        self._header = len(header).to_bytes(8, "little") + header

    def parts(self) -> Iterator[bytes | memoryview]:
        """Yields the header, then the arrays in pieces of at most `PART` bytes; arrays in C order are not copied."""
        yield self._header
        for array in self._arrays:
            flat = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
            for start in range(0, len(flat), PART):
                part = flat[start : start + PART]
                _read_ahead(part)
                yield memoryview(part)


def _read_ahead(part: np.ndarray) -> None:
    """Asks the kernel to read these bytes ahead, if they lie in a mapped file.

    Files of a replay on disk are otherwise read page by page, which is right for drawing single rows.
    """
    if _libc is None:
        return
    address = part.ctypes.data
    for start in range(address - address % mmap.PAGESIZE, address + len(part), READ_AHEAD):
        length = min(READ_AHEAD, address + len(part) - start)
        _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_WILLNEED)


def tensors_of(content: bytes | mmap.mmap) -> dict[str, np.ndarray]:
    """Reads the arrays of a file's content: views of it if it is writable, else copies.

    Raises:
        ValueError: if it is not the content of such a file.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    if start > len(content):
        raise ValueError("this is no file of tensors: its header is longer than the file")
    arrays, left = {}, len(content) - start
    for name, entry in json.loads(content[8:start]).items():
        if name == "__metadata__":  # written by other libraries
            continue
        dtype, shape, (begin, end) = np.dtype(_NAMES[entry["dtype"]]), entry["shape"], entry["data_offsets"]
        count, left = math.prod(shape), left - (end - begin)
        # No more than the file in total: overlapping arrays could take any multiple of its size.
        if min([begin, *shape]) < 0 or end - begin != count * dtype.itemsize or left < 0:
            raise ValueError(f"the array {name!r} does not fit into the file")
        array = np.frombuffer(content, dtype.newbyteorder("<"), count, start + begin)
        arrays[name] = array.astype(dtype, copy=not array.flags.writeable).reshape(shape)
    return arrays
