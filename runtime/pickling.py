"""cloudpickle, with a guard for the classes of this process.

cloudpickle carries a class of `__main__` by value and gives it its identity back when it returns, but it also sets all
its attributes again, so that the methods of the original would become copies that see copied globals. Here a class that
was defined in this process is left as it is.
"""

from __future__ import annotations

import io
import types
import weakref
from collections import ChainMap
from typing import ClassVar

import cloudpickle

_received = weakref.WeakSet()  # classes made by unpickling: a later copy may bring newer attributes
_own = weakref.WeakSet()  # classes defined here that have been sent


_FILENAME = 10  # place of co_filename among the arguments of types.CodeType
_reduce_code = cloudpickle.Pickler.dispatch_table[types.CodeType]


def _reduce_code_with_file(code: types.CodeType) -> tuple:
    """cloudpickle 3.1.3 leaves out the file, without which a traceback has no lines of source."""
    make, arguments = _reduce_code(code)
    return make, (*arguments[:_FILENAME], code.co_filename, *arguments[_FILENAME + 1 :])


class Pickler(cloudpickle.Pickler):
    """cloudpickle.Pickler; a class comes back as the original, unchanged, and code knows its file."""

    dispatch_table: ClassVar[ChainMap] = ChainMap(
        {types.CodeType: _reduce_code_with_file}, cloudpickle.Pickler.dispatch_table
    )

    def reducer_override(self, obj):
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) == 6:
            if obj not in _received:
                _own.add(obj)
            return (*reduced[:2], (reduced[5], reduced[2]), None, None, _set_class_state)
        return reduced


def dumps(value) -> bytes:
    """The value pickled in one piece, functions and classes of `__main__` by value."""
    buffer = io.BytesIO()
    Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def _set_class_state(cls, setter_and_state):
    if cls not in _own:
        _received.add(cls)
        setter, state = setter_and_state
        setter(cls, state)
