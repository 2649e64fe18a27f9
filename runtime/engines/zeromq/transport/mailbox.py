"""One PULL socket per process, a PUSH socket to each peer, and threads that take turns reading.

A thread that waits reads the mailbox itself: the *leader* is the one thread that holds `_leading`; others that wait
meanwhile are *followers*, woken when what they wait for is there, or to lead. No reply is handed from thread to
thread. While user code runs no thread leads; then the keeper, a thread parked on the mailbox's descriptor, takes over.

`lock` guards the PUSH sockets and everything that `dispatch` changes. It is never held while waiting.
"""

from __future__ import annotations

import functools
import gc
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic, sleep

import zmq
from zmq.backend import zmq_poll

from ..system.interrupts import interruptible
from . import wire

LARGEST_POLL_MS = 2**30
BATCH_BYTES = 2**16  # of the frames sent as one message
LARGEST_PEER_COUNT = 2**14  # ZeroMQ takes 12 bytes for each at once
KEEPER_PAUSE_S = 0.02  # how long the keeper stands back when another thread reads


def mailbox_path(directory: str, process: int) -> str:
    """The file of a process's mailbox; the directory is private to the user."""
    return f"{directory}/{process:x}"


def mailbox_socket(context: zmq.Context, directory: str, process: int) -> zmq.Socket:
    """The PULL socket of a process.

    Raises:
        OSError: it cannot be made, e.g. because the disk is full.
    """
    socket = context.socket(zmq.PULL)
    socket.set(zmq.RCVHWM, 0)  # bounded by the senders' windows, since a full queue would stop them forever
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.BACKLOG, 4096)
    path = mailbox_path(directory, process)
    try:
        socket.bind(f"ipc://{path}")
    except zmq.ZMQError as error:
        socket.close(0)
        raise OSError(error.errno, os.strerror(error.errno), path) from None
    return socket


def peer_socket(context: zmq.Context, directory: str, process: int, connects_within_s: float = 0.0) -> zmq.Socket:
    """A PUSH socket to a process whose mailbox exists.

    Args:
        connects_within_s: how long to wait at most until it is connected. Earlier messages wait in this process.
    """
    socket = context.socket(zmq.PUSH)
    socket.set(zmq.SNDHWM, 0)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.RECONNECT_IVL, 2)
    socket.set(zmq.RECONNECT_IVL_MAX, 1000)
    monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED) if connects_within_s else None
    socket.connect(f"ipc://{mailbox_path(directory, process)}")
    if monitor is not None:
        monitor.poll(int(1000 * connects_within_s))
        socket.disable_monitor()
        monitor.close(0)
    return socket


@interruptible
def _arrived(poll, milliseconds):
    return zmq_poll(poll, milliseconds)


@interruptible
def _wait(event, seconds):
    event.wait(seconds)


class Lock:
    """The lock of the runtime's bookkeeping; while a thread holds it, the garbage collector waits.

    Finalizers are user code, which may call any API function. One that the collector ran here would wait for the lock
    that its own thread holds. Signal handlers are kept away by interrupts.py.

    Attributes:
        bare: the lock alone, for code on the path of every call that allocates nothing that the collector counts (in
            CPython: containers, functions, bound methods).
    """

    __slots__ = ("_collects", "bare")

    def __init__(self):
        self.bare, self._collects = threading.Lock(), False

    def __enter__(self):
        self.bare.acquire()
        if gc.isenabled():
            gc.disable()
            self._collects = True

    def __exit__(self, *exception):
        if self._collects:
            self._collects = False
            gc.enable()
        self.bare.release()


class Waiter:
    """An event that is set after `count` occurrences.

    `frame` is None until then, as with a reference, so that one loop waits for both.
    """

    __slots__ = ("count", "event", "frame")

    def __init__(self, count: int = 1):
        self.count, self.frame, self.event = count, None, None

    def watch(self, event: threading.Event) -> None:
        """Sets the event as well, for a thread that cannot read itself."""
        self.event = event

    def tick(self) -> None:
        """Counts one occurrence; the last one sets the event."""
        self.count -= 1
        if self.count <= 0:
            self.frame = True
            if self.event is not None:
                self.event.set()


