"""Channels from this process to actors: each actor's process, and the calls under way to it."""

from __future__ import annotations

import sys
from collections import deque

from ..transport import wire
from ..transport.mailbox import Mailbox
from ..values.arguments import Call
from ..values.local_refs import LocalRefs
from ..values.refs import Reference
from ..values.store import Hold

WINDOW = 512


class ActorChannel:
    """The way from this process to one actor.

    Calls go out in the order they were made. At most `window` are on their way; the others, and those made before the
    actor lives, wait in the outbox. A call whose arguments are pending stops those behind it.

    Attributes:
        window: see above.
        is_concurrent: the actor runs several calls at a time. Then the window has no limit, since all calls
            under way may wait for the next one.
        process: where the actor lives, 0 before, between two lives and after.
        error: the value (an error) that calls get: while it restarts those without retries, once it has ended all.
        ended: it will not live any more.
        pins: of that value (see refs.Reference).
        pending: serial -> references of the calls on their way; of those with retries, the calls themselves.
        handles: handles in this process; the first is counted before it exists (`fresh`).
        hold: this process's share in the actor.
    """

    __slots__ = (
        "ended",
        "error",
        "fresh",
        "handles",
        "hold",
        "is_concurrent",
        "key",
        "outbox",
        "pending",
        "pins",
        "process",
        "window",
    )

    def __init__(self, key: bytes, hold: Hold):
        self.key, self.hold = key, hold
        self.process, self.handles, self.fresh = 0, 1, True
        self.window, self.is_concurrent = WINDOW, False
        self.error: bytes | None = None
        self.ended = False
        self.pins: tuple = ()
        self.pending: dict[int, tuple | Reference | Call] = {}
        self.outbox: deque[Call] = deque()

    def live(self, process: int, concurrency: int) -> None:
        """The actor lives in a process, and runs `concurrency` calls at a time."""
        self.process, self.error = process, None
        if concurrency > 1:
            self.window, self.is_concurrent = sys.maxsize, True

    @property
    def idle(self) -> bool:
        """Nothing waits for it: with the last handle it may go."""
        return not self.pending and not self.outbox

    @property
    def owed(self) -> list[int]:
        """The serials of the calls that are still to be answered."""
        return [*self.pending, *(call.serial for call in self.outbox)]

    def owes(self, serials: set[int]) -> bool:
        """Whether a call with one of these serials is still to be answered."""
        return not serials.isdisjoint(self.pending) or any(call.serial in serials for call in self.outbox)


def _sent_once(call):
    """A call on its way, after the death of the actor: an attempt was used up."""
    return call._replace(attempts=call.attempts - 1) if type(call) is Call and call.attempts > 0 else call


class ActorChannels:
    """All of a process.

    Args:
        mailbox: mailbox of the process.
        local_refs: settles the references of calls that will never be answered.

    Attributes:
        by_key: actor's key -> channel.
        by_process: where it lives -> channel.
        dropped: keys of actors of which a handle was dropped; `flush` looks at them.
    """

    def __init__(self, mailbox: Mailbox, local_refs: LocalRefs):
        self._mailbox, self._local_refs = mailbox, local_refs
        self.by_key: dict[bytes, ActorChannel] = {}
        self.by_process: dict[int, ActorChannel] = {}
        self.dropped: deque[bytes] = deque()

    def open(self, key: bytes, hold: Hold) -> ActorChannel:
        """A channel to an actor, which this process holds from now on. Lock held."""
        channel = self.by_key[key] = ActorChannel(key, hold)
        return channel

    def find(self, key, hold):
        """A handle comes with a message: the channel to its actor is made if there is none."""
        with self._mailbox.lock:
            if key not in self.by_key:
                self.open(key, hold)
                self._mailbox.send_to_node(wire.WATCH, *wire.KEY.unpack(key))
        self._mailbox.start_keeper()

    def owing(self, serial: int) -> ActorChannel | None:
        """The channel to the actor that is to answer the call with this serial. Lock held."""
        return next((channel for channel in self.by_key.values() if channel.owes({serial})), None)

    def handle_added(self, actor_id):
        """See base.Engine."""
        with self._mailbox.lock:
            channel = self.by_key.get(actor_id)
            if channel is None:
                return
            if channel.fresh:
                channel.fresh = False
            else:
                channel.handles += 1

    def handle_dropped(self, actor_id):
        """See base.Engine."""
        self.dropped.append(actor_id)
        if len(self.dropped) == 1:
            self._mailbox.wake()

    def flush(self):
        """Lets go of actors that no handle here is left of. Lock held."""
        while self.dropped:
            channel = self.by_key.get(self.dropped.popleft())
            if channel is not None:
                channel.handles -= 1
                if not channel.handles and channel.idle:
                    self.retire(channel)

    def retire(self, channel):
        """The last handle is gone and nothing waits: this process lets go of the actor. Lock held."""
        if self.by_key.get(channel.key) is channel:
            del self.by_key[channel.key]
            self.by_process.pop(channel.process, None)
            channel.hold = None

    def bury(self, channel, error, pins=()):
        """An actor has ended: all its calls get this error, also those to come. Lock held."""
        channel.error, channel.pins, channel.ended = error, pins, True
        self._leave_process(channel)
        calls = [*channel.pending.values(), *(call.refs for call in channel.outbox)]
        channel.pending.clear()
        channel.outbox.clear()
        for refs in calls:
            self._local_refs.settle(refs.refs if type(refs) is Call else refs, error, 0, pins)
        if not channel.handles:
            self.retire(channel)

    def suspend(self, channel, error):
        """An actor has died and will live again: its calls get this error, but those with retries wait. Lock held."""
        channel.error, channel.pins = error, ()
        self._leave_process(channel)
        calls = [_sent_once(call) for call in channel.pending.values()] + list(channel.outbox)
        channel.pending.clear()
        channel.outbox.clear()
        for call in calls:
            if type(call) is Call and call.attempts:
                channel.outbox.append(call)
            else:
                self._local_refs.settle(call.refs if type(call) is Call else call, error, 0)
        if not channel.handles and channel.idle:
            self.retire(channel)

    def _leave_process(self, channel):
        if channel.process:  # else it does not live; 0 is the node
            self.by_process.pop(channel.process, None)
            self._mailbox.forget(channel.process)
        channel.process = 0

    def bury_all(self, error):
        """The session ends. Lock held."""
        channels = list(self.by_key.values())
        self.by_key.clear()
        for channel in channels:
            self.bury(channel, error)
