"""A fixed set of actors that work off a stream of calls, each busy with one at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from ..actors import ActorHandle
from ..api import get, wait
from ..errors import GetTimeoutError
from ..refs import ObjectRef

Call = Callable[[ActorHandle, object], ObjectRef]


class ActorPool:
    """Hands values to whichever of its actors is free.

        pool = ActorPool([Actor.remote() for _ in range(2)])
        list(pool.map(lambda actor, value: actor.double.remote(value), range(4)))  # [0, 2, 4, 6]

    Args:
        actors: their handles.

    Raises:
        ValueError: there are none.
    """

    def __init__(self, actors: Iterable[ActorHandle]):
        self._idle = list(actors)
        if not self._idle:
            raise ValueError("ActorPool needs at least one actor")
        self._waiting: deque[tuple[int, Call, object]] = deque()  # submitted, but no actor is free
        self._running: dict[ObjectRef, tuple[int, ActorHandle]] = {}
        self._finished: dict[int, ObjectRef] = {}  # number of the submission -> its result, until it is fetched
        self._submitted = self._fetched = 0

    def submit(self, call: Call, value) -> None:
        """Has `call(actor, value)` made as soon as an actor is free."""
        self._waiting.append((self._submitted, call, value))
        self._submitted += 1
        self._start()

    def map(self, call: Call, values: Iterable) -> Iterator:
        """The results of all the values, in their order."""
        for value in values:
            self.submit(call, value)
        while self.has_next():
            yield self.get_next()

    def map_unordered(self, call: Call, values: Iterable) -> Iterator:
        """The results of all the values, as they come."""
        for value in values:
            self.submit(call, value)
        while self.has_next():
            yield self.get_next_unordered()

    def has_next(self) -> bool:
        """Whether results are to be fetched, now or later."""
        return bool(self._waiting or self._running or self._finished)

    def has_free(self) -> bool:
        """Whether an actor is free."""
        return bool(self._idle)

    def get_next(self, timeout: float | None = None):
        """The result of the oldest submission that has not been fetched.

        Args:
            timeout: seconds to wait at most; None: as long as it takes.

        Raises:
            GetTimeoutError: not there in time; it can be fetched later.
            LookupError: nothing is left to fetch.
            Whatever the call raised; the actor goes on with the next one.
        """
        self._progress(lambda: self._fetched in self._finished, timeout)
        return self._take(self._fetched)

    def get_next_unordered(self, timeout: float | None = None):
        """The result of any submission that has not been fetched; otherwise like `get_next`."""
        self._progress(lambda: self._finished, timeout)
        return self._take(next(iter(self._finished)))

    def _take(self, number):
        ref = self._finished.pop(number)
        while self._fetched < self._submitted and not self._is_open(self._fetched):
            self._fetched += 1
        return get(ref)

    def _is_open(self, number) -> bool:
        return (
            number in self._finished
            or any(number == other for other, _ in self._running.values())
            or any(number == other for other, _, _ in self._waiting)
        )

    def _progress(self, reached, timeout):
        """Waits for calls to end, and gives their actors new ones, until `reached()`."""
        if not self.has_next():
            raise LookupError("nothing was submitted that has not been fetched")
        deadline = None if timeout is None else time.monotonic() + timeout
        while not reached():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            done, _ = wait(list(self._running), timeout=left)
            if not done:
                raise GetTimeoutError(f"no result after {timeout:g} s")
            for ref in done:
                number, actor = self._running.pop(ref)
                self._finished[number] = ref
                self._idle.append(actor)
            self._start()

    def _start(self):
        while self._idle and self._waiting:
            number, call, value = self._waiting.popleft()
            actor = self._idle.pop(0)
            self._running[call(actor, value)] = number, actor
