"""References: what a client knows about values."""

from __future__ import annotations

import threading

from ...refs import ObjectRef
from ...unseen import Unseen
from . import wire
from .mailbox import Waiter
from .store import Hold

SERIAL_STEP = 2**16  # results of one call have consecutive serials
LARGEST_NUM_RETURNS = SERIAL_STEP


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
        pins: what keeps the value's items alive; of an error, the `Unseen` that reports it.
        waiters: called when the value comes; None if there are none.
        shared: None until another process knows of it.
    """

    __slots__ = ("__weakref__", "client", "frame", "owner", "pins", "serial", "shared", "start", "waiters")

    def __init__(self, client, owner, serial):
        self.client, self.owner, self.serial = client, owner, serial
        self.frame = self.waiters = self.shared = None
        self.pins = ()

    @property
    def engine(self):
        """The client."""
        return self.client

    @property
    def id(self) -> bytes:
        return wire.key(self.serial, self.owner)

    __eq__ = object.__eq__  # one object per id in a process (see LocalRefs.find_reference)
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

    def error_seen(self) -> None:
        """The value is an error, and somebody gets it: it need not be reported."""
        for pin in self.pins:
            if type(pin) is Unseen:
                pin.seen()

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
