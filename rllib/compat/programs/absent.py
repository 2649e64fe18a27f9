"""Stand-ins for names of other libraries that do not exist here: importing one succeeds, the first use raises."""

import copyreg
import sys
from typing import Any

from rllib.compat.programs.instances import is_instance
from rllib.compat.programs.lookup import TABLES, find

# Packages whose code does not belong to the program.
_OURS = ("rllib", "runtime")
# Modules that handle objects of any kind: copies, pickles, annotations, debuggers. They may compare, hash and show a
# stand-in like any other object, which tells them nothing false about a value.
_OF_ANY_OBJECT = {
    "abc", "annotationlib", "bdb", "cloudpickle", "cmd", "code", "codeop", "copy", "copyreg", "dataclasses",
    "debugpy", "doctest", "enum", "functools", "gc", "importlib", "inspect", "ipykernel", "logging", "pdb",
    "pickle", "pluggy", "pprint", "pydevd", "pydoc", "pytest", "reprlib", "rlcompleter", "traceback", "traitlets",
    "typing", "typing_extensions", "unittest", "warnings", "weakref", "IPython", "_collections_abc",
    "_frozen_importlib", "_frozen_importlib_external", "_pydev_bundle", "_pydevd_bundle", "_pydevd_frame_eval",
    "_pytest", "_weakrefset",
}  # fmt: skip
# Ends of names of exceptions, in addition to all names in ray.exceptions.
_EXCEPTIONS = ("Error", "Exception", "Exit", "Interrupt", "Timeout", "Warning")


class NotServedError(ImportError):
    """A program uses a name that does not exist here; the message has the line, and what to use instead."""


class _NotHashedError(NotServedError, TypeError):
    """The same for hash(), which Python asks to raise TypeError: unions of types, for one, do without the hash then."""


def place_in_program() -> str | None:
    """File and line of the innermost frame that belongs to the program; None if none does."""
    frame = sys._getframe(1)
    while frame is not None:
        if (package := _package(frame)) not in _OURS and package not in _OF_ANY_OBJECT:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def _package(frame) -> str:
    return frame.f_globals.get("__name__", "").partition(".")[0]


def absent(path: str, reason: str | None = None, imported_at: str | None = None) -> Any:
    """The stand-in for a name: an exception class if the name looks like one, since `except` needs such a class."""
    stand_in = Absent(path, reason, imported_at)
    module, _, name = path.rpartition(".")
    if not name[:1].isupper() or not (module == "ray.exceptions" or name.endswith(_EXCEPTIONS)):
        return stand_in
    base = Warning if name.endswith("Warning") else Exception
    return AbsentException(name, (base,), {"_stand_in": stand_in, "__module__": module, "__doc__": repr(stand_in)})


class Absent:
    """A name of another library that does not exist here.

    It may be imported, assigned, named in annotations, derived from, copied and pickled, and repr() shows it.
    Operations that need its value raise NotServedError: calling it, reading an attribute (except, if it is a module,
    names that exist here), comparing, hashing, testing and formatting it, arithmetic, and making an object of a derived
    class. Its instances are this library's counterparts of Ray's objects (instances.py).

    Args:
        path: the name with its module: "ray.rllib.env.env_runner.EnvRunner".
        reason: why the name does not exist here, or what to use instead; None if unknown.
        imported_at: file and line of the import.
    """

    def __init__(self, path: str, reason: str | None = None, imported_at: str | None = None):
        self.__dict__.update(_path=path, _reason=reason, _imported_at=imported_at)

    def _error(self, kind: type[NotServedError] = NotServedError) -> NotServedError:
        place = place_in_program() or self._imported_at
        table = TABLES.get(self._path.partition(".")[0])  # gym has none
        lists = f" {table.guide} lists what is." if table else ""
        reason = f": {self._reason}." if self._reason else f".{lists}"
        return kind(f"{f'{place}: ' if place else ''}{self._path} is not here{reason}", name=self._path)

    def _refuse(self, *args, **kwargs):
        raise self._error()

    def __eq__(self, other):
        if _asked_about_any_object():
            return NotImplemented
        raise self._error()

    def __hash__(self):
        if _asked_about_any_object():
            return object.__hash__(self)
        raise self._error(_NotHashedError)

    def __bool__(self):
        if _asked_about_any_object():
            return True
        raise self._error()

    def __str__(self):
        if _asked_about_any_object():
            return repr(self)
        raise self._error()

    def __format__(self, specification):
        if _asked_about_any_object():
            return repr(self)
        raise self._error()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):  # asked for by copy, inspect, typing and the like
            raise AttributeError(f"{self._path} is not here, and has no {name}")
        # It may represent a module, of which there is no list: `from ray.rllib.algorithms.ppo import ppo`.
        may_be_module = self._path.rpartition(".")[2].islower() and self._path.partition(".")[0] in TABLES
        if may_be_module and (ours := find(self._path, name)) is not None:
            return ours.load()
        raise self._error()

    def __setattr__(self, name: str, value):
        raise self._error()

    def __or__(self, other):
        return Any  # an annotation, `Absent | None`

    __ror__ = __or__

    def __instancecheck__(self, instance) -> bool:
        return is_instance(self._path, instance)

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


# Further operations that need the value. `|` is that of annotations.
for _operation in (
    "abs", "bytes", "call", "complex", "contains", "delitem", "enter", "float", "floor", "fspath", "ge", "getitem",
    "gt", "index", "int", "invert", "iter", "le", "len", "lt", "neg", "pos", "reversed", "round", "setitem",
    "trunc", "add", "and", "divmod", "floordiv", "lshift", "matmul", "mod", "mul", "pow", "rshift", "sub",
    "truediv", "xor", "radd", "rand", "rdivmod", "rfloordiv", "rlshift", "rmatmul", "rmod", "rmul", "rpow",
    "rrshift", "rsub", "rtruediv", "rxor",
):  # fmt: skip
    setattr(Absent, f"__{_operation}__", Absent._refuse)


def _asked_about_any_object() -> bool:
    """Whether the operation that calls this comes straight from a module that handles objects of any kind."""
    return _package(sys._getframe(2)) in _OF_ANY_OBJECT


class AbsentException(type):
    """Class of the stand-ins for exceptions. Nothing raises them, so an `except` clause catches nothing by them."""

    _stand_in: Absent

    def __call__(cls, *args, **kwargs):
        raise cls._stand_in._error()

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls._stand_in, name)

    def __repr__(cls):
        return repr(cls._stand_in) if "_stand_in" in vars(cls) else super().__repr__()


def _reduce_exception(cls: AbsentException):
    """A stand-in as its path; a class of the program that derives from one by its own name."""
    return (absent, cls._stand_in.__reduce__()[1]) if "_stand_in" in vars(cls) else cls.__qualname__


copyreg.pickle(AbsentException, _reduce_exception)
