"""Serializers of the user's own, and a search for what cannot be pickled."""

from __future__ import annotations

import copyreg
import io
from collections.abc import Callable
from typing import Any, NamedTuple, TextIO

from ..pickling import Pickler
from ..remote.refs import SessionBound
from ..unpicklable import culprits

_registered: dict[type, tuple[Callable, Callable | None]] = {}  # class -> its reducer, what stood there before


def register_serializer(cls: type, *, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]) -> None:
    """Has instances of a class (not of its subclasses) pickled in a way of one's own, from now on, in this process.

    The deserializer travels with each value: the receiver need not register anything. Python's own pickle and copy
    use the serializer, too. A second call replaces the first.

    Args:
        cls: the class.
        serializer: instance -> something that can be pickled.
        deserializer: that -> instance; it may be a lambda.

    Raises:
        TypeError: no class, or no functions.
    """
    if not isinstance(cls, type):
        raise TypeError(f"register_serializer() takes a class, got {cls!r}")
    for name, function in (("serializer", serializer), ("deserializer", deserializer)):
        if not callable(function):
            raise TypeError(f"{name} must be a function, got {function!r}")
    deregister_serializer(cls)

    def reduce(value):
        return deserializer, (serializer(value),)

    _registered[cls] = reduce, copyreg.dispatch_table.get(cls)
    copyreg.dispatch_table[cls] = reduce


def deregister_serializer(cls: type) -> None:
    """Ends what `register_serializer` has begun; harmless if it was not called."""
    reduce, before = _registered.pop(cls, (None, None))
    if reduce is None or copyreg.dispatch_table.get(cls) is not reduce:
        return
    del copyreg.dispatch_table[cls]
    if before is not None:
        copyreg.dispatch_table[cls] = before


class FailureTuple(NamedTuple):
    """An object that cannot be pickled, the path to it as one would write it, and its holder (None: there is none)."""

    obj: Any
    name: str
    parent: Any

    def __hash__(self):  # the object need not have one
        return hash((id(self.obj), self.name))


class _TrialPickler(Pickler):
    """For a pickle that is not read. References and handles are not written, which would keep what they represent."""

    def persistent_id(self, obj):
        return 0 if isinstance(obj, SessionBound) else None


def _dumps(value):
    _TrialPickler(io.BytesIO(), protocol=5).dump(value)


def inspect_serializability(
    base_obj: Any, name: str | None = None, depth: int = 3, print_file: TextIO | None = None
) -> tuple[bool, set[FailureTuple]]:
    """Finds the parts of a value that keep it from being sent to another process, and prints them.

    Args:
        base_obj: the value, function or class.
        name: what to call it; default its own name.
        depth: how many steps to look into it.
        print_file: where to print to; None: stdout.

    Returns:
        Whether it can be pickled, and the innermost parts that cannot.
    """
    name = name or getattr(base_obj, "__qualname__", type(base_obj).__name__)
    failures = {FailureTuple(*found) for found in culprits(base_obj, name, depth, _dumps)}
    if not failures:
        print(f"{name} can be pickled", file=print_file)
    for obj, path, _ in failures:
        print(f"{path} cannot be pickled: it is a {type(obj).__module__}.{type(obj).__qualname__}", file=print_file)
    return not failures, failures
