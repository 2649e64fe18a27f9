"""A worker process: runs tasks one after the other, or is one actor.

Its main thread reads the mailbox, runs what has come, answers the caller directly, and reads on. While user code of its
own waits in `get`, the same thread reads; calls that arrive meanwhile wait in the inbox.
"""

from __future__ import annotations

import _thread
import atexit
import faulthandler
import logging
import os
import pickle
import random
import signal
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

import msgspec
import numpy as np
import zmq

from ... import context
from ...errors import ActorStartError, TaskCancelledError
from ...failures import describe_exception
from ...generators import DynamicObjectRefGenerator
from ...options import DYNAMIC, STREAMING
from ...runtime_context import RuntimeContext
from ...unpicklable import refuse
from ..base import ASYNC_CONCURRENCY, describe_exit, find_method, has_coroutines, iterate, split_returns
from ..resources import quantities
from . import structs, wire
from .cancellation import Cancellations, cancelled_reply
from .client import BLOCKED_AFTER_S, NODE_ID, Client
from .concurrent_calls import ConcurrentCalls, running
from .held_replies import HeldReplies
from .interrupts import POKE_SIGNAL, confine_handlers_to_user_code, runs_no_user_code, runs_user_code
from .mailbox import Waiter
from .process import adopt_orphans, die_with_parent, reap_adopted
from .received_calls import received_call
from .refs import SERIAL_STEP, Reference, Watch
from .serializer import error_value
from .stack_files import StackFile
from .store import IDLE_SEGMENT_S
from .streams import Outgoing
from .trace_files import TraceFile

logger = logging.getLogger("runtime")

REPORT_WAIT_S = 5.0
GOODBYE_S = 1.0  # how long a leaving worker waits for the node to know
REAP_S = 10.0  # least time between two looks for daemons that have ended


class Inbox:
    """Work that has arrived; `frame` is set while there is some, so that the mailbox can wait for it."""

    __slots__ = ("event", "frame", "queue")

    def __init__(self):
        self.queue: deque[bytes] = deque()
        self.frame = self.event = None

    def watch(self, event: threading.Event) -> None:
        """Sets the event when work arrives (see Mailbox.wait)."""
        self.event = event
        if self.frame is not None:
            event.set()

    def add(self, frame: bytes) -> None:
        """New work."""
        self.queue.append(frame)
        self.frame = True
        if self.event is not None:
            self.event.set()

    def take(self) -> bytes:
        """The oldest work there is."""
        frame = self.queue.popleft()
        self.frame = None
        if self.queue:
            self.frame = True
        return frame


