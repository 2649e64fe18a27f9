"""Packed columns of RLlib's files: base64 of an lz4 frame of a pickled array, read without running code.

Pickles may call any function; these are read by an unpickler that knows the four names that arrays are made of.
"""

import base64
import binascii
import io
import pickle

import numpy as np

# First bytes of an lz4 frame.
_MAGIC = b"\x04\x22\x4d\x18"
# A packed column may not grow to more bytes than this.
_LARGEST = 1 << 32
_ARRAYS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str):
        # numpy 2 has renamed its core; the earlier name would warn.
        earlier = module.replace("numpy._core", "numpy.core")
        if (earlier, name) not in _ARRAYS:
            raise ValueError(
                f"the packed column asks for {module}.{name}, which is no part of an array. Nothing of it was run."
            )
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)

    def persistent_load(self, pid):
        raise ValueError("the packed column refers to an object outside of it")


def is_packed(value) -> bool:
    """Whether a value of a file is a packed column: its first bytes are those of an lz4 frame, in base64."""
    return isinstance(value, str) and value.startswith("BCJNG")


def unpacked(value: str):
    """The array, or the list of values, that was packed.

    Raises:
        ValueError: if it is no packed array; nothing of it was run.
        ImportError: if lz4 is not installed.
    """
    try:
        import lz4.frame
    except ImportError:
        raise ImportError("the column is packed with lz4: pip install lz4, or pip install 'rllib[offline]'") from None
    try:
        frame = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"the packed column is no base64 ({error})") from None
    if not frame.startswith(_MAGIC):
        raise ValueError("the packed column is no lz4 frame")
    try:
        if not 0 < lz4.frame.get_frame_info(frame)["content_size"] <= _LARGEST:
            raise RuntimeError("its size is not said, or too large")
        content = lz4.frame.decompress(frame)
    except (RuntimeError, EOFError) as error:
        raise ValueError(f"the packed column cannot be unpacked ({error})") from None
    try:
        found = _ArrayUnpickler(io.BytesIO(content)).load()
    except ValueError:
        raise
    except Exception as error:  # a damaged pickle raises anything
        raise ValueError(f"the packed column holds no array ({error})") from None
    if isinstance(found, np.ndarray) and found.dtype.hasobject:
        raise ValueError("the packed column holds objects, not numbers")
    return found
