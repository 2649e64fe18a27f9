"""Results of calls (returned, raised or yielded) as messages to their callers."""

from __future__ import annotations

import inspect
import os
import pickle
from collections.abc import AsyncGenerator, Callable

from ....calls.options import DYNAMIC, STREAMING
from ....failures import describe_exception
from ....remote.generators import DynamicObjectRefGenerator
from ....unpicklable import refuse
from ...base import iterate, split_returns
from ..client.cancellation import Cancellations
from ..system.interrupts import runs_user_code
from ..transport import wire
from ..transport.mailbox import Mailbox
from ..transport.packed import HeldReplies
from ..values.local_refs import LocalRefs
from ..values.serializer import Encoded, Serializer, error_value
from ..values.streams import LoopEvent, Outgoing
from .running import Running

NOTHING = Encoded(wire.value(pickle.dumps(None, 5)))


class Results:
    """Makes the replies of a worker, and sends what generators yield.

    Args:
        mailbox, serializer, local_refs: of this process.
        running: its running calls.
        held: sent before a generator runs, which may take long.
        cancellations: closed generators among them.
        wait: (target, timeout_s); waits on behalf of user code.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        serializer: Serializer,
        local_refs: LocalRefs,
        running: Running,
        held: HeldReplies,
        cancellations: Cancellations,
        wait: Callable,
    ):
        self._mailbox, self._process, self._seal = mailbox, mailbox.process, wire.seal()
        self._encode, self._dumps, self._local_refs = serializer.encode, serializer.dumps, local_refs
        self._running, self._held, self._cancellations, self._wait = running, held, cancellations, wait
        self._outgoing: dict[tuple[int, int], Outgoing] = {}  # (serial, caller) of generators that run

    def reply(self, source: int, serial: int, num_returns: int, value) -> bytes:
        """The reply with the values of a call. From now on the caller holds their items.

        Args:
            source, serial: caller and number of the call.
            num_returns: see options.return_code.

        Raises:
            Exception: of a generator, of what pickles the value, or ValueError if there are not `num_returns` values.
        """
        if self._running.forked:
            self._running.end_if_forked()
        if num_returns == 1:
            try:
                encoded = NOTHING if value is None else self._encode(value)
            except Exception as error:
                self._refuse(value, error)
            if encoded[1]:
                with self._mailbox.lock:
                    self._local_refs.escape(encoded.items, encoded.pins, source, in_reply=True)
            return wire.HEADER.pack(self._seal, wire.REPLY, 0, self._process, serial, 1, 0, 0) + encoded[0]
        if num_returns >= DYNAMIC:
            return self.reply(source, serial, 1, self._iterate(source, serial, num_returns, value))
        parts = [self._encode_part(part) for part in split_returns(value, num_returns, self._running.call_name())]
        with self._mailbox.lock:
            for part in parts:
                self._local_refs.escape(part.items, part.pins, source, in_reply=True)
        body = b"".join(wire.pad(part.data) for part in parts)
        return wire.message(wire.REPLY, self._process, serial, len(parts), body=body)

    def failure(self, serial: int, error: BaseException, label: str) -> bytes:
        """The reply with what a call has raised.

        Args:
            label: the call, for the message of the error.
        """
        self._running.end_if_forked(error)
        failure = describe_exception(error, f"{label} in process {os.getpid()}")
        return wire.message(wire.REPLY, self._process, serial, 1, body=error_value(failure.error()), flags=wire.RAISED)

    def _encode_part(self, part):
        try:
            return self._encode(part)
        except Exception as error:
            self._refuse(part, error)

    def _refuse(self, value, error):
        refuse(value, f"the result of {self._running.call_name()}", error, self._dumps)

    # -- generators ---------------------------------------------------------------------------------------------------

    @runs_user_code
    def _iterate(self, source, serial, num_returns, value):
        """Runs what a generator yields; what its call returns then."""
        values = iterate(value, self._running.call_name())
        if num_returns >= STREAMING:
            self._send_items(source, serial, num_returns - STREAMING, values)
            return None
        refs = []
        try:
            refs.extend(self._local_refs.engine.put(value) for value in values)
        except Exception as error:
            self._running.end_if_forked(error)
            failure = describe_exception(error, f"{self._running.call_name()} in process {os.getpid()}")
            refs.append(self._local_refs.new(1)[1])
            refs[-1].frame, refs[-1].start = error_value(failure.error()), 0
        return DynamicObjectRefGenerator(refs)

    @runs_user_code
    def _send_items(self, source, serial, limit, values):
        """Sends the caller what a generator yields, as long as it wants more."""
        outgoing = self._outgoing[serial, source] = Outgoing()
        if self._held.replies:
            self._held.send_all()
        try:
            for index, value in enumerate(values):
                self._running.end_if_forked()
                if self._send_item(source, serial, index, value, limit):
                    self._wait(outgoing, None)
                value = None
                if self._cancellations.closes(serial, source):
                    getattr(values, "close", lambda: None)()
                    return
        finally:
            self._forget(source, serial)
            if inspect.isgenerator(values):  # also after an interrupt, so that it runs its own `finally` now
                values.close()

    async def stream(self, source: int, serial: int, num_returns: int, values: AsyncGenerator) -> None:
        """Does the same for an async generator, on its event loop."""
        import asyncio  # takes long; here it is imported already

        loop, index = asyncio.get_running_loop(), 0
        outgoing = self._outgoing[serial, source] = Outgoing()
        try:
            async for value in values:
                self._running.end_if_forked()
                if self._send_item(source, serial, index, value, num_returns - STREAMING):
                    room = asyncio.Event()
                    outgoing.watch(LoopEvent(loop, room))
                    await room.wait()
                index += 1
                if self._cancellations.closes(serial, source):
                    return
        finally:
            self._forget(source, serial)
            await values.aclose()  # also when it is cancelled while it waits for its caller

    def _forget(self, source, serial):
        del self._outgoing[serial, source]
        if self._running.actor is not None:
            self._cancellations.forget_call(serial, source)

    def _send_item(self, source, serial, index, value, limit):
        """Sends one value; whether the next one has to wait for the caller to take some."""
        encoded = self._encode_part(value)
        frame = wire.message(wire.ITEM, self._process, serial, index, body=encoded.data)
        with self._mailbox.lock:
            self._local_refs.escape(encoded.items, encoded.pins, source, in_reply=True)
            self._mailbox.send(source, frame)
        self._mailbox.drain()  # the caller may have closed it
        if not limit:
            return False
        outgoing = self._outgoing[serial, source]
        with self._mailbox.lock:
            outgoing.need(index + 2 - limit)
        return outgoing.frame is None and not self._cancellations.closes(serial, source)

    def on_credit(self, frame, head):
        _, _, _, caller, serial, _, _, consumed = head
        with self._mailbox.lock:
            outgoing = self._outgoing.get((serial, caller))
            if outgoing is not None:
                outgoing.consumed(consumed)

    def go_on(self, serial: int, caller: int) -> None:
        """A generator that waits for its caller, if it runs here, is to look whether it was closed."""
        outgoing = self._outgoing.get((serial, caller))
        if outgoing is not None:
            outgoing.go_on()

    def caller_has_gone(self, process: int) -> None:
        """Ends this caller's generators: the caller has ended."""
        for (serial, caller), outgoing in list(self._outgoing.items()):
            if caller == process:
                self._cancellations.cancel_call(serial, caller, wire.CLOSE)
                outgoing.go_on()
