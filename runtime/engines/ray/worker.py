"""Code in Ray's worker processes: a function that runs a task, and a class whose instances are the actors.

User code is called here and not by Ray, so that arguments, results and exceptions are the same as on every engine.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

import ray

from ... import context
from ...calls.options import DYNAMIC, ActorOptions, TaskOptions, worth_retrying
from ...failures import RemoteFailure, describe_exception
from ...unpicklable import refuse
from ..base import Engine, iterate, split_returns
from ..definitions import ClassDefinition, describe_exit, find_method
from .values import Argument, Packed, decode, dumps, encode, loads

# In the environment of the processes of one `working_dir`. Ray, which would copy the directory, starts others for each.
WORKING_DIR = "RUNTIME_WORKING_DIR"


class Raised(Exception):
    """User code has raised; Ray carries this to the caller, who gets `failure.error()`."""

    def __init__(self, failure: RemoteFailure):
        super().__init__(failure)
        self.failure = failure

    def __str__(self):
        return self.failure.text()


class RaisedAgain(Raised):
    """The same, and the task's options ask for another attempt."""


class TaskExited(Exception):
    """A task has raised SystemExit; the text says which, and how."""


class ActorExited(Exception):
    """An actor has ended by itself; the text says in which call, and how."""


@dataclass(frozen=True, slots=True)
class Session:
    """A driver's session, as worker processes know it.

    Attributes:
        id: id of the session.
        preload: names of modules that are imported before the first user code of a process.
        path: entries of the driver's sys.path; the ones that exist here are searched, too.
        make_engine: session -> engine of a worker process.
    """

    id: str
    preload: tuple[str, ...]
    path: tuple[str, ...]
    make_engine: Callable[[Session], Engine]


@dataclass(frozen=True, slots=True)
class Shipment:
    """A user's function or class as Ray exports it to the workers, once for each process that submits it.

    Attributes:
        session: of the driver.
        digest, data: of the definition; see Definition.pickled.
        name: for messages.
    """

    session: Session
    digest: bytes
    data: bytes
    name: str


class Here(NamedTuple):
    """The call that runs in this thread, or in this task of an event loop.

    Attributes:
        name: name of the task or actor; None in the driver and in threads of user code.
        resources: that it holds, by name.
    """

    name: str | None = None
    resources: dict[str, float] = {}  # noqa: RUF012 - never changed in place


here: ContextVar[Here] = ContextVar("here", default=Here())  # noqa: B039 - the same
_loaded: dict[bytes, object] = {}  # digest, or pickled options, -> object


def task_function(shipment: Shipment, options: bytes, streams: bool):
    """A function that Ray runs as a task, with the arguments of `_arguments`.

    Args:
        options: pickled by `values.dumps`.
        streams: Ray wants a generator function.
    """

    def run(packed=None, *values):
        return _run_task(shipment, options, packed, values)

    def stream(packed=None, *values):
        yield from _run_task(shipment, options, packed, values)

    run = stream if streams else run
    run.__name__ = run.__qualname__ = shipment.name
    return run


def actor_class(shipment: Shipment, asynchronous: bool) -> type:
    """A class that Ray makes an actor of; `asynchronous`: with an event loop."""
    base = AsyncInstance if asynchronous else Instance
    return type(shipment.name, (base,), {"shipment": shipment, "__module__": __name__})


def _run_task(shipment, pickled_options, packed, values):
    _enter(shipment.session)
    options: TaskOptions = _load(pickled_options, pickled_options)
    name = options.name or shipment.name
    running = UserCode(name, options.request(), f"task {name}()", TaskExited, options.retries_on)
    with running:
        function = _load(shipment.digest, shipment.data)
        args, kwargs = _arguments(packed, values)
        return _results(function(*args, **kwargs), options.returns, f"{name}()", running)


class Retried(NamedTuple):
    """Names a method whose call Ray is to make again after certain exceptions of user code.

    Attributes:
        name: name of the method.
        exceptions: MethodOptions.retry_exceptions, pickled by `values.dumps`.
    """

    name: str
    exceptions: bytes


