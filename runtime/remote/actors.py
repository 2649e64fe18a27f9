"""Remote classes, the handles of their instances, and the methods of those."""

from __future__ import annotations

import contextlib
import difflib
import functools
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from .. import context
from ..calls.options import STREAMING, ActorOptions, MethodOptions, check_name, return_code, updated
from ..calls.signatures import Signature
from ..engines.base import Engine
from ..engines.definitions import METHOD_OPTIONS, ActorExit, CallOptions, ClassDefinition, Method
from ..errors import SessionClosedError
from ..session import engine
from .absent import advice
from .functions import Remote
from .generators import returned
from .refs import SessionBound

F = TypeVar("F", bound=Callable)


def method(**options) -> Callable[[F], F]:
    """Decorates a method of a remote class: `@method(num_returns=2)`.

    Args:
        options: see `options.MethodOptions`.

    Raises:
        TypeError: it is written without options.
    """
    if not options:
        raise TypeError("method() has no options; write @method(num_returns=2), or leave the decorator out")
    checked = updated(MethodOptions(), options)

    def decorate(function):
        setattr(function, METHOD_OPTIONS, checked)
        return function

    return decorate


def exit_actor() -> NoReturn:
    """Ends the actor in whose method it is called. That call, and those after it, get ActorDiedError.

    Raises:
        TypeError: it is not called in an actor.
    """
    current = context.current_engine()
    if current is None or current.context().actor_id is None:
        raise TypeError("exit_actor() ends the actor in whose method it is called; this is not an actor")
    raise ActorExit("called exit_actor()")


def get_actor(name: str, namespace: str | None = None) -> ActorHandle:
    """A handle of the living actor that was created with this name, `.options(name=...)`. It keeps the actor alive.

    Args:
        name: name of the actor.
        namespace: namespace of the name; None: the session's (`init(namespace=...)`).

    Raises:
        ValueError: there is none; an empty name.
        TypeError: not a string.
    """
    if check_name("name", name) is None:
        raise TypeError("get_actor() takes the name of an actor, got None")
    current = engine()
    try:
        return _find(current, name, check_name("namespace", namespace))
    except LookupError:
        namespace = namespace or current.context().namespace
        names = [name for space, name in current.list_named_actors() if space == namespace]
        raise ValueError(
            f"there is no living actor with the name {name!r} in the namespace {namespace!r}; those with a name there: "
            f"{', '.join(map(repr, names)) or 'none'}. An actor has the name and the namespace that it was created "
            "with: .options(name=..., namespace=...)"
        ) from None


def list_named_actors(all_namespaces: bool = False) -> list[str] | list[dict[str, str]]:
    """The names of the living actors that were created with one.

    Args:
        all_namespaces: of all namespaces instead of the session's alone.

    Returns:
        The names; with all_namespaces a dict {"namespace": ..., "name": ...} for each.
    """
    current = engine()
    named = current.list_named_actors()
    if all_namespaces:
        return [{"namespace": namespace, "name": name} for namespace, name in named]
    own = current.context().namespace
    return [name for namespace, name in named if namespace == own]


def _find(current, name, namespace):
    actor_id, class_name, methods = current.get_actor(name, namespace)
    return ActorHandle(Lease(current, actor_id), class_name, methods)


