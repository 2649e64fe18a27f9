"""Results of generators on their way: `Streams` where they arrive, `Outgoing` where they are made.

Each value travels in an ITEM with its index, as soon as it is yielded; the reply of the call is the end. A caller that
has set a limit says how many it has taken (CREDIT), and the generator waits while it is that many ahead. A task that is
run again after a crash sends the first values again; they are recognised by their index.
"""

from __future__ import annotations

from collections import deque

from ..transport import wire
from ..transport.mailbox import Mailbox
from .refs import Reference


class Stream:
    """The results of one generator, as its caller gets them. See base.Stream.

    It stands where a call that is not done has its references, and is settled like one: by the end of the call.

    Attributes:
        completed: reference of the call itself.
        hold: as of a reference that no other process knows.
    """

    hold = None

    def __init__(self, streams: Streams, completed: Reference, limit: int):
        self._streams, self.completed, self._limit = streams, completed, limit
        self._refs = deque([streams.new_reference()])  # the last one is pending until the end, and never handed out
        self._arrived = self._taken = self._producer = 0
        self.ended = False

    def next_reference(self) -> Reference:
        return self._refs[0]

    def take(self) -> Reference | None:
        with self._streams.mailbox.lock:
            if len(self._refs) == 1:
                return None
            self._taken += 1
            self._give_credit()
            return self._refs.popleft()

    @property
    def is_finished(self) -> bool:
        return self.ended and len(self._refs) == 1

    def close(self) -> None:
        if not self.ended:
            self._streams.drop(self.completed.serial)

    def arrive(self, frame: bytes, head: tuple, pins: tuple) -> None:
        """A value has come. The mailbox's lock is held."""
        self._producer, index = head[3], head[5]
        if index == self._arrived:
            self._add(frame, wire.HEADER_BYTES, pins)
        else:  # of another attempt, which has to get as far as the last one
            self._give_credit()

    def settle(self, frame: bytes, start: int, pins: tuple = ()) -> None:
        """The generator has ended. The mailbox's lock is held."""
        if frame[start] & wire.ERROR:
            self._add(frame, start, pins)
        self.ended = True
        self._streams.settle(self._refs[-1], frame, start, pins)
        self._streams.settle(self.completed, frame, start, pins)
        self._streams.forget(self.completed.serial)

    def _add(self, frame, start, pins):
        self._arrived += 1
        self._refs.append(self._streams.new_reference())
        self._streams.settle(self._refs[-2], frame, start, pins)

    def _give_credit(self):
        if self._limit and not self.ended:
            self._streams.mailbox.send_to_node(wire.CREDIT, self.completed.serial, a=self._producer, c=self._taken)


class Streams:
    """The generators of which this process gets the results.

    Args:
        local_refs: makes and settles the references.
        mailbox: mailbox of this process.

    Attributes:
        dropped: serials of streams without a consumer.
    """

    def __init__(self, local_refs, mailbox: Mailbox):
        self._local_refs, self.mailbox, self.settle = local_refs, mailbox, local_refs.settle_one
        self._streams: dict[int, Stream] = {}  # streams that have not ended
        self.dropped: deque[int] = deque()

    def open(self, serial: int, limit: int) -> Stream:
        """A stream for the results of a call.

        Args:
            serial: serial number of the call.
            limit: how many values the generator may be ahead; 0: any number.
        """
        self.mailbox.start_keeper()  # it closes dropped streams
        completed = Reference(self._local_refs.engine, self.mailbox.process, serial)
        stream = self._streams[serial] = Stream(self, completed, limit)
        return stream

    def new_reference(self) -> Reference:
        """The reference of a value to come."""
        return Reference(self._local_refs.engine, self.mailbox.process, self._local_refs.next_serial())

    def drop(self, serial: int) -> None:
        """The generator has no consumer any more. Called at any moment, in any thread."""
        self.dropped.append(serial)
        self.mailbox.wake()

    def forget(self, serial: int) -> None:
        """It has ended."""
        self._streams.pop(serial, None)

    def on_item(self, frame, head):
        pins = self._local_refs.pins(frame, wire.HEADER_BYTES)
        with self.mailbox.lock:
            stream = self._streams.get(head[4])
            if stream is not None:
                stream.arrive(frame, head, pins)


class LoopEvent:
    """An event of a loop, set from any thread.

    Args:
        loop: on which it is waited for.
        event: an asyncio.Event.
    """

    def __init__(self, loop, event):
        self._loop, self._event = loop, event

    def set(self) -> None:
        """Sets it soon."""
        self._loop.call_soon_threadsafe(self._event.set)


class Outgoing:
    """The caller of a generator, as the worker that runs it knows it.

    Attributes:
        frame: set while the next value may be made, so that the mailbox can wait for it.
    """

    def __init__(self):
        self._consumed = self._needed = 0
        self.frame, self._event = True, None

    def watch(self, event) -> None:
        """Sets the event as well (see Mailbox.wait)."""
        self._event = event
        if self.frame is not None:
            event.set()

    def need(self, count: int) -> None:
        """The next value may be made when this many were consumed. The mailbox's lock is held."""
        self._needed = count
        self.frame = True if self._consumed >= count else None

    def consumed(self, count: int) -> None:
        """The caller has taken this many."""
        self._consumed = max(self._consumed, count)
        if self._consumed >= self._needed:
            self.go_on()

    def go_on(self) -> None:
        """The next value may be made, or the generator is to end."""
        self.frame = True
        if self._event is not None:
            self._event.set()