class Instance:
    """An actor: the user's instance, or the reason why there is none any more.

    Args:
        options: pickled by `values.dumps`.
        packed, values: see `_arguments`.
    """

    shipment: Shipment
    current: Instance  # of this process

    def __init__(self, options: bytes, packed: bytes | Packed | None = None, *values):
        _enter(self.shipment.session)
        Instance.current = self
        self._options: ActorOptions = loads(options)
        options = self._options
        self._label, self._held = options.label or options.name or self.shipment.name, options.held()
        self._methods, self._instance, self._ended = {}, None, None
        with self._running(f"the constructor of actor {self._label}"):
            args, kwargs = _arguments(packed, values)
            self._instance = _load(self.shipment.digest, self.shipment.data)(*args, **kwargs)

    def call(self, method: str | Retried, returns: int, packed: bytes | Packed | None = None, *values):
        """Calls a method of the user's instance."""
        function, what, running = self._called(method)
        with running:
            args, kwargs = _arguments(packed, values)
            return _results(function(*args, **kwargs), returns, what, running)

    def _called(self, method):
        """The user's function, what to call it in messages, and the context of the call."""
        if self._ended is not None:
            raise ActorExited(self._ended)
        retries_on = _never
        if type(method) is Retried:
            retries_on = functools.partial(worth_retrying, _load(method.exceptions, method.exceptions))
            method = method.name
        what = f"{self._label}.{method}()"
        running = self._running(f"actor method {what}", retries_on)
        function = self._methods.get(method)
        if function is None:
            with running:
                function = self._methods[method] = find_method(self._instance, method)
        return function, what, running

    def describe(self):
        """State for making a further handle: the name of the class, and its methods."""
        cls = _load(self.shipment.digest, self.shipment.data)
        return encode((self.shipment.name, ClassDefinition(cls).methods_of(self._options)))

    def stream(self, *call):
        """The same for what Ray wants of a generator function."""
        yield from self.call(*call)

    def _running(self, what, retries_on=None):
        return UserCode(self._label, self._held, what, self._exit, retries_on or _never)

    def _exit(self, text):
        """The actor ends after the calls that it has got; those see the text."""
        if self._instance is not None:  # else it ends with its constructor
            self._methods, self._instance, self._ended = {}, None, text
            handle = ray.get_runtime_context().current_actor  # Ray's methods do not hold it
            handle.__ray_terminate__.remote()
        return ActorExited(text)


class AsyncInstance(Instance):
    """An actor with coroutine methods. All its methods run on Ray's event loop, as in Ray."""

    async def call(self, method: str | Retried, returns: int, packed: bytes | Packed | None = None, *values):
        """See Instance."""
        value, what, running = await self._value(method, packed, values)
        with running:
            if inspect.isasyncgen(value):
                value = [part async for part in value]
            return _results(value, returns, what, running)

    async def stream(self, method: str | Retried, returns: int, packed: bytes | Packed | None = None, *values):
        """See Instance."""
        value, what, running = await self._value(method, packed, values)
        if not inspect.isasyncgen(value):
            with running:
                parts = _results(value, returns, what, running)
            for part in parts:
                yield part
            return
        while True:
            with running:
                try:
                    part = _encode_result(await anext(value), what)
                except StopAsyncIteration:
                    return
            yield part

    async def _value(self, method, packed, values):
        """Result of the user's function, its name for messages, and the context of the call."""
        function, what, running = self._called(method)
        with running:
            args, kwargs = _arguments(packed, values)
            value = function(*args, **kwargs)
            return await value if inspect.iscoroutine(value) else value, what, running


class UserCode:
    """Around user code: its context, and what becomes of its exceptions.

    Args:
        name, resources: see Here.
        what: "task f()", for messages.
        exited: text -> the exception that Ray carries to the caller after a SystemExit.
        retries_on: exception -> whether Ray is to try again.
    """

    __slots__ = ("exited", "here", "retries_on", "token", "what")

    def __init__(self, name, resources, what, exited, retries_on):
        self.here, self.what, self.exited, self.retries_on = Here(name, resources), what, exited, retries_on

    def __enter__(self):
        self.token = here.set(self.here)

    def __exit__(self, kind, error, traceback):
        here.reset(self.token)
        if error is None or isinstance(error, KeyboardInterrupt | asyncio.CancelledError):  # Ray cancels by them
            return
        if isinstance(error, SystemExit):
            raise self.exited(f"{self.what} {describe_exit(error)}") from None
        raised = RaisedAgain if self.retries_on(error) else Raised
        raise raised(describe_exception(error, f"{self.what} in process {os.getpid()}")) from None


def _never(error):
    return False


def _enter(session: Session) -> None:
    """Makes this process one of the session."""
    if context.current_engine() is None:
        if directory := os.environ.get(WORKING_DIR):
            os.chdir(directory)
            sys.path.insert(0, directory)
        sys.path += [entry for entry in session.path if entry not in sys.path and os.path.exists(entry)]
        context.set_engine(session.make_engine(session))
        for name in session.preload:
            importlib.import_module(name)


def _load(key, data):
    if key not in _loaded:
        _loaded[key] = loads(data)
    return _loaded[key]


def _arguments(packed, values) -> tuple[tuple, dict]:
    """The arguments of a call.

    Args:
        packed: (args, kwargs) encoded, with an `Argument` where a reference stood; None: there are none.
        values: of the references, encoded.
    """
    if packed is None:
        return (), {}
    args, kwargs = decode(packed)
    if values:
        args = [decode(values[a.index]) if type(a) is Argument else a for a in args]
        kwargs = {name: decode(values[a.index]) if type(a) is Argument else a for name, a in kwargs.items()}
    return args, kwargs


def _results(value, returns, name, running):
    """Results of a call, as Ray gets them; see options.return_code."""
    if returns == 1:
        return _encode_result(value, name)
    if returns >= DYNAMIC:
        return _yielded(iterate(value, name), name, running)
    parts = [_encode_result(part, name) for part in split_returns(value, returns, name)]
    return tuple(parts) if parts else encode(None)


def _yielded(iterator, name, running):
    """Yields the values of a generator, encoded."""
    while True:
        with running:
            try:
                part = _encode_result(next(iterator), name)
            except StopIteration:
                return
        yield part


def _encode_result(value, name):
    try:
        return encode(value)
    except Exception as error:
        refuse(value, f"the result of {name}", error, dumps)