class RemoteClass(Remote):
    """A class whose instances are actors: `Counter.remote(...)` starts one and gives its handle."""

    _definition_type = ClassDefinition

    def __init__(self, cls: type, options: ActorOptions):
        super().__init__(cls, options)
        _ = self._definition.methods  # raises here if one is invalid

    def remote(self, *args, **kwargs) -> ActorHandle:
        """Starts an actor: an instance in another process, made with these arguments.

        The handle can be used at once. If the constructor fails, the first call says so.

        Raises:
            TypeError: the arguments do not fit the constructor, or one cannot be pickled.
            ValueError: a living actor has the name; a method is in a concurrency group that the options do not name.
            UnschedulableError: it asks for more than the session has.
        """
        definition, options, current = self._definition, self._options, engine()
        definition.check_arguments(args, kwargs)
        methods = definition.methods_of(options)
        if options.get_if_exists and options.name is None:
            raise ValueError("get_if_exists=True needs a name: .options(name=..., get_if_exists=True)")
        actor_id = current.create_actor(definition, args, kwargs, options)
        handle = ActorHandle(Lease(current, actor_id), definition.name, methods)
        if options.get_if_exists:  # it may be an older one, of another class
            with contextlib.suppress(LookupError):
                return _find(current, options.name, options.namespace)
        return handle

    def __call__(self, *args, **kwargs):
        name = self._definition.name
        raise TypeError(f"{name} is a remote class and cannot be instantiated directly: use {name}.remote(...)")

    def __getattr__(self, name: str) -> Any:
        # Class attributes and static methods, for code that names the class: Counter.LIMIT, Counter.parse(text).
        if name[:2] == "__" or "_definition" not in self.__dict__:
            raise AttributeError(f"a remote class has no attribute {name!r}{advice(name)}")
        try:
            return getattr(self._definition.target, name)
        except AttributeError:
            raise AttributeError(
                f"the remote class {self._definition.name} has no attribute {name!r}{advice(name)}"
            ) from None

    def __mro_entries__(self, bases):
        raise TypeError(f"{self._definition.name} is a remote class: derive from the class as it was before @remote")


class Lease:
    """One handle's share in the life of an actor, counted by the engine; the handle and its methods hold it.

    Args:
        engine: the engine of the session.
        actor_id: the actor.
    """

    __slots__ = ("actor_id", "engine")

    def __init__(self, engine: Engine, actor_id: bytes):
        self.engine, self.actor_id = engine, actor_id
        engine.handle_added(actor_id)

    def __del__(self):
        if hasattr(self, "actor_id"):
            self.engine.handle_dropped(self.actor_id)


class ActorHandle(SessionBound):
    """The way to an actor: `handle.method.remote(...)`. The actor ends when its last handle is gone.

    Methods are cached as attributes on first use, so that a call costs no lookup.
    """

    def __init__(self, lease: Lease, class_name: str, methods: dict[str, Method]):
        self._lease, self._class_name, self._methods = lease, class_name, methods

    def __getattr__(self, name: str) -> ActorMethod:
        methods = self.__dict__.get("_methods", {})
        if name not in methods:
            raise AttributeError(self._no_method(name, methods))
        bound = self.__dict__[name] = ActorMethod(self._lease, self._class_name, name, methods[name])
        return bound

    def _no_method(self, name, methods) -> str:
        if instead := advice(name):
            return f"an actor's handle has no attribute {name!r}{instead}"
        nearest = difflib.get_close_matches(name, methods, n=1, cutoff=0.5)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        known = ", ".join(m for m in sorted(methods) if not m.startswith("_")) or "none"
        return (
            f"the actor {self.__dict__.get('_class_name')} has no method {name!r}.{hint} Its methods: {known}. "
            "An attribute of an actor is reached by a method that returns it."
        )

    def __dir__(self):
        return [*super().__dir__(), *self._methods]

    def __eq__(self, other):
        if not isinstance(other, ActorHandle) or self._lease.actor_id != other._lease.actor_id:
            return False
        return handle_session(self) == handle_session(other)  # sessions give the same ids

    def __hash__(self):
        return hash(self._lease.actor_id)

    def __repr__(self):
        return f"ActorHandle({self._class_name}, {self._lease.actor_id.hex()})"

    def __reduce_ex__(self, protocol):
        lease = self._lease
        return _restored, (lease.engine.export_actor(lease), *handle_state(self))


