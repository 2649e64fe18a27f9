"""Values of Python's and numpy's own types as JSON, and back: data, whose reading runs no code.

Each kind has a name in the file, a type, and two functions between a value and what JSON holds.
"""

import datetime
import decimal
import enum
import fractions
import pathlib
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from rllib.storage.tensor_file import DTYPES

__all__ = ["enum_member", "enum_path", "plain_value", "written_plain"]


class _Kind(NamedTuple):
    of: type
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _iso(kind: type) -> _Kind:
    return _Kind(kind, kind.isoformat, kind.fromisoformat)


def _text(kind: type) -> _Kind:
    return _Kind(kind, str, kind)


_KINDS = {
    "path": _Kind(type(pathlib.Path()), str, pathlib.Path),
    "posix_path": _text(pathlib.PurePosixPath),
    "windows_path": _text(pathlib.PureWindowsPath),
    "date": _iso(datetime.date),
    "time": _iso(datetime.time),
    "datetime": _iso(datetime.datetime),
    "timedelta": _Kind(
        datetime.timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda parts: datetime.timedelta(*parts),
    ),
    "range": _Kind(range, lambda value: [value.start, value.stop, value.step], lambda parts: range(*parts)),
    "slice": _Kind(slice, lambda value: [value.start, value.stop, value.step], lambda parts: slice(*parts)),
    "complex": _text(complex),
    "decimal": _text(decimal.Decimal),
    # Its own reader would take "1e999999999", and compute it.
    "fraction": _Kind(fractions.Fraction, str, lambda text: fractions.Fraction(*map(int, text.split("/")))),
    "uuid": _text(uuid.UUID),
}
_DTYPE = re.compile(r"[<>|=][biufc]\d{1,2}")
_TORCH_DTYPE = re.compile(r"bool|(bfloat|float|u?int|complex)\d{1,3}")
_DEVICE = re.compile(r"cpu|cuda(:\d{1,3})?")
# Types that calling makes plain values of.
_TYPES = {
    kind.__name__: kind for kind in (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, range)
}
_TYPES |= {f"numpy.{name}": np.dtype(name).type for name in DTYPES}


def written_plain(value) -> dict[str, Any] | None:
    """{kind: content} of a value whose type this module knows, if reading gives it back exactly; else None."""
    for kind, content in _candidates(value):
        try:
            read = plain_value(kind, content)
        except (ValueError, TypeError, ArithmeticError):
            continue
        if type(read) is type(value) and repr(read) == repr(value):
            return {kind: content}
    return None


def _candidates(value) -> Iterator[tuple[str, Any]]:
    for name, kind in _KINDS.items():
        if type(value) is kind.of:
            content = kind.write(value)
            parts = content if isinstance(content, list) else [content]
            if all(part is None or type(part) in (int, str) for part in parts):  # a slice may be of anything
                yield name, content
    if isinstance(value, np.dtype):
        yield "dtype", value.str
    if isinstance(value, type):
        yield from (("type", name) for name, kind in _TYPES.items() if kind is value)
    torch = sys.modules.get("torch")  # without it there are no values of its
    if torch is not None and type(value) is torch.dtype:
        yield "torch_dtype", str(value).removeprefix("torch.")
    if torch is not None and type(value) is torch.device:
        yield "torch_device", str(value)


def plain_value(kind: str, content):
    """The value of {kind: content}.

    Raises:
        ValueError: for a kind that this version does not know.
        Exception: of another type, for content that `written_plain` has not returned.
    """
    if kind in _KINDS:
        return _KINDS[kind].read(content)
    match kind:
        case "type" if content in _TYPES:
            return _TYPES[content]
        case "dtype" if _DTYPE.fullmatch(content):
            return np.dtype(content)
        case "torch_dtype" if _TORCH_DTYPE.fullmatch(content):
            import torch  # heavy, and only where there is such a value

            return getattr(torch, content)
        case "torch_device" if _DEVICE.fullmatch(content):
            import torch

            return torch.device(content)
    raise ValueError(f"{kind!r:.40} of {content!r:.40} is no value that this version of rllib knows")


# ---------------------------------------------------------------------- enumerations


def enum_path(value) -> list[str] | None:
    """["module:qualname", name] of a member of an enumeration that its module has; else None."""
    if not isinstance(value, enum.Enum):
        return None
    path = f"{type(value).__module__}:{type(value).__qualname__}"
    return [path, value.name] if _enumeration(path) is type(value) and value.name in type(value).__members__ else None


def enum_member(path: str, name: str) -> enum.Enum | None:
    """The member, if this process has imported the enumeration; None otherwise. Looks it up, and runs no code."""
    found = _enumeration(path)
    return None if found is None else found.__members__.get(name)


def _enumeration(path: str) -> type[enum.Enum] | None:
    module, _, qualname = path.partition(":")
    found = sys.modules.get(module)
    for part in qualname.split("."):
        found = vars(found).get(part) if found is not None and hasattr(found, "__dict__") else None
    return found if isinstance(found, type) and issubclass(found, enum.Enum) else None
