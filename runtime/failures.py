"""Exceptions of user code on their way: the worker's description, and the exception that the caller raises.

The worker sends class, text, formatted traceback and, where that is possible, the exception's parts: its class, `args`,
attributes and causes. The exception is rebuilt from these by `__new__` and never through its `__init__`, whose
signature may have nothing to do with `args`; this is where many runtimes answer "failed to unpickle".
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import traceback
import types
from dataclasses import dataclass, replace
from functools import lru_cache

from .errors import TaskError
from .pickling import Pickler
from .remote.refs import SessionBound

TRACEBACK_CHARACTERS = 100_000  # a recursion error of long lines must not fill the store

_ENGINES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "engines") + os.sep


@dataclass(frozen=True, slots=True)
class RemoteFailure:
    """An exception of user code, as every process can describe it.

    Attributes:
        where: "task train() in process 4711", "actor method Counter.add() in process 4712".
        class_name: the exception's class, qualified by its module unless built in.
        message: its `str()`.
        traceback: as Python prints it.
        exception: the pickled exception (see `dump_exception`), or None when it cannot travel.
    """

    where: str
    class_name: str
    message: str
    traceback: str
    exception: bytes | None

    def text(self) -> str:
        """The message of the `TaskError`."""
        return f"{self.where} raised {self.class_name}: {self.message}\n\nRemote traceback:\n{self.traceback.rstrip()}"

    def cause(self) -> BaseException | None:
        """A new copy of the user's exception, or None when this process cannot rebuild it."""
        if self.exception is None:
            return None
        try:
            return pickle.loads(self.exception)
        except Exception:  # its module may exist only where it was raised
            return None

    def error(self, kind: type[TaskError] = TaskError) -> TaskError:
        """The exception for the caller: a `TaskError` that is also of the user's class where that is possible.

        Args:
            kind: TaskError, or ActorStartError where a constructor raised.

        Only subclasses of `Exception` are imitated: a task's KeyboardInterrupt or SystemExit must not stop the caller.
        """
        cause = self.cause()
        error = _both(kind, cause) if isinstance(cause, Exception) else None
        if error is None:
            error = kind(self.message)
        error.__dict__["failure"] = self
        error.__dict__["cause"] = cause
        return error


def describe_exception(exception: BaseException, where: str) -> RemoteFailure:
    """The failure to send for an exception just caught in user code; never raises.

    An error of a nested task keeps the innermost user's class, and its traceback contains the inner one.
    """
    inner = exception.failure if isinstance(exception, TaskError) else None
    if inner is not None:
        return RemoteFailure(where, inner.class_name, inner.message, _format(exception), inner.exception)
    return RemoteFailure(
        where, _class_name(type(exception)), _text(exception), _format(exception), dump_exception(exception)
    )


def unreadable(error: Exception) -> TaskError:
    """The error of a value that this process cannot unpickle; also of the class of what unpickling has raised."""
    versions = ["Python {}.{}.{}".format(*sys.version_info)]
    versions += [f"{name} {sys.modules[name].__version__}" for name in ("numpy", "torch") if name in sys.modules]
    where = f"process {os.getpid()} ({', '.join(versions)}) cannot unpickle this value, which"
    advice = "A process that gets a value must have the modules that its classes come from, in the same versions"
    failure = describe_exception(error, where)
    return replace(failure, message=f"{failure.message}. {advice}").error()


def dump_exception(exception: BaseException) -> bytes | None:
    """The exception's class, args, attributes and causes, pickled and unpickled once as a test; None when that fails.

    Attributes that cannot be pickled are left out, and arguments that cannot are replaced by their `repr`.
    """
    for prune in (False, True):
        try:
            buffer = io.BytesIO()
            _ExceptionPickler(buffer, prune).dump(exception)
            data = buffer.getvalue()
            if isinstance(pickle.loads(data), BaseException):
                return data
        except Exception:  # user code runs in here (__reduce__, __new__, properties): anything may come out
            continue
    return None


