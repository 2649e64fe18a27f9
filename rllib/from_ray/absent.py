"""Stand-ins for names of Ray that are not here: an import of one goes through, and its first use raises."""

import sys
from typing import Any

# Packages whose code is not the program's.
_LIBRARY = ("rllib", "runtime", "importlib", "_frozen_importlib", "copyreg", "pickle", "copy", "typing", "functools")


class NotServedError(ImportError):
    """A program uses a name of Ray that is not here; the message has the place, and what to use instead."""


def place_in_program() -> str | None:
    """File and line of the innermost frame that belongs to the program; None if none does."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _LIBRARY:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


class Absent:
    """A name of Ray that is not here.

    It may be imported, named in annotations, derived from and pickled; calling it, reading an attribute, and making an
    object of a class that derives from it raise NotServedError. Nothing is an instance of it.

    Args:
        path: the name with its module: "ray.rllib.env.env_runner.EnvRunner".
        reason: why it is not here, or what to use instead; None if nothing is known.
        imported_at: file and line.
    """

    def __init__(self, path: str, reason: str | None = None, imported_at: str | None = None):
        self.__dict__.update(_path=path, _reason=reason, _imported_at=imported_at)

    def _error(self) -> NotServedError:
        place = place_in_program() or self._imported_at
        reason = f": {self._reason}." if self._reason else ". docs/start/from_rllib.md lists what is."
        return NotServedError(f"{f'{place}: ' if place else ''}{self._path} is not here{reason}", name=self._path)

    def _refuse(self, *args, **kwargs):
        raise self._error()

    __call__ = __contains__ = __delitem__ = __enter__ = __getitem__ = __iter__ = __setitem__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):  # asked for by copy, inspect, typing and the like
            raise AttributeError(f"{self._path} is not here, and has no {name}")
        raise self._error()

    def __setattr__(self, name: str, value):
        raise self._error()

    def __or__(self, other):
        return Any  # an annotation, `Absent | None`

    __ror__ = __or__

    def __instancecheck__(self, instance) -> bool:
        return False

    def __subclasscheck__(self, subclass) -> bool:
        return False

    def __mro_entries__(self, bases):
        stand_in = self

        def __new__(cls, *args, **kwargs):
            raise stand_in._error()

        return (type(self._path.rpartition(".")[2], (), {"__new__": __new__, "__doc__": repr(self)}),)

    def __reduce__(self):
        return Absent, (self._path, self._reason, self._imported_at)

    def __repr__(self):
        return f"<{self._path}, which is not here>"
