"""Pickles of other programs, read as data: arrays of numbers, containers, and records of known classes.

A pickle is a program that may call any function by its name. Here no name is looked up: those that arrays are made of
represent functions of this module, which check what they are given, and names that the caller knows represent
`Record`s, which hold what the class would have got. Any other name is refused.
"""

import io
import math
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable, Sized
from functools import partial
from typing import Any, ClassVar

import numpy as np

from rllib.storage.pickle_scan import check_opcodes, refuse_collisions

# What `numpy.dtype` is pickled with: kind and size. Objects, dates and structures are no numbers.
_CODE = re.compile(r"[biufc](?:1|2|4|8|16)|[SU][0-9]{1,9}")
# A value may be named again and again, and each array or set made of it is a copy: all of them together are at most
# this many times as large as the pickle. Arrays that are honest are as large as it, and sets a few times.
_MOST_TIMES = 64
_ENTRY_BYTES = 64
_MEBIBYTE = 2**20


class Record:
    """A value of a class that is known by name alone: arguments, attributes and items, and none of the class's code.

    Attributes:
        path: "module.Name" of the class.
        arguments: positional arguments that it would have been made with.
        attributes: by name.
        items: what would have been appended, or put under a key, as pairs.
    """

    path: ClassVar[str] = ""

    def __new__(cls, *arguments, **named):
        made = object.__new__(cls)
        made.arguments, made.attributes, made.items = arguments, dict(named), []
        return made

    def __init__(self, *arguments, **named): ...

    def __repr__(self) -> str:
        return f"<record of {self.path}>"

    def __call__(self, *arguments, **named) -> "Record":
        return Record.__new__(type(self), *arguments, **named)

    def __setstate__(self, state) -> None:
        # Of a class with slots: (attributes, slots).
        for part in state if isinstance(state, tuple) and len(state) == 2 else (state,):
            if isinstance(part, dict):
                self.attributes.update(part)
            elif part is not None:
                self.attributes[""] = part

    def append(self, item) -> None:
        self.items.append(item)

    def extend(self, items) -> None:
        self.items.extend(items)

    def __setitem__(self, key, item) -> None:
        self.items.append((key, item))


class _Allowance:
    """Memory that may be taken by what the functions below make of one pickle.

    Args:
        most_bytes: all together.
    """

    __slots__ = ("_left",)

    def __init__(self, most_bytes: int):
        self._left = most_bytes

    def take(self, size_bytes: int) -> None:
        """Counts an object; raises a ValueError if it is too much."""
        self._left -= size_bytes
        if self._left < 0:
            raise ValueError("its arrays and sets are far larger than itself")


