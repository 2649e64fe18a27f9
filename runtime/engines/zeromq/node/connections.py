"""Connections to a mailbox, so that its owner can read all that a dead process has sent.

When a process has died, its last messages may still be in the kernel: ZeroMQ's own thread reads them whenever it gets
the processor. It reports the end of a connection after it has read everything that came through it.
"""

from __future__ import annotations

import os
import socket
import struct
from time import monotonic

import zmq

_ADDRESS = "inproc://connections"
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid
# Event and descriptor, in the first part of a monitor's message (zmq_socket_monitor). zmq.utils.monitor would read it,
# but it imports asyncio: a seventh of the time in which a node starts.
_EVENT = struct.Struct("=Hi")


class Connections:
    """The connections that a socket bound to ipc:// has accepted and that have not ended.

    Args:
        context, mailbox: the socket, not bound yet or without peers so far.

    Attributes:
        descriptor: readable after something has changed; edge-triggered, like every ZeroMQ socket's. `read` then.
    """

    def __init__(self, context: zmq.Context, mailbox: zmq.Socket):
        self._events = context.socket(zmq.PAIR)
        self._events.set(zmq.RCVHWM, 0)  # a full queue would stop the thread that reads the mailbox
        mailbox.monitor(_ADDRESS, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._events.connect(_ADDRESS)
        self.descriptor = self._events.fileno()
        self._pids: dict[int, int] = {}  # descriptor of a connection -> pid of the process at its other end

    def read(self) -> None:
        """Takes note of what has changed."""
        while self._events.poll(0):
            event, descriptor = _EVENT.unpack(self._events.recv_multipart()[0])
            if event == zmq.EVENT_ACCEPTED:
                self._pids[descriptor] = _peer(descriptor)
            else:
                self._pids.pop(descriptor, None)

    def await_end(self, pid: int, timeout_s: float) -> bool:
        """Waits until everything that a process has sent before its end is in the mailbox.

        Returns:
            False if its connection stays open: a child that it has forked lives and has a copy of it.
        """
        deadline = monotonic() + timeout_s
        self.read()
        while pid in self._pids.values():
            left = deadline - monotonic()
            if left <= 0:
                return False
            self._events.poll(1000 * left)
            self.read()
        return True

    def close(self) -> None:
        """Ends the account; connections are not touched."""
        self._events.close(0)


def _peer(descriptor):
    """The pid of the process that has made a connection; 0 if it has ended."""
    try:  # a copy, since ZeroMQ's thread may close the descriptor at any moment
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            return _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0]
    except OSError:
        return 0
