"""Actors as their callers see them: `create_actor`, `call`, `kill`, and the news of where they live.

A call goes to the process where the actor lives. When that has died and the actor starts again elsewhere, calls without
retries, and those made meanwhile, fail; the others are sent again in the order in which they were made, before newer
ones. A call that waits for the restart uses up no retry, however often the restart fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

import zmq

from .... import errors, pickling
from ....calls.options import STREAMING
from ....runtime_env import merged
from ...definitions import ASYNC_CONCURRENCY
from ...placement_groups import Placements
from ...resources import units
from ..transport import structs, wire
from ..transport.mailbox import Mailbox
from ..transport.packed import can_pack_all, pack_calls
from ..values.arguments import Arguments, Call, failed_argument
from ..values.local_refs import LocalRefs
from ..values.refs import Reference, UnseenErrors
from ..values.serializer import error_value
from ..values.store import Hold
from .actor_channels import ActorChannel, ActorChannels
from .named_actors import NamedActors

EAGER_CALLS = 8  # calls on their way that keep an actor busy: those after them are sent several at a time
BATCH_CALLS = 32
CALL_NAMES = 256  # that are kept

_pack, _new_tuple = wire.HEADER.pack, tuple.__new__


class ActorCalls:
    """Creates, calls and kills actors, and keeps their calls in order.

    Args:
        mailbox: mailbox of this process.
        actor_channels, named_actors, local_refs, arguments, unseen_errors: of this process.
        placements: placements of this process.
        enter: `Client.enter`.

    Attributes:
        delayed: channels for `send_delayed`, before this thread waits, or by the keeper a little later.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        actor_channels: ActorChannels,
        named_actors: NamedActors,
        local_refs: LocalRefs,
        arguments: Arguments,
        unseen_errors: UnseenErrors,
        placements: Placements,
        enter: Callable[[], None],
    ):
        self._mailbox, self._process, self._actor_channels = mailbox, mailbox.process, actor_channels
        self._named_actors, self._local_refs, self._arguments = named_actors, local_refs, arguments
        self._unseen_errors, self._placements = unseen_errors, placements
        self._method_names: dict[str, tuple[bytes, int]] = {}
        self._call_names: dict[tuple, tuple[bytes, int]] = {}
        self._postponed: deque = deque()
        self.delayed: set[ActorChannel] = set()
        # What `call` needs, one lookup away.
        self._enter, self._encode, self._next_serial = enter, arguments.encode, local_refs.next_serial
        self._engine, self._seal = local_refs.engine, wire.seal()
        self._bare_lock, self._sends, self._by_key = mailbox.lock.bare, mailbox.sends, actor_channels.by_key

    def create_actor(self, cls, args, kwargs, options):
        """See base.Engine."""
        self._enter()
        label = options.label or options.name or cls.name
        placement = self._placements.find(options, f"actor {label}")
        digest = self._arguments.digest(cls)
        arguments = self._encode(args, kwargs)
        key = self._local_refs.new_key()
        if options.name is not None:
            holder = self._named_actors.claim(key, options, cls.name, cls.methods_of(options))
            if holder != key:
                return holder
        with self._mailbox.lock:
            if digest not in self._arguments.defined:
                self._arguments.define(cls, digest)
            channel = self._actor_channels.open(key, Hold(key, self._local_refs.release))
            send = partial(self._send_create, channel, label, digest, cls.has_coroutines, options, placement, arguments)
            if not self._arguments.unresolved(arguments, send):
                send()
        self._mailbox.start_keeper()
        return key

    def _send_create(self, channel, label, digest, has_coroutines, options, placement, arguments):
        """Lock held; all arguments are there."""
        failed, (serial, _) = failed_argument(arguments), wire.KEY.unpack(channel.key)
        if failed is not None:
            frame, start, pins = failed
            error = frame[start : start + wire.VALUE.unpack_from(frame, start)[5]]
            self._actor_channels.bury(channel, error, pins)
            self._mailbox.send_to_node(wire.START_FAILED, serial, body=error)
            return
        body, items = self._arguments.complete(arguments)
        max_concurrency = options.max_concurrency or (ASYNC_CONCURRENCY if has_coroutines else 1)
        create = structs.Create(
            digest=digest,
            name=label,
            request=units(options.request()),
            held=units(options.held()),
            items=list(items),
            environment=merged(self._engine.environment, options.environment),
            placement=placement,
            max_restarts=options.max_restarts,
            detached=options.detached,
            max_concurrency=max_concurrency,
            groups=options.concurrency_groups,
            calls_at_a_time=max_concurrency + sum(options.concurrency_groups.values()) + has_coroutines,
        )
        data = structs.encode(create)
        head = _pack(self._seal, wire.CREATE, 0, self._process, serial, len(data), 0, 1 + len(arguments[1]))
        self._mailbox.send(wire.NODE, b"".join((head, wire.pad(data), body)))

    def call(self, actor_id, method, args, kwargs, num_returns, options=None):
        """See base.Engine."""
        if options is not None:
            return self._call_with(options, actor_id, method, args, kwargs, num_returns)
        self._enter()
        channel = self._by_key[actor_id]
        in_flight = len(channel.pending) >= EAGER_CALLS and not channel.is_concurrent
        if in_flight and num_returns == 1 and not kwargs and can_pack_all(args):
            serial = self._next_serial()
            ref = Reference(self._engine, self._process, serial)
            self._wait_in_line(channel, _new_tuple(Call, (serial, ref, method, (args, ()), 0)))
            return [ref]
        encoded, depends = arguments = self._encode(args, kwargs)
        if num_returns == 1:
            serial = self._next_serial()
            refs = Reference(self._engine, self._process, serial)
        else:
            serial, refs = self._local_refs.new(num_returns)
        name, name_bytes = self._method_names.get(method) or self._method_name(method)
        start = _pack(self._seal, wire.CALL, 0, self._process, serial, name_bytes, num_returns, 1 + len(depends)) + name
        if channel.outbox or depends or encoded[1]:
            self._wait_in_line(channel, _new_tuple(Call, (serial, refs, start, arguments, 0)))
            return [refs] if type(refs) is Reference else list(refs)
        with self._bare_lock:
            send = self._sends.get(channel.process)
            at_once = len(channel.pending) < EAGER_CALLS and channel.process and not channel.outbox and send is not None
            if at_once:
                channel.pending[serial] = refs
                send(start + encoded[0], zmq.DONTWAIT)
        if not at_once:
            self._wait_in_line(channel, _new_tuple(Call, (serial, refs, start, arguments, 0)))
        return [refs] if type(refs) is Reference else list(refs)

    def _wait_in_line(self, channel, call):
        """Queues a call that cannot be sent at once."""
        with self._bare_lock:
            outbox = channel.outbox
            # Among many calls in flight most only wait for the next batch, which a call or a reply after it sends.
            joined = len(outbox) % BATCH_CALLS != BATCH_CALLS - 1 and len(channel.pending) >= EAGER_CALLS
            joined = joined and channel.error is None and not call.arguments[1]
            joined = joined and (not channel.is_concurrent or channel in self.delayed)
            if joined:
                outbox.append(call)
        if not joined:
            with self._mailbox.lock:
                waiting = self._queue(channel, call)
            if waiting and waiting % BATCH_CALLS == 0:
                self._mailbox.drain()

    def _call_with(self, options, actor_id, method, args, kwargs, num_returns):
        """A call that is not a plain one."""
        self._enter()
        arguments = self._encode(args, kwargs)
        serial, refs = self._local_refs.new(num_returns)
        name, name_bytes = self._call_names.get((method, options)) or self._call_name(method, options)
        size = 1 + len(arguments[1])
        start = _pack(self._seal, wire.CALL_WITH, 0, self._process, serial, name_bytes, num_returns, size) + name
        with self._mailbox.lock:
            channel = self._actor_channels.by_key[actor_id]
            waiting = len(channel.pending) + len(channel.outbox)
            if 0 <= options.max_pending_calls <= waiting and not channel.ended:
                raise errors.PendingCallsLimitExceeded(
                    f"{waiting} calls of this process wait for the actor, whose max_pending_calls is "
                    f"{options.max_pending_calls}. Get some of their results first"
                )
            retries = options.max_task_retries if num_returns < STREAMING else 0
            self._queue(channel, Call(serial, refs, start, arguments, retries + 1 if retries > 0 else retries))
        return [refs] if type(refs) is Reference else list(refs)

    def _call_name(self, method, options):
        """Content of a CALL_WITH: the method's name, and the options that its worker has to know."""
        if len(self._call_names) >= CALL_NAMES:
            self._call_names.clear()
        retry_on = pickling.dumps(options.retry_exceptions) if options.retry_exceptions else b""
        retries = options.max_task_retries if retry_on else 0
        name = structs.encode(structs.CallName(method, options.concurrency_group or "", retries, retry_on))
        entry = self._call_names[method, options] = wire.pad(name), len(name)
        return entry

    def _method_name(self, method):
        name = method.encode()
        entry = self._method_names[method] = wire.pad(name), len(name)
        return entry

    def _queue(self, channel, call):
        """Queues a call. Returns the number of waiting calls if they cannot be sent. Lock held.

        When enough calls are on their way to keep the actor busy, the next ones wait for the next reply or for one
        another, and then go together in one message.
        """
        if channel.error is not None and (channel.ended or not call.attempts):
            self._local_refs.settle(call.refs, channel.error, 0, channel.pins)
            return 0
        channel.outbox.append(call)
        if call.arguments[1]:
            self._arguments.unresolved(call.arguments, lambda: self.advance(channel))
        if len(channel.pending) < EAGER_CALLS or len(channel.outbox) % BATCH_CALLS == 0:
            self.advance(channel)
        elif channel.is_concurrent:
            self._delay(channel)
        return len(channel.outbox) if len(channel.pending) >= channel.window else 0

    def _delay(self, channel):
        """Calls wait in the outbox, and a reply may come only after them. Lock held."""
        if not self.delayed:
            self._mailbox.start_keeper()
            self._mailbox.wake()
        self.delayed.add(channel)

    def send_delayed(self):
        """Sends the calls that wait to go together with others, and cannot wait for a reply. Lock held."""
        while self.delayed:
            self.advance(self.delayed.pop())

    def advance(self, channel):
        """Sends what may go. Lock held."""
        frames, pending = [], channel.pending
        while channel.outbox and channel.process and len(pending) < channel.window:
            call = channel.outbox[0]
            serial, refs, start, arguments, attempts = call
            if type(start) is str:
                frames += self._packed_frames(channel, start)
                continue
            (body, items, _), depends = arguments
            if depends and any(ref.frame is None for ref in depends):
                break
            channel.outbox.popleft()
            if depends and (failed := failed_argument(arguments)) is not None:
                self._local_refs.settle(refs, *failed)
                continue
            if items or depends:
                body, _ = self._arguments.complete(arguments, channel.process)
            pending[serial] = call if attempts else refs
            frames.append(start + body)
        if frames:
            self._mailbox.send_several(channel.process, frames)
        if not channel.handles and channel.idle:
            self._actor_channels.retire(channel)

    def _packed_frames(self, channel, method):
        """Takes calls of this method that are to be packed from the head of the outbox. Lock held."""
        serials, arguments, pending, outbox = [], [], channel.pending, channel.outbox
        while outbox and outbox[0].start == method and len(pending) < channel.window:
            serial, refs, _, (args, _), _ = outbox.popleft()
            pending[serial] = refs
            serials.append(serial)
            arguments.append(args)
        return pack_calls(self._process, method, serials, arguments)

    def kill(self, actor_id, no_restart=True):
        """See base.Engine."""
        self._enter()
        self._mailbox.drain()  # what the actor has answered so far
        with self._mailbox.lock:
            self._mailbox.send_to_node(wire.KILL, *wire.KEY.unpack(actor_id), c=not no_restart)
            channel = self._actor_channels.by_key.get(actor_id)
            if channel is None or channel.ended:
                return
            why = "the actor was killed by runtime.kill()"
            if no_restart:
                self._actor_channels.bury(channel, error_value(errors.ActorDiedError(why)))
            else:  # the node says in any case what has become of it
                self._actor_channels.suspend(channel, error_value(errors.ActorUnavailableError(why)))

    def cancel(self, channel, serial, flags):
        """Drops a call that this process or the actor has in its queue. Lock held."""
        if serial in channel.pending and channel.process:
            frame = wire.message(wire.CANCEL, self._process, serial, self._process, flags=flags)
            self._mailbox.send(channel.process, frame)  # behind the call itself
            self._mailbox.send_to_node(wire.POKE, a=channel.process)
            return
        refs = channel.pending.pop(serial, None)
        if refs is None:
            call = next(call for call in channel.outbox if call.serial == serial)
            channel.outbox.remove(call)
            refs = call.refs
        elif type(refs) is Call:
            refs = refs.refs
        error = errors.TaskCancelledError("the call of an actor was cancelled before it ran")
        self._local_refs.settle(refs, error_value(error), 0)
        self.advance(channel)  # it may have held up those behind it

    # -- messages -----------------------------------------------------------------------------------------------------

    def on_actor_state(self, frame, head):
        """An actor lives, has died and will live again, or has ended."""
        _, _, state, _, serial, creator, process, concurrency = head
        if state == wire.ACTOR_START_FAILED:
            wire.value_head(frame, wire.HEADER_BYTES)  # else malformed
        with self._mailbox.lock:
            channel = self._actor_channels.by_key.get(wire.key(serial, creator))
            if channel is None and state == wire.ACTOR_START_FAILED and creator == self._process:
                self._unseen_errors.lost(frame[wire.HEADER_BYTES :], 0)  # the last handle had gone before it failed
            if channel is None or channel.ended:
                return
            if state == wire.ACTOR_ALIVE and channel.error is None:
                self._revive(channel, process, concurrency)
                return
        # Replies that came before its end are read first.
        self._postponed.append((channel, frame, state, process, concurrency))
        self._mailbox.at_rest(self._follow_postponed)

    def _follow_postponed(self):
        while self._postponed:
            channel, frame, state, process, concurrency = self._postponed.popleft()
            body, pins = frame[wire.HEADER_BYTES :], ()
            if state == wire.ACTOR_DEAD:
                body = error_value(errors.ActorDiedError(body.decode()))
            elif state == wire.ACTOR_STARVED:
                body = error_value(errors.ActorOutOfMemoryError(body.decode()))
            elif state == wire.ACTOR_RESTARTING:
                body = error_value(errors.ActorUnavailableError(f"{body.decode()}\nIt is being restarted."))
            elif state == wire.ACTOR_START_FAILED and wire.KEY.unpack(channel.key)[1] == self._process:
                pins = (self._unseen_errors.pin(body, 0),)  # its constructor raised; its creator reports it
            with self._mailbox.lock:
                if channel.ended:
                    continue
                if state == wire.ACTOR_ALIVE:
                    self._revive(channel, process, concurrency)
                elif state == wire.ACTOR_RESTARTING:
                    self._actor_channels.suspend(channel, body)
                else:
                    self._actor_channels.bury(channel, body, pins)

    def _revive(self, channel, process, concurrency):
        channel.live(process, concurrency)
        self._actor_channels.by_process[process] = channel
        self.advance(channel)
