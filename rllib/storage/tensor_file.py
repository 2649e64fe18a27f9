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

# By numpy's names.
DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "float32": "F32", "float64": "F64",
}  # fmt: skip
_NAMES = {short: name for name, short in DTYPES.items()}
_libc = ctypes.CDLL(None)
# Bytes handed out at once.
PART = 2**24
# Bytes that the kernel is asked to read at once; of more it would read the first part alone.
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
        # Larger items first, so that each array is aligned to its own.
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
        """The content, in pieces of at most `PART` bytes after the header; arrays in C order are not copied."""
        yield self._header
        for array in self._arrays:
            flat = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
            for start in range(0, len(flat), PART):
                part = flat[start : start + PART]
                _read_ahead(part)
                yield memoryview(part)


def _read_ahead(part: np.ndarray) -> None:
    """Lets the kernel read what of these bytes lies in a mapped file, all at once; elsewhere nothing happens.

    The files of a replay on a disk are read page by page otherwise, which is right for the rows that are drawn.
    """
    address = part.ctypes.data
    for start in range(address - address % mmap.PAGESIZE, address + len(part), READ_AHEAD):
        length = min(READ_AHEAD, address + len(part) - start)
        _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_WILLNEED)


def tensors_of(content: bytes | mmap.mmap) -> dict[str, np.ndarray]:
    """The arrays of a file's content, writable: views of it if it is writable, else copies.

    Raises:
        ValueError: if it is not the content of such a file.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    if start > len(content):
        raise ValueError("this is no file of tensors: its header is longer than the file")
    arrays, left = {}, len(content) - start
    for name, entry in json.loads(content[8:start]).items():
        if name == "__metadata__":  # of other writers
            continue
        dtype, shape, (begin, end) = np.dtype(_NAMES[entry["dtype"]]), entry["shape"], entry["data_offsets"]
        count, left = math.prod(shape), left - (end - begin)
        # Together no more than the file: arrays that lie upon one another would take any multiple of its size.
        if min([begin, *shape]) < 0 or end - begin != count * dtype.itemsize or left < 0:
            raise ValueError(f"the array {name!r} does not fit into the file")
        array = np.frombuffer(content, dtype.newbyteorder("<"), count, start + begin)
        arrays[name] = array.astype(dtype, copy=not array.flags.writeable).reshape(shape)
    return arrays
