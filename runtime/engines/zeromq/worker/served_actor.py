"""The actor that a worker is: its instance, and the calls that it serves."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable
from time import monotonic, sleep

import zmq

from ....calls.options import ActorOptions
from ....errors import ActorStartError
from ....failures import describe_exception
from ...definitions import ClassDefinition, Method, find_method, has_coroutines
from ...placement_groups import Placements
from ..client.cancellation import cancelled_reply
from ..system.interrupts import runs_user_code
from ..system.trace_files import TraceFile
from ..transport import structs, wire
from ..transport.mailbox import Mailbox
from ..transport.packed import HeldReplies, can_pack
from ..values.serializer import error_value
from .concurrent_calls import Cancelled, ConcurrentCalls
from .received_calls import ReceivedValues, received_call
from .results import Results
from .running import Leave, Running, left


class ServedActor:
    """Makes the instance of an actor, calls its methods and answers their callers.

    Args:
        mailbox: mailbox of this process.
        received, results: arguments and results of calls.
        running: calls that this process runs.
        held: replies that are held back.
        next_serial: a new number for a call.
        placements: where the calls of the actor are placed.
        queue: messages that wait.
        run: kind of message -> what runs it. An actor whose calls run at the same time changes it.
        wake: has the main thread look whether the process is to end.

    Attributes:
        stopping: the process is to end when no call runs.
        exit: how, if user code has asked for it in a call that ran concurrently with others.
        trace: writes events for the calls that run concurrently with others; None for none.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        received: ReceivedValues,
        results: Results,
        running: Running,
        held: HeldReplies,
        next_serial: Callable[[], int],
        placements: Placements,
        queue: deque[bytes | tuple],
        run: dict[int, Callable],
        wake: Callable[[], None],
    ):
        self._mailbox, self._running, self._held, self._placements = mailbox, running, held, placements
        self._bare_lock, self._sends = mailbox.lock.bare, mailbox.sends
        self._received, self._decode, self._pins = received, received.decode, received.pins
        self._results, self._reply = results, results.reply
        self._next_serial, self._queue, self._run, self._wake = next_serial, queue, run, wake
        self._class, self._groups, self._instance = object, {}, None
        self._names: dict[bytes, str] = {}
        self._methods: dict[str, Callable] = {}  # of the instance
        self._concurrent: ConcurrentCalls | None = None
        self.stopping, self.exit = False, None
        self.trace: TraceFile | None = None

    @property
    def idle(self) -> bool:
        """Whether no call waits or runs concurrently with others."""
        return self._concurrent is None or self._concurrent.idle

    @runs_user_code
    def create(self, frame: bytes) -> None:
        """Makes the instance.

        Raises:
            Leave: the constructor has raised, which the node knows then.
        """
        _, _, _, source, serial, size, _, count = wire.HEADER.unpack_from(frame)
        create = structs.decode(structs.Create, frame, size)
        running = self._running
        running.actor = wire.key(serial, source)
        running.request, self._placements.current = create.held, create.placement
        running.work = (wire.CREATE, serial, source, "__init__", 0)
        start = wire.HEADER_BYTES + size + -size % wire.ALIGNMENT
        try:
            # Before the arguments, whose modules may need what is imported for the class (worker_imports.py).
            self._class, self._groups = self._received.definition(create.digest), create.groups
            args, kwargs = self._received.arguments(frame, start, count)
            self._instance = self._class(*args, **kwargs)
            running.end_if_forked()
        except SystemExit as error:
            raise left(error) from None
        except BaseException as error:
            running.end_if_forked(error)
            failure = describe_exception(error, f"the constructor of actor {create.name} in process {os.getpid()}")
            with self._mailbox.lock:
                self._mailbox.send_to_node(wire.START_FAILED, body=error_value(failure.error(ActorStartError)))
            raise Leave(1, "could not start") from None
        self._allow_concurrency(create)
        with self._mailbox.lock:
            self._mailbox.send_to_node(wire.ALIVE)

    def describe(self) -> tuple[str, dict[str, Method]]:
        """The name of the class, and its methods as the makers of handles know them."""
        cls = ClassDefinition(self._class)
        return cls.name, cls.methods_of(ActorOptions(concurrency_groups=self._groups))

    def _allow_concurrency(self, create):
        has_loop = has_coroutines(type(self._instance))
        limits = {"": create.max_concurrency, **create.groups}
        if has_loop or limits != {"": 1}:
            method, load = self._method, self._received.arguments
            if self.trace is not None:
                method = self.trace.traced_methods(method, self._running.name)
            self._concurrent = ConcurrentCalls(
                limits, method, load, self._end_call, self._held.send_all, self._leave_if_due, has_loop, self._stream
            )
            self._run[wire.CALL] = self._run[wire.CALL_WITH] = self._concurrent.start
            self._running.work, self._running.loop_thread = None, self._concurrent.loop_thread

    @runs_user_code
    def call(self, frame: bytes) -> None:
        """Runs a plain call (wire.CALL).

        Raises:
            Leave: user code has asked for the end of the process.
        """
        _, _, _, source, serial, name_bytes, num_returns, count = wire.HEADER.unpack_from(frame)
        what = frame[wire.A_AT : wire.HEADER_BYTES + name_bytes]
        name = self._names.get(what)
        if name is None:
            name = self._names[what] = what[-name_bytes:].decode()
        self._running.work = (wire.CALL, serial, source, name, 0)
        start = wire.HEADER_BYTES + name_bytes + -name_bytes % wire.ALIGNMENT
        queue = self._queue
        began = monotonic() if queue else 0.0
        try:
            if count == 1:
                args, kwargs = self._decode(frame, start, self._pins(frame, start))
            else:
                args, kwargs = self._received.arguments(frame, start, count)
            method = self._methods.get(name)
            if method is None:
                method = self._method(name)
            value = method(*args, **kwargs)
            args = kwargs = None
            reply = self._reply(source, serial, num_returns, value)
        except SystemExit as error:
            raise left(error) from None
        except BaseException as error:
            reply = self._results.failure(serial, error, f"actor method {self._running.name}.{name}()")
        if queue and self._held.expects(what, monotonic() - began, queue[0]):
            self._held.add(source, reply)
            return
        if self._held.replies:
            self._held.send_all()
        with self._bare_lock:
            send = self._sends.get(source)
            if send is not None:
                send(reply, zmq.DONTWAIT)
        if send is None:
            with self._mailbox.lock:
                self._mailbox.send(source, reply)

    @runs_user_code
    def call_packed(self, call: tuple) -> None:
        """Runs a call that came packed with others: (source, serial, method, args).

        Raises:
            Leave: user code has asked for the end of the process.
        """
        source, serial, name, args = call
        queue, running = self._queue, self._running
        running.work = (wire.CALL, serial, source, name, 0)
        began = monotonic()
        try:
            method = self._methods.get(name)
            if method is None:
                method = self._method(name)
            value = method(*args)
            hold = queue and not running.forked and self._held.expects_packed(name, monotonic() - began, queue[0])
            if hold and can_pack(value):
                self._held.add(source, (serial, value))
                return
            reply = self._reply(source, serial, 1, value)
        except SystemExit as error:
            raise left(error) from None
        except BaseException as error:
            reply = self._results.failure(serial, error, f"actor method {running.name}.{name}()")
        with self._mailbox.lock:
            self._held.send()
            self._mailbox.send(source, reply)

    @runs_user_code
    def call_with(self, frame: bytes) -> None:
        """Runs a call with options (wire.CALL_WITH).

        Raises:
            Leave: user code has asked for the end of the process.
        """
        call = received_call(frame)
        self._running.work = (wire.CALL, call.serial, call.source, call.method, self._next_serial())
        attempts = call.attempts()
        while True:
            try:
                args, kwargs = self._received.arguments(frame, call.start, call.count)
                value = self._method(call.method)(*args, **kwargs)
                args = kwargs = None
                reply = self._reply(call.source, call.serial, call.num_returns, value)
            except SystemExit as error:
                raise left(error) from None
            except BaseException as error:
                self._running.end_if_forked(error)
                if attempts is not None and (pause_s := attempts.pause_s(error)) is not None:
                    sleep(pause_s)
                    continue
                label = f"actor method {self._running.name}.{call.method}()"
                reply = self._results.failure(call.serial, error, label)
            break
        value = None
        with self._mailbox.lock:
            self._held.send()
            self._mailbox.send(call.source, reply)

    def cancel_call(self, serial: int, caller: int) -> None:
        """Cancels a call that runs, or waits, concurrently with others; one that runs alone is not interrupted."""
        if self._concurrent is not None:
            self._concurrent.cancel(serial, caller)

    def waits(self) -> contextlib.AbstractContextManager:
        """Around a wait in user code: see ConcurrentCalls."""
        return contextlib.nullcontext() if self._concurrent is None else self._concurrent.waits()

    def _method(self, name):
        method = self._methods.get(name)
        if method is None:
            method = self._methods[name] = find_method(self._instance, name)
        return method

    def _end_call(self, call, value, raised, hold):
        """Ends a concurrent call, in its thread. `hold` its reply back, for `HeldReplies.send_all`."""
        if self._running.forked:
            self._running.end_child(raised)
        if isinstance(raised, SystemExit):
            self.exit = left(raised)
        else:
            try:
                if raised is not None:
                    raise raised
                reply = self._reply(call.source, call.serial, call.num_returns, value)
            except BaseException as error:
                if self._running.forked:  # by a generator
                    self._running.end_child(error)
                label = f"actor method {self._running.name}.{call.method}()"
                if isinstance(error, Cancelled):
                    reply = cancelled_reply(self._mailbox.process, call.serial, label)
                else:
                    reply = self._results.failure(call.serial, error, label)
            if hold:
                self._held.add(call.source, reply)
            else:
                with self._mailbox.lock:
                    self._mailbox.send(call.source, reply)

    async def _stream(self, call, values):
        await self._results.stream(call.source, call.serial, call.num_returns, values)
        return call._replace(num_returns=1)

    def _leave_if_due(self):
        if self.exit is not None or self.stopping:
            self._wake()

    def drop(self) -> None:
        """Lets the instance go."""
        self._methods.clear()  # they hold it
        self._instance = None