class ActorMethod:
    """A method of an actor; `.remote(...)` calls it."""

    __slots__ = (
        *("_actor_id", "_call", "_class_name", "_fitting", "_lease"),
        *("_method", "_name", "_num_returns", "_signature"),
    )

    def __init__(self, lease: Lease, class_name: str, name: str, method: Method):
        self._lease, self._class_name, self._name, self._method = lease, class_name, name, method
        self._signature = Signature(f"{class_name}.{name}", method.parameters)
        # What a call needs, one lookup away.
        self._fitting, self._num_returns = self._signature.fitting, method.num_returns
        self._call, self._actor_id = lease.engine.call, lease.actor_id
        if method.options is not None:
            self._call = functools.partial(self._call, options=method.options)

    def remote(self, *args, **kwargs) -> Any:
        """Calls the method with these arguments; calls from one process run in the order they were made.

        Returns:
            A reference to the result; a list of them if num_returns > 1; None if num_returns == 0; an
            ObjectRefGenerator for a generator.

        Raises:
            TypeError: the arguments do not fit the method, or one cannot be pickled.
            PendingCallsLimitExceeded: the actor has max_pending_calls, and as many calls of this process wait.
        """
        if ((len(args), *kwargs) if kwargs else len(args)) not in self._fitting:
            self._signature.check(args, kwargs)
        num_returns = self._num_returns
        refs = self._call(self._actor_id, self._name, args, kwargs, num_returns)
        return refs[0] if num_returns == 1 else returned(refs, num_returns)

    def options(self, **given) -> ActorMethod:
        """The same method with other options, e.g. `counter.add.options(num_returns=2).remote()`."""
        checked, num_returns = updated(MethodOptions(), given), self._num_returns
        if "num_returns" in given or "_generator_backpressure_num_objects" in given:
            before = "streaming" if num_returns >= STREAMING else num_returns
            num_returns = return_code(
                before if checked.num_returns is None else checked.num_returns,
                checked._generator_backpressure_num_objects,
            )
        options = (self._method.options or CallOptions()).updated(checked, f"{self._class_name}.{self._name}")
        method = Method(num_returns, self._method.parameters, options)
        return ActorMethod(self._lease, self._class_name, self._name, method)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"'ActorMethod' object has no attribute {name!r}{advice(name)}")

    def __call__(self, *args, **kwargs):
        label = f"{self._class_name}.{self._name}"
        raise TypeError(f"{label} is a method of an actor: use handle.{self._name}.remote(...)")

    def __repr__(self):
        return f"ActorMethod({self._class_name}.{self._name})"

    def __reduce__(self):
        handle = ActorHandle(self._lease, self._class_name, {self._name: self._method})
        return getattr, (handle, self._name)


def handle_state(handle: ActorHandle) -> tuple[bytes, str, dict[str, Method]]:
    """State that an engine's pickler writes for a handle: actor id, class name, methods."""
    return handle._lease.actor_id, handle._class_name, handle._methods


def handle_session(handle: ActorHandle) -> str:
    """The id of the session that its actor belongs to."""
    return handle._lease.engine.session_id


def handle_from_state(actor_id: bytes, class_name: str, methods: dict[str, Method]) -> ActorHandle:
    """A further handle, made where a message is unpickled."""
    return ActorHandle(Lease(context.current_engine(), actor_id), class_name, methods)


class ForeignSession:
    """Engine of a handle that was unpickled outside its session."""

    def __init__(self, session_id: str):
        self.session_id = session_id

    def handle_added(self, actor_id):
        """See base.Engine."""

    handle_dropped = handle_added

    def call(self, *args, **options):
        """Raises, as every API function does on such a handle."""
        raise SessionClosedError("this handle was unpickled outside the session of its actor")

    kill = call

    def export_actor(self, lease) -> str:
        """See base.Engine."""
        return self.session_id


def _restored(session_id, actor_id, class_name, methods):
    engine = context.engine_of(session_id)
    if engine is None:
        engine = ForeignSession(session_id)
    else:
        engine.find_actor(actor_id)
    return ActorHandle(Lease(engine, actor_id), class_name, methods)
