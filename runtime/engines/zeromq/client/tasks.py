"""Tasks of this process: `submit`, and what comes back where there is no result."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from .... import errors, pickling
from ....runtime_env import merged
from ...placement_groups import Placements
from ...resources import units
from ..transport import structs, wire
from ..transport.mailbox import Mailbox
from ..values.arguments import Arguments, Call, failed_argument
from ..values.local_refs import LocalRefs
from ..values.refs import Reference, UnseenErrors
from ..values.serializer import error_value

logger = logging.getLogger("runtime")

LARGEST_TASK_COUNT = 1_000_000  # tasks of this process that are not done; more wait in submit()
ROOM_S = 0.05  # how often a thread that waits in submit() looks again while another one reads the mailbox
TEMPLATES = 256


class Tasks:
    """Submits tasks, and keeps account of unfinished ones.

    Args:
        mailbox: mailbox of this process.
        local_refs, arguments, unseen_errors: of this process.
        placements: placements of this process.
        enter, wait_for: methods of `Client`.

    Attributes:
        pending: serial of an unfinished task -> its references.
        unsent: serials of those whose arguments are pending.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        local_refs: LocalRefs,
        arguments: Arguments,
        unseen_errors: UnseenErrors,
        placements: Placements,
        enter: Callable[[], None],
        wait_for: Callable,
    ):
        self._mailbox, self._local_refs, self._arguments = mailbox, local_refs, arguments
        self._unseen_errors, self._placements, self._enter = unseen_errors, placements, enter
        self._wait_for, self._seal = wait_for, wire.seal()
        self.pending: dict[int, tuple | Reference] = {}
        self.unsent: set[int] = set()
        self._templates: dict[tuple[int, int], tuple] = {}

    def submit(self, function, args, kwargs, options):
        """See base.Engine."""
        self._enter()
        _, _, digest, template, fields, returns = self._template(function, options)
        arguments = self._arguments.encode(args, kwargs)
        serial, refs = self._local_refs.new(returns)
        if len(self.pending) >= LARGEST_TASK_COUNT:
            self._wait_for_room()
        call = Call(serial, refs, template, arguments)
        with self._mailbox.lock:
            if digest not in self._arguments.defined:
                self._arguments.define(function, digest)
            self.pending[serial] = refs
            if arguments[1] and self._arguments.unresolved(
                arguments, partial(self._send_resolved, call, fields, returns)
            ):
                self.unsent.add(serial)
            else:
                self._send(call, fields, returns)
        return [refs] if type(refs) is Reference else list(refs)

    def _send_resolved(self, call, fields, returns):
        """Lock held; its last argument has come."""
        if call.serial in self.unsent:  # else it was cancelled
            self.unsent.discard(call.serial)
            self._send(call, fields, returns)

    def _send(self, call, fields, returns):
        """Lock held; all arguments are there."""
        encoded, depends = call.arguments
        if depends and (failed := failed_argument(call.arguments)) is not None:
            self.pending.pop(call.serial, None)
            self._local_refs.settle(call.refs, *failed)
            return
        body, template = encoded.data, call.start
        if encoded.items or depends:
            body, items = self._arguments.complete(call.arguments)
            template = structs.encode(structs.Task(*fields[:3], list(items), *fields[3:]))
        head = wire.HEADER.pack(
            self._seal, wire.SUBMIT, 0, self._mailbox.process, call.serial, len(template), returns, 1 + len(depends)
        )
        self._mailbox.send(wire.NODE, b"".join((head, template, bytes(-len(template) % wire.ALIGNMENT), body)))

    def _template(self, function, options):
        """Part of a message that is the same for all tasks of a function with these options."""
        identity = id(function), id(options)
        template = self._templates.get(identity)
        if template is None:
            name = options.name or function.name
            placement = self._placements.find(options, f"task {name}()")
            digest = self._arguments.digest(function)
            retry = pickling.dumps(options) if options.retry_exceptions else b""
            environment = merged(self._local_refs.engine.environment, options.runtime_env)
            request = units(options.request())
            fields = digest, name, request, options.max_retries, retry, options.max_calls, environment, placement
            data = structs.encode(structs.Task(*fields[:3], [], *fields[3:]))
            if len(self._templates) >= TEMPLATES:
                self._templates.clear()
            template = self._templates[identity] = function, options, digest, data, fields, options.returns
        return template

    def placement_changed(self):
        """The calling task runs elsewhere than the one before: what captures its children may be another group."""
        self._templates.clear()

    def _wait_for_room(self):
        logger.warning("%d tasks are not done; submit() waits", len(self.pending))
        room = _Room(self.pending)
        while room.frame is None:
            self._wait_for(room, ROOM_S, (), raising=False)
        self._enter()  # the session may have ended meanwhile

    def cancel(self, serial: int, flags: int) -> None:
        """Cancels a task: here, if it was not sent, else by the node. Lock held."""
        if serial not in self.unsent:
            self._mailbox.send_to_node(wire.CANCEL, serial, self._mailbox.process, flags=flags)
            return
        self.unsent.discard(serial)
        error = errors.TaskCancelledError("the task was cancelled before its arguments were there")
        self._local_refs.settle(self.pending.pop(serial), error_value(error), 0)

    def abandon(self, error):
        """Gives this error to all tasks that are not done, because the session ends. Lock held."""
        for serial in list(self.pending):  # the oldest first: its error settles tasks that have it as an argument
            refs = self.pending.pop(serial, None)
            if refs is not None:
                self._local_refs.settle(refs, error, 0)

    def on_failed(self, frame, head):
        """A task that will have no reply."""
        failed = structs.decode(structs.Failed, frame)
        with self._mailbox.lock:
            refs = self.pending.pop(head[4], None)
            if refs is not None:
                error = getattr(errors, failed.error)(failed.text)
                value = error_value(error)
                asked_for = isinstance(error, errors.TaskCancelledError)
                self._local_refs.settle(refs, value, 0, () if asked_for else (self._unseen_errors.pin(value, 0),))


class _Room:
    """Waited for like a `Waiter`: there while fewer than LARGEST_TASK_COUNT tasks are pending."""

    def __init__(self, pending: dict):
        self._pending = pending

    @property
    def frame(self):
        return True if len(self._pending) < LARGEST_TASK_COUNT else None

    def watch(self, event):
        """No thread sets the event: the thread looks again after ROOM_S."""
