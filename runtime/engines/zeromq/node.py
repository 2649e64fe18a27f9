"""The node agent: the process that carries out what `state.NodeState` decides.

It reads its mailbox, the zygote's reports and the workers' output in one thread, forwards user data as bytes, and ends
the session when the driver asks for it or has died. It imports neither numpy nor user code.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import socket
import struct
import time
import traceback
from collections import deque
from dataclasses import dataclass, field

import msgspec
import zmq

from . import boot, structs, wire
from .instructions import Close, Grow, Kill, Send, Spawn
from .mailbox import mailbox_socket, peer_socket
from .process import adopt_orphans, allow_many_files, describe_exit, kill_children, readable
from .resources import units
from .state import NodeState

TAIL_LINES, TAIL_LINE_CHARACTERS = 20, 500
READ_BYTES = 2**16
PARTIAL_LINE_S = 0.2  # what has no end of line is shown after that
LOG_BYTES_PER_S = 2**20  # per worker; more is dropped and counted
TERMINATE_S, KILL_S = 1.0, 1.0
LEAVE_MS = 500  # for the last frames, if the driver reads them
REPORT = struct.Struct("<QQi")  # see zygote.py
BORN = -1
BIRTHS_AT_ONCE = 16
RESERVED_FILES = 24  # of the node itself: 17 are always open
SEGMENT_MODE = os.MFD_CLOEXEC


@dataclass
class Output:
    """What a worker writes: its pipes, the last lines, and how much of this second's share is used."""

    name: str
    pipes: list[int] = field(default_factory=list)
    tail: deque = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    second: int = 0
    bytes_used: int = 0
    dropped: int = 0


@dataclass
class Stream:
    """What is read from one pipe: stdout (1) or stderr (2) of a worker, and the line that has no end yet."""

    process: int
    number: int
    partial: bytes = b""
    show_partial_at: float = 0.0


