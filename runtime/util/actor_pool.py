"""A pool of actors that work off a stream of calls, each busy with one at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ..api import get, wait
from ..errors import ActorDiedError, GetTimeoutError, TaskError
from ..remote.actors import ActorHandle
from ..remote.refs import ObjectRef

Call = Callable[[ActorHandle, object], ObjectRef | list[ObjectRef]]


class ActorPool:
    """Hands values to whichever of its actors is free.

        pool = ActorPool([Actor.remote() for _ in range(2)])
        list(pool.map(lambda actor, value: actor.double.remote(value), range(4)))  # [0, 2, 4, 6]

    A call that has ended is noticed, and its actor is free again, when a result is fetched. An actor that has died
    leaves the pool, unless it is the last one: then the calls that are left get its ActorDiedError.

    Args:
        actors: their handles.
    """

    def __init__(self, actors: Iterable[ActorHandle]):
        self._idle = list(actors)
        self._pending_submits: deque[tuple[int, Call, object]] = deque()  # no actor is free for them
        self._running: dict[ObjectRef, tuple[int, ActorHandle, object]] = {}  # by the last reference of their result
        self._open: dict[int, None] = {}  # numbers of the submissions whose results are to be fetched, in order
        self._finished: dict[int, Outcome] = {}  # in the order in which they ended
        self._submitted = 0

    def submit(self, call: Call, value) -> None:
        """Has `call(actor, value)` made as soon as an actor is free; at once if one is.

        Args:
            call: calls a method of the actor and returns the reference, or the list of references, that it gets.
            value: its second argument.

        Raises:
            TypeError: `call` returned something else.
            Whatever `call` raises.
        """
        self._open[self._submitted] = None
        self._pending_submits.append((self._submitted, call, value))
        self._submitted += 1
        self._start()

    def map(self, call: Call, values: Iterable) -> Iterator:
        """Submits all the values now, and gives their results in the order of the values.

        The results of earlier submissions that have not been fetched are dropped, as in Ray.
        """
        self._submit_all(call, values)
        return self._results(self.get_next)

    def map_unordered(self, call: Call, values: Iterable) -> Iterator:
        """Like `map`, with the results as they come."""
        self._submit_all(call, values)
        return self._results(self.get_next_unordered)

    def has_next(self) -> bool:
        """Whether results are to be fetched, now or later."""
        return bool(self._open)

    def has_free(self) -> bool:
        """Whether an actor is free and nothing waits for one."""
        return bool(self._idle) and not self._pending_submits

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False):
        """The result of the oldest submission that has not been fetched: a value, or a list of several.

        Args:
            timeout: seconds to wait at most; None: as long as it takes.
            ignore_if_timedout: a submission whose result is late is dropped; its call continues.

        Raises:
            GetTimeoutError: not there in time; unless it is dropped, it can be fetched later.
            StopIteration: nothing is left to fetch.
            RuntimeError: the pool has no actor.
            Any exception of the call; the actor continues with the next one.
        """
        number = self._oldest()
        if not self._progress(lambda: number in self._finished, timeout):
            if ignore_if_timedout:
                del self._open[number]
            raise GetTimeoutError(f"no result after {timeout:g} s")
        return self._take(number)

    def get_next_unordered(self, timeout: float | None = None, ignore_if_timedout: bool = False):
        """The result of any submission that has not been fetched; otherwise like `get_next`.

        Args:
            timeout: seconds to wait at most; None: as long as it takes.
            ignore_if_timedout: None is returned when there is no result in time, instead of the error.
        """
        self._oldest()
        if self._progress(lambda: self._finished, timeout):
            return self._take(next(iter(self._finished)))
        if ignore_if_timedout:
            return None
        raise GetTimeoutError(f"no result after {timeout:g} s")

    def push(self, actor: ActorHandle) -> None:
        """Adds an actor; a waiting submission goes to it at once.

        Raises:
            ValueError: it belongs to the pool already.
        """
        if actor in self._idle or any(actor == busy for _, busy, _ in self._running.values()):
            raise ValueError(f"{actor!r} belongs to this pool already")
        self._idle.append(actor)
        self._start()

    def pop_idle(self) -> ActorHandle | None:
        """Takes a free actor out of the pool; None if there is none, or a submission waits for it."""
        return self._idle.pop() if self.has_free() else None

    def _submit_all(self, call, values):
        self._open.clear()
        self._finished.clear()
        for value in values:
            self.submit(call, value)

    def _results(self, get_one):
        while self.has_next():
            yield get_one()

    def _oldest(self):
        if not self._open:
            raise StopIteration("nothing was submitted that has not been fetched")
        return next(iter(self._open))

    def _take(self, number):
        del self._open[number]
        outcome = self._finished.pop(number)
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def _progress(self, reached, timeout) -> bool:
        """Waits for calls to end, and gives their actors new ones, until `reached()`; whether that was in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not reached():
            if not self._running:
                raise RuntimeError("the pool has no actor for what was submitted; push() one")
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            done, _ = wait(list(self._running), timeout=left)
            if not done:
                return False
            for ref in done:
                self._end(ref)
            self._start()
        return True

    def _end(self, ref):
        """The call with this reference has ended."""
        number, actor, result = self._running[ref]
        outcome = _outcome(result)
        del self._running[ref]
        others = self._idle or self._running
        if not (outcome.actor_died and others):
            self._idle.append(actor)
        if number in self._open:
            self._finished[number] = outcome

    def _start(self):
        while self._idle and self._pending_submits:
            number, call, value = self._pending_submits.popleft()
            actor = self._idle.pop(0)
            try:
                result = call(actor, value)
                self._running[_last(result)] = number, actor, result
            except BaseException:
                self._idle.append(actor)
                self._open.pop(number, None)
                raise


class Outcome(NamedTuple):
    """Value or error of a call; `actor_died`: whether the error says that its own actor has died."""

    value: object = None
    error: Exception | None = None
    actor_died: bool = False


def _outcome(result) -> Outcome:
    try:
        return Outcome(get(result))
    except Exception as error:
        # A TaskError was raised by the method: it may be about another actor.
        return Outcome(error=error, actor_died=isinstance(error, ActorDiedError) and not isinstance(error, TaskError))


def _last(result) -> ObjectRef:
    """The reference that is done when the call has ended."""
    ref = result[-1] if isinstance(result, list | tuple) and result else result
    if not isinstance(ref, ObjectRef):
        raise TypeError(f"the call must return a reference or a list of them, as .remote() gives, got {result!r:.100}")
    return ref