class Mailbox:
    """The sockets of a process, and the turns in which its threads read.

    Args:
        directory: directory of the session.
        process: own number; an attribute as well.
        dispatch: called with each frame, by the leader, without `lock`. Must not raise.

    Attributes:
        lock: see above.
        sends: process -> the send method of its socket, if there is one.
        connects_within_s: how long the first frame to a process waits at most until the socket is connected. Then
            frames leave in the order in which they are sent, also those to different processes, and a process that is
            killed after it has reported a task as done has sent the result, too.
        round_ms: how often the keeper makes a round though nothing has come.
        node_died: the node has ended.
        ending: functions given to `at_end`; removed ones are not called.
    """

    def __init__(self, directory: str, process: int, dispatch):
        self.lock = Lock()
        self.process = process
        self._directory, self._dispatch = directory, dispatch
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, LARGEST_PEER_COUNT)
        try:
            self._pull = mailbox_socket(self._context, directory, process)
        except OSError:
            self._context.term()
            raise
        self._receive = self._pull.recv
        self._poll = [(self._pull, zmq.POLLIN)]
        self._peers: dict[int, zmq.Socket] = {}
        self.sends: dict[int, Callable] = {}
        self._pull.bind("inproc://itself")  # for waking the leader; the node removes the session's directory at the end
        itself = self._context.socket(zmq.PUSH)
        itself.set(zmq.LINGER, 0)
        itself.connect("inproc://itself")
        self._add_peer(process, itself)
        self._leading = threading.Lock()
        self._leader: int | None = None  # its thread
        self._followers: deque[threading.Event] = deque()
        self._keeper: threading.Thread | None = None
        self._keeper_due = [True]  # popped by the thread that starts it
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._node: int | None = None  # pidfd
        self.connects_within_s = 0.0
        self._later: list = []
        self.round_ms: int | None = None  # how often the keeper makes a round though nothing has come
        self.ending: set[Callable[[], None]] = set()
        self._closed = self._over = self.node_died = False  # _over: no wait makes sense any more

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, process: int, frame: bytes) -> None:
        """Queues a frame for a process; `lock` is held. Frames to one process arrive in order, or not at all.

        After `close` the frame is dropped.
        """
        send = self.sends.get(process)
        if send is None:
            if self._closed:
                return
            socket = peer_socket(self._context, self._directory, process, self.connects_within_s)
            send = self._add_peer(process, socket)
        send(frame, zmq.DONTWAIT)

    def send_to_node(
        self, kind: int, serial: int = 0, a: int = 0, c: int = 0, body: bytes = b"", flags: int = 0
    ) -> None:
        """Queues a message for the node (see wire.py); `lock` is held."""
        self.send(wire.NODE, wire.message(kind, self.process, serial, a, c=c, body=body, flags=flags))

    def send_several(self, process: int, frames: list[bytes]) -> None:
        """Queues frames for a process, in as few messages as is reasonable; `lock` is held."""
        first, size = 0, 0
        for index, frame in enumerate(frames):
            size += len(frame)
            if size > BATCH_BYTES or index == len(frames) - 1:
                several = index > first
                self.send(process, wire.batch(self.process, frames[first : index + 1]) if several else frame)
                first, size = index + 1, 0

    def _add_peer(self, process, socket):
        self._peers[process] = socket
        send = self.sends[process] = functools.partial(zmq.backend.Socket.send, socket)
        return send

    def forget(self, process: int) -> None:
        """A process has ended; `lock` is held."""
        peer = self._peers.pop(process, None)
        if peer is not None:
            del self.sends[process]
            peer.close(0)

    # -- receiving ----------------------------------------------------------------------------------------------------

    def wait(self, target, timeout_s: float | None, blocked_after_s: float | None = None, blocked=None) -> bool:
        """Reads the mailbox until `target.frame` is set.

        Args:
            target: a reference or Waiter. When another thread may read meanwhile, `target.watch(event)` is called.
            timeout_s: None for no limit.
            blocked_after_s, blocked: called with the target when the wait has lasted that long. It returns None, or for
                how much longer, without a timeout, the wait is to last until what is called.

        Returns:
            Whether it was set in time (also when the mailbox is closed or the node has died).
        """
        deadline = until = None
        if timeout_s is not None:
            deadline = until = monotonic() + timeout_s
        if blocked is not None:
            until = monotonic() + blocked_after_s
        while target.frame is None and not self._over:
            if self._leading.acquire(False):
                try:
                    self._leader = threading.get_ident()
                    self._lead(target, until)
                finally:
                    self._resign()
            elif self._leader == threading.get_ident():
                self._lead_in_handler(target, until)
            else:
                self._follow(target, until)
            if target.frame is not None:
                break
            now = monotonic()
            if deadline is not None and now >= deadline:
                return False
            if blocked is not None and now >= until:
                again = blocked(target)
                if again is None or deadline is not None:
                    until, blocked = deadline, None
                else:
                    until, blocked = now + again[0], again[1]
        return True

    def _lead(self, target, until):
        """Dispatches until the target is set, the time has come or the mailbox was interrupted; then the rest."""
        poll, receive, dispatch, milliseconds = self._poll, self._receive, self._dispatch, -1
        try:
            while target.frame is None and not self._over:
                if until is not None:
                    milliseconds = min(int(max(0.0, until - monotonic() + 0.000999) * 1000), LARGEST_POLL_MS)
                if not _arrived(poll, milliseconds):
                    break
                dispatch(receive(zmq.DONTWAIT))
                if self._later and target.frame is None:
                    self._read_all()
                if milliseconds == 0:
                    break
        except BaseException:  # a signal handler's, which may be the user's
            self.wake()  # the keeper reads the rest
            raise
        if self._keeper is not None or self._later:
            self._read_all()

    def _lead_in_handler(self, target, until):
        """Leads in a signal handler, or a finalizer, that has interrupted this thread while it led.

        The awaited message may arrive here.
        """
        try:
            self._lead(target, until)
        finally:
            self._interrupt_leader()

    def _follow(self, target, until):
        event = threading.Event()
        target.watch(event)
        self._followers.append(event)
        try:
            if target.frame is None and not self._over and self._leading.locked():
                _wait(event, None if until is None else max(0.0, until - monotonic()))
        finally:
            self._followers.remove(event)
            self._promote()

    def _resign(self):
        self._leader = None
        self._leading.release()
        if self._followers:
            self._promote()

    def _promote(self):
        """Wakes a follower to lead; harmless if a thread leads."""
        if not self._leading.locked():
            try:
                self._followers[0].set()
            except IndexError:
                return

    def drain(self) -> None:
        """Dispatches the messages that have come, unless another thread does."""
        if self._leading.acquire(False):
            try:
                self._leader = threading.get_ident()
                self._read_all()
            finally:
                self._resign()

    def at_rest(self, function) -> None:
        """Calls a function once, as soon as no message is left to read. Only from `dispatch`."""
        self._later.append(function)

    def _read_all(self):
        """Dispatches all messages that have come: the descriptor wakes the keeper only for later ones."""
        poll, receive, dispatch = self._poll, self._receive, self._dispatch
        while True:
            while zmq_poll(poll, 0):
                dispatch(receive(zmq.DONTWAIT))
            if not self._later:
                return
            self._later.pop()()

    # -- the keeper ---------------------------------------------------------------------------------------------------

    def start_keeper(self) -> None:
        """From now on messages are read while user code runs, too. From any thread, with or without `lock`."""
        if self._keeper is None:
            try:
                self._keeper_due.pop()
            except IndexError:  # another thread is starting it
                return
            self._keeper = threading.Thread(target=self._keep, name="runtime-keeper", daemon=True)
            self._keeper.start()

    def watch_node(self, pidfd: int) -> None:
        """Notice the end of the node by this descriptor."""
        self._node = pidfd

    def wake(self) -> None:
        """Has the keeper look at the mailbox soon; from any thread at any moment."""
        if self._keeper is not None and not self._closed:
            os.eventfd_write(self._wake, 1)

    def _keep(self):
        poll = select.poll()
        descriptors = [self._pull.fileno(), self._wake] + ([self._node] if self._node is not None else [])
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        while not self._closed:
            ready = [descriptor for descriptor, _ in poll.poll(self.round_ms)]
            if self._node in ready:
                poll.unregister(self._node)
                sleep(KEEPER_PAUSE_S)  # its last message, that the session has ended, may still be on the way
                self.drain()
                if not self._over:
                    self.node_died = True
                    self.end_waits()
            if self._wake in ready:
                sleep(KEEPER_PAUSE_S)  # most often the next API call does it, and more comes
                os.eventfd_read(self._wake)
            if self._closed or (self._over and not self.node_died):
                return
            self._dispatch(b"")  # a round of housekeeping: no frame, and no matter for the leader
            if not self._leading.acquire(False):
                sleep(KEEPER_PAUSE_S)
                continue
            try:
                self._leader = threading.get_ident()
                if not self._closed:  # `close` may have been quicker
                    self._read_all()
            finally:
                self._resign()

    def end_waits(self) -> None:
        """No wait makes sense any more; the thread that reads, and events for those who follow, notice it."""
        self._over = True
        self._interrupt_leader()
        for event in list(self._followers):
            event.set()
        for function in list(self.ending):
            function()

    def at_end(self, function: Callable[[], None]) -> None:
        """Calls a function when no wait makes sense any more, perhaps now; in any thread, perhaps twice."""
        self.ending.add(function)
        if self._over:
            function()

    def _interrupt_leader(self):
        """Has the leader look again, by a frame to itself."""
        with self.lock:
            self.send(self.process, b"")

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self, linger_ms: int) -> None:
        """Closes all sockets; waiting threads return. Frames that were sent may still be delivered for a moment."""
        self.end_waits()
        os.eventfd_write(self._wake, 1)
        self._closed = True
        if self._keeper is not None and self._keeper is not threading.current_thread():
            self._keeper.join(2)
        with self._leading, self.lock:
            for process, socket in self._peers.items():
                socket.close(linger_ms if process != self.process else 0)
            self._peers.clear()
            self.sends.clear()
            self._pull.close(0)
            self._context.term()
            os.close(self._wake)
