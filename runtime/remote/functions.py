"""Remote functions: `f.remote(...)` runs a task and gives a reference to its result."""

from __future__ import annotations

import functools
from typing import Any, Generic, Self, TypeVar

from ..calls.options import ActorOptions, TaskOptions, updated
from ..engines.definitions import Definition, is_coroutine_function
from ..session import engine
from .absent import advice
from .generators import returned

Refs = TypeVar("Refs")


class Remote:
    """A remote function or class: its definition, and the options with which it is run.

    Args:
        target: the user's function or class.
        options: `TaskOptions` or `ActorOptions`.
    """

    _definition_type = Definition

    def __init__(self, target, options: TaskOptions | ActorOptions):
        self._set(self._definition_type(target), options)

    def _set(self, definition, options):
        self._definition, self._options = definition, options
        functools.update_wrapper(self, definition.target, updated=())

    def options(self, **given) -> Self:
        """The same with other options, e.g. `f.options(num_cpus=2).remote()`."""
        other = object.__new__(type(self))
        other._set(self._definition, updated(self._options, given))
        return other

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice(name)}")

    def __repr__(self):
        return f"{type(self).__name__}({self._definition.name})"

    def __reduce__(self):
        # The object exists before its state, so that what names itself (a recursive function) can be pickled.
        return object.__new__, (type(self),), {k: v for k, v in vars(self).items() if k != "_definition"}

    def __setstate__(self, state):
        # The target may be incomplete (a function without its defaults): the definition looks at it when it is needed.
        self.__dict__.update(state)
        self._definition = self._definition_type(self.__wrapped__)


class RemoteFunction(Remote, Generic[Refs]):
    """A function that runs as a task, in another process.

    `Refs` is the type that `.remote()` returns: a reference to the result, or as `num_returns` says.
    """

    def __init__(self, function, options: TaskOptions):
        if is_coroutine_function(function):
            raise TypeError(f"{function.__qualname__} is async; a remote function must be an ordinary one")
        super().__init__(function, options)

    def options(self, **given) -> RemoteFunction[Any]:
        """See Remote.options."""
        return super().options(**given)

    def remote(self, *args, **kwargs) -> Refs:
        """Runs the function with these arguments in a worker process.

        Returns:
            A reference to the result; a list of them if num_returns > 1; None if num_returns == 0; an
            ObjectRefGenerator for a generator.

        Raises:
            TypeError: the arguments do not fit the function, or one cannot be pickled.
            UnschedulableError: it asks for more than the session has.
        """
        self._definition.check_arguments(args, kwargs)
        refs = engine().submit(self._definition, args, kwargs, self._options)
        return refs[0] if self._options.num_returns == 1 else returned(refs, self._options.returns)

    def __call__(self, *args, **kwargs):
        name = self._definition.name
        raise TypeError(f"{name} is a remote function: use {name}.remote(...), and runtime.get(...) for its result")
