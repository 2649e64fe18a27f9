"""Definitions that a session runs: functions, and classes with their methods, as its engine sees them."""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import pickling
from ..calls.options import MethodOptions
from ..calls.signatures import Signature, method_parameters, parameters_of
from ..unpicklable import captured_sizes, explain

if TYPE_CHECKING:
    from ..calls.options import ActorOptions

logger = logging.getLogger("runtime")

ASYNC_CONCURRENCY = 1000  # default of max_concurrency, for classes with coroutine functions
METHOD_OPTIONS = "__runtime_method_options__"  # attribute of a function that @method has decorated
LARGE_DEFINITION_BYTES = 10 * 2**20
LARGEST_DEFINITION_BYTES = 100 * 2**20


class Definition:
    """A user's function or class, pickled by value where it cannot be imported, once per session.

    Args:
        target: the function or class itself.
    """

    __slots__ = ("__weakref__", "_data", "_digest", "_session", "_signature", "name", "target")

    def __init__(self, target: Callable):
        self.target = target
        self.name: str = getattr(target, "__qualname__", repr(target)).rpartition("<locals>.")[2]
        self._session = self._digest = self._data = self._signature = None

    def check_arguments(self, args: tuple, kwargs: dict) -> None:
        """Refuses arguments that the function (or the constructor) cannot take.

        Raises:
            TypeError: with Python's own message.
        """
        if self._signature is None:  # not before: a copy that is being unpickled is not complete
            self._signature = Signature(self.name, parameters_of(self.target))
        self._signature.check(args, kwargs)

    def pickled(self, session: str, dumps: Callable[[Any], bytes] = pickling.dumps) -> tuple[bytes, bytes]:
        """Its SHA-256 (32 bytes) and its pickle, made when a session first asks for it.

        Args:
            session: id of the session. Another one is pickled again: references captured in a closure belong to one.
            dumps: the engine's pickler, which knows how to carry those.

        Raises:
            TypeError: it captures something that cannot be pickled; the message names it.
            ValueError: it captures more than 100 MB.
        """
        if self._session != session:
            self._data = self._dump(dumps)
            self._digest = hashlib.sha256(self._data).digest()
            self._session = session
        return self._digest, self._data

    def _dump(self, dumps):
        try:
            data = dumps(self.target)
        except Exception as error:
            raise TypeError(explain(self.target, self.name, error, dumps)) from error
        if len(data) > LARGE_DEFINITION_BYTES:
            largest = ", ".join(f"{name} ({size / 2**20:.0f} MB)" for name, size in captured_sizes(self.target))
            text = (
                f"{self.name} captures {len(data) / 2**20:.0f} MB: {largest}. Pass large data as an argument instead."
            )
            if len(data) > LARGEST_DEFINITION_BYTES:
                raise ValueError(text)
            logger.warning(text)
        return data


class ActorExit(SystemExit):
    """Raised in an actor's method to end the actor; the text says by what."""

    def __init__(self, text: str):
        super().__init__(0)
        self.text = text


def describe_exit(error: SystemExit) -> str:
    """Describes what raised SystemExit in user code, for messages: "called sys.exit(3)"."""
    if isinstance(error, ActorExit):
        return error.text
    return f"called sys.exit({'' if error.code is None else repr(error.code)})"


def _terminate(instance):
    raise ActorExit("was ended by __ray_terminate__()")


# Methods that every actor has, under Ray's names, unless its class defines them: functions of the instance.
BUILT_IN_METHODS = {
    "__ray_call__": lambda instance, function, /, *args, **kwargs: function(instance, *args, **kwargs),
    "__ray_ready__": lambda instance: True,
    "__ray_terminate__": _terminate,
}


