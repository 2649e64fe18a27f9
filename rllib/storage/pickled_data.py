"""Pickles of other programs, read as data: arrays of numbers, containers, and records of known classes.

A pickle is a program that may call any function by its name. Here no name is looked up: those that arrays are made of
stand for functions of this module, which check what they are given, and names that the caller knows stand for
`Record`s, which hold what the class would have got. Any other name is refused.
"""

import io
import math
import pickle
import pickletools
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

# What `numpy.dtype` is pickled with: kind and size. Objects, dates and structures are no numbers.
_CODE = re.compile(r"[biufc](?:1|2|4|8|16)|[SU][0-9]{1,9}")
# Opcodes that store a value under a number, which may be far larger than the pickle: the memory is allocated at once.
_NUMBERED = re.compile(rb"r(?=(?P<binary>.{4}))|p(?=(?P<text>[0-9]{6,20})\n)", re.DOTALL)


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


class _Standing:
    """A function of this module in the place of one that a pickle names; a pickle cannot change it."""

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

    def __init__(self, code, align=False, copy=True):
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

    def __setstate__(self, state) -> None:
        _, shape, dtype, is_fortran, content = state
        made = _array(content, dtype, shape, "F" if is_fortran else "C")
        super().__setstate__((1, made.shape, made.dtype, bool(is_fortran), made.tobytes("A")))


def _array(content, dtype, shape, order="C") -> np.ndarray:
    """An array of this content, a copy."""
    if isinstance(content, list):
        raise ValueError("it holds objects, not numbers")
    shape, dtype = tuple(shape), dtype.numpy
    if not all(type(size) is int and size >= 0 for size in shape) or order not in ("C", "F"):
        raise ValueError(f"{shape!r:.60} is no shape of an array")
    content = content.encode("latin1") if isinstance(content, str) else bytes(content)
    if len(content) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"an array of shape {shape} has {len(content)} bytes, which are not {dtype} in that shape")
    return np.frombuffer(content, dtype).reshape(shape, order=order).copy(order)


def _empty(kind, shape, code) -> _Array:
    return np.ndarray.__new__(_Array, (0,), np.int8)


def _scalar(dtype, content=b""):
    return _array(content, dtype, ())[()]


def _encode(text: str, encoding: str) -> bytes:
    """Bytes in a pickle of an old protocol."""
    if encoding != "latin1":
        raise ValueError(f"the pickle encodes a text as {encoding!r:.40}")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """Bytes of length 0 in a pickle of an old protocol."""
    return b""


_ARRAYS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Standing(_empty),
    ("numpy.core.multiarray", "scalar"): _Standing(_scalar),
    ("numpy.core.numeric", "_frombuffer"): _Standing(_array),
    ("numpy", "ndarray"): _Standing(_empty),
    ("numpy", "dtype"): _Standing(_Dtype),
    ("_codecs", "encode"): _Standing(_encode),
}
_CONTAINERS: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    **{(module, "bytes"): _Standing(_no_bytes) for module in ("builtins", "__builtin__")},
    **{(module, kind.__name__): kind for module in ("builtins", "__builtin__") for kind in (set, frozenset)},
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes, known: Callable[[str], bool], what: str):
        super().__init__(io.BytesIO(content))
        self._known, self._what = known, what
        self._records: dict[str, type[Record]] = {}

    def find_class(self, module: str, name: str):
        # numpy 2 has renamed its core.
        key = module.replace("numpy._core", "numpy.core"), name
        if (found := _ARRAYS.get(key) or _CONTAINERS.get(key)) is not None:
            return found
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
    _refuse_large_numbers(content, what)
    try:
        return _Unpickler(content, known, what).load()
    except ValueError as error:
        raise error if str(error).startswith(what) else ValueError(f"{what} cannot be read: {error}") from None
    except Exception as error:  # a damaged pickle raises anything
        raise ValueError(f"{what} cannot be read ({type(error).__name__}: {error})") from None


def _refuse_large_numbers(content: bytes, what: str) -> None:
    """Refuses a pickle that numbers its values by more than its length: the table of numbers would fill the memory."""
    is_large = any(
        (int(found["text"]) if found["text"] else int.from_bytes(found["binary"], "little")) > len(content)
        for found in _NUMBERED.finditer(content)
    )
    if not is_large:  # what looks like such an opcode may also be part of an array
        return
    try:
        numbers = [arg for code, arg, _ in pickletools.genops(content) if code.name in ("PUT", "LONG_BINPUT")]
    except Exception as error:
        raise ValueError(f"{what} cannot be read ({error})") from None
    if any(number > len(content) for number in numbers):
        raise ValueError(f"{what} cannot be read: it numbers more values than it can hold")
