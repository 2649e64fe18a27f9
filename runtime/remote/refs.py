"""`ObjectRef`, the promise of a value that a task, an actor call or `put` will give; errors that were never raised."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Generator
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .. import context
from ..errors import SessionClosedError
from .absent import advice

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

T_co = TypeVar("T_co", covariant=True)


class SessionBound:
    """Base of objects that mean something only inside one session: references, and handles of actors.

    A copy is the thing itself. In arguments, results and stored values the engine's own pickler carries it. Any other
    pickle (of a dict of settings, say) has its id: unpickled in a process of the session it represents the same value
    or actor again. That moment is unknown, so the process that pickled it holds the value, or keeps the
    actor, until it ends or the session does. Unpickled elsewhere it can be looked at, and refuses to be used.
    """

    __slots__ = ()

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self


class _RefType(type):
    """Class of ObjectRef, whose own attributes are explained as those of its references are."""

    def __getattr__(cls, name: str) -> Any:
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}{advice(name)}")


class ObjectRef(SessionBound, Generic[T_co], metaclass=_RefType):
    """A reference to one value of the session. Engines subclass it; users only pass it on, `get` it or `wait` for it.

    A subclass has attributes `id` (bytes, unique within the session) and `engine`. Two references to the same value are
    equal. `ObjectRef[float]` is one to a number, for type checkers.
    """

    __slots__ = ()

    id: bytes

    @property
    def session_id(self) -> str:
        """The session that it belongs to."""
        return self.engine.session_id

    def binary(self) -> bytes:
        """The id."""
        return self.id

    def hex(self) -> str:
        """The id in hexadecimal, for messages."""
        return self.id.hex()

    def is_nil(self) -> bool:
        """False, since each reference is one to a value."""
        return False

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice(name)}")

    def future(self) -> Future[T_co]:
        """A future that gets the value or the error. One thread of this process serves all futures.

        It runs their callbacks too: none should wait for another future.

        Raises:
            SessionClosedError: there is no session.
        """
        return _FUTURES.future_of(self, self._current_engine())

    def __await__(self) -> Generator[Any, None, T_co]:
        engine = self._current_engine()
        yield from until_done(self, engine)
        return engine.get([self], None)[0]

    def _current_engine(self):
        engine = context.current_engine()
        if engine is None:
            raise SessionClosedError(f"{self!r} belongs to a session that has been shut down")
        return engine

    def __eq__(self, other):
        if self is other:
            return True
        # Sessions give the same ids.
        return isinstance(other, ObjectRef) and self.id == other.id and self.session_id == other.session_id

    def __hash__(self):
        return hash(self.id)

    def __repr__(self):
        return f"ObjectRef({self.hex()})"

    def __reduce_ex__(self, protocol):
        return _restored, (self.engine.export_reference(self), self.id)

    def __iter__(self):
        raise TypeError(f"{self!r} is a reference, not its value. Use runtime.get(ref), or num_returns for several.")


class Futures:
    """Gives futures the values of references, in one thread that lives while some are pending."""

    def __init__(self):
        self._done: SimpleQueue = SimpleQueue()
        self._pending, self._lock = 0, threading.Lock()

    def future_of(self, ref: ObjectRef, engine) -> Future:
        """See ObjectRef.future."""
        from concurrent.futures import Future

        future = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            engine.when_done(ref, functools.partial(self._done.put, (future, ref, engine)))
            if not self._pending:
                threading.Thread(target=self._serve, name="runtime-futures", daemon=True).start()
            self._pending += 1
        return future

    def _serve(self):
        left = True
        while left:
            future, ref, engine = self._done.get()
            try:
                future.set_result(engine.get([ref], None)[0])
            except BaseException as error:
                future.set_exception(error)
            future = ref = engine = None
            with self._lock:
                self._pending -= 1
                left = self._pending


_FUTURES = Futures()


def until_done(ref: ObjectRef, engine) -> asyncio.Future:
    """A future of the running event loop that is done when a reference is; the value is not looked at.

    No thread waits: an event loop's own are few, and the loop would not end before them.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def wake():
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(_set, done)

    engine.when_done(ref, wake)
    return done


def _set(future):
    if not future.done():  # the coroutine that waits may have been cancelled
        future.set_result(None)


class ForeignRef(ObjectRef):
    """A reference that was unpickled outside its session; every use of it raises SessionClosedError."""

    __slots__ = ("id", "session_id")

    def __init__(self, session_id: str, id_: bytes):
        self.session_id, self.id = session_id, id_

    def __reduce_ex__(self, protocol):
        return _restored, (self.session_id, self.id)


def _restored(session_id, id_):
    engine = context.engine_of(session_id)
    return ForeignRef(session_id, id_) if engine is None else engine.find_reference(id_)


class Unseen:
    """An error that was not raised yet, held by all that could raise it: references, a failed actor, dependents.

    When the last of them has gone and `seen()` was not called, the error would be lost: then it is reported, once.

    Args:
        report: called without arguments, in whichever thread and at whatever moment.
    """

    __slots__ = ("_report",)

    def __init__(self, report: Callable[[], None]):
        self._report: Callable[[], None] | None = report

    def seen(self) -> None:
        """Marks an error that a caller receives, or may receive where this process cannot know."""
        self._report = None

    def __del__(self):
        if self._report is not None:
            self._report()
