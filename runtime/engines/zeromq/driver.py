"""The driver's engine: starts the session, and ends it."""

from __future__ import annotations

import contextlib
import logging
import sys

from ...errors import SessionClosedError
from ...runtime_context import RuntimeContext
from . import wire
from .client import NODE_ID, Client
from .interrupts import Interrupts
from .launch import NodeProcess
from .mailbox import Waiter
from .process import allow_many_files
from .serializer import error_value

logger = logging.getLogger("runtime")

END_S = 3.0


class Driver(Client):
    """The client of the process that has called `init`.

    Args:
        node: the node agent, started.
        totals: all resources of the session.
        interrupts: closed at the end.
    """

    def __init__(self, node: NodeProcess, totals: dict[str, float], interrupts: Interrupts):
        allow_many_files()
        super().__init__(wire.DRIVER, node.session, node.pid, totals)
        self._node, self._interrupts = node, interrupts
        self._goodbye = Waiter()
        self._handlers |= {
            wire.LOG: self._on_log,
            wire.NOTICE: self._on_notice,
            wire.GOODBYE: lambda frame, head: self._goodbye.tick(),
        }
        try:
            node.wait_ready()
        except BaseException:
            self.mailbox.close(linger_ms=0)
            raise
        self.mailbox.watch_node(node.pidfd)
        self.mailbox.start_keeper()

    def stop(self) -> None:
        """Ends the session and waits until nothing of it is left."""
        if self._refusal is not None:
            return
        self._refusal = SessionClosedError
        with contextlib.ExitStack() as closing:  # what follows is closed though Ctrl-C ends the wait for the node
            closing.callback(self._interrupts.close)
            closing.callback(self._node.close)
            closing.callback(self.store.close)
            closing.callback(self._abandon)
            closing.callback(self.mailbox.close, linger_ms=0)  # no process is left to read
            closing.callback(self._node.wait_end, END_S)
            with self.mailbox.lock:
                self.mailbox.tell_node(wire.SHUTDOWN)
            self.mailbox.wait(self._goodbye, END_S)  # the last lines of the workers come before it
            self._unseen_errors.report()

    def _abandon(self):
        """Settles all pending references with an error."""
        error = error_value(SessionClosedError("the session was shut down before this value was there"))
        with self.mailbox.lock:
            self.actor_channels.bury_all(error)
            self.tasks.abandon(error)

    def context(self) -> RuntimeContext:
        self.enter()
        return RuntimeContext(self.session_id, NODE_ID, f"{self.process:x}")

    def _on_log(self, frame, head):
        stream = sys.stdout if head[2] == wire.STDOUT else sys.stderr
        if stream is not None:  # this process may run without one
            with contextlib.suppress(OSError, ValueError):  # a broken pipe, or closed
                stream.write(frame[wire.HEADER_BYTES :].decode(errors="replace"))
                stream.flush()

    def _on_notice(self, frame, head):
        _, _, level, *_ = head
        logger.log(level, "%s", frame[wire.HEADER_BYTES :].decode(errors="replace"))
