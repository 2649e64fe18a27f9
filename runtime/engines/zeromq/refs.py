"""References and actor channels: what a client knows about values and actors."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from ...refs import ObjectRef
from . import wire
from .mailbox import Waiter
from .serializer import Encoded
from .store import Hold


class Sharing:
    """What only references need that are known to several processes.

    Attributes:
        hold: this process's share.
        subscribed: whether the node was asked for the value.
    """

    __slots__ = ("hold", "subscribed")

    def __init__(self, hold: Hold):
        self.hold, self.subscribed = hold, False


class Reference(ObjectRef):
    """A reference in this process.

    Attributes:
        client: the engine.
        owner, serial: its id.
        frame, start: where the value is; frame is None while it is pending.
        pins: what keeps the value's items alive.
        waiters: called when the value comes; None if there are none.
        shared: None until another process knows of it.
    """

    __slots__ = ("__weakref__", "client", "frame", "owner", "pins", "serial", "shared", "start", "waiters")

    def __init__(self, client, owner, serial):
        self.client, self.owner, self.serial = client, owner, serial
        self.frame = self.waiters = self.shared = None
        self.pins = ()

    @property
    def id(self) -> bytes:
        return wire.key(self.serial, self.owner)

    __eq__ = object.__eq__  # one object per id in a process (see Client._find_reference)
    __hash__ = object.__hash__

    def settle(self, frame: bytes, start: int, pins: tuple = ()) -> None:
        """The value has come. The client's lock is held."""
        self.pins, self.start = pins, start
        self.frame = frame
        if self.waiters is not None:
            waiters, self.waiters = self.waiters, None
            for waiter in waiters:
                waiter()
        if self.client.watches:
            for watch in self.client.watches:
                watch.see(self)

    def when_done(self, waiter) -> bool:
        """Has `waiter()` called when the value comes; False if it is there. The client's lock is held."""
        if self.frame is not None:
            return False
        if self.waiters is None:
            self.waiters = [waiter]
        else:
            self.waiters.append(waiter)
        return True

    def watch(self, event: threading.Event) -> None:
        """Sets an event when the value comes (see Mailbox.wait)."""
        with self.client.mailbox.lock:
            if not self.when_done(event.set):
                event.set()

    @property
    def failed(self) -> bool:
        """Whether the value is an error."""
        return bool(self.frame[self.start] & wire.ERROR)

    def value_bytes(self) -> bytes:
        """The value as it is passed on."""
        size = wire.VALUE.unpack_from(self.frame, self.start)[5]
        return self.frame[self.start : self.start + size]


class Watch(Waiter):
    """What `wait` waits for: so many of a set of references."""

    __slots__ = ("refs",)

    def see(self, ref: Reference) -> None:
        """A reference, of the set or not, is done."""
        if ref in self.refs:
            self.refs.discard(ref)
            self.tick()


class Call(NamedTuple):
    """A call that waits in an outbox.

    Attributes:
        serial: of its first result.
        refs: where its results go.
        start: its frame up to the values.
        arguments: the encoded (args, kwargs), and the references among them that stand for their values.
    """

    serial: int
    refs: tuple | Reference
    start: bytes
    arguments: tuple[Encoded, tuple[Reference, ...]]


class Channel:
    """The way from this process to one actor.

    Calls go out in the order they were made. At most WINDOW are on their way; the others, and those made before the
    actor lives, wait in the outbox. A call whose arguments are pending stops those behind it.

    Attributes:
        process: where the actor lives, 0 before and after.
        error: once it has ended: the value (an error) that calls get.
        pending: serial -> references of the calls on their way.
        handles: handles in this process; the first is counted before it exists (`fresh`).
        hold: this process's share in the actor.
    """

    __slots__ = ("error", "fresh", "handles", "hold", "key", "outbox", "pending", "process")

    WINDOW = 512

    def __init__(self, key: bytes):
        self.key = key
        self.process, self.handles, self.fresh = 0, 1, True
        self.error: bytes | None = None
        self.hold: Hold | None = None
        self.pending: dict[int, tuple | Reference] = {}
        self.outbox: deque[Call] = deque()

    @property
    def idle(self) -> bool:
        """Nothing waits for it: with the last handle it may go."""
        return not self.pending and not self.outbox