class _Standing:
    """A function of this module instead of one that a pickle names; a pickle cannot change it."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable):
        object.__setattr__(self, "_make", make)

    def __call__(self, *arguments):
        return self._make(*arguments)

    def __setattr__(self, name: str, value) -> None:
        raise ValueError(f"the pickle sets {name!r:.40} of a function")

    def __setstate__(self, state) -> None:
        raise ValueError("the pickle sets attributes of a function")


class _Dtype:
    """The type of numbers that a pickle names, before it has said their order of bytes."""

    def __init__(self, code):
        if isinstance(code, _Dtype):
            code = code.code
        if not isinstance(code, str) or not _CODE.fullmatch(code):
            is_object = isinstance(code, str) and code.startswith("O")
            raise ValueError("it holds objects, not numbers" if is_object else f"{code!r:.40} is no type of numbers")
        self.code, self._order = code, "|"

    def __setstate__(self, state) -> None:
        order = state[1]
        if order not in ("<", ">", "|", "="):
            raise ValueError(f"{order!r:.40} is no order of bytes")
        self._order = order

    @property
    def numpy(self) -> np.dtype:
        return np.dtype(self._order + self.code)


class _Array(np.ndarray):
    """An array whose numbers come after it in the pickle."""

    allowance: _Allowance

    def __setstate__(self, state) -> None:
        _, shape, dtype, is_fortran, content = state
        made = _array(self.allowance, content, dtype, shape, "F" if is_fortran else "C")
        super().__setstate__((1, made.shape, made.dtype, bool(is_fortran), made.tobytes("A")))


def _array(allowance: _Allowance, content, dtype, shape, order="C") -> np.ndarray:
    """An array of this content, a copy."""
    if isinstance(content, list):
        raise ValueError("it holds objects, not numbers")
    shape, dtype = tuple(shape), dtype.numpy
    if not all(type(size) is int and size >= 0 for size in shape) or order not in ("C", "F"):
        raise ValueError(f"{shape!r:.60} is no shape of an array")
    if not isinstance(content, bytes | bytearray | str):
        raise ValueError(f"an array of shape {shape} has {type(content).__name__} instead of its bytes")
    allowance.take(len(content))
    content = content.encode("latin1") if isinstance(content, str) else bytes(content)
    if len(content) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"an array of shape {shape} has {len(content)} bytes, which are not {dtype} in that shape")
    return np.frombuffer(content, dtype).reshape(shape, order=order).copy(order)


def _empty(allowance: _Allowance, kind, shape, code) -> _Array:
    made = np.ndarray.__new__(_Array, (0,), np.int8)
    made.allowance = allowance
    return made


def _scalar(allowance: _Allowance, dtype, content=b""):
    return _array(allowance, content, dtype, ())[()]


def _dtype(_: _Allowance, code, align=False, copy=True) -> _Dtype:
    """The type that a pickle names; the last two arguments are always these."""
    return _Dtype(code)


def _encode(allowance: _Allowance, text: str, encoding: str) -> bytes:
    """Bytes in a pickle of an old protocol."""
    if encoding != "latin1":
        raise ValueError(f"the pickle encodes a text as {encoding!r:.40}")
    allowance.take(len(text))
    return text.encode("latin1")


def _no_bytes(_: _Allowance) -> bytes:
    """Bytes of length 0 in a pickle of an old protocol."""
    return b""


def _container(kind: Callable, allowance: _Allowance, items: Sized = ()):
    """A container in a pickle of an old protocol, which makes it from a list."""
    allowance.take(_ENTRY_BYTES * len(items))
    refuse_collisions(item[0] for item in items) if kind is OrderedDict else refuse_collisions(items)
    return kind(items)


_MADE: dict[tuple[str, str], Callable] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy.core.numeric", "_frombuffer"): _array,
    ("numpy", "ndarray"): _empty,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): partial(_container, OrderedDict),
    **{(module, "bytes"): _no_bytes for module in ("builtins", "__builtin__")},
    **{
        (module, kind.__name__): partial(_container, kind)
        for module in ("builtins", "__builtin__")
        for kind in (set, frozenset)
    },
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes, known: Callable[[str], bool], what: str):
        super().__init__(io.BytesIO(content))
        self._known, self._what = known, what
        self._allowance = _Allowance(_MOST_TIMES * len(content) + _MEBIBYTE)
        self._records: dict[str, type[Record]] = {}

    def find_class(self, module: str, name: str):
        # numpy 2 has renamed its core.
        key = module.replace("numpy._core", "numpy.core"), name
        if (make := _MADE.get(key)) is not None:
            return _Standing(partial(make, self._allowance))
        path = f"{module}.{name}"
        if not self._known(path):
            raise ValueError(f"{self._what} asks for {path}, which is no part of an array. Nothing of it was run.")
        if path not in self._records:
            self._records[path] = type("Record", (Record,), {"path": path})
        return self._records[path]

    def persistent_load(self, pid):
        raise ValueError(f"{self._what} refers to an object outside of it")


def _nothing(path: str) -> bool:
    return False


def read_pickle(content: bytes, what: str, known: Callable[[str], bool] = _nothing) -> Any:
    """Reads a pickle without running code: containers, texts, numbers, arrays, and records of the classes known.

    Args:
        content: the pickle.
        what: its name in messages, such as "the file vec.pkl".
        known: whether the class "module.Name" is read as a `Record`; by default none is.

    Raises:
        ValueError: if it asks for anything else, naming it, or is damaged; nothing of it was run.
    """
    check_opcodes(content, what)
    try:
        return _Unpickler(content, known, what).load()
    except ValueError as error:
        raise error if str(error).startswith(what) else ValueError(f"{what} cannot be read: {error}") from None
    except Exception as error:  # a damaged pickle raises anything
        raise ValueError(f"{what} cannot be read ({type(error).__name__}: {error})") from None