class Leave(Exception):
    """The process is to end; `code` is its exit code, `text` what it tells the node."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code, self.text = code, text


class Worker(Client):
    """The client of a worker process, and its loop.

    Args:
        settings: what the process was born with.
    """

    def __init__(self, settings: structs.Settings):
        super().__init__(settings.process, settings.session, settings.node_pid, settings.resources, settings.namespace)
        self._wait = self._wait_lending
        self._settings, self.environment = settings, settings.environment
        self._inbox = Inbox()
        self._definitions: dict[bytes, object] = {}  # digest -> frame, or the function or class itself
        self._names: dict[bytes, str] = {}
        self._methods: dict[str, Callable] = {}  # of the instance
        self._held, self._sends = HeldReplies(self.mailbox), self.mailbox.sends
        self._instance: object = None
        self._actor: bytes | None = None
        self._running: tuple | None = None  # kind, serial, source, name, first serial of the calls that it makes
        self._request = ()
        self._blocked = self._waiting = self._stopping = False
        self._concurrent: ConcurrentCalls | None = None
        self._exit: Leave | None = None  # of a call beside others
        self._blocks_loop = False  # it was said
        self._main = threading.get_ident()
        self._goodbye = Waiter()
        self._run = {
            wire.CALL: self._run_call,
            wire.CALL_WITH: self._run_call_with,
            wire.SUBMIT: self._run_task,
            wire.CREATE: self._run_create,
        }
        self._trace: TraceFile | None = None
        if settings.timeline:
            self._trace = TraceFile(settings.session, settings.process, self._name_of)
            self._run = {kind: self._trace.traced(function) for kind, function in self._run.items()}
        self._cancellations = Cancellations(
            self.mailbox, self._inbox.queue, self._run, lambda: self._running, self.cancel_since
        )
        signal.signal(POKE_SIGNAL, self._on_poke)
        self._outgoing: dict[tuple[int, int], Outgoing] = {}  # (serial, caller) of generators that run
        add = self._inbox.add
        self._handlers |= {
            wire.CALL: lambda frame, head: add(frame),
            wire.CALL_WITH: lambda frame, head: add(frame),
            wire.SUBMIT: lambda frame, head: add(frame),
            wire.CREATE: lambda frame, head: add(frame),
            wire.STOP: lambda frame, head: add(frame),
            wire.DEFINE: self._on_define,
            wire.CANCEL: self._on_cancel,
            wire.CREDIT: self._on_credit,
            wire.GOODBYE: lambda frame, head: self._goodbye.tick(),
        }

    @runs_no_user_code
    def serve(self) -> int:
        """Works until the process is to end; its exit code."""
        self._tell_node(wire.READY)
        inbox, wait, run = self._inbox, self.mailbox.wait, self._run
        reap_at = 0.0
        while True:
            try:
                if inbox.frame is None:
                    if self._stopping and (self._concurrent is None or self._concurrent.idle):
                        raise Leave(0, "ended")
                    if self._dropped or self._dropped_handles:
                        with self.mailbox.lock:
                            self.flush()
                    _flush_output()
                    if self._trace is not None:
                        self._trace.flush()
                    if monotonic() >= reap_at:
                        reap_adopted()
                        reap_at = monotonic() + REAP_S
                    if not wait(inbox, IDLE_SEGMENT_S if self.store.idle_segments else None):
                        self.store.trim(IDLE_SEGMENT_S)
                    continue
                frame = inbox.take()
                kind = frame[wire.KIND_AT]
                if kind == wire.STOP:
                    if self._exit is not None:
                        raise self._exit
                    self._stopping = True
                else:
                    run[kind](frame)
            except (wire.Malformed, struct.error, UnicodeDecodeError):
                self.malformed += 1
            except Leave as leave:
                return self._leave(leave)
            except SystemExit as error:  # of a signal handler
                return self._leave(self._left(error))
            frame = None

    def _name_of(self, frame):
        """The category and the name of what a frame runs, for the trace."""
        _, kind, _, _, _, size, _, _ = wire.HEADER.unpack_from(frame)
        if kind == wire.SUBMIT:
            return "task", f"{structs.decode(structs.Task, frame, size).name}()"
        if kind == wire.CREATE:
            return "constructor", f"{self._settings.name}.__init__()"
        return "call", f"{self._settings.name}.{received_call(frame).method}()"

    # -- running ------------------------------------------------------------------------------------------------------

    @runs_user_code
    def _run_call(self, frame):
        _, _, _, source, serial, name_bytes, num_returns, count = wire.HEADER.unpack_from(frame)
        raw = frame[wire.HEADER_BYTES : wire.HEADER_BYTES + name_bytes]
        name = self._names.get(raw)
        if name is None:
            name = self._names[raw] = raw.decode()
        self._running = (wire.CALL, serial, source, name, 0)
        start = wire.HEADER_BYTES + name_bytes + -name_bytes % wire.ALIGNMENT
        queue = self._inbox.queue
        began = monotonic() if queue else 0.0
        try:
            if count == 1:
                args, kwargs = self.serializer.decode(frame, start, self._pins(frame, start))
            else:
                args, kwargs = self._load_arguments(frame, start, count)
            method = self._methods.get(name)
            if method is None:
                method = self._method(name)
            value = method(*args, **kwargs)
            args = kwargs = None
            reply = self._result(source, serial, num_returns, value)
        except SystemExit as error:
            raise self._left(error) from None
        except BaseException as error:
            reply = self._failure(serial, error, f"actor method {self._settings.name}.{name}()")
        if queue and self._held.expects(raw, monotonic() - began, queue[0]):
            self._held.add(source, reply)
            return
        if self._held.count:
            self._send_held()
        with self._bare_lock:
            send = self._sends.get(source)
            if send is not None:
                send(reply, zmq.DONTWAIT)
        if send is None:
            with self.mailbox.lock:
                self.mailbox.send(source, reply)

    @runs_user_code
    def _run_call_with(self, frame):
        call = received_call(frame)
        self._running = (wire.CALL, call.serial, call.source, call.method, self._next_serial())
        attempts = call.retries
        while True:
            try:
                args, kwargs = self._load_arguments(frame, call.start, call.count)
                value = self._method(call.method)(*args, **kwargs)
                args = kwargs = None
                reply = self._result(call.source, call.serial, call.num_returns, value)
            except SystemExit as error:
                raise self._left(error) from None
            except BaseException as error:
                self._end_if_forked(error)
                if attempts != 0 and call.worth_retrying(error):
                    attempts -= 1
                    continue
                reply = self._failure(call.serial, error, f"actor method {self._settings.name}.{call.method}()")
            break
        value = None
        with self.mailbox.lock:
            self._held.send()
            self.mailbox.send(call.source, reply)

    def _method(self, name):
        method = self._methods.get(name)
        if method is None:
            method = self._methods[name] = find_method(self._instance, name)
        return method

    def _send_held(self):
        with self.mailbox.lock:
            self._held.send()

    def _tell_node(self, kind, body=b""):
        with self.mailbox.lock:
            self.mailbox.tell_node(kind, body=body)

    def _make_round(self):
        if self._held.count:
            self._send_held()
        super()._make_round()

    @runs_user_code
    def _run_task(self, frame):
        _, _, _, source, serial, size, num_returns, count = wire.HEADER.unpack_from(frame)
        task = structs.decode(structs.Task, frame, size)
        self._running = (wire.SUBMIT, serial, source, task.name, self._next_serial())
        self._request = task.request
        if task.placement != self.placements.current:
            self.placements.current = task.placement
            self.tasks.placement_changed()
        start = wire.HEADER_BYTES + size + -size % wire.ALIGNMENT
        attempts = task.max_retries if task.retry_on else 0
        while True:
            try:
                function = self._definition(task.digest)
                args, kwargs = self._load_arguments(frame, start, count)
                value = function(*args, **kwargs)
                args = kwargs = None
                reply = self._result(source, serial, num_returns, value)
            except SystemExit as error:
                raise self._left(error) from None
            except BaseException as error:
                cancelled = self._cancellations.includes(serial, source)
                if cancelled and isinstance(error, KeyboardInterrupt | TaskCancelledError):
                    self._cancellations.cancel_children(serial, source)
                    reply = cancelled_reply(self.process, serial, f"task {task.name}()")
                elif attempts != 0 and not cancelled and self._worth_retrying(task, error):
                    attempts -= 1
                    continue
                else:
                    reply = self._failure(serial, error, f"task {task.name}()")
            break
        value = None
        with self.mailbox.lock:
            self.mailbox.send(source, reply)
            self.mailbox.send(wire.NODE, wire.message(wire.DONE, self.process, serial, source))
        self._running, self._request = None, ()

    @runs_user_code
    def _run_create(self, frame):
        _, _, _, source, serial, size, _, count = wire.HEADER.unpack_from(frame)
        create = structs.decode(structs.Create, frame, size)
        self._actor = wire.key(serial, source)
        self._request, self.placements.current = create.held, create.placement
        self._running = (wire.CREATE, serial, source, "__init__", 0)
        start = wire.HEADER_BYTES + size + -size % wire.ALIGNMENT
        try:
            args, kwargs = self._load_arguments(frame, start, count)
            self._instance = self._definition(create.digest)(*args, **kwargs)
            self._end_if_forked()
        except SystemExit as error:
            raise self._left(error) from None
        except BaseException as error:
            self._end_if_forked(error)
            failure = describe_exception(error, f"the constructor of actor {create.name} in process {os.getpid()}")
            value = error_value(failure.error(ActorStartError))
            self._tell_node(wire.START_FAILED, body=value)
            raise Leave(1, "could not start") from None
        self._allow_concurrency(create)
        self._tell_node(wire.ALIVE)

    def _allow_concurrency(self, create):
        has_loop = has_coroutines(type(self._instance))
        limits = {"": create.max_concurrency or (ASYNC_CONCURRENCY if has_loop else 1), **create.groups}
        if has_loop or limits != {"": 1}:
            self._concurrent = ConcurrentCalls(limits, self._method, self._load_arguments, self._end_call, has_loop)
            self._run[wire.CALL] = self._run[wire.CALL_WITH] = self._concurrent.start
            self._running = None

    def _end_call(self, call, value, raised):
        """A call that ran beside others has ended; in its thread."""
        if isinstance(raised, SystemExit):
            self._exit = self._left(raised)
        else:
            label = f"actor method {self._settings.name}.{call.method}()"
            try:
                if raised is not None:
                    raise raised
                reply = self._result(call.source, call.serial, call.num_returns, value)
            except BaseException as error:
                reply = self._failure(call.serial, error, label)
            with self.mailbox.lock:
                self.mailbox.send(call.source, reply)
        if self._exit is not None or self._stopping:  # the main thread is to look
            self._inbox.add(wire.message(wire.STOP, self.process))
            with self.mailbox.lock:
                self.mailbox.send(self.process, b"")

    def _load_arguments(self, frame, start, count):
        """(args, kwargs) of a call; values that were references at the top stand in their places."""
        if count == 1:
            return self.serializer.decode(frame, start, self._pins(frame, start))
        starts = wire.value_starts(frame, start, count)
        args, kwargs, places = self.serializer.decode(frame, starts[0], self._pins(frame, starts[0]))
        args = list(args)
        for place, begin in zip(places, starts[1:]):
            value = self.serializer.decode(frame, begin, self._pins(frame, begin))
            if isinstance(place, str):
                kwargs[place] = value
            else:
                args[place] = value
        return args, kwargs

    def _result(self, source, serial, num_returns, value):
        """The reply with what a call has returned. Its caller holds what it needs from now on."""
        if self._refusal is not None:
            self._end_if_forked()
        if num_returns == 1:
            try:
                encoded = self.serializer.encode(value)
            except Exception as error:
                self._refuse_result(value, error)
            if encoded[1]:
                with self.mailbox.lock:
                    self.local_refs.escape(encoded.items, encoded.pins, source)
            return wire.HEADER.pack(self._seal, wire.REPLY, 0, self.process, serial, 1, 0, 0) + encoded[0]
        if num_returns >= DYNAMIC:
            return self._result(source, serial, 1, self._iterate(source, serial, num_returns, value))
        parts = [self._encode_part(part) for part in split_returns(value, num_returns, self._call_name())]
        with self.mailbox.lock:
            for part in parts:
                self.local_refs.escape(part.items, part.pins, source)
        body = b"".join(wire.pad(part.data) for part in parts)
        return wire.message(wire.REPLY, self.process, serial, len(parts), body=body)

    @runs_user_code
    def _iterate(self, source, serial, num_returns, value):
        """Runs what a generator yields; what its call returns then."""
        values = iterate(value, self._call_name())
        if num_returns >= STREAMING:
            self._send_items(source, serial, num_returns - STREAMING, values)
            return None
        refs = []
        try:
            refs.extend(self.put(value) for value in values)
        except Exception as error:
            self._end_if_forked(error)
            failure = describe_exception(error, f"{self._call_name()} in process {os.getpid()}")
            refs.append(Reference(self, self.process, self._next_serial()))
            refs[-1].frame, refs[-1].start = error_value(failure.error()), 0
        return DynamicObjectRefGenerator(refs)

    @runs_user_code
    def _send_items(self, source, serial, limit, values):
        """Sends the caller what a generator yields, as long as it wants more."""
        outgoing = self._outgoing[serial, source] = Outgoing()
        if self._held.count:
            self._send_held()
        try:
            for index, value in enumerate(values):
                self._send_item(source, serial, index, value)
                value = None
                self.mailbox.drain()  # the caller may have closed it
                if limit:
                    with self.mailbox.lock:
                        outgoing.need(index + 2 - limit)
                    if outgoing.frame is None and not self._cancellations.closes(serial, source):
                        self._wait(outgoing, None)
                if self._cancellations.closes(serial, source):
                    getattr(values, "close", lambda: None)()
                    return
        finally:
            del self._outgoing[serial, source]
            if self._actor is not None:
                self._cancellations.forget_call(serial, source)

    def _send_item(self, source, serial, index, value):
        encoded = self._encode_part(value)
        frame = wire.message(wire.ITEM, self.process, serial, index, body=encoded.data)
        with self.mailbox.lock:
            self.local_refs.escape(encoded.items, encoded.pins, source)
            self.mailbox.send(source, frame)

    def _encode_part(self, part):
        try:
            return self.serializer.encode(part)
        except Exception as error:
            self._refuse_result(part, error)

    def _refuse_result(self, value, error):
        refuse(value, f"the result of {self._call_name()}", error, self.serializer.dumps)

    def _failure(self, serial, error, label):
        """The reply with what a call has raised."""
        self._end_if_forked(error)
        failure = describe_exception(error, f"{label} in process {os.getpid()}")
        return wire.message(wire.REPLY, self.process, serial, 1, body=error_value(failure.error()), flags=wire.RAISED)

    def _worth_retrying(self, task, error):
        self._end_if_forked(error)
        return pickle.loads(task.retry_on).retries_on(error)

    def _call_name(self):
        name = (self._running or running.get())[3]
        return f"{self._settings.name}.{name}()" if self._actor is not None else f"{name}()"

    def _definition(self, digest):
        """The function or class with this digest."""
        known = self._definitions[digest]
        if isinstance(known, structs.Define):
            known = self.serializer.decode(known.data, 0, self._pins(known.data, 0))
            self._definitions[digest] = known
        return known

    def _on_define(self, frame, head):
        define = structs.decode(structs.Define, frame)
        self._definitions[define.digest] = define
        sys.path += [entry for entry in define.path if entry not in sys.path]

    # -- cancelled work -----------------------------------------------------------------------------------------------

    def _on_cancel(self, frame, head):
        _, _, flags, source, serial, owner, _, _ = head
        if source == wire.NODE and owner == self.process:
            super()._on_cancel(frame, head)
        elif source == wire.NODE:
            self._cancellations.cancel_task(serial, owner, flags)
        else:
            self._cancellations.cancel_call(serial, owner, flags)
        if flags & wire.CLOSE and (serial, owner) in self._outgoing:
            self._outgoing[serial, owner].go_on()

    def _on_credit(self, frame, head):
        _, _, _, caller, serial, _, _, consumed = head
        with self.mailbox.lock:
            outgoing = self._outgoing.get((serial, caller))
            if outgoing is not None:
                outgoing.consumed(consumed)

    def _on_gone(self, frame, head):
        super()._on_gone(frame, head)
        for (serial, caller), outgoing in list(self._outgoing.items()):
            if caller == head[5]:
                self._cancellations.cancel_call(serial, caller, wire.CLOSE)
                outgoing.go_on()

    def _on_poke(self, number, frame):
        if self._refusal is None:  # else in a child that user code has forked
            _thread.start_new_thread(self._read_mailbox, ())  # not here: this may have interrupted what reads it

    def _read_mailbox(self):
        self.mailbox.start_keeper()
        self.mailbox.drain()

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _wait_lending(self, target, timeout_s):
        """Waits; replies that are held back go first, and after a while the CPUs of the waiting task go to others.

        Seconds later, what it waits for is reported to the node, which looks for calls that wait for one another.
        """
        if self._held.count:
            self._send_held()
        thread = threading.get_ident()
        if thread != self._main:
            if self._concurrent is not None and thread == self._concurrent.loop_thread and not self._blocks_loop:
                self._blocks_loop = True
                logger.warning(
                    "get() or wait() in a coroutine of actor %s stops its event loop, and with it all its other "
                    "coroutines; use `await ref` instead",
                    self._settings.name,
                )
            return self.mailbox.wait(target, timeout_s)
        try:
            return self.mailbox.wait(target, timeout_s, BLOCKED_AFTER_S, self._lend_cpus)
        finally:
            self._go_on()

    def _lend_cpus(self, target):
        if any(name == "CPU" for name, _ in self._request):
            self._blocked = True
            self._tell_node(wire.BLOCKED)
        return REPORT_WAIT_S, self._report_wait

    def _report_wait(self, target):
        with self.mailbox.lock:
            keys = self._keys_of(target)
        if keys and self._running is not None:
            self._waiting = True
            self._tell_node(wire.WAITING, body=structs.encode(structs.Waits(self._call_name(), keys)))

    def _keys_of(self, target):
        """Keys of the actors and tasks of this process that are needed for the end of a wait. Lock held."""
        refs = (target,) if type(target) is Reference else ()
        if type(target) is Watch and target.count >= len(target.refs):
            refs = target.refs
        serials = {ref.serial - ref.serial % SERIAL_STEP for ref in refs if ref.owner == self.process}
        tasks = [wire.key(serial, self.process) for serial in serials if serial in self.tasks.pending]
        return tasks + [channel.key for channel in self.actor_channels.by_key.values() if channel.owes(serials)]

    def _go_on(self):
        if self._blocked:
            self._blocked = False
            self._tell_node(wire.UNBLOCKED)
        if self._waiting:
            self._waiting = False
            self._tell_node(wire.WAITING, body=structs.encode(structs.Waits("", [])))

    # -- information --------------------------------------------------------------------------------------------------

    def context(self):
        self.enter()
        now, settings = self._running or running.get(), self._settings
        kind, serial, source, name, _ = now if now is not None else (None, 0, 0, None, 0)
        return RuntimeContext(
            session_id=self.session_id,
            node_id=NODE_ID,
            worker_id=f"{self.process:x}",
            actor_id=self._actor.hex() if self._actor is not None else None,
            task_id=wire.key(serial, source).hex() if kind is not None else None,
            name=settings.name if self._actor is not None else name,
            gpu_ids=tuple(settings.gpu_ids),
            resources=quantities(self._request),
            placement=self.placements.current,
            namespace=self.namespace,
            was_current_actor_reconstructed=settings.restarts > 0,
        )

    # -- the end ------------------------------------------------------------------------------------------------------

    def _end_if_forked(self, error=None):
        """Ends a child that user code has forked when it returns or raises there: the call belongs to the parent.

        Raises:
            SystemExit: in a child, after its call has returned.
            Leave: in a child, after its call has raised `error`.
        """
        if self._refusal is None:  # set by forked()
            return
        if error is None:
            raise SystemExit(0)
        sys.excepthook(type(error), error, error.__traceback__)
        raise Leave(1, "raised in a forked child")

    def _left(self, error):
        code = error.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
        number = 0 if code is None else code if isinstance(code, int) else 1
        return Leave(number & 0xFF, describe_exit(error))

    def _leave(self, leave):
        """Tells the node, and waits until it knows: what was sent before arrives before the end is noticed."""
        if self._refusal is None:  # a forked child has no connection to the node
            self._unseen_errors.report()
            with self.mailbox.lock:
                self._held.send()
                self.mailbox.tell_node(wire.LEAVING, a=leave.code, body=leave.text.encode())
            self.mailbox.wait(self._goodbye, GOODBYE_S)
        self._methods.clear()  # they hold the instance
        self._instance = None
        return leave.code


def main(config: dict) -> None:
    """Where a spawned worker begins: its settings, as built-in types, and the pid of the zygote."""
    run(msgspec.convert(config["settings"], structs.Settings), config["parent"])


def run(settings: structs.Settings, parent: int) -> None:
    """Serves as a worker, in a process just forked or spawned. Never returns.

    Args:
        settings: what it is.
        parent: pid of the zygote.
    """
    os.setsid()
    pid = os.getpid()
    die_with_parent(parent)
    adopt_orphans()  # background processes of this worker become the node's, which kills them, only when it dies
    _set_up(settings)
    StackFile(settings.session, settings.process, settings.name)
    code = 1
    try:
        worker = Worker(settings)
        context.set_engine(worker)
        code = worker.serve()
        atexit._run_exitfuncs()
        if os.getpid() == pid:  # else a child that user code has forked
            worker.mailbox.close(linger_ms=500)
    finally:
        if sys.exc_info()[0] is not None:
            sys.excepthook(*sys.exc_info())
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)  # threads of user code must not keep the process


def _flush_output():
    """Writes out a line that user code has begun; whole lines are written at once."""
    try:
        sys.__stdout__.flush()
        sys.__stderr__.flush()
    except (OSError, ValueError):  # closed by user code
        pass


def _set_up(settings):
    """Undoes in a worker what only the zygote needs, and sets up streams, environment and seeds."""
    confine_handlers_to_user_code()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    faulthandler.enable()
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(settings.gpu_ids)
    os.environ.update(settings.env_vars)
    sys.path[:] = settings.path
    if settings.working_dir:
        os.chdir(settings.working_dir)
        sys.path.insert(0, settings.working_dir)
    random.seed()
    np.random.seed(int.from_bytes(os.urandom(4), "little"))
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(int.from_bytes(os.urandom(7), "little"))
        torch.set_num_threads(max(1, int(settings.held.get("CPU", 1))))