class _ExceptionPickler(Pickler):
    """Pickles every exception inside by its parts; cloudpickle gives classes of `__main__` their identity back."""

    def __init__(self, file, prune):
        super().__init__(file, protocol=5)
        self.prune = prune

    def reducer_override(self, obj):
        if isinstance(obj, SessionBound):  # an exception that is kept must not keep values and actors
            raise TypeError(f"{obj!r} does not travel with an exception")
        if isinstance(obj, BaseException) and not isinstance(obj, TaskError):
            args, state = BaseException.args.__get__(obj), _state(obj)
            chain = ("__cause__", "__context__", "__suppress_context__")  # exceptions that caused it
            state |= {name: value for name in chain if (value := getattr(obj, name))}
            if self.prune:
                args = tuple(a if _picklable(a) else repr(a) for a in args)
                state = {name: value for name, value in state.items() if _picklable(value)}
            return _new_exception, (type(obj), args), state, None, None, _set_state
        return super().reducer_override(obj)


def _picklable(value) -> bool:
    try:
        buffer = io.BytesIO()
        _ExceptionPickler(buffer, prune=False).dump(value)
        pickle.loads(buffer.getvalue())
        return True
    except Exception:
        return isinstance(value, BaseException) and dump_exception(value) is not None


def _new_exception(cls, args):
    """An instance by `__new__` alone; classes whose `__new__` wants other arguments get none, or the built-in one."""
    for attempt in (lambda: cls.__new__(cls, *args), lambda: cls.__new__(cls)):
        try:
            exception = attempt()
            break
        except TypeError:
            continue
    else:
        exception = BaseException.__new__(cls)
    BaseException.args.__set__(exception, args)
    return exception


def _state(exception) -> dict:
    """Attributes in `__dict__`, in `__slots__`, and in the C fields of built-in classes (OSError.errno, ...)."""
    state = dict(getattr(exception, "__dict__", {}))
    for cls in type(exception).__mro__:
        if cls in (BaseException, BaseExceptionGroup, ExceptionGroup, object):
            continue
        for name, descriptor in vars(cls).items():
            if isinstance(descriptor, types.MemberDescriptorType | types.GetSetDescriptorType) and name[:2] != "__":
                try:
                    state.setdefault(name, descriptor.__get__(exception))
                except AttributeError:
                    continue
    return state


def _set_state(exception, state):
    for name, value in state.items():
        try:
            # An empty C field reads as None. OSError shows one that is set to None: "[Errno None] None: None -> None".
            if value is not None or getattr(exception, name, exception) is not None:
                object.__setattr__(exception, name, value)
        except (AttributeError, TypeError):  # a read-only field: filled by __new__, or not to be had
            continue


def _both(kind, cause: Exception) -> TaskError | None:
    """An instance of `kind` and of the class of `cause`, with its args and attributes."""
    try:
        error = _new_exception(_joint_class(kind, type(cause)), BaseException.args.__get__(cause))
        _set_state(error, _state(cause))
        return error
    except Exception:  # a class that forbids subclassing, a layout conflict, a __new__ that refuses
        return None


@lru_cache(maxsize=256)
def _joint_class(kind: type, cls: type) -> type:
    """`kind` and the user's class in one; its name shows both, without dots: `repr` shows what follows the last one."""
    bases = (kind,) if issubclass(kind, cls) else (kind, cls)
    return type(f"{kind.__name__}({cls.__name__})", bases, {"__module__": cls.__module__})


def _class_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}.{cls.__qualname__}"


def _text(exception) -> str:
    try:
        return str(exception)
    except Exception as error:
        return f"<its __str__ raised {type(error).__name__}>"


def _format(exception) -> str:
    """The traceback from the user's code on: the runtime's own frames above it are left out."""
    frames = exception.__traceback__
    while frames is not None and frames.tb_next is not None:
        if not frames.tb_frame.f_code.co_filename.startswith(_ENGINES):
            break
        frames = frames.tb_next
    try:
        text = "".join(traceback.format_exception(type(exception), exception, frames))
    except Exception as error:
        text = f"<{_class_name(type(exception))} whose traceback cannot be formatted: {type(error).__name__}>"
    half = TRACEBACK_CHARACTERS // 2
    return text if len(text) <= 2 * half else f"{text[:half]}\n  ...\n{text[-half:]}"