class CallOptions(NamedTuple):
    """Options of a method's calls, where they are not plain ones.

    Attributes:
        max_task_retries, retry_exceptions, concurrency_group: see options.MethodOptions; none is None but the group.
        max_pending_calls: see options.ActorOptions.
        groups: the concurrency groups of the actor.
    """

    max_task_retries: int = 0
    retry_exceptions: bool | tuple = False
    concurrency_group: str | None = None
    max_pending_calls: int = -1
    groups: tuple[str, ...] = ()

    def updated(self, given: MethodOptions, label: str) -> CallOptions | None:
        """With the options of a method, or with further ones; None if they ask for a plain call.

        Args:
            given: options; one at its default changes nothing.
            label: "Counter.add", for messages.

        Raises:
            ValueError: a concurrency group that the class does not have.
        """
        group = given.concurrency_group
        if group is not None and group not in self.groups:
            raise ValueError(
                f"{label} asks for concurrency_group={group!r}, but its class has "
                f"{'the groups ' + ', '.join(map(repr, self.groups)) if self.groups else 'no concurrency groups'}; "
                f"name it there: @remote(concurrency_groups={{{group!r}: 2}})"
            )
        options = self._replace(
            max_task_retries=self.max_task_retries if given.max_task_retries is None else given.max_task_retries,
            retry_exceptions=self.retry_exceptions if given.retry_exceptions is None else given.retry_exceptions,
            concurrency_group=group or self.concurrency_group,
        )
        return None if options == _PLAIN else options


_PLAIN = CallOptions()


class Method(NamedTuple):
    """A method of an actor, as its callers know it.

    Attributes:
        num_returns: how many values it returns; see options.return_code.
        parameters: see signatures.Signature.
        options: None for a plain call.
    """

    num_returns: int
    parameters: tuple | None
    options: CallOptions | None = None


class ClassDefinition(Definition):
    """A remote class."""

    __slots__ = ("_has_coroutines", "_methods", "_methods_of")

    def __init__(self, target: type):
        super().__init__(target)
        self._methods = self._has_coroutines = None
        self._methods_of: dict[CallOptions, dict[str, Method]] = {}

    @property
    def methods(self) -> dict[str, tuple[MethodOptions, int, tuple | None]]:
        """The methods that a handle offers: name -> options, num_returns, parameters (see `Method`)."""
        if self._methods is None:
            self._methods = _methods(self.target)
        return self._methods

    @property
    def has_coroutines(self) -> bool:
        """See the function."""
        if self._has_coroutines is None:
            self._has_coroutines = has_coroutines(self.target)
        return self._has_coroutines

    def methods_of(self, options: ActorOptions) -> dict[str, Method]:
        """The methods of an actor with these options.

        Raises:
            ValueError: a method is in a concurrency group that they do not name.
        """
        defaults = CallOptions(
            max_task_retries=options.max_task_retries or 0,
            max_pending_calls=options.max_pending_calls,
            groups=tuple(options.concurrency_groups),
        )
        if defaults not in self._methods_of:
            self._methods_of[defaults] = {
                name: Method(num_returns, parameters, defaults.updated(own, f"{self.name}.{name}"))
                for name, (own, num_returns, parameters) in self.methods.items()
            }
        return self._methods_of[defaults]


def _methods(cls):
    methods = {name: (MethodOptions(), 1, parameters_of(function)[1:]) for name, function in BUILT_IN_METHODS.items()}
    for name, value in inspect.getmembers(cls, callable):
        if name[:2] != "__" or name == "__call__" or name in BUILT_IN_METHODS:
            options = getattr(value, METHOD_OPTIONS, MethodOptions())
            methods[name] = options, options.returns(value), method_parameters(cls, name)
    return methods


def is_coroutine_function(function: Callable) -> bool:
    """Whether a function belongs on an event loop: a coroutine, or an async generator."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def has_coroutines(cls: type) -> bool:
    """Whether a class has such methods: its actors have an event loop."""
    return any(is_coroutine_function(value) for _, value in inspect.getmembers(cls, callable))


def find_method(instance, name: str) -> Callable:
    """A method of an actor, as the instance's class defines it: an attribute of the instance does not hide it."""
    cls = type(instance)
    for base in cls.__mro__:
        if name in base.__dict__:
            attribute = base.__dict__[name]
            bind = getattr(type(attribute), "__get__", None)
            return attribute if bind is None else bind(attribute, instance, cls)
    if name in BUILT_IN_METHODS:
        return functools.partial(BUILT_IN_METHODS[name], instance)
    return getattr(instance, name)  # __new__ has made an instance of another class
