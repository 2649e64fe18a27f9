"""Engines of drivers: the one that starts and ends the session, and others that join it later."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import sys

from ....errors import ForkedProcessError, SessionClosedError
from ....host.linux import allow_many_files
from ....runtime_context import RuntimeContext
from ....runtime_env import merged
from ...base import EngineConfig
from ..session.joining import RunningSession
from ..session.launch import START_S, NodeProcess
from ..system.interrupts import Interrupts
from ..system.stack_files import StackFile
from ..transport import wire
from ..transport.mailbox import Waiter
from ..values.serializer import error_value
from .client import NODE_ID, Client

logger = logging.getLogger("runtime")

END_S = 3.0


class Driver(Client):
    """The client of the process that has called `init`.

    Args:
        node: the node agent, started.
        totals: all resources of the session.
        namespace: namespace of names of actors that are given without one.
        interrupts: closed at the end.
    """

    process, _last_word = wire.DRIVER, wire.SHUTDOWN

    def __init__(
        self, node: NodeProcess | RunningSession, totals: dict[str, float], namespace: str, interrupts: Interrupts
    ):
        allow_many_files()
        super().__init__(self.process, node.session, node.pid, totals, namespace)
        self._node, self._interrupts, self._stopped = node, interrupts, False
        self._goodbye = Waiter()
        self._handlers |= {
            wire.LOG: self._on_log,
            wire.NOTICE: self._on_notice,
            wire.GOODBYE: self._on_goodbye,
        }
        try:
            self._begin()
        except BaseException:
            self.mailbox.close(linger_ms=0)
            raise
        self.mailbox.watch_node(node.pidfd)
        self.mailbox.start_keeper()
        self._stack_file = StackFile(node.session, self.process, "driver")

    def _begin(self):
        self._node.wait_ready()

    def stop(self) -> None:
        """Ends the session, as far as it is this process's, and waits until nothing of it is left."""
        if self._stopped or self._refusal is ForkedProcessError:
            return
        self._stopped, self._refusal = True, SessionClosedError
        with contextlib.ExitStack() as closing:  # what follows is closed though Ctrl-C ends the wait for the node
            closing.callback(self._interrupts.close)
            closing.callback(self._stack_file.close)
            closing.callback(self._node.close)
            closing.callback(self.store.close)
            closing.callback(self._abandon)
            closing.callback(self.mailbox.close, linger_ms=0)  # no process is left to read
            closing.callback(self._node.wait_end, END_S)
            with self.mailbox.lock:
                self.mailbox.send_to_node(self._last_word)
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
        return RuntimeContext(self.session_id, NODE_ID, f"{self.process:x}", namespace=self.named_actors.namespace)

    def _on_log(self, frame, head):
        stream = sys.stdout if head[2] == wire.STDOUT else sys.stderr
        if stream is not None:  # this process may run without one
            with contextlib.suppress(OSError, ValueError), _bars_cleared(stream):  # broken pipe, closed
                stream.write(frame[wire.HEADER_BYTES :].decode(errors="replace"))
                stream.flush()

    def _on_goodbye(self, frame, head):
        self._goodbye.tick()

    def _on_notice(self, frame, head):
        _, _, level, *_ = head
        logger.log(level, "%s", frame[wire.HEADER_BYTES :].decode(errors="replace"))


def _bars_cleared(stream):
    """tqdm's bars make room for lines, as for its own `write`. rich's displays replace the streams and need no help."""
    tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
    return contextlib.nullcontext() if tqdm is None else tqdm.external_write_mode(file=stream)


class Guest(Driver):
    """The client of a process that has joined a session; its actors and tasks end with it.

    Args:
        node: of the session.
        interrupts: closed at the end.
        config: whether what its tasks and actors print is shown; their environment and namespace.
    """

    _last_word = wire.LEAVING

    def __init__(self, node: RunningSession, interrupts: Interrupts, config: EngineConfig):
        self.process = random.SystemRandom().randrange(wire.FIRST_GUEST, 2 * wire.FIRST_GUEST)
        self._joined, self._shows_logs = Waiter(), config.log_to_driver
        self.environment = merged(config.environment, {"namespace": config.namespace})
        super().__init__(node, node.resources, config.namespace, interrupts)

    def _begin(self):
        self._handlers[wire.JOIN] = lambda frame, head: self._joined.tick()
        self.mailbox.watch_node(self._node.pidfd)
        self.mailbox.start_keeper()
        with self.mailbox.lock:
            self.mailbox.send_to_node(wire.JOIN, c=os.getpid())
        self.mailbox.wait(self._joined, START_S)
        if self._joined.frame is None:
            raise ConnectionError(f"the session at {self.session} ended, or did not answer within {START_S:g} s")

    def _on_log(self, frame, head):
        if self._shows_logs:
            super()._on_log(frame, head)

    def _on_goodbye(self, frame, head):
        if not self._stopped:
            self._refusal = self._ended
            self.mailbox.end_waits()
        self._goodbye.tick()

    def _ended(self, text):
        return SessionClosedError(
            f"the session has ended with the driver that started it, process {self._node.driver_pid}; call "
            "runtime.shutdown(), then runtime.init() for a new one"
        )
