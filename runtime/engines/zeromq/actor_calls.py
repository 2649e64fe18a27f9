"""Actors as their callers see them: `create_actor`, `call`, `kill`, and the news of where they live."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ... import errors
from ...runtime_env import merged
from ..placement_groups import Placements
from ..resources import units
from . import structs, wire
from .actor_channels import ActorChannels
from .arguments import Arguments, Call, failed_argument
from .local_refs import LocalRefs
from .mailbox import Mailbox
from .refs import Reference, UnseenErrors
from .serializer import error_value
from .store import Hold

EAGER_CALLS = 8  # calls on their way that keep an actor busy: those after them are sent several at a time
BATCH_CALLS = 32

_pack = wire.HEADER.pack


class ActorCalls:
    """Creates, calls and kills actors, and keeps their calls in order.

    Args:
        mailbox: of this process.
        actor_channels, local_refs, arguments, unseen_errors: of this process.
        placements: of this process.
        enter: `Client.enter`.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        actor_channels: ActorChannels,
        local_refs: LocalRefs,
        arguments: Arguments,
        unseen_errors: UnseenErrors,
        placements: Placements,
        enter: Callable[[], None],
    ):
        self._mailbox, self._process, self._actor_channels = mailbox, mailbox.process, actor_channels
        self._local_refs, self._arguments, self._unseen_errors = local_refs, arguments, unseen_errors
        self._placements = placements
        self._method_names: dict[str, tuple[bytes, int]] = {}
        self._postponed: list = []
        # What `call` needs, one lookup away.
        self._enter, self._encode, self._next_serial = enter, arguments.encode, local_refs.next_serial
        self._engine, self._seal = local_refs.engine, wire.seal()

    def create_actor(self, cls, args, kwargs, options):
        """See base.Engine."""
        self._enter()
        name = options.name or cls.name
        placement = self._placements.find(options, f"actor {name}")
        digest = self._arguments.digest(cls)
        arguments = self._encode(args, kwargs)
        key = self._local_refs.new_key()
        with self._mailbox.lock:
            if digest not in self._arguments.defined:
                self._arguments.define(cls, digest)
            channel = self._actor_channels.open(key, Hold(key, self._local_refs.release))
            send = partial(self._send_create, channel, name, digest, options, placement, arguments)
            if not self._arguments.unresolved(arguments, send):
                send()
        self._mailbox.start_keeper()
        return key

    def _send_create(self, channel, name, digest, options, placement, arguments):
        """Lock held; all arguments are there."""
        failed = failed_argument(arguments)
        if failed is not None:
            frame, start, pins = failed
            size = wire.VALUE.unpack_from(frame, start)[5]
            self._actor_channels.bury(channel, frame[start : start + size], pins)
            return
        body, items = self._arguments.complete(arguments)
        create = structs.Create(
            digest,
            name,
            units(options.request()),
            units(options.held()),
            list(items),
            merged(self._engine.environment, options.environment),
            placement,
        )
        data = structs.encode(create)
        serial, _ = wire.KEY.unpack(channel.key)
        head = _pack(self._seal, wire.CREATE, 0, self._process, serial, len(data), 0, 1 + len(arguments[1]))
        self._mailbox.send(wire.NODE, b"".join((head, wire.pad(data), body)))

    def call(self, actor_id, method, args, kwargs, num_returns):
        """See base.Engine."""
        self._enter()
        encoded, depends = arguments = self._encode(args, kwargs)
        if num_returns == 1:
            serial = self._next_serial()
            refs = Reference(self._engine, self._process, serial)
        else:
            serial, refs = self._local_refs.new(num_returns)
        name, name_bytes = self._method_names.get(method) or self._method_name(method)
        start = _pack(self._seal, wire.CALL, 0, self._process, serial, name_bytes, num_returns, 1 + len(depends)) + name
        mailbox, waiting = self._mailbox, 0
        with mailbox.lock:
            channel = self._actor_channels.by_key[actor_id]
            if len(channel.pending) < EAGER_CALLS and channel.process and not channel.outbox and not depends:
                if encoded[1]:
                    self._local_refs.escape(encoded.items, encoded.pins, channel.process)
                channel.pending[serial] = refs
                mailbox.send(channel.process, start + encoded[0])
            else:
                waiting = self._queue(channel, Call(serial, refs, start, arguments))
        if waiting and waiting % BATCH_CALLS == 0:
            mailbox.drain()
        return [refs] if type(refs) is Reference else list(refs)

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
            self._local_refs.settle(call.refs, channel.error, 0, channel.pins)
            return 0
        channel.outbox.append(call)
        self._arguments.unresolved(call.arguments, lambda: self.advance(channel))
        if len(channel.pending) < EAGER_CALLS or len(channel.outbox) % BATCH_CALLS == 0:
            self.advance(channel)
        return len(channel.outbox) if len(channel.pending) >= channel.WINDOW else 0

    def advance(self, channel):
        """Sends what may go. Lock held."""
        frames, pending = [], channel.pending
        while channel.outbox and channel.process and len(pending) < channel.WINDOW:
            call = channel.outbox[0]
            serial, refs, start, arguments = call
            depends = arguments[1]
            if depends and any(ref.frame is None for ref in depends):
                break
            channel.outbox.popleft()
            if depends and (failed := failed_argument(arguments)) is not None:
                self._local_refs.settle(refs, *failed)
                continue
            body, _ = self._arguments.complete(arguments, channel.process)
            pending[serial] = refs
            frames.append(start + body)
        if frames:
            self._mailbox.send_several(channel.process, frames)
        if not channel.handles and channel.idle:
            self._actor_channels.retire(channel)

    def kill(self, actor_id):
        """See base.Engine."""
        self._enter()
        self._mailbox.drain()  # what the actor has answered so far
        with self._mailbox.lock:
            self._mailbox.tell_node(wire.KILL, *wire.KEY.unpack(actor_id))
            channel = self._actor_channels.by_key.get(actor_id)
            if channel is not None and channel.error is None:
                error = errors.ActorDiedError("the actor was killed by runtime.kill()")
                self._actor_channels.bury(channel, error_value(error))

    def cancel(self, channel, serial, flags):
        """Drops a call that this process or the actor has in its queue. Lock held."""
        if serial in channel.pending and channel.process:
            frame = wire.message(wire.CANCEL, self._process, serial, self._process, flags=flags)
            self._mailbox.send(channel.process, frame)  # behind the call itself
            self._mailbox.tell_node(wire.POKE, a=channel.process)
            return
        refs = channel.pending.pop(serial, None)
        if refs is None:
            call = next(call for call in channel.outbox if call.serial == serial)
            channel.outbox.remove(call)
            refs = call.refs
        error = errors.TaskCancelledError("the call of an actor was cancelled before it ran")
        self._local_refs.settle(refs, error_value(error), 0)
        self.advance(channel)  # it may have held up those behind it

    # -- messages -----------------------------------------------------------------------------------------------------

    def on_actor_state(self, frame, head):
        """An actor lives, or has ended."""
        _, _, state, _, serial, creator, process, _ = head
        with self._mailbox.lock:
            channel = self._actor_channels.by_key.get(wire.key(serial, creator))
            if channel is None and state == wire.ACTOR_START_FAILED and creator == self._process:
                self._unseen_errors.lost(frame[wire.HEADER_BYTES :], 0)  # the last handle had gone before it failed
            if channel is None or channel.error is not None:
                return
            if state == wire.ACTOR_ALIVE:
                channel.process = process
                self._actor_channels.by_process[process] = channel
                self.advance(channel)
                return
        self._postponed.append((channel, frame, state))  # replies that came before its end are read first
        self._mailbox.at_rest(self._bury_postponed)

    def _bury_postponed(self):
        while self._postponed:
            channel, frame, state = self._postponed.pop()
            body, pins = frame[wire.HEADER_BYTES :], ()
            if state == wire.ACTOR_DEAD:
                body = error_value(errors.ActorDiedError(body.decode()))
            elif wire.KEY.unpack(channel.key)[1] == self._process:  # its constructor raised; its creator reports it
                pins = (self._unseen_errors.pin(body, 0),)
            with self._mailbox.lock:
                self._actor_channels.bury(channel, body, pins)
