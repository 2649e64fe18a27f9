"""`ObjectRef`, the promise of a value that a task, an actor call or `put` will give; errors that were never raised."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import context
from .errors import SessionClosedError

if TYPE_CHECKING:
    from concurrent.futures import Future

T_co = TypeVar("T_co", covariant=True)


class SessionBound:
    """What has a meaning only inside one session: references, and handles of actors.

    A copy is the thing itself. In arguments, results and stored values the engine's own pickler carries it. Any other
    pickle (of a dict of settings, say) has its id: unpickled in a process of the session it stands for the same value
    or actor again. Nobody can know when that will be, so the process that pickled it holds the value, or keeps the
    actor, until it ends or the session does. Unpickled elsewhere it can be looked at, and refuses to be used.
    """

    __slots__ = ()

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self


class ObjectRef(SessionBound, Generic[T_co]):
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

    def future(self) -> Future[T_co]:
        """A future that gets the value or the error. A thread waits for it: for a few references, not for thousands.

        Raises:
            SessionClosedError: there is no session.
        """
        from concurrent.futures import Future

        future, engine = Future(), context.current_engine()
        if engine is None:
            raise SessionClosedError(f"{self!r} belongs to a session that has been shut down")

        def wait():
            try:
                future.set_result(engine.get([self], None)[0])
            except BaseException as error:
                future.set_exception(error)

        future.set_running_or_notify_cancel()
        threading.Thread(target=wait, name="runtime-future", daemon=True).start()
        return future

    def __await__(self) -> Generator[Any, None, T_co]:
        import asyncio

        return asyncio.wrap_future(self.future()).__await__()

    def __eq__(self, other):
        return self is other or (isinstance(other, ObjectRef) and self.id == other.id)

    def __hash__(self):
        return hash(self.id)

    def __repr__(self):
        return f"ObjectRef({self.hex()})"

    def __reduce_ex__(self, protocol):
        return _restored, (self.engine.export_reference(self), self.id)

    def __iter__(self):
        raise TypeError(f"{self!r} is a reference, not its value. Use runtime.get(ref), or num_returns for several.")


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
        """Somebody gets the error, or may get it where this process cannot know."""
        self._report = None

    def __del__(self):
        if self._report is not None:
            self._report()
