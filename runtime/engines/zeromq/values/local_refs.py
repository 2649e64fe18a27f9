"""The references of this process, and its shares in common items: blocks of memory and values.

The node counts who holds what. This process reports to it what leaves (`escape`), the values of references that others
know (`settle_one`), and items that it no longer needs (`flush`, after the last `Hold` of one has gone).
"""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Callable

from .... import errors
from ....calls.options import DYNAMIC, STREAMING
from ..transport import structs, wire
from ..transport.mailbox import Mailbox
from ..transport.node_requests import NodeRequests
from .refs import LARGEST_NUM_RETURNS, Reference
from .serializer import error_value
from .store import Hold, Store
from .streams import Streams

_unpack_value = wire.VALUE.unpack_from
_REPLIES = (wire.REPLY, wire.ITEM)


class Share(Hold):
    """A Hold of what came in a reply of process `replier`; `number` tells it from all others of this process."""

    __slots__ = ("number", "replier")

    def __init__(self, key: bytes, release: Callable[[tuple[bytes, int, int]], None], replier: int, number: int):
        self.key, self.release, self.replier, self.number = key, release, replier, number

    def __del__(self):
        self.release((self.key, self.replier, self.number))


class LocalRefs:
    """The references of a process, and its shares in what processes share.

    Args:
        engine: what the references belong to.
        mailbox: mailbox of this process.
        next_serial: a new number for a call, a value or a block.
        node_requests: where the store gets its segments.
        node_pid: whose /proc/PID/fd holds the segments.

    Attributes:
        engine: what the references belong to.
        next_serial: a new number for a call, a value or a block.
        store: the blocks of shared memory.
        streams: the generators whose results come here.
        dropped: items whose last Hold, and (item, replier, number) whose Share went away; `flush` looks at them.
    """

    def __init__(
        self, engine, mailbox: Mailbox, next_serial: Callable[[], int], node_requests: NodeRequests, node_pid: int
    ):
        self.engine, self._mailbox, self._process, self.next_serial = engine, mailbox, mailbox.process, next_serial
        self.dropped: deque[bytes | tuple[bytes, int, int]] = deque()
        self._shares: dict[int, dict[int, bytes]] = {}  # replier -> number of the share -> key
        self._share_numbers = itertools.count()
        self._settled: set[int] = set()  # repliers that have ended, and with which accounts are closed
        self._late: deque[bytes] = deque()  # keys that came in their replies afterwards
        self._known: weakref.WeakValueDictionary[bytes, Reference] = weakref.WeakValueDictionary()
        self._registered: set[bytes] = set()  # own blocks the node knows of
        self.store = Store(node_pid, node_requests.grow, node_requests.give_back, self.new_key, self.release)
        self.streams = Streams(self, mailbox)

    # -- making -------------------------------------------------------------------------------------------------------

    def new(self, count):
        """(serial, one reference or a tuple of them) for the results of a call. In the tuple may be one Stream.

        Args:
            count: see options.return_code.
        """
        if LARGEST_NUM_RETURNS < count < DYNAMIC:
            raise ValueError(f"num_returns={count} must be at most {LARGEST_NUM_RETURNS}")
        serial = self.next_serial()
        if count == 1 or count == DYNAMIC:
            return serial, Reference(self.engine, self._process, serial)
        if count >= STREAMING:
            return serial, (self.streams.open(serial, count - STREAMING),)
        return serial, tuple(Reference(self.engine, self._process, serial + i) for i in range(count))

    def new_key(self) -> bytes:
        """The key of something new: a block or an actor."""
        return wire.key(self.next_serial(), self._process)

    def check_own(self, ref) -> None:
        """Refuses a reference of another session."""
        if type(ref) is not Reference or ref.engine is not self.engine:
            raise errors.SessionClosedError(f"{ref!r} belongs to another session")

    # -- letting go ---------------------------------------------------------------------------------------------------

    def release(self, key):
        """Releases a `Hold`; safe at any moment and in any thread, as in `__del__`."""
        self.dropped.append(key)
        if len(self.dropped) == 1:
            self._mailbox.wake()

    def flush(self):
        """Frees and releases items that this process no longer needs. Lock held."""
        release, release_replied = [], []
        while self._late:
            self._send(hold=[(self._late.popleft(), self._process)])
        while self.dropped:
            key = self.dropped.popleft()
            if type(key) is tuple:
                key, replier, number = key
                if self._shares.get(replier, {}).pop(number, None) is None:  # they have been settled
                    release.append(key)
                else:
                    release_replied.append((key, replier))
            elif self.store.owns(key) and key not in self._registered:
                self.store.free(key)
            else:
                release.append(key)
        if release or release_replied:
            self._send(release=release, release_replied=release_replied)
        if self.store.ended:
            self._give_back_ended()

    def _give_back_ended(self):
        """Returns segments on the disk that are free. Lock held."""
        while self.store.ended:
            segment = self.store.ended.pop()
            segment.close()
            self._mailbox.send_to_node(wire.RETURN, a=segment.number)

    # -- sharing ------------------------------------------------------------------------------------------------------

    def escape(self, items, pins, receiver, in_reply=False):
        """Items go to another process: the node learns of them, and that the receiver holds them. Lock held."""
        blocks, objects = [], []
        self._register(items, pins, blocks, objects)
        hold = [(key, receiver) for key in items] if receiver is not None else []
        if blocks or objects or hold:
            self._send(blocks, objects, **{"reply" if in_reply else "hold": hold})

    def _register(self, items, pins, blocks, objects):
        """Adds own items that the node does not know, and what their values hold, to `blocks` and `objects`."""
        pending, found = deque(zip(items, pins)), []
        while pending:  # not by recursion: values may hold one another in a chain longer than the stack
            key, pin = pending.popleft()
            if self.store.owns(key):
                if key not in self._registered:
                    self._registered.add(key)
                    blocks.append((key, self.store.segment_of(key)))
            elif isinstance(pin, Reference) and pin.hold is None:
                pin.hold = Hold(key, self.release)
                pin.subscribed = True  # its value comes here first
                self._known[key] = pin
                self._mailbox.start_keeper()
                value, own = self._content(pin)
                pending.extend(zip(own, pin.pins))
                found.append((key, value, own))
        objects.extend(reversed(found))  # what a value holds before the value

    def _content(self, ref):
        """(value, keys of its items) of an own reference that others know; (None, []) while it is pending."""
        if ref.frame is None:
            return None, []
        if ref.failed:
            ref.error_seen()
        return ref.value_bytes(), wire.items_at(ref.frame, ref.start)

    def _send(self, blocks=(), objects=(), hold=(), release=(), reply=(), release_replied=()):
        body = structs.encode(structs.References(blocks, objects, hold, release, reply, release_replied))
        self._mailbox.send_to_node(wire.REFERENCES, body=body)

    # -- values that come ---------------------------------------------------------------------------------------------

    def find_reference(self, key, hold):
        """The reference of this process for a key in a message; made if there is none."""
        if isinstance(hold, Reference):  # a value that has not left this process is held by the reference itself
            return hold
        with self._mailbox.lock:
            ref = self._known.get(key)
            if ref is None:
                serial, owner = wire.KEY.unpack(key)
                ref = self._known[key] = Reference(self.engine, owner, serial)
                ref.hold, ref.subscribed = hold, False
        return ref

    def claim(self, key) -> Hold:
        """Takes a reference to an item whose key was unpickled outside of a message."""
        with self._mailbox.lock:
            self._send(hold=[(key, self._process)])
        return Hold(key, self.release)

    def subscribe(self, ref):
        """Asks the node, once, for the value of a reference that another process owns. Lock held."""
        ref.subscribed = True
        self._mailbox.send_to_node(wire.SUBSCRIBE, ref.serial, ref.owner)

    def pins(self, frame, start):
        """The shares that came with a value."""
        if _unpack_value(frame, start)[1] == 0:
            return ()
        keys = wire.items_at(frame, start)
        # A definition is kept without the header that it came with.
        if not start or frame[wire.KIND_AT] not in _REPLIES:
            return tuple(Hold(key, self.release) for key in keys)
        replier = wire.HEADER.unpack_from(frame)[3]
        if replier in self._settled:
            self._late.extend(keys)
            return tuple(Hold(key, self.release) for key in keys)
        numbered = [(next(self._share_numbers), key) for key in keys]
        self._shares.setdefault(replier, {}).update(numbered)
        return tuple(Share(key, self.release, replier, number) for number, key in numbered)

    def settle(self, refs, frame, start, pins=()):
        """Gives one value (usually an error) to all results of a call. Lock held."""
        for ref in (refs,) if type(refs) is Reference else refs:
            self.settle_one(ref, frame, start, pins)

    def settle_one(self, ref, frame, start, pins):
        """Gives a reference its value, and those who know it as well. Lock held."""
        ref.settle(frame, start, pins)
        if ref.hold is not None and ref.owner == self._process:
            blocks, objects = [], []
            value, items = self._content(ref)
            self._register(items, ref.pins, blocks, objects)
            objects.append((ref.id, value, items))
            self._send(blocks, objects)

    # -- messages -----------------------------------------------------------------------------------------------------

    def on_object(self, frame, head):
        with self._mailbox.lock:
            if head[2] == wire.LOST:
                frame = bytes(wire.HEADER_BYTES) + error_value(
                    errors.OwnerDiedError(frame[wire.HEADER_BYTES :].decode())
                )
            pins = self.pins(frame, wire.HEADER_BYTES)
            ref = self._known.get(wire.key(head[4], head[5]))
            if ref is not None and ref.frame is None:
                ref.settle(frame, wire.HEADER_BYTES, pins)

    def on_settle(self, frame, head):
        """A process has ended some time ago: tells the node what came in its replies and is still needed here."""
        with self._mailbox.lock:
            self._settled.add(head[5])
            shares = self._shares.pop(head[5], {})
            self._mailbox.send_to_node(wire.SETTLED, a=head[5], body=b"".join(shares.values()))

    def on_freed(self, frame, head):
        for key in wire.keys(frame, wire.HEADER_BYTES):
            self._registered.discard(key)
            self.store.free(key)
        if self.store.ended:
            with self._mailbox.lock:
                self._give_back_ended()

    def on_closed(self, frame, head):
        if head[5]:
            self.store.forget(head[5])
        else:
            self.store.trim()
