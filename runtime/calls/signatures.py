"""Signatures of remote functions, constructors and methods, checked in the caller's process."""

from __future__ import annotations

import functools
import inspect

MOST_SHAPES = 256  # with **options there is no end of them
LONGEST_DEFAULT = 40  # characters of a default value in a message


class _Default:
    """Represents a default value, which stays in the process that knows it; `text` shows it."""

    def __init__(self, text: str):
        self._text = text

    def __repr__(self):
        return self._text


_KINDS = tuple(type(inspect.Parameter.KEYWORD_ONLY))  # by their numbers
_SELF = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Signature:
    """The parameters of a callable.

    Whether arguments fit depends only on the number of positional ones and the names of the others: their *shape*. A
    shape that has fitted once is not bound again, so that the check of a further call is one look into a set.

    Args:
        name: "Counter.add", for messages.
        parameters: name, kind (an inspect.Parameter's, as a number) and default as text (None: there is none) of each;
            None: they are not known, and everything fits.

    Attributes:
        fitting: shapes that have fitted: len(args), or (len(args), *kwargs) where there are keyword arguments.
    """

    __slots__ = ("_name", "_parameters", "fitting")

    def __init__(self, name: str, parameters: tuple | None):
        self._name, self._parameters = name, parameters
        self.fitting: set = set()

    def check(self, args: tuple, kwargs: dict) -> None:
        """Refuses arguments that do not fit.

        Raises:
            TypeError: with Python's own message.
        """
        shape = (len(args), *kwargs) if kwargs else len(args)
        if shape in self.fitting:
            return
        if self._parameters is not None:
            signature = _signature(self._parameters)
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self._name}{signature}: {error}") from None
        if len(self.fitting) < MOST_SHAPES:
            self.fitting.add(shape)


def parameters_of(target) -> tuple | None:
    """The parameters of a function or class, as `Signature` takes them; None where they cannot be known.

    A decorator's wrapper is taken as it is: it may accept other arguments than the function that it wraps.
    """
    try:
        signature = inspect.signature(target, follow_wrapped=False)
    except (TypeError, ValueError):  # functions in C may not tell
        return None
    return tuple((p.name, int(p.kind), _text(p.default)) for p in signature.parameters.values())


def method_parameters(cls: type, name: str) -> tuple | None:
    """The parameters of a method as its caller sees them, without `self`; None where they cannot be known."""
    parameters = parameters_of(getattr(cls, name))
    attribute = inspect.getattr_static(cls, name)
    if parameters is None or isinstance(attribute, staticmethod | classmethod) or not hasattr(attribute, "__get__"):
        return parameters
    if parameters and parameters[0][1] in _SELF:
        return parameters[1:]
    return parameters if parameters and parameters[0][1] == inspect.Parameter.VAR_POSITIONAL else None


def _text(default):
    if default is inspect.Parameter.empty:
        return None
    plain = default is None or isinstance(default, bool | int | float | str)
    text = repr(default) if plain else "..."
    return text if len(text) <= LONGEST_DEFAULT else "..."


@functools.lru_cache(maxsize=1024)
def _signature(parameters) -> inspect.Signature:
    empty = inspect.Parameter.empty
    return inspect.Signature(
        [
            inspect.Parameter(name, _KINDS[kind], default=empty if text is None else _Default(text))
            for name, kind, text in parameters
        ]
    )
