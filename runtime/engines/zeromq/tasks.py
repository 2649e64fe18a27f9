"""Tasks of this process: `submit`, and what comes back where there is no result."""

from __future__ import annotations

import logging

from ... import errors, pickling
from ...options import check_feasible
from . import structs, wire
from .arguments import Arguments, Call, failed_argument, with_values
from .definitions import Definitions
from .local_refs import LocalRefs
from .mailbox import Waiter
from .refs import LARGEST_NUM_RETURNS, Reference
from .resources import units
from .serializer import error_value

logger = logging.getLogger("runtime")

LARGEST_TASK_COUNT = 1_000_000  # tasks of this process that are not done; more wait in submit()
TEMPLATES = 256


class Tasks:
    """Args:
    client: who submits them.
    local_refs, arguments, definitions: of the client.

    Attributes:
        pending: serial -> references of those that are not done.
    """

    def __init__(self, client, local_refs: LocalRefs, arguments: Arguments, definitions: Definitions):
        self._client, self._mailbox = client, client.mailbox
        self._local_refs, self._arguments, self._definitions = local_refs, arguments, definitions
        self.pending: dict[int, tuple | Reference] = {}
        self._templates: dict[tuple[int, int], tuple] = {}

    def submit(self, function, args, kwargs, options):
        """See base.Engine."""
        self._client.enter()
        _, _, digest, template, fields = self._template(function, options)
        arguments = self._arguments.encode(args, kwargs)
        serial, refs = self._client.new_references(options.num_returns)
        if len(self.pending) >= LARGEST_TASK_COUNT:
            self._wait_for_some()
        call = Call(serial, refs, template, arguments)
        with self._mailbox.lock:
            if digest not in self._definitions.sent:
                self._definitions.send(function, digest)
            self.pending[serial] = refs
            waiting = self._arguments.unresolved(arguments, lambda: self._send(call, fields, options.num_returns))
            if not waiting:
                self._send(call, fields, options.num_returns)
        return [refs] if type(refs) is Reference else list(refs)

    def _send(self, call, fields, num_returns):
        """Lock held; all arguments are there."""
        failed = failed_argument(call.arguments)
        if failed is not None:
            self.pending.pop(call.serial, None)
            self._local_refs.settle(call.refs, *failed)
            return
        encoded, depends = call.arguments
        body, items = encoded.data, encoded.items
        template = call.start
        if items or depends:
            body, items = with_values(call.arguments)
            task = structs.Task(*fields[:3], list(items), *fields[3:])
            template = structs.encode(task)
            self._arguments.register(call.arguments)
        head = wire.HEADER.pack(
            wire.MAGIC, wire.SUBMIT, 0, self._client.process, call.serial, len(template), num_returns, 1 + len(depends)
        )
        self._mailbox.send(wire.NODE, b"".join((head, template, bytes(-len(template) % wire.ALIGNMENT), body)))

    def _template(self, function, options):
        """What all tasks of a function with these options have in common."""
        identity = id(function), id(options)
        template = self._templates.get(identity)
        if template is None:
            name = options.name or function.name
            check_feasible(options.request(), self._client.totals, f"task {name}()")
            if options.num_returns > LARGEST_NUM_RETURNS:
                raise ValueError(f"num_returns={options.num_returns} must be at most {LARGEST_NUM_RETURNS}")
            digest = self._definitions.digest(function)
            retry = pickling.dumps(options) if options.retry_exceptions else b""
            fields = digest, name, units(options.request()), options.max_retries, retry
            data = structs.encode(structs.Task(*fields[:3], [], *fields[3:]))
            if len(self._templates) >= TEMPLATES:
                self._templates.clear()
            template = self._templates[identity] = function, options, digest, data, fields
        return template

    def _wait_for_some(self):
        logger.warning("%d tasks are not done; submit() waits", len(self.pending))
        while len(self.pending) >= LARGEST_TASK_COUNT:
            waiter = Waiter()
            with self._mailbox.lock:
                refs = next(iter(self.pending.values()))
                ref = refs if type(refs) is Reference else refs[0]
                if not ref.when_done(waiter.tick):
                    continue
            self._client.wait_for(waiter, None, [ref])

    def abandon(self, error):
        """Gives this error to all tasks that are not done, because the session ends. Lock held."""
        while self.pending:  # the oldest first: its error settles, and removes, the tasks that have it as an argument
            refs = self.pending.pop(next(iter(self.pending)))
            self._local_refs.settle(refs, error, 0)

    def on_failed(self, frame, head):
        """A task that will have no reply."""
        failed = structs.decode(structs.Failed, frame)
        with self._mailbox.lock:
            refs = self.pending.pop(head[4], None)
            if refs is not None:
                value = error_value(getattr(errors, failed.error)(failed.text))
                self._local_refs.settle(refs, value, 0, (self._client.unseen(value, 0),))
