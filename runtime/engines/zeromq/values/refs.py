"""References: what a process knows about values."""

from __future__ import annotations

import functools
import logging
import threading
from collections import deque
from collections.abc import Callable

from ....remote.refs import ObjectRef, Unseen
from ..transport import packed, wire
from ..transport.mailbox import Mailbox, Waiter

logger = logging.getLogger("runtime")

SERIAL_STEP = 2**16  # results of one call have consecutive serials
LARGEST_NUM_RETURNS = SERIAL_STEP


class Reference(ObjectRef):
    """A reference in this process.

    Attributes:
        engine: the client.
        owner, serial: its id.
        frame, start: where the value is; frame is None while it is pending.
        value: the value itself where frame is packed.PLACEHOLDER.
        pins: what keeps the value's items alive; of an error, the `Unseen` that reports it.
        waiters: called when the value comes; None if there are none.
        hold: this process's share, None until another process knows of the reference.
        subscribed: whether the node was asked for the value; only with a hold.
    """

    __slots__ = (
        *("__weakref__", "engine", "frame", "hold", "owner", "pins", "serial", "start", "subscribed", "value"),
        "waiters",
    )

    def __init__(self, engine, owner, serial):
        self.engine, self.owner, self.serial = engine, owner, serial
        self.frame = self.waiters = self.hold = None
        self.pins = ()

    @property
    def id(self) -> bytes:
        return wire.key(self.serial, self.owner)

    __eq__ = object.__eq__  # one object per id in a process (see LocalRefs.find_reference)
    __hash__ = object.__hash__

    def settle(self, frame: bytes, start: int, pins: tuple = ()) -> None:
        """The value has come. The mailbox's lock is held."""
        self.pins, self.start = pins, start
        self.frame = frame
        if self.waiters is not None:
            waiters, self.waiters = self.waiters, None
            self.engine.followers.call(waiters)
        if self.engine.watches:
            for watch in self.engine.watches:
                watch.see(self)

    def when_done(self, waiter) -> bool:
        """Has `waiter()` called when the value comes; False if it is there. The mailbox's lock is held."""
        if self.frame is not None:
            return False
        if self.waiters is None:
            self.waiters = [waiter]
        else:
            self.waiters.append(waiter)
        return True

    def watch(self, event: threading.Event) -> None:
        """Sets an event when the value comes (see Mailbox.wait)."""
        with self.engine.mailbox.lock:
            if not self.when_done(event.set):
                event.set()

    @property
    def failed(self) -> bool:
        """Whether the value is an error."""
        return bool(self.frame[self.start] & wire.ERROR)

    def error_seen(self) -> None:
        """Marks an error that a caller receives: it need not be reported."""
        for pin in self.pins:
            if type(pin) is Unseen:
                pin.seen()

    def value_bytes(self) -> bytes:
        """The value as it is passed on."""
        if self.frame is packed.PLACEHOLDER:
            return packed.value_bytes(self.value)
        size = wire.VALUE.unpack_from(self.frame, self.start)[5]
        return self.frame[self.start : self.start + size]


class Followers:
    """Calls what waits for values of references.

    A waiter may settle further references: an error settles all calls that need its value. Their waiters are queued
    and called afterwards, since such a chain may be longer than the stack.
    """

    def __init__(self):
        self._due: deque[Callable[[], None]] = deque()
        self._calling = False

    def call(self, waiters: list[Callable[[], None]]) -> None:
        """Calls the waiters, at once or, from within one, after it. The mailbox's lock is held."""
        self._due.extend(waiters)
        if self._calling:
            return
        self._calling = True
        try:
            while self._due:
                self._due.popleft()()
        finally:
            self._calling = False
            if self._due:  # one raised: the others are called all the same
                self.call([])


class Watch(Waiter):
    """The condition of `wait`: a number of references of a set are ready."""

    __slots__ = ("refs",)

    def see(self, ref: Reference) -> None:
        """A reference, of the set or not, is done."""
        if ref in self.refs:
            self.refs.discard(ref)
            self.tick()


class Arrivals(Waiter):
    """See engines.arrivals: each reference reports itself, so that the price of one does not depend on the others.

    Args:
        client: of this process.

    Attributes:
        refs: those that were neither given back nor discarded.
    """

    __slots__ = ("_client", "_done", "refs")

    def __init__(self, client):
        super().__init__()
        self._client, self.refs = client, set()
        self._done: deque[Reference] = deque()

    def __len__(self) -> int:
        return len(self.refs)

    def add(self, ref: Reference) -> None:
        """Adds a reference, which may be done already."""
        self._client.local_refs.check_own(ref)
        self.refs.add(ref)
        with self._client.mailbox.lock:
            if ref.frame is None and ref.hold is not None and not ref.subscribed:
                self._client.local_refs.subscribe(ref)
            if not ref.when_done(functools.partial(self._arrived, ref)):
                self._arrived(ref)

    def discard(self, ref: Reference) -> None:
        """Takes a reference out, if it is in."""
        self.refs.discard(ref)

    def _arrived(self, ref):
        """It is done. The mailbox's lock is held."""
        self._done.append(ref)
        self.tick()

    def take(self, timeout_s: float | None) -> list[Reference]:
        """Takes out those that are done; waits for the first one, `timeout_s` at most."""
        self._client.enter()
        if timeout_s != 0:
            self.count, self.frame = 1, None
            if not self._done:  # looked at afterwards: one may arrive meanwhile
                self._client.wait_for(self, timeout_s, self.refs, raising=False)
        self._client.mailbox.drain()
        done = []
        while self._done:
            ref = self._done.popleft()
            if ref in self.refs:
                self.refs.discard(ref)
                done.append(ref)
        return done


class UnseenErrors:
    """The errors of calls whose references are all gone before anybody got the error: each is logged once.

    Args:
        mailbox: its keeper logs them, unless an API call does it before.
        decode: (frame, start, pins) -> the error.
    """

    def __init__(self, mailbox: Mailbox, decode: Callable):
        self._mailbox, self._decode = mailbox, decode
        self._lost: deque[tuple[bytes, int]] = deque()

    def pin(self, frame: bytes, start: int) -> Unseen:
        """Values of the references of a call that got this error."""
        self._mailbox.start_keeper()
        return Unseen(functools.partial(self.lost, frame, start))

    def lost(self, frame: bytes, start: int) -> None:
        """Queues an error that no caller can receive any more, to be logged. Safe in any thread and in `__del__`."""
        self._lost.append((frame, start))
        self._mailbox.wake()

    def report(self) -> None:
        """Logs the errors that were lost. Without the lock: the user's logging handlers may call any API function."""
        while self._lost:
            try:
                frame, start = self._lost.popleft()
            except IndexError:  # another thread was quicker
                return
            logger.error("Unhandled error: %s", self._decode(frame, start, ()))