class Node:
    """Args:
    config: see `launch.NodeProcess`.
    zygote: pid.
    channel: socket to the zygote.
    """

    def __init__(self, config: dict, zygote: int, channel: socket.socket):
        self._config, self._session = config, config["session"]
        self._state = NodeState(
            units(config["resources"]),
            tuple(config["gpu_ids"]),
            config["object_store_memory"],
            allow_many_files() - RESERVED_FILES,
        )
        self._zygote, self._channel = zygote, channel
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 65535)
        self._pull = mailbox_socket(self._context, self._session, wire.NODE)
        self._peers: dict[int, zmq.Socket] = {}
        self._pids: dict[int, int] = {}  # process -> pid, of the living
        self._spawns: deque[Spawn] = deque()  # that the zygote has not been asked for yet
        self._asked = 0  # births it has been asked for and has not reported
        self._unborn: set[int] = set()
        self._doomed: set[int] = set()  # to be killed as soon as they are born
        self._outputs: dict[int, Output] = {}
        self._streams: dict[int, Stream] = {}  # by pipe
        self._partial: set[int] = set()  # pipes with a line that has no end yet
        self._segments: dict[int, int] = {}  # segment -> fd
        self._ending = False
        self._driver = os.pidfd_open(config["driver"])
        self._poll = select.epoll()
        for descriptor in (self._pull.fileno(), self._channel.fileno(), self._driver):
            self._poll.register(descriptor, select.EPOLLIN)
        self._encode = msgspec.msgpack.Encoder().encode
        self._next_tick = 0.0
        self.malformed = 0

    # -- the loop -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serves until the session ends."""
        mailbox = self._pull.fileno()
        while not self._ending:
            ready = [descriptor for descriptor, _ in self._poll.poll(self._timeout())]
            for descriptor in ready:
                if descriptor == self._driver:
                    self._ending = True
                elif descriptor == self._channel.fileno():
                    self._read_reports()
                elif descriptor != mailbox:
                    self._read_output(descriptor)
            self._read_mailbox()
            self._tick()
            if self._partial:
                self._show_partial_lines()
        self._end()

    def _timeout(self):
        if self._partial:
            return PARTIAL_LINE_S
        return 1.0 if self._state.needs_ticks else None

    def _tick(self):
        if self._state.needs_ticks:
            now = time.monotonic()
            if now >= self._next_tick:
                self._next_tick = now + 1.0
                self._state.tick()
                self._carry_out()

    def _read_mailbox(self):
        """Everything there is: the descriptor tells only of what comes after the socket was found empty."""
        receive = self._pull.recv
        while not self._ending:
            try:
                frame = receive(zmq.DONTWAIT)
            except zmq.Again:
                return
            try:
                self._handle(frame)
            except (wire.Malformed, struct.error, UnicodeDecodeError):
                self.malformed += 1
            except Exception:  # a mistake of ours: the session should outlive it, and somebody should hear of it
                traceback.print_exc()
            self._carry_out()

    def _handle(self, frame):
        state = self._state
        _, kind, _, source, serial, a, _, c = wire.header(frame)
        if kind == wire.SUBMIT:
            state.submit(source, serial, structs.decode(structs.Task, frame, a), frame)
        elif kind == wire.DONE:
            state.done(source, serial, a)
        elif kind == wire.REFERENCES:
            state.references(source, structs.decode(structs.References, frame))
        elif kind == wire.BLOCKED:
            state.blocked(source)
        elif kind == wire.UNBLOCKED:
            state.unblocked(source)
        elif kind == wire.WAITING:
            state.waiting(source, structs.decode(structs.Waits, frame))
        elif kind == wire.CREATE:
            state.create(source, serial, structs.decode(structs.Create, frame, a), frame)
        elif kind == wire.READY:
            state.ready(source)
        elif kind == wire.ALIVE:
            state.alive(source)
        elif kind == wire.START_FAILED:
            state.start_failed(source, frame[wire.HEADER_BYTES :])
        elif kind == wire.WATCH:
            state.watch(source, wire.key(serial, a))
        elif kind == wire.KILL:
            state.kill(wire.key(serial, a))
        elif kind == wire.DEFINE:
            state.define(source, structs.decode(structs.Define, frame), frame)
        elif kind == wire.SUBSCRIBE:
            state.subscribe(source, wire.key(serial, a))
        elif kind == wire.GRANT:
            state.grant(source, serial, c)
        elif kind == wire.RETURN:
            state.returned(source, a)
        elif kind == wire.LEAVING:
            state.leaving(source, frame[wire.HEADER_BYTES :].decode())
        elif kind == wire.RESOURCES:
            body = structs.encode(structs.Free(state.resources.free))
            self._send(source, wire.message(wire.RESOURCES, wire.NODE, serial, body=body))
        elif kind == wire.SHUTDOWN:
            self._ending = True
        else:
            raise wire.Malformed(f"kind {kind} is not for the node")

    # -- instructions -------------------------------------------------------------------------------------------------

    def _carry_out(self):
        for instruction in self._state.take():
            kind = type(instruction)
            if kind is Send:
                self._send(instruction.process, instruction.frame)
            elif kind is Spawn:
                self._spawn(instruction)
            elif kind is Kill:
                self._kill(instruction.process)
            elif kind is Grow:
                self._grow(instruction)
            elif kind is Close:
                os.close(self._segments.pop(instruction.segment))

    def _send(self, process, frame):
        peer = self._peers.get(process)
        if peer is None:
            # A worker's own messages may be here before the zygote's report of its birth.
            if process != wire.DRIVER and process not in self._pids and process not in self._unborn:
                return
            peer = self._peers[process] = peer_socket(self._context, self._session, process)
        peer.send(frame, zmq.DONTWAIT)

    def _spawn(self, spawn):
        self._unborn.add(spawn.process)
        self._spawns.append(spawn)
        self._ask_for_births()

    def _ask_for_births(self):
        """Has the zygote fork, a few at a time: were the channel full on both ways, each would wait for the other."""
        while self._spawns and self._asked < BIRTHS_AT_ONCE:
            self._asked += 1
            self._ask(self._spawns.popleft())

    def _ask(self, spawn):
        settings = structs.Settings(
            process=spawn.process,
            session=self._session,
            node_pid=os.getpid(),
            name=spawn.name,
            resources=self._config["resources"],
            held=spawn.held,
            gpu_ids=spawn.gpu_ids,
            env_vars=spawn.env_vars,
            path=self._config["path"],
        )
        output = self._outputs[spawn.process] = Output(spawn.name)
        its = []
        for number in (wire.STDOUT, wire.STDERR):
            read, write = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read, False)
            output.pipes.append(read)
            its.append(write)
            self._streams[read] = Stream(spawn.process, number)
            self._poll.register(read, select.EPOLLIN)
        try:
            socket.send_fds(self._channel, [self._encode(settings)], its)
        except OSError:  # the zygote has died; its end will be read from the channel
            pass
        finally:
            for write in its:
                os.close(write)

    def _kill(self, process):
        if process in self._unborn:
            self._doomed.add(process)
        elif process in self._pids:
            _signal_group(self._pids[process], signal.SIGKILL)

    def _grow(self, grow):
        file = os.memfd_create("runtime", SEGMENT_MODE)
        os.ftruncate(file, grow.size)
        os.pwrite(file, wire.segment_header(grow.segment), 0)
        self._segments[grow.segment] = file
        self._send(grow.process, wire.message(wire.GRANTED, wire.NODE, grow.serial, grow.segment, file, grow.size))

    # -- workers ------------------------------------------------------------------------------------------------------

    def _read_reports(self):
        data = b""
        with contextlib.suppress(ConnectionError):
            data = self._channel.recv(REPORT.size)
        if not data:
            self._zygote_died()
            return
        process, pid, status = REPORT.unpack(data)
        if status == BORN:
            self._asked -= 1
            self._ask_for_births()
            self._unborn.discard(process)
            self._pids[process] = pid
            if process in self._doomed:
                self._doomed.discard(process)
                _signal_group(pid, signal.SIGKILL)
        else:
            self._read_mailbox()  # what it sent before its end
            self._worker_ended(process, describe_exit(status))
        self._carry_out()

    def _worker_ended(self, process, how):
        pid = self._pids.pop(process, None)
        self._unborn.discard(process)
        if pid is not None:
            _signal_group(pid, signal.SIGKILL)  # processes that it started
            kill_children(but=self._zygote)  # and those of them that have left its group: they are the node's now
        output = self._close_output(process)
        peer = self._peers.pop(process, None)
        if peer is not None:
            peer.close(0)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._session}/{process:x}")
        self._state.exited(process, how, "\n".join(f"    {line}" for line in output))
        self._carry_out()

    def _zygote_died(self):
        """Its workers have died with it; another one takes its place."""
        self._poll.unregister(self._channel.fileno())
        self._channel.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._zygote, 0)
        self._zygote, self._channel = boot.start_zygote(self._config)
        self._poll.register(self._channel.fileno(), select.EPOLLIN)
        self._spawns.clear()
        self._asked = 0
        for process in [*self._pids, *self._unborn]:
            self._worker_ended(process, "the end of the process that starts workers")

    # -- output -------------------------------------------------------------------------------------------------------

    def _read_output(self, pipe):
        """Forwards a worker's lines; False when there is nothing to read now."""
        stream = self._streams.get(pipe)
        if stream is None:
            return False
        try:
            data = os.read(pipe, READ_BYTES)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            return False
        if not data:
            self._close_pipe(pipe)
            return False
        *lines, stream.partial = (stream.partial + data).split(b"\n")
        if len(stream.partial) > READ_BYTES:
            lines, stream.partial = [*lines, stream.partial], b""
        if stream.partial:
            stream.show_partial_at = time.monotonic() + PARTIAL_LINE_S
            self._partial.add(pipe)
        else:
            self._partial.discard(pipe)
        self._forward(stream, lines)
        return True

    def _show_partial_lines(self):
        """Forwards what has waited for the end of its line, such as a prompt or a row of dots."""
        now = time.monotonic()
        for pipe in [p for p in self._partial if self._streams[p].show_partial_at <= now]:
            self._show_partial_line(pipe)

    def _show_partial_line(self, pipe):
        stream = self._streams[pipe]
        line, stream.partial = stream.partial, b""
        self._partial.discard(pipe)
        if line:
            self._forward(stream, [line])

    def _forward(self, stream, lines):
        output = self._outputs[stream.process]
        texts = [line.decode(errors="replace") for line in lines]
        output.tail.extend(text[:TAIL_LINE_CHARACTERS] for text in texts)
        if not self._config["log_to_driver"] or not texts:
            return
        second, size = int(time.monotonic()), sum(map(len, lines))
        if second != output.second:
            if output.dropped:
                texts.insert(0, f"[{output.dropped} lines dropped: more than {LOG_BYTES_PER_S} bytes in a second]")
            output.second, output.bytes_used, output.dropped = second, 0, 0
        output.bytes_used += size
        if output.bytes_used > LOG_BYTES_PER_S:
            output.dropped += len(texts)
            return
        name = self._state.name_of(stream.process) or output.name
        prefix = f"({name} pid={self._pids.get(stream.process, '?')}) "
        body = "".join(f"{prefix}{text}\n" for text in texts).encode()
        self._send(wire.DRIVER, wire.message(wire.LOG, wire.NODE, body=body, flags=stream.number))

    def _close_output(self, process):
        """The last lines of a worker that has ended."""
        output = self._outputs.get(process)
        if output is None:
            return []
        for pipe in output.pipes:
            while self._read_output(pipe):
                continue
            if pipe in self._streams:  # a process that the worker started may have it still
                self._close_pipe(pipe)
        del self._outputs[process]
        return output.tail

    def _close_pipe(self, pipe):
        self._show_partial_line(pipe)
        self._poll.unregister(pipe)
        os.close(pipe)
        del self._streams[pipe]

    # -- the end ------------------------------------------------------------------------------------------------------

    def _end(self):
        """Ends all processes, then removes every trace."""
        self._unborn -= {spawn.process for spawn in self._spawns}
        self._spawns.clear()
        for number, wait_s in ((signal.SIGTERM, TERMINATE_S), (signal.SIGKILL, KILL_S)):
            for pid in self._pids.values():
                _signal_group(pid, number)
            self._await_ends(wait_s)
        self._channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._zygote, signal.SIGKILL)
        kill_children()
        self._take_leave()
        shutil.rmtree(self._session, ignore_errors=True)

    def _take_leave(self):
        """The last lines of all workers go to the driver, then word that nothing more will come."""
        for process in list(self._outputs):
            self._close_output(process)
        self._send(wire.DRIVER, wire.message(wire.GOODBYE, wire.NODE))
        for process, peer in self._peers.items():
            peer.close(LEAVE_MS if process == wire.DRIVER else 0)
        self._pull.close(0)
        self._context.term()

    def _await_ends(self, seconds):
        until = time.monotonic() + seconds
        while self._pids or self._unborn:
            left = until - time.monotonic()
            if left <= 0 or not readable(self._channel.fileno(), left):
                return
            data = b""
            with contextlib.suppress(ConnectionError):
                data = self._channel.recv(REPORT.size)
            if not data:
                return
            process, pid, status = REPORT.unpack(data)
            self._unborn.discard(process)
            if status == BORN:
                self._pids[process] = pid
                _signal_group(pid, signal.SIGKILL)
            else:
                pid = self._pids.pop(process, None)
                if pid is not None:
                    _signal_group(pid, signal.SIGKILL)


def _signal_group(pid, number):
    """To a worker and the processes it has started (it leads a group of its own as soon as it runs)."""
    for send in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, number)


def main(config: dict, zygote: int, channel: socket.socket) -> None:
    """Where the node begins.

    Args:
        config: see `launch.NodeProcess`.
        zygote: pid of the zygote, a child already.
        channel: socket to it.
    """
    adopt_orphans()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the driver's end is what ends it
    try:
        node = Node(config, zygote, channel)
    except ProcessLookupError:  # the driver has died already
        shutil.rmtree(config["session"], ignore_errors=True)
        os._exit(1)
    ready = config["inherited"]["ready"]  # the other one, the session's lock, is held until this process ends
    os.write(ready, b"1")
    os.close(ready)
    node.run()
    os._exit(0)
