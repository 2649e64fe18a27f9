"""The verbs of the engine, in the driver and in workers alike: `Client` is an engine as engines/base.py wants it.

One lock, the mailbox's, guards everything here that messages change. Values are pickled and unpickled without it.
`__del__` methods and finalizers only append to queues, which every verb looks into first (`_enter`).
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import struct
import sys
import weakref
from collections import deque
from time import monotonic

import numpy as np

from ... import errors, pickling
from ...options import check_feasible
from ...refs import ObjectRef
from ...unpicklable import explain, explain_call
from . import control, wire
from .ledger import quantities, units
from .mailbox import Mailbox, Waiter
from .refs import Call, Channel, Reference, Sharing, Watch
from .serializer import Encoded, Serializer
from .store import IDLE_SEGMENT_S, Hold, Store

logger = logging.getLogger("runtime")

SERIAL_STEP = 2**16  # results of one call have consecutive serials
LARGEST_NUM_RETURNS = SERIAL_STEP
LARGEST_TASK_COUNT = 1_000_000  # tasks of this process that are not done; more wait in submit()
STORE_FULL_S = 30.0
BLOCKED_AFTER_S = 0.005  # a task that waits longer gives its CPUs away
TEMPLATES = 256
ROUND_MS = 5000
EAGER_CALLS = 8  # calls on their way that keep an actor busy: those after them are sent several at a time
BATCH_CALLS = 32


_pack, _unpack, _unpack_value = wire.HEADER.pack, wire.HEADER.unpack_from, wire.VALUE.unpack_from


class Client:
    """Args:
    process: own number.
    session: directory of the session.
    node_pid: whose /proc/PID/fd holds the segments.
    totals: all resources of the session.
    """

    name = "zeromq"

    def __init__(self, process: int, session: str, node_pid: int, totals: dict[str, float]):
        self.process, self.session, self.node_pid, self.totals = process, session, node_pid, totals
        self.session_id = os.path.basename(session)
        self._serial = itertools.count(SERIAL_STEP, SERIAL_STEP).__next__
        self._dropped: deque[bytes] = deque()  # items whose last Hold went away
        self._dropped_handles: deque[bytes] = deque()
        self._channels: dict[bytes, Channel] = {}
        self._by_process: dict[int, Channel] = {}
        self._tasks: dict[int, tuple | Reference] = {}
        self._requests: dict[int, list] = {}  # serial -> [waiter, answer]
        self._known: weakref.WeakValueDictionary[bytes, Reference] = weakref.WeakValueDictionary()
        self._registered: set[bytes] = set()  # own blocks the node knows of
        self._defined: dict[bytes, tuple] = {}  # digest -> what keeps its items alive
        self._method_names: dict[str, tuple[bytes, int]] = {}
        self._templates: dict[tuple[int, int], tuple] = {}
        self._postponed: list = []
        self.watches: list[Watch] = []  # of threads in wait()
        self._refusal: type[errors.RuntimeFailure] | None = None
        self._growing = 0  # threads that wait for shared memory: what is freed meanwhile goes back to the node at once
        self.malformed = 0
        self.mailbox = Mailbox(session, process, self._dispatch)
        self._wait = self.mailbox.wait  # a worker has more to do around it
        self.store = Store(node_pid, self._grow, self._return_segment, self._new_key, self._release)
        self.serializer = Serializer(self.store, self._find_reference, self._find_actor)
        self._handlers = {
            wire.BATCH: self._on_batch,
            wire.REPLY: self._on_reply,
            wire.ACTOR_STATE: self._on_actor_state,
            wire.FAILED: self._on_failed,
            wire.OBJECT: self._on_object,
            wire.GRANTED: self._on_granted,
            wire.RESOURCES: self._on_answer,
            wire.FREED: self._on_freed,
            wire.CLOSED: self._on_closed,
            wire.GONE: self._on_gone,
        }

    # -- tasks and actors ---------------------------------------------------------------------------------------------

    def submit(self, function, args, kwargs, options):
        self._enter()
        _, _, digest, template, fields = self._template(function, options)
        arguments = self._arguments(args, kwargs)
        serial, refs = self._new_references(options.num_returns)
        if len(self._tasks) >= LARGEST_TASK_COUNT:
            self._wait_for_tasks()
        call = Call(serial, refs, template, arguments)
        with self.mailbox.lock:
            if digest not in self._defined:
                self._define(function, digest)
            self._tasks[serial] = refs
            waiting = self._unresolved(arguments, lambda: self._send_task(call, fields, options.num_returns))
            if not waiting:
                self._send_task(call, fields, options.num_returns)
        return [refs] if type(refs) is Reference else list(refs)

    def _send_task(self, call, fields, num_returns):
        """Lock held; all arguments are there."""
        failed = self._failed_argument(call.arguments)
        if failed is not None:
            self._tasks.pop(call.serial, None)
            self._settle(call.refs, *failed)
            return
        encoded, depends = call.arguments
        body, items = encoded.data, encoded.items
        template = call.start
        if items or depends:
            body, items = self._with_values(call.arguments)
            task = control.Task(*fields[:3], list(items), *fields[3:])
            template = control.encode(task)
            self._register_arguments(call.arguments)
        head = wire.HEADER.pack(
            wire.MAGIC, wire.SUBMIT, 0, self.process, call.serial, len(template), num_returns, 1 + len(depends)
        )
        self.mailbox.send(wire.NODE, b"".join((head, template, bytes(-len(template) % wire.ALIGNMENT), body)))

    def create_actor(self, cls, args, kwargs, options):
        self._enter()
        name = options.name or cls.name
        check_feasible(options.request(), self.totals, f"actor {name}")
        digest, _ = cls.pickled(self.session_id, self._dump_definition)
        arguments = self._arguments(args, kwargs)
        key = self._new_key()
        channel = Channel(key)
        with self.mailbox.lock:
            if digest not in self._defined:
                self._define(cls, digest)
            channel.hold = Hold(key, self._release)
            self._channels[key] = channel
            waiting = self._unresolved(arguments, lambda: self._send_create(channel, name, digest, options, arguments))
            if not waiting:
                self._send_create(channel, name, digest, options, arguments)
        self._needs_keeper()
        return key

    def _send_create(self, channel, name, digest, options, arguments):
        """Lock held; all arguments are there."""
        failed = self._failed_argument(arguments)
        if failed is not None:
            frame, start, _ = failed
            size = wire.VALUE.unpack_from(frame, start)[5]
            self._bury(channel, frame[start : start + size])
            return
        body, items = self._with_values(arguments)
        create = control.Create(
            digest, name, units(options.request()), units(options.held()), list(items), options.env_vars
        )
        self._register_arguments(arguments)
        data = control.encode(create)
        serial, _ = wire.KEY.unpack(channel.key)
        head = wire.HEADER.pack(wire.MAGIC, wire.CREATE, 0, self.process, serial, len(data), 0, 1 + len(arguments[1]))
        self.mailbox.send(wire.NODE, b"".join((head, wire.pad(data), body)))

    def call(self, actor_id, method, args, kwargs, num_returns):
        self._enter()
        encoded, depends = arguments = self._arguments(args, kwargs)
        if num_returns == 1:
            serial = self._serial()
            refs = Reference(self, self.process, serial)
        else:
            serial, refs = self._new_references(num_returns)
        name, name_bytes = self._method_names.get(method) or self._method_name(method)
        start = _pack(b"R1", wire.CALL, 0, self.process, serial, name_bytes, num_returns, 1 + len(depends)) + name
        mailbox, waiting = self.mailbox, 0
        with mailbox.lock:
            channel = self._channels[actor_id]
            if len(channel.pending) < EAGER_CALLS and channel.process and not channel.outbox and not depends:
                if encoded[1]:
                    self._escape(encoded.items, encoded.pins, channel.process)
                channel.pending[serial] = refs
                mailbox.send(channel.process, start + encoded[0])
            else:
                waiting = self._queue(channel, Call(serial, refs, start, arguments))
        if waiting and waiting % BATCH_CALLS == 0:
            mailbox.drain()
        return [refs] if num_returns == 1 else list(refs)

    def _method_name(self, method):
        name = method.encode()
        entry = self._method_names[method] = wire.pad(name), len(name)
        return entry

    def _queue(self, channel, call):
        """Puts a call behind those that wait already; how many they are if they cannot be sent. Lock held.

        When enough calls are on their way to keep the actor busy, the next ones wait for the next reply or for one
        another, and then go together in one message.
        """
        if channel.error is not None:
            self._settle(call.refs, channel.error, 0)
            return 0
        channel.outbox.append(call)
        self._unresolved(call.arguments, lambda: self._advance(channel))
        if len(channel.pending) < EAGER_CALLS or len(channel.outbox) % BATCH_CALLS == 0:
            self._advance(channel)
        return len(channel.outbox) if len(channel.pending) >= channel.WINDOW else 0

    def _advance(self, channel):
        """Sends what may go. Lock held."""
        frames, pending = [], channel.pending
        while channel.outbox and channel.process and len(pending) < channel.WINDOW:
            call = channel.outbox[0]
            serial, refs, start, arguments = call
            depends = arguments[1]
            if depends and any(ref.frame is None for ref in depends):
                break
            channel.outbox.popleft()
            if depends and (failed := self._failed_argument(arguments)) is not None:
                self._settle(refs, *failed)
                continue
            body, items = self._with_values(arguments)
            if items:
                self._register_arguments(arguments, channel.process)
            pending[serial] = refs
            frames.append(start + body)
        if frames:
            self.mailbox.send_several(channel.process, frames)
        if not channel.handles and channel.idle:
            self._retire(channel)

    def kill(self, actor_id):
        self._enter()
        self.mailbox.drain()  # what the actor has answered so far
        serial, process = wire.KEY.unpack(actor_id)
        with self.mailbox.lock:
            self.mailbox.send(wire.NODE, wire.message(wire.KILL, self.process, serial, process))
            channel = self._channels.get(actor_id)
            if channel is not None and channel.error is None:
                self._bury(channel, error_value(errors.ActorDiedError("the actor was killed by runtime.kill()")))

    # -- objects ------------------------------------------------------------------------------------------------------

    def put(self, value):
        self._enter()
        try:
            encoded = self.serializer.encode(value)
        except errors.RuntimeFailure:
            raise
        except Exception as error:
            raise TypeError(explain(value, "the value", error, self.serializer.dumps)) from error
        ref = Reference(self, self.process, self._serial())
        ref.frame, ref.start, ref.pins = encoded.data, 0, encoded.pins
        return ref

    def get(self, refs, timeout_s):
        self._enter()
        for ref in refs:
            if type(ref) is not Reference or ref.client is not self:
                self._check_own(ref)
            if ref.frame is None and ref.shared is not None:
                self._subscribe(ref)
        deadline = None if timeout_s is None or len(refs) == 1 else monotonic() + timeout_s
        for ref in refs:
            if ref.frame is None:
                left = timeout_s if deadline is None else max(0.0, deadline - monotonic())
                self._await(ref, left, refs)
            if ref.frame[ref.start] & wire.ERROR:
                self._load(ref)
        return [self._load(ref) for ref in refs]

    def wait(self, refs, num_returns, timeout_s):
        self._enter()
        done = _first_done(refs, num_returns)
        if len(done) < num_returns:
            pending = [ref for ref in refs if ref.frame is None]
            for ref in pending:
                self._check_own(ref)
                if ref.shared is not None:
                    self._subscribe(ref)
            self._await_some(pending, num_returns - (len(refs) - len(pending)), timeout_s)
            done = _first_done(refs, num_returns)
        if len(done) == 1:  # the common case, at the speed of slices
            return [refs[done[0]]], refs[: done[0]] + refs[done[0] + 1 :]
        chosen = set(done)
        return [refs[i] for i in done], [ref for i, ref in enumerate(refs) if i not in chosen]

    def _await_some(self, refs, count, timeout_s):
        """Returns when `count` of these are done, or the time is over."""
        if timeout_s == 0:
            self.mailbox.drain()
            return
        watch = Watch(count)
        with self.mailbox.lock:
            watch.refs = {ref for ref in refs if ref.frame is None}
            watch.count -= len(refs) - len(watch.refs)
            if watch.count <= 0:
                return
            self.watches.append(watch)
        try:
            self._await(watch, timeout_s, refs, raising=False)
        finally:
            with self.mailbox.lock:
                self.watches.remove(watch)

    def _check_own(self, ref):
        if type(ref) is not Reference or ref.client is not self:
            raise errors.SessionClosedError(f"{ref!r} belongs to another session")

    def empty(self, shape, dtype):
        self._enter()
        count = int(np.prod(shape, dtype=np.int64)) if shape else 1
        block = self.store.empty(count * dtype.itemsize)
        return np.frombuffer(block, dtype, count).reshape(shape)

    def _await(self, target, timeout_s, refs, raising=True):
        """Waits; raises what an unsuccessful end of the wait means."""
        in_time = self._wait(target, timeout_s)
        if target.frame is not None:
            return
        if self.mailbox.node_died:
            raise errors.NodeDiedError(
                "the process that supervises the session has died, and all its workers with it; call "
                "runtime.shutdown() and runtime.init()"
            )
        self._enter()
        if not in_time and raising:
            missing = sum(ref.frame is None for ref in refs)
            raise errors.GetTimeoutError(f"{missing} of {len(refs)} values were not there in time")

    def _subscribe(self, ref):
        """Asks the node for the value of a reference that another process owns."""
        if not ref.shared.subscribed:
            with self.mailbox.lock:
                ref.shared.subscribed = True
                self.mailbox.send(wire.NODE, wire.message(wire.SUBSCRIBE, self.process, ref.serial, ref.owner))

    def _load(self, ref):
        """The value of a reference that is done; raises if it is an error."""
        value = self.serializer.decode(ref.frame, ref.start, ref.pins)
        if ref.frame[ref.start] & wire.ERROR:
            try:
                raise value
            finally:
                del value  # else this frame and the error would keep each other, and all that the caller holds, alive
        return value

    # -- information --------------------------------------------------------------------------------------------------

    def resources(self):
        self._enter()
        answer = self._ask(lambda serial: wire.message(wire.RESOURCES, self.process, serial))
        return dict(self.totals), quantities(control.decode(control.Free, answer).free)

    def handle_added(self, actor_id):
        with self.mailbox.lock:
            channel = self._channels.get(actor_id)
            if channel is None:
                return
            if channel.fresh:
                channel.fresh = False
            else:
                channel.handles += 1

    def handle_dropped(self, actor_id):
        self._dropped_handles.append(actor_id)
        if len(self._dropped_handles) == 1:
            self.mailbox.wake()

    def forked(self):
        self._refusal = errors.ForkedProcessError
        self._release_quietly()

    # -- arguments ----------------------------------------------------------------------------------------------------

    def _arguments(self, args, kwargs) -> tuple[Encoded, tuple[Reference, ...]]:
        """Encodes what a call is given. References at the top are left out and listed.

        Raises:
            TypeError: something cannot be pickled.
        """
        depends = ()
        for value in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(value, ObjectRef):
                given, depends = _without_references(args, kwargs)
                for ref in depends:
                    self._check_own(ref)
                break
        else:
            given = (args, kwargs)
        try:
            return self.serializer.encode(given), depends
        except errors.RuntimeFailure:
            raise
        except Exception as error:
            raise TypeError(explain_call(args, kwargs, error, self.serializer.dumps)) from error

    def _unresolved(self, arguments, then) -> bool:
        """Whether arguments are pending; if so, `then()` runs when the last has come. Lock held."""
        pending = [ref for ref in arguments[1] if ref.frame is None]
        if not pending:
            return False
        self._needs_keeper()
        left = len(pending)

        def arrived():
            nonlocal left
            left -= 1
            if left == 0:
                then()

        for ref in pending:
            ref.when_done(arrived)
            if ref.shared is not None and not ref.shared.subscribed:
                ref.shared.subscribed = True
                self.mailbox.send(wire.NODE, wire.message(wire.SUBSCRIBE, self.process, ref.serial, ref.owner))
        return True

    def _failed_argument(self, arguments):
        """(frame, start, pins) of the first argument that is an error, or None."""
        return next(((ref.frame, ref.start, ref.pins) for ref in arguments[1] if ref.failed), None)

    def _with_values(self, arguments):
        """The bytes of all values of a call, and the keys of their items."""
        encoded, depends = arguments
        if not depends:
            return encoded.data, encoded.items
        parts, items = [wire.pad(encoded.data)], list(encoded.items)  # with repetitions: each value holds for itself
        for ref in depends:
            parts.append(wire.pad(ref.value_bytes()))
            items += _items(ref.frame, ref.start)
        return b"".join(parts), items

    def _register_arguments(self, arguments, receiver=None):
        """Makes the items of a call known to the node; an actor's process becomes their holder. Lock held."""
        encoded, depends = arguments
        self._escape(encoded.items, encoded.pins, receiver)
        for ref in depends:
            self._escape(_items(ref.frame, ref.start), ref.pins, receiver)

    def _template(self, function, options):
        """What all tasks of a function with these options have in common."""
        identity = id(function), id(options)
        template = self._templates.get(identity)
        if template is None:
            name = options.name or function.name
            check_feasible(options.request(), self.totals, f"task {name}()")
            if options.num_returns > LARGEST_NUM_RETURNS:
                raise ValueError(f"num_returns={options.num_returns} must be at most {LARGEST_NUM_RETURNS}")
            digest, _ = function.pickled(self.session_id, self._dump_definition)
            retry = pickling.dumps(options) if options.retry_exceptions else b""
            fields = digest, name, units(options.request()), options.max_retries, retry
            data = control.encode(control.Task(*fields[:3], [], *fields[3:]))
            if len(self._templates) >= TEMPLATES:
                self._templates.clear()
            template = self._templates[identity] = function, options, digest, data, fields
        return template

    def _dump_definition(self, target) -> bytes:
        encoded = self.serializer.encode_by_value(target, inline=True)
        if encoded.items:
            self._captured = encoded
        return encoded.data

    _captured: Encoded | None = None

    def _define(self, definition, digest):
        """Sends a function or class to the node. Lock held."""
        _, data = definition.pickled(self.session_id)
        captured = self._captured if self._captured is not None and self._captured.data == data else Encoded(data)
        self._captured = None
        self._defined[digest] = captured.pins
        self._escape(captured.items, captured.pins, None)
        define = control.Define(digest, data, list(captured.items), list(sys.path))
        self.mailbox.send(wire.NODE, wire.message(wire.DEFINE, self.process, body=control.encode(define)))

    def _wait_for_tasks(self):
        logger.warning("%d tasks are not done; submit() waits", len(self._tasks))
        while len(self._tasks) >= LARGEST_TASK_COUNT:
            waiter = Waiter()
            with self.mailbox.lock:
                refs = next(iter(self._tasks.values()))
                ref = refs if type(refs) is Reference else refs[0]
                if not ref.when_done(waiter.tick):
                    continue
            self._await(waiter, None, [ref])

    # -- what is held -------------------------------------------------------------------------------------------------

    def _enter(self):
        """Every verb: refuses when the session is over, and does what finalizers have left to do."""
        if self._refusal is not None:
            raise self._refusal("this session has been shut down, or belongs to the process this one was forked from")
        if self._dropped or self._dropped_handles:
            with self.mailbox.lock:
                self._flush()

    def _flush(self):
        """Frees and releases what is not needed here any more. Lock held."""
        while self._dropped_handles:
            channel = self._channels.get(self._dropped_handles.popleft())
            if channel is not None:
                channel.handles -= 1
                if not channel.handles and channel.idle:
                    self._retire(channel)
        release = []
        while self._dropped:
            key = self._dropped.popleft()
            if self.store.owns(key) and key not in self._registered:
                self.store.free(key)
            else:
                release.append(key)
        if release:
            self._send_references([], [], [], release)

    def _retire(self, channel):
        """The last handle is gone and nothing waits: this process lets go of the actor. Lock held."""
        if self._channels.get(channel.key) is channel:
            del self._channels[channel.key]
            self._by_process.pop(channel.process, None)
            channel.hold = None

    def _release(self, key):
        """The end of a `Hold`: at any moment, in any thread."""
        self._dropped.append(key)
        if len(self._dropped) == 1:
            self.mailbox.wake()

    def _release_quietly(self):
        self.mailbox.wake = lambda: None

    def _escape(self, items, pins, receiver):
        """Items go to another process: the node learns of them, and that the receiver holds them. Lock held."""
        blocks, objects = [], []
        self._register(items, pins, blocks, objects)
        hold = [(key, receiver) for key in items] if receiver is not None else []
        if blocks or objects or hold:
            self._send_references(blocks, objects, hold, [])

    def _register(self, items, pins, blocks, objects):
        for key, pin in zip(items, pins):
            if self.store.owns(key):
                if key not in self._registered:
                    self._registered.add(key)
                    blocks.append((key, self.store.segment_of(key)))
            elif isinstance(pin, Reference) and pin.shared is None:
                pin.shared = Sharing(Hold(key, self._release))
                pin.shared.subscribed = True  # its value comes here first
                self._known[key] = pin
                self._needs_keeper()
                objects.append((key, *self._published(pin, blocks, objects)))

    def _published(self, ref, blocks, objects):
        """(value, keys of its items) of an own reference that others know; (None, []) while it is pending."""
        if ref.frame is None:
            return None, []
        items = _items(ref.frame, ref.start)
        self._register(items, ref.pins, blocks, objects)
        return ref.value_bytes(), items

    def _send_references(self, blocks, objects, hold, release):
        data = control.encode(control.References(blocks, objects, hold, release))
        self.mailbox.send(wire.NODE, wire.message(wire.REFERENCES, self.process, body=data))

    def _find_reference(self, key, hold):
        """The reference of this process for a key in a message; made if there is none."""
        if isinstance(hold, Reference):  # a value that has not left this process is held by the reference itself
            return hold
        with self.mailbox.lock:
            ref = self._known.get(key)
            if ref is None:
                serial, owner = wire.KEY.unpack(key)
                ref = self._known[key] = Reference(self, owner, serial)
                ref.shared = Sharing(hold)
        return ref

    def _find_actor(self, key, hold):
        """A handle comes with a message: the channel to its actor, made if there is none."""
        with self.mailbox.lock:
            channel = self._channels.get(key)
            if channel is None:
                channel = self._channels[key] = Channel(key)
                channel.hold = hold
                serial, process = wire.KEY.unpack(key)
                self.mailbox.send(wire.NODE, wire.message(wire.WATCH, self.process, serial, process))
        self._needs_keeper()

    def _new_key(self) -> bytes:
        return wire.key(self._serial(), self.process)

    def _new_references(self, count):
        if count > LARGEST_NUM_RETURNS:
            raise ValueError(f"num_returns={count} must be at most {LARGEST_NUM_RETURNS}")
        serial = self._serial()
        if count == 1:
            return serial, Reference(self, self.process, serial)
        return serial, tuple(Reference(self, self.process, serial + i) for i in range(count))

    def _needs_keeper(self):
        self.mailbox.start_keeper()

    # -- shared memory ------------------------------------------------------------------------------------------------

    def _grow(self, size):
        """A new segment from the node.

        Raises:
            ObjectStoreFullError: none in time.
        """
        with self.mailbox.lock:
            self._flush()
        self._needs_keeper()
        self._growing += 1
        try:
            answer = self._ask(lambda serial: wire.message(wire.GRANT, self.process, serial, c=size), STORE_FULL_S)
        finally:
            self._growing -= 1
        if answer is not None:
            _, _, _, _, _, segment, fd, _ = wire.header(answer)
            if segment:
                return segment, fd
            text = bytes(answer[wire.HEADER_BYTES :]).decode()
        else:
            text = f"nothing was freed within {STORE_FULL_S:g} s"
        raise errors.ObjectStoreFullError(
            f"the shared memory is full: {size / 2**20:.1f} MB more were needed, {text}. Drop references and arrays "
            "you do not need, or give more: runtime.init(object_store_memory=...)."
        )

    def _return_segment(self, segment):
        with self.mailbox.lock:
            self.mailbox.send(wire.NODE, wire.message(wire.RETURN, self.process, a=segment))

    def _ask(self, make, timeout_s=None):
        """Sends a request to the node and waits; the answer's frame, or None if it did not come in time."""
        serial, waiter = self._serial(), Waiter()
        entry = self._requests[serial] = [waiter, None]
        with self.mailbox.lock:
            self.mailbox.send(wire.NODE, make(serial))
        try:
            self._await(waiter, timeout_s, (), raising=False)
        finally:
            self._requests.pop(serial, None)
        return entry[1]

    # -- messages -----------------------------------------------------------------------------------------------------

    def _dispatch(self, frame):
        """One message. Called by the thread that reads the mailbox; an empty frame is the keeper's round."""
        try:
            if not frame:
                self._make_round()
                return
            head = _unpack(frame)
            handle = self._handlers.get(head[1])
            if handle is None or head[0] != b"R1":
                raise wire.Malformed(f"frame that begins with {frame[:4]!r}")
            handle(frame, head)
        except (wire.Malformed, struct.error, UnicodeDecodeError) as error:
            self.malformed += 1
            logger.debug("dropped a frame of %d bytes: %r", len(frame), error)
        except Exception:  # a mistake of ours: whoever reads must go on reading, and somebody should hear of it
            logger.exception("a message of %d bytes could not be handled", len(frame))

    def _make_round(self):
        """What is to be done though nobody asks for it."""
        if self._dropped or self._dropped_handles:
            with self.mailbox.lock:
                self._flush()
        if self.store.idle_segments:
            self.store.trim(0 if self._growing else IDLE_SEGMENT_S)
        self.mailbox.round_ms = ROUND_MS if self.store.idle_segments else None

    def _on_batch(self, frame, head):
        for inner in wire.unbatched(frame):
            self._dispatch(inner)

    def _on_reply(self, frame, head):
        _, _, _, source, serial, count, _, _ = head
        pins = self._pins(frame, wire.HEADER_BYTES) if count == 1 else ()
        with self.mailbox.lock:
            channel = self._by_process.get(source)
            if channel is None:
                refs = self._tasks.pop(serial, None)
            else:
                refs = channel.pending.pop(serial, None)
                if not channel.handles or (channel.outbox and len(channel.pending) <= channel.WINDOW // 2):
                    self._advance(channel)
            if count != 1 or type(refs) is not Reference:
                self._settle_several(refs, frame, count)
            elif refs.shared is None:
                refs.settle(frame, wire.HEADER_BYTES, pins)
            else:
                self._settle_one(refs, frame, wire.HEADER_BYTES, pins)

    def _settle_several(self, refs, frame, count):
        starts = wire.value_starts(frame, wire.HEADER_BYTES, count)
        pins = [self._pins(frame, start) for start in starts]
        if refs is None:
            return  # a late reply: what it holds is released with the pins
        if type(refs) is Reference:
            refs = (refs,)
        if not refs:
            if count:
                logger.error("%s", self.serializer.decode(frame, starts[0], pins[0]))
        elif count == 1:
            self._settle(refs, frame, starts[0], pins[0])
        else:
            for ref, start, kept in zip(refs, starts, pins):
                self._settle_one(ref, frame, start, kept)

    def _settle(self, refs, frame, start, pins=()):
        """Gives one value (usually an error) to all results of a call. Lock held."""
        for ref in (refs,) if type(refs) is Reference else refs:
            self._settle_one(ref, frame, start, pins)

    def _settle_one(self, ref, frame, start, pins):
        ref.settle(frame, start, pins)
        if ref.shared is not None and ref.owner == self.process:
            blocks, objects = [], []
            value, items = self._published(ref, blocks, objects)
            objects.append((ref.id, value, items))
            self._send_references(blocks, objects, [], [])

    def _pins(self, frame, start):
        """The shares that came with a value."""
        if _unpack_value(frame, start)[1] == 0:
            return ()
        return tuple(Hold(key, self._release) for key in _items(frame, start))

    def _on_failed(self, frame, head):
        failed = control.decode(control.Failed, frame)
        with self.mailbox.lock:
            refs = self._tasks.pop(head[4], None)
            if refs is not None:
                self._settle(refs, error_value(getattr(errors, failed.error)(failed.text)), 0)

    def _on_object(self, frame, head):
        with self.mailbox.lock:
            if head[2] == wire.LOST:
                frame = bytes(wire.HEADER_BYTES) + error_value(
                    errors.OwnerDiedError(frame[wire.HEADER_BYTES :].decode())
                )
            pins = self._pins(frame, wire.HEADER_BYTES)
            ref = self._known.get(wire.key(head[4], head[5]))
            if ref is not None and ref.frame is None:
                ref.settle(frame, wire.HEADER_BYTES, pins)

    def _on_actor_state(self, frame, head):
        _, _, state, _, serial, creator, process, _ = head
        with self.mailbox.lock:
            channel = self._channels.get(wire.key(serial, creator))
            if channel is None or channel.error is not None:
                return
            if state == wire.ACTOR_ALIVE:
                channel.process = process
                self._by_process[process] = channel
                self._advance(channel)
                return
        self._postponed.append((channel, frame, state))  # replies that came before its end are read first
        self.mailbox.at_rest(self._bury_postponed)

    def _bury_postponed(self):
        while self._postponed:
            channel, frame, state = self._postponed.pop()
            body = frame[wire.HEADER_BYTES :]
            if state == wire.ACTOR_DEAD:
                body = error_value(errors.ActorDiedError(body.decode()))
            with self.mailbox.lock:
                self._bury(channel, body)

    def _bury(self, channel, error):
        """An actor has ended: all its calls get this error, also those to come. Lock held."""
        channel.error = error
        if channel.process:  # else it never lived; 0 is the node
            self._by_process.pop(channel.process, None)
            self.mailbox.forget(channel.process)
        channel.process = 0
        calls = [*channel.pending.values(), *(call.refs for call in channel.outbox)]
        channel.pending.clear()
        channel.outbox.clear()
        for refs in calls:
            self._settle(refs, error, 0)
        if not channel.handles:
            self._retire(channel)

    def _on_granted(self, frame, head):
        if head[4] in self._requests:
            self._on_answer(frame, head)
        elif head[5]:
            self._return_segment(head[5])  # it came too late

    def _on_answer(self, frame, head):
        entry = self._requests.get(head[4])
        if entry is not None:
            entry[1] = frame
            entry[0].tick()

    def _on_freed(self, frame, head):
        for key in wire.keys(frame, wire.HEADER_BYTES):
            self._registered.discard(key)
            self.store.free(key)

    def _on_closed(self, frame, head):
        if head[5]:
            self.store.forget(head[5])
        else:
            self.store.trim()

    def _on_gone(self, frame, head):
        with self.mailbox.lock:
            self.mailbox.forget(head[5])


def error_value(error: BaseException) -> bytes:
    """An exception as a value."""
    return wire.value(pickle.dumps(error, 5), wire.ERROR)


def _items(frame, start):
    return wire.value_items(frame, wire.value_head(frame, start))


def _first_done(refs, count):
    """Indices of the first `count` references that are done."""
    done = []
    for index, ref in enumerate(refs):
        if ref.frame is not None:
            done.append(index)
            if len(done) == count:
                break
    return done


def _without_references(args, kwargs):
    """((args, kwargs, where the references were), the references); None stands in their places."""
    places, refs, kept = [], [], {}
    plain = list(args)
    for index, value in enumerate(args):
        if isinstance(value, ObjectRef):
            places.append(index)
            refs.append(value)
            plain[index] = None
    for name, value in kwargs.items():
        kept[name] = value
        if isinstance(value, ObjectRef):
            places.append(name)
            refs.append(value)
            kept[name] = None
    return (tuple(plain), kept, places), tuple(refs)
