"""The API functions of the engine, in the driver and in workers alike: `Client` is a `base.Engine`.

One lock, the mailbox's, guards everything that messages change, here and in what a client is made of. Values are
pickled and unpickled without it. `__del__` methods and finalizers only append to queues, which every API function looks
into first (`enter`).
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import struct
import threading
from time import monotonic

import numpy as np

from .... import errors
from ....failures import unreadable
from ....host import machine
from ....unpicklable import refuse
from ...base import refusal
from ...placement_groups import WHEN_BOOKED, Placements, check_group, named, ready_options
from ...resources import quantities, units
from ..transport import structs, wire
from ..transport.mailbox import Mailbox
from ..transport.node_requests import NodeRequests
from ..transport.packed import PLACEHOLDER
from ..transport.session_key import use_key
from ..values.arguments import Arguments, Call
from ..values.local_refs import LocalRefs
from ..values.refs import SERIAL_STEP, Arrivals, Followers, Reference, UnseenErrors, Watch
from ..values.serializer import Serializer, called_by_encode
from ..values.store import IDLE_SEGMENT_S
from .actor_calls import ActorCalls
from .actor_channels import ActorChannels
from .cancellation import Canceller
from .inspection import Inspector
from .named_actors import NamedActors
from .tasks import Tasks

logger = logging.getLogger("runtime")

BLOCKED_AFTER_S = 0.005  # a task that waits longer gives its CPUs away
ROUND_MS = 5000
NODE_ID = f"{wire.NODE:x}"

_unpack = wire.HEADER.unpack_from
_ITEM_COUNT, _NO_ITEMS = slice(wire.HEADER_BYTES + 4, wire.HEADER_BYTES + 8), bytes(4)  # of a reply's only value


class Client:
    """The engine of one process: its own methods, and methods of its parts.

    `submit` comes from Tasks; `create_actor`, `call` and `kill` from ActorCalls; `cancel` from Canceller; `get_actor`
    and `list_named_actors` from NamedActors; `handle_added` and `handle_dropped` from ActorChannels; `status`,
    `memory`, `logs` and `timeline` from Inspector.

    Args:
        process: own number.
        session: directory of the session.
        node_pid: whose /proc/PID/fd holds the segments.
        totals: all resources of the session.
        namespace: namespace of names of actors that are given without one.

    Attributes:
        mailbox, store, serializer: messages, shared memory, values.
        local_refs, actor_channels, tasks: what this process shares, the actors it knows, the tasks that are not done.
        placements: where the calls of this process are placed.
        watches: of threads in wait().
        followers: calls what waits for values.
        malformed: number of messages that were dropped.
        environment: environment of this process, inherited by its calls; see runtime_env.py.
    """

    name = "zeromq"
    environment = ""

    def __init__(self, process: int, session: str, node_pid: int, totals: dict[str, float], namespace: str):
        self.process, self.session, self.node_pid, self.totals = process, session, node_pid, totals
        self.session_id = os.path.basename(session)
        use_key(session)
        self._seal = wire.seal()
        self.watches: list[Watch] = []
        self.followers = Followers()
        self._exported: dict[bytes, object] = {}  # references and leases that were pickled
        self._refusal: type[errors.RuntimeFailure] | None = None
        self.malformed = 0
        self.mailbox = mailbox = Mailbox(session, process, self._dispatch)
        self._wait = mailbox.wait  # a worker has more to do around it
        next_serial = itertools.count(SERIAL_STEP, SERIAL_STEP).__next__
        self._node_requests = NodeRequests(mailbox, next_serial, self.wait_for, self.flush)
        self.local_refs = local_refs = LocalRefs(self, mailbox, next_serial, self._node_requests, node_pid)
        self.store, self._next_serial = local_refs.store, next_serial
        self.actor_channels = ActorChannels(mailbox, local_refs)
        self.serializer = Serializer(self.store, local_refs.find_reference, self.actor_channels.find, self.session_id)
        self._unseen_errors = UnseenErrors(mailbox, self.serializer.decode)
        arguments = Arguments(mailbox, self.serializer, local_refs, self.session_id)
        self.placements = placements = Placements(totals, NODE_ID)
        self.tasks = Tasks(mailbox, local_refs, arguments, self._unseen_errors, placements, self.enter, self.wait_for)
        named = NamedActors(self._node_requests, self.actor_channels, local_refs, namespace, self.enter)
        self.named_actors = named
        actors = ActorCalls(
            mailbox, self.actor_channels, named, local_refs, arguments, self._unseen_errors, placements, self.enter
        )
        self.get_actor, self.list_named_actors = named.get_actor, named.list_named_actors
        self.submit, self.create_actor = self.tasks.submit, actors.create_actor
        self._actor_calls, self._delayed = actors, actors.delayed
        self.call, self.kill = actors.call, actors.kill
        self.canceller = Canceller(mailbox, local_refs, self.tasks, self.actor_channels, actors.cancel, self.enter)
        self.cancel = self.canceller.cancel
        inspector = Inspector(session, self._node_requests.ask, self.enter)
        self.status, self.memory = inspector.status, inspector.memory
        self.logs, self.timeline = inspector.logs, inspector.timeline
        self.handle_added, self.handle_dropped = self.actor_channels.handle_added, self.actor_channels.handle_dropped
        # What every API call and every reply needs, one lookup away.
        self._bare_lock = mailbox.lock.bare
        self._dropped, self._dropped_handles = local_refs.dropped, self.actor_channels.dropped
        self._by_process, self._advance = self.actor_channels.by_process, actors.advance
        self._pins, self._settle_one, self._check_own = local_refs.pins, local_refs.settle_one, local_refs.check_own
        self._handlers = {
            wire.BATCH: self._on_batch,
            wire.REPLY: self._on_reply,
            wire.PACKED_REPLIES: self._on_packed_replies,
            wire.ACTOR_STATE: actors.on_actor_state,
            wire.FAILED: self.tasks.on_failed,
            wire.CANCEL: self.canceller.on_cancel,
            wire.ITEM: local_refs.streams.on_item,
            wire.OBJECT: local_refs.on_object,
            wire.GRANTED: self._node_requests.on_granted,
            wire.RESOURCES: self._node_requests.on_answer,
            wire.NEW_GROUP: self._node_requests.on_answer,
            wire.GROUPS: self._node_requests.on_answer,
            wire.HOLDERS: self._node_requests.on_answer,
            wire.NAMED: self._node_requests.on_answer,
            wire.LIST_NAMES: self._node_requests.on_answer,
            wire.INSPECT: self._node_requests.on_answer,
            wire.FREED: local_refs.on_freed,
            wire.CLOSED: local_refs.on_closed,
            wire.GONE: self._on_gone,
            wire.SETTLE: local_refs.on_settle,
            wire.COLLECT: self._on_collect,
        }

    # -- values -------------------------------------------------------------------------------------------------------

    def put(self, value):
        self.enter()
        try:
            encoded = self.serializer.encode(value)
        except Exception as error:
            refuse(value, "the value", error, self.serializer.dumps)
        ref = Reference(self, self.process, self._next_serial())
        ref.frame, ref.start, ref.pins = encoded.data, 0, encoded.pins
        return ref

    def get(self, refs, timeout_s):
        self.enter()
        for ref in refs:
            if type(ref) is not Reference or ref.engine is not self:
                self._check_own(ref)
            if ref.frame is None and ref.hold is not None:
                self._subscribe(ref)
        deadline = None if timeout_s is None or len(refs) == 1 else monotonic() + timeout_s
        values = []
        for ref in refs:
            if ref.frame is None:
                left = timeout_s if deadline is None else max(0.0, deadline - monotonic())
                self.wait_for(ref, left, refs)
            values.append(ref.value if ref.frame is PLACEHOLDER else self._load(ref))
        return values

    def wait(self, refs, num_returns, timeout_s):
        self.enter()
        if set(map(type, refs)) != {Reference}:
            for ref in refs:
                self._check_own(ref)
        done = _first_done(refs, num_returns)
        if len(done) < num_returns:
            pending = [ref for ref in refs if ref.frame is None]
            for ref in pending:
                self._check_own(ref)
                if ref.hold is not None:
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
            self.wait_for(watch, timeout_s, refs, raising=False)
        finally:
            with self.mailbox.lock:
                self.watches.remove(watch)

    def arrivals(self):
        return Arrivals(self)

    def when_done(self, ref, callback):
        self.enter()
        self._check_own(ref)
        if ref.frame is None and ref.hold is not None:
            self._subscribe(ref)
        ending = self.mailbox.ending

        def call():  # by the value and by the end of the session: the first one counts
            with contextlib.suppress(KeyError):
                ending.remove(call)
                callback()

        self.mailbox.at_end(call)
        self.mailbox.start_keeper()
        with self.mailbox.lock:
            pending = ref.when_done(call)
        if not pending:
            call()
        elif self._delayed:
            self._send_delayed()

    def empty(self, shape, dtype):
        self.enter()
        count = int(np.prod(shape, dtype=np.int64)) if shape else 1
        block = self.store.empty(count * dtype.itemsize)
        return np.frombuffer(block, dtype, count).reshape(shape)

    def _subscribe(self, ref):
        """Asks the node for the value of a reference that another process owns."""
        if not ref.subscribed:
            with self.mailbox.lock:
                self.local_refs.subscribe(ref)

    def _load(self, ref):
        """The value of a reference that is done; raises if it is an error."""
        try:
            value = self.serializer.decode(ref.frame, ref.start, ref.pins)
        except errors.RuntimeFailure:
            raise
        except Exception as error:
            raise unreadable(error) from error
        if ref.frame[ref.start] & wire.ERROR:
            ref.error_seen()
            try:
                raise value
            finally:
                del value  # else this frame and the error would keep each other, and all that the caller holds, alive
        return value

    # -- pickles that are not the engine's -----------------------------------------------------------------------------

    def export_reference(self, ref):
        if called_by_encode():
            raise TypeError("a reference is carried as an item of a message")
        with self.mailbox.lock:
            if self._refusal is None and ref.id not in self._exported:
                self._exported[ref.id] = ref
                self.local_refs.escape((ref.id,), (ref,), None)
        return self.session_id

    def export_actor(self, lease):
        if called_by_encode():
            raise TypeError("a handle is carried as an item of a message")
        with self.mailbox.lock:
            if self._refusal is None:
                self._exported.setdefault(lease.actor_id, lease)
        return self.session_id

    def find_reference(self, id_):
        return self.local_refs.find_reference(id_, self.local_refs.claim(id_))

    def find_actor(self, actor_id):
        self.actor_channels.find(actor_id, self.local_refs.claim(actor_id))

    # -- placement groups ---------------------------------------------------------------------------------------------

    def create_placement_group(self, bundles, strategy, name, detached):
        self.enter()
        check_group(bundles, strategy, self.totals)
        requests = [units(bundle) for bundle in bundles]
        new = structs.NewGroup(self.named_actors.namespace, name, requests, strategy, detached)
        answer = self._node_requests.ask(wire.NEW_GROUP, body=structs.encode(new))
        refusal = answer[wire.HEADER_BYTES :].decode()
        if refusal:
            raise ValueError(refusal)
        return wire.key(wire.header(answer)[4], self.process)

    def remove_placement_group(self, group_id):
        self.enter()
        with self.mailbox.lock:
            self.mailbox.send_to_node(wire.REMOVE_GROUP, *wire.KEY.unpack(group_id))

    def placement_groups(self):
        self.enter()
        return structs.decode(structs.Groups, self._node_requests.ask(wire.GROUPS)).groups

    def find_placement_group(self, name):
        return named(self.placement_groups(), name, self.named_actors.namespace)

    def placement_group_ready(self, group):
        return self.submit(WHEN_BOOKED, (group,), {}, ready_options(group))[0]

    # -- information --------------------------------------------------------------------------------------------------

    def address_info(self):
        return {
            "address": self.session,
            "session_dir": self.session,
            "session_id": self.session_id,
            "node_id": NODE_ID,
            "node_ip_address": machine.ip_address(),
        }

    def nodes(self):
        self.enter()
        return [machine.describe(NODE_ID, self.totals)]

    def resources(self):
        return dict(self.totals), quantities(self.held().free)

    def can_grow(self):
        return False

    def held(self) -> structs.Free:
        """Resources that the session has left and holds, by the node's account."""
        self.enter()
        return structs.decode(structs.Free, self._node_requests.ask(wire.RESOURCES))

    def forked(self):
        self._refusal = errors.ForkedProcessError
        self.mailbox.wake = lambda: None

    # -- what the parts of a client ask of it -------------------------------------------------------------------------

    def enter(self) -> None:
        """Called first by every API function: raises if the session is over, and does the work that finalizers left."""
        if self._refusal is not None:
            raise refusal(self._refusal)
        if self._dropped or self._dropped_handles:
            with self.mailbox.lock:
                self.flush()

    def flush(self) -> None:
        """Frees and releases items that this process no longer needs. Lock held."""
        self.actor_channels.flush()
        self.local_refs.flush()

    def wait_for(self, target, timeout_s, refs, raising=True) -> None:
        """Waits for a reference or a waiter; raises what an unsuccessful end of the wait means.

        Args:
            refs: all references of the request, for the message about missing ones.
            raising: False takes a timeout for an end like another.
        """
        if self._delayed:
            self._send_delayed()
        in_time = self._wait(target, timeout_s)
        if target.frame is not None:
            return
        if self.mailbox.node_died:
            raise errors.NodeDiedError(
                "the process that supervises the session has died, and all its workers with it; call "
                "runtime.shutdown() and runtime.init()"
            )
        self.enter()
        if not in_time and raising:
            missing = sum(ref.frame is None for ref in refs)
            raise errors.GetTimeoutError(f"{missing} of {len(refs)} values were not there in time")

    def _send_delayed(self):
        with self.mailbox.lock:
            self._actor_calls.send_delayed()

    # -- messages -----------------------------------------------------------------------------------------------------

    def _dispatch(self, frame):
        """One message. Called by the thread that reads the mailbox; an empty frame is the keeper's round."""
        try:
            if not frame:
                self._make_round()
                return
            head = _unpack(frame)
            handle = self._handlers.get(head[1])
            if handle is None or head[0] != self._seal:
                raise wire.Malformed(f"frame of kind {head[1]} that begins with {frame[:2]!r}, or of another session")
            handle(frame, head)
        except (wire.Malformed, struct.error, UnicodeDecodeError) as error:
            self.malformed += 1
            logger.debug("dropped a frame of %d bytes: %r", len(frame), error)
        except Exception:  # a mistake of ours: it is logged, and reading continues
            logger.exception("a message of %d bytes could not be handled", len(frame))

    def _make_round(self):
        """Does the work that is due without a request."""
        if self._dropped or self._dropped_handles:
            with self.mailbox.lock:
                self.flush()
        if self._delayed:
            self._send_delayed()
        self._unseen_errors.report()
        if self.local_refs.streams.dropped:
            self.canceller.close_streams()
        if self.store.idle_segments:
            self.store.trim(0 if self._node_requests.growing else IDLE_SEGMENT_S)
        self.mailbox.round_ms = ROUND_MS if self.store.idle_segments else None

    def _on_collect(self, frame, head):
        """Collects garbage in another thread: finalizers may call API functions, which wait for this thread."""
        threading.Thread(target=self._collect, name="runtime collects garbage", daemon=True).start()

    def _collect(self):
        gc.collect()
        with self.mailbox.lock:
            if self._refusal is None:
                self.flush()
        self.store.trim()

    def _on_batch(self, frame, head):
        self._on_frames(head[3], wire.unbatched(frame))

    def _on_frames(self, source, frames):
        """The frames of one batch."""
        if frames and frames[0][wire.KIND_AT] == wire.REPLY:
            frames = self._settle_plain(source, frames)
        for frame in frames:
            self._dispatch(frame)

    def _settle_plain(self, source, frames):
        """Does what `_on_reply` does to the plain replies among frames, all at once; returns the other frames."""
        channel, others = self._by_process.get(source), []
        pending = self.tasks.pending if channel is None else channel.pending
        with self.mailbox.lock:
            if self.watches:
                return frames
            for frame in frames:
                _, kind, raised, _, serial, count, _, _ = _unpack(frame)
                plain = kind == wire.REPLY and count == 1 and not raised and frame[_ITEM_COUNT] == _NO_ITEMS
                ref = pending.get(serial) if plain else None
                if type(ref) is Reference and ref.hold is ref.waiters is None:
                    del pending[serial]
                    ref.start, ref.frame = wire.HEADER_BYTES, frame
                else:
                    others.append(frame)
            if channel is not None:
                self._advance_if_due(channel)
        return others

    def _on_reply(self, frame, head):
        _, _, raised, source, serial, count, _, _ = head
        pins = self._pins(frame, wire.HEADER_BYTES) if count == 1 else ()
        channel = self._by_process.get(source)
        pending = self.tasks.pending if channel is None else channel.pending
        if count == 1 and not raised:
            with self._bare_lock:
                ref = pending.get(serial)
                plain = type(ref) is Reference and ref.hold is ref.waiters is None and not self.watches
                if plain and (channel is None or (channel.handles and not channel.outbox)):
                    del pending[serial]
                    ref.pins, ref.start, ref.frame = pins, wire.HEADER_BYTES, frame
                    return
        with self.mailbox.lock:
            refs = pending.pop(serial, None)
            if channel is not None:
                self._advance_if_due(channel)
            if raised and refs is not None:  # without a reference the error is lost at once
                pins = (self._unseen_errors.pin(frame, wire.HEADER_BYTES),)
            if count != 1 or type(refs) is not Reference:
                self._settle_several(refs, frame, count, pins)
            else:
                self._settle_one(refs, frame, wire.HEADER_BYTES, pins)

    def _on_packed_replies(self, frame, head):
        replies, channel = structs.decode(structs.PackedReplies, frame).replies, self._by_process.get(head[3])
        if channel is None:  # the actor has ended, and its calls with it
            return
        pending = channel.pending
        with self.mailbox.lock:
            watched = bool(self.watches)
            for serial, value in replies:
                ref = pending.get(serial)
                if type(ref) is not Reference:  # no call waits for it
                    continue
                del pending[serial]
                ref.value = value
                if watched or ref.hold is not None or ref.waiters is not None:
                    self._settle_one(ref, PLACEHOLDER, 0, ())
                else:
                    ref.start, ref.frame = 0, PLACEHOLDER
            self._advance_if_due(channel)

    def _advance_if_due(self, channel):
        """Replies have come: sends what waits for room, and lets go of an actor without handles. Lock held."""
        if not channel.handles or (channel.outbox and len(channel.pending) <= channel.window // 2):
            self._advance(channel)

    def _settle_several(self, refs, frame, count, pins):
        """Gives the results of a call their values, or all of them the only one there is. Lock held."""
        if type(refs) is Reference:
            refs = (refs,)
        elif type(refs) is Call:
            refs = (refs.refs,) if type(refs.refs) is Reference else refs.refs
        elif refs is None:  # a late reply: its items are released with the pins
            refs = ()
        if count == 1:
            self.local_refs.settle(refs, frame, wire.HEADER_BYTES, pins)
        else:
            starts = wire.value_starts(frame, wire.HEADER_BYTES, count)
            kept = [self._pins(frame, start) for start in starts]
            for ref, start, pins in zip(refs, starts, kept):
                self._settle_one(ref, frame, start, pins)

    def _on_gone(self, frame, head):
        with self.mailbox.lock:
            self.mailbox.forget(head[5])


def _first_done(refs, count):
    """Indices of the first `count` references that are done."""
    done = []
    for index, ref in enumerate(refs):
        if ref.frame is not None:
            done.append(index)
            if len(done) == count:
                break
    return done
