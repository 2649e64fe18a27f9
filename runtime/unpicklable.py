"""Errors for values that cannot be pickled; they name the part that is to blame: `args[0].env._lock`."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import NoReturn

from . import pickling
from .errors import RuntimeFailure

MOST_PARTS = 10_000  # a search through a larger value would keep the user waiting for the message
LONGEST_PATH = 200  # characters in a message


def explain(value, name: str, error: BaseException, dumps=pickling.dumps) -> str:
    """The message for a value that could not be pickled.

    Args:
        value: what was to be pickled.
        name: name of the value in messages: "args[0]", "the result of f()".
        error: what the pickler raised.
        dumps: the pickler; an engine's own also takes references and handles.
    """
    path, culprit = find(value, name, dumps)
    if len(path) > LONGEST_PATH:
        path = f"{path[: LONGEST_PATH // 2]} ... {path[-LONGEST_PATH // 2 :]}"
    if isinstance(culprit, Generator | AsyncGenerator | Coroutine):
        advice = "Send what it gives, such as list(...) of it, or call its function in the task or actor."
    else:
        advice = "Create it in the task or actor that uses it, or leave it out with __getstate__."
    return (
        f"{path} cannot be pickled, and so cannot be sent to another process: it is a {type(culprit).__module__}."
        f"{type(culprit).__qualname__} ({type(error).__name__}: {error}). {advice}"
    )


def refuse(value, name: str, error: Exception, dumps=pickling.dumps) -> NoReturn:
    """Raises the error for a value that could not be pickled; for the arguments see `explain`.

    Raises:
        TypeError: the value, or a part of it, cannot be pickled.
        RuntimeFailure: pickling has met an error of the runtime, which is raised as it is.
    """
    if isinstance(error, RuntimeFailure):
        raise error
    raise TypeError(explain(value, name, error, dumps)) from error


def refuse_call(args: tuple, kwargs: dict, error: Exception, dumps=pickling.dumps) -> NoReturn:
    """The same for the arguments of a call, which are named args[0], kwargs['x']."""
    if picklable(args, dumps):
        refuse(kwargs, "kwargs", error, dumps)
    refuse(args, "args", error, dumps)


def find(value, name: str, dumps=pickling.dumps) -> tuple[str, object]:
    """The path and the object of the innermost part that cannot be pickled; the value itself if no part is to blame."""
    path, seen, budget = name, set(), MOST_PARTS
    while True:
        seen.add(id(value))
        for step, part in _parts(value):
            budget -= 1
            if budget > 0 and id(part) not in seen and not picklable(part, dumps):
                path, value = path + step, part
                break
        else:
            return path, value


def culprits(value, name: str, depth: int, dumps=pickling.dumps, parent=None):
    """Yields (object, path, what holds it) for each innermost part that cannot be pickled, at most `depth` steps in."""
    if picklable(value, dumps):
        return
    parts = [(step, part) for step, part in _parts(value) if not picklable(part, dumps)] if depth > 0 else []
    if not parts:
        yield value, name, parent
    for step, part in parts:
        yield from culprits(part, name + step, depth - 1, dumps, value)


def picklable(value, dumps=pickling.dumps) -> bool:
    """Whether `dumps` can write it."""
    try:
        dumps(value)
        return True
    except Exception:  # RecursionError, TypeError, whatever a __reduce__ raises
        return False


def captured_sizes(target) -> list[tuple[str, int]]:
    """The five largest things a function captures: name and pickled bytes, largest first."""
    sizes = []
    for name, value in _captured(target):
        try:
            sizes.append((name, len(pickling.dumps(value))))
        except Exception:
            continue
    return sorted(sizes, key=lambda entry: -entry[1])[:5]


def _parts(value):
    """Pairs of (suffix of the path, part)."""
    if isinstance(value, dict):
        for key, part in list(value.items()):
            yield f"[{key!r}]", part
    elif isinstance(value, list | tuple | set | frozenset):
        for index, part in enumerate(value):
            yield f"[{index}]", part
    elif inspect.isfunction(value) or inspect.isclass(value):
        for name, part in _captured(value):
            yield f" (captures {name})", part
    elif inspect.ismethod(value):
        yield ".__self__", value.__self__
    elif not _refuses(value):
        for name, part in list(getattr(value, "__dict__", {}).items()):
            yield f".{name}", part
        for cls in type(value).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if hasattr(value, name) and name not in ("__dict__", "__weakref__"):
                    yield f".{name}", getattr(value, name)


def _refuses(value):
    """Whether an object raises when it is asked how to pickle it, whatever its attributes are."""
    try:
        value.__reduce_ex__(5)
        return False
    except Exception:
        return True


def _captured(target):
    """Objects that a function refers to outside itself, or the attributes of a class."""
    if inspect.isclass(target):
        yield from [(name, part) for name, part in list(vars(target).items()) if name[:2] != "__" or callable(part)]
    elif inspect.isfunction(target):
        variables = inspect.getclosurevars(target)
        yield from {**variables.globals, **variables.nonlocals}.items()
        for index, default in enumerate(target.__defaults__ or ()):
            yield f"default {index}", default
