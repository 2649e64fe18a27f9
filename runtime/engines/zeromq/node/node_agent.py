"""The node agent: the process that carries out what `state.NodeState` decides.

It reads its mailbox, the zygote's reports and the workers' output in one thread, forwards user data as bytes, and ends
the session when the driver asks for it or has died. It imports neither numpy nor user code.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import select
import shutil
import signal
import socket
import struct
import time
import traceback
from collections import deque
from collections.abc import Callable

import msgspec
import zmq

from ....host.linux import adopt_orphans, allow_many_files, describe_exit, kill_children, readable
from ....runtime_env import environment_dict
from ...resources import units
from ..client import inspection
from ..session import boot
from ..session.joining import describe_session
from ..system import stack_files
from ..system.interrupts import POKE_AGAIN_S, POKE_SIGNAL
from ..system.spilling import KEPT_FREE, default_directory, unnamed_file
from ..system.stack_files import StackFile
from ..transport import structs, wire
from ..transport.mailbox import mailbox_path, mailbox_socket, peer_socket
from ..transport.session_key import use_key
from . import reports as session_reports
from .connections import Connections
from .entities import Close, Grow, Kill, Later, Poke, Send, Spawn
from .memory_watch import LONGEST_PAUSE_S, MemoryWatch, private_bytes
from .state import NodeState
from .worker_output import PARTIAL_LINE_S, ShownLines, WorkerOutput

TERMINATE_S, KILL_S = 1.0, 1.0
LEAVE_MS = 500  # for the last frames, if the driver reads them
LAST_WORDS_S = 1.0  # for the last frames of a process that has died
BIRTHS_AT_ONCE = 16
RESERVED_FILES = 24  # of the node itself: 17 are always open
SEGMENT_MODE = os.MFD_CLOEXEC
LOOK_AT_MEMORY, POKE_AGAIN = b"", b"poke"  # instead of an actor's key


class Node:
    """The node agent: sockets, pipes and processes around a `NodeState`.

    Args:
        config: see `launch.NodeProcess`.
        zygote: pid.
        channel: socket to the zygote.
    """

    def __init__(self, config: dict, zygote: int, channel: socket.socket):
        self._config, self._session = config, config["session"]
        self._disk = config["spilling_directory"] or default_directory()
        self._state = NodeState(
            units(config["resources"]),
            tuple(config["gpu_ids"]),
            config["object_store_memory"],
            allow_many_files() - RESERVED_FILES,
            _disk_quota(self._disk, config["spilling_bytes"]),
            is_plain=not config["environment"],
        )
        use_key(self._session)
        self._zygote, self._channel = zygote, channel
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 65535)
        self._pull = mailbox_socket(self._context, self._session, wire.NODE)
        self._connections = Connections(self._context, self._pull)
        self._peers: dict[int, zmq.Socket] = {}
        self._pids: dict[int, int] = {}  # process -> pid, of the living
        self._spawns: deque[Spawn] = deque()  # that the zygote has not been asked for yet
        self._asked = 0  # births it has been asked for and has not reported
        self._unborn: set[int] = set()
        self._doomed: set[int] = set()  # to be killed as soon as they are born
        self._segments: dict[int, int] = {}  # segment -> fd
        self._ending = False
        self._driver = os.pidfd_open(config["driver"])
        self._guests: dict[int, int] = {}  # process -> pidfd, of drivers that have joined
        self._driver_pids = {wire.NODE: os.getpid(), wire.DRIVER: config["driver"]}
        self._poll = select.epoll()
        for descriptor in (self._pull.fileno(), self._connections.descriptor, self._channel.fileno(), self._driver):
            self._poll.register(descriptor, select.EPOLLIN)
        self._shown = ShownLines(self._send, self._origin_of, config["log_to_driver"], config["dedup_logs"])
        self._output = WorkerOutput(self._poll, self._shown.show if config["log_to_driver"] else None)
        self._encode = msgspec.msgpack.Encoder().encode
        self._next_tick = 0.0
        self._due: list[tuple[float, bytes, int]] = []  # heap of what `NodeState.due` is to be called with, and when
        self._memory = MemoryWatch(config["memory_usage_threshold"])
        self._look_is_due = False
        self._handlers = self._table()
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
                    self._read_report()
                elif descriptor == self._connections.descriptor:
                    self._connections.read()
                elif descriptor in self._guests.values():
                    guest = next(guest for guest, pidfd in self._guests.items() if pidfd == descriptor)
                    self._read_last_words(self._driver_pids[guest])
                    self._guest_ended(guest)
                elif descriptor != mailbox:
                    self._output.read(descriptor)
            self._read_mailbox()
            self._tick()
            if self._output.partial:
                self._output.show_partial_lines()
            if self._shown.next_due < math.inf:
                self._shown.show_due(time.monotonic())
        self._end()

    def _timeout(self):
        if self._output.partial:
            return PARTIAL_LINE_S
        left = [1.0] if self._state.needs_ticks else []
        left += [max(0.0, due - time.monotonic()) for due, _, _ in self._due[:1]]
        if self._shown.next_due < math.inf:
            left.append(max(0.0, self._shown.next_due - time.monotonic()))
        return min(left, default=None)

    def _tick(self):
        while self._due and time.monotonic() >= self._due[0][0]:
            _, key, process = heapq.heappop(self._due)
            if key == LOOK_AT_MEMORY:
                self._look_at_memory()
            elif key == POKE_AGAIN:
                self._signal_poke(process)
            else:
                self._state.due(key, process)
            self._carry_out()
        if self._state.needs_ticks:
            now = time.monotonic()
            if now >= self._next_tick:
                self._next_tick = now + 1.0
                self._state.tick()
                self._carry_out()

    def _read_mailbox(self):
        """Reads all messages: the descriptor reports only messages that arrive after the socket was found empty."""
        receive, handlers = self._pull.recv, self._handlers
        while not self._ending:
            try:
                frame = receive(zmq.DONTWAIT)
            except zmq.Again:
                return
            try:
                _, kind, _, source, serial, a, _, c = wire.header(frame)
                handle = handlers.get(kind)
                if handle is None:
                    raise wire.Malformed(f"kind {kind} is not for the node")
                handle(frame, source, serial, a, c)
            except (wire.Malformed, struct.error, UnicodeDecodeError):
                self.malformed += 1
            except Exception:  # a mistake of ours: it is shown, and the session continues
                traceback.print_exc()
            self._carry_out()

    def _read_last_words(self, pid):
        """Reads all that a process has sent before its end."""
        self._connections.await_end(pid, LAST_WORDS_S)
        self._read_mailbox()

    def _table(self) -> dict[int, Callable]:
        """Kind of message -> its handler, a function of (frame, source, serial, a, c)."""
        state, names, decode, key, answer = self._state, self._state.names, structs.decode, wire.key, self._answer
        return {
            wire.SUBMIT: lambda f, source, serial, a, c: state.submit(source, serial, structs.task(f, a), f),
            wire.DONE: lambda f, source, serial, a, c: state.done(source, serial, a),
            wire.REFERENCES: lambda f, source, *_: state.references(source, decode(structs.References, f)),
            wire.SETTLED: lambda f, source, serial, a, c: state.settled(source, a, wire.keys(f, wire.HEADER_BYTES)),
            wire.BLOCKED: lambda f, source, *_: state.blocked(source),
            wire.UNBLOCKED: lambda f, source, *_: state.unblocked(source),
            wire.WAITING: lambda f, source, *_: state.waiting(source, decode(structs.Waits, f)),
            wire.CREATE: lambda f, source, serial, a, c: state.create(source, serial, decode(structs.Create, f, a), f),
            wire.READY: lambda f, source, *_: state.ready(source),
            wire.ALIVE: lambda f, source, *_: state.alive(source),
            wire.START_FAILED: self._start_failed,
            wire.WATCH: lambda f, source, serial, a, c: state.watch(source, key(serial, a)),
            wire.CANCEL: lambda f, source, serial, a, c: state.cancel(source, serial, a, f[wire.KIND_AT + 1]),
            wire.CREDIT: lambda f, source, serial, a, c: state.send(a, f),
            wire.POKE: lambda f, source, serial, a, c: self._poke(a),
            wire.KILL: lambda f, source, serial, a, c: state.kill(key(serial, a), restart=bool(c)),
            wire.CLAIM_NAME: lambda f, source, serial, *_: names.claim(source, serial, decode(structs.Claim, f)),
            wire.FIND_NAME: lambda f, source, serial, *_: names.find(source, serial, decode(structs.Name, f)),
            wire.LIST_NAMES: lambda f, source, serial, *_: names.list(source, serial),
            wire.DEFINE: lambda f, source, *_: state.define(source, decode(structs.Define, f), f),
            wire.SUBSCRIBE: lambda f, source, serial, a, c: state.subscribe(source, key(serial, a)),
            wire.GRANT: lambda f, source, serial, a, c: state.grant(source, serial, c),
            wire.RETURN: lambda f, source, serial, a, c: state.returned(source, a),
            wire.LEAVING: lambda f, source, *_: self._leaving(source, f[wire.HEADER_BYTES :].decode()),
            wire.JOIN: lambda f, source, serial, a, c: self._guest_joined(source, c),
            wire.NEW_GROUP: lambda f, source, serial, *_: state.new_group(source, serial, decode(structs.NewGroup, f)),
            wire.REMOVE_GROUP: lambda f, source, serial, a, c: state.remove_group(key(serial, a)),
            wire.GROUPS: lambda f, source, serial, *_: answer(
                wire.GROUPS, source, serial, structs.encode(structs.Groups(state.group_table()))
            ),
            wire.HOLDERS: lambda f, source, serial, *_: answer(
                wire.HOLDERS, source, serial, session_reports.memory_report(state).encode()
            ),
            wire.INSPECT: lambda f, source, serial, a, c: self._inspect(source, serial, c),
            wire.RESOURCES: lambda f, source, serial, *_: self._send_resources(source, serial),
            wire.SHUTDOWN: lambda *_: setattr(self, "_ending", True),
        }

    def _answer(self, kind, source, serial, body):
        self._send(source, wire.message(kind, wire.NODE, serial, body=body))

    def _start_failed(self, frame, source, serial, a, c):
        wire.value_head(frame, wire.HEADER_BYTES)  # else malformed
        if serial:
            self._state.not_created(source, serial, frame[wire.HEADER_BYTES :])
        else:
            self._state.start_failed(source, frame[wire.HEADER_BYTES :])

    def _send_resources(self, source, serial):
        state = self._state
        body = structs.encode(structs.Free(state.resources.free, len(state.refcounts.items), self.malformed))
        self._answer(wire.RESOURCES, source, serial, body)

    def _inspect(self, source, serial, what):
        pids = {**self._driver_pids, **self._pids}
        if what == inspection.STATUS:
            report = session_reports.status(self._state, pids)
        elif what == inspection.MEMORY:
            report = session_reports.memory(self._state, pids)
        else:
            report = [
                {"pid": self._pids.get(process), "name": self._state.name_of(process), "lines": lines}
                for process, lines in self._output.last_lines().items()
            ]
            if what == inspection.FOLLOW:
                self._shown.followers.add(source)
        self._answer(wire.INSPECT, source, serial, structs.encode(report))

    # -- instructions -------------------------------------------------------------------------------------------------

    def _carry_out(self):
        for instruction in self._state.take():
            kind = type(instruction)
            if kind is Send:
                self._send(instruction.process, instruction.frame)
            elif kind is Spawn:
                self._unborn.add(instruction.process)
                self._spawns.append(instruction)
                self._ask_for_births()
            elif kind is Kill:
                self._kill(instruction.process)
            elif kind is Poke:
                self._poke(instruction.process)
            elif kind is Grow:
                self._grow(instruction)
            elif kind is Later:
                due = time.monotonic() + instruction.seconds
                heapq.heappush(self._due, (due, instruction.key, instruction.process))
            elif kind is Close:
                os.close(self._segments.pop(instruction.segment))

    def _send(self, process, frame):
        peer = self._peers.get(process)
        if peer is None:
            # A worker's own messages may be here before the zygote's report of its birth.
            if process != wire.DRIVER and not any(process in p for p in (self._pids, self._unborn, self._guests)):
                return
            peer = self._peers[process] = peer_socket(self._context, self._session, process)
        peer.send(frame, zmq.DONTWAIT)

    def _ask_for_births(self):
        """Has the zygote fork, a few at a time: were the channel full on both ways, each would wait for the other."""
        while self._spawns and self._asked < BIRTHS_AT_ONCE:
            self._asked += 1
            self._ask(self._spawns.popleft())

    def _ask(self, spawn):
        session, own = environment_dict(self._config["environment"]), environment_dict(spawn.environment)
        if "namespace" in own:  # it comes from a driver that has joined the session
            session = {}
        settings = structs.Settings(
            process=spawn.process,
            session=self._session,
            node_pid=os.getpid(),
            name=spawn.name,
            resources=self._config["resources"],
            held=spawn.held,
            gpu_ids=spawn.gpu_ids,
            env_vars={**session.get("env_vars", {}), **own.get("env_vars", {})},
            path=self._config["path"],
            timeline=self._config["timeline"],
            working_dir=own.get("working_dir") or session.get("working_dir", ""),
            environment=spawn.environment,
            namespace=own.get("namespace", self._config["namespace"]),
            restarts=spawn.restarts,
        )
        its = self._output.open(spawn.process)
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

    def _poke(self, process):
        self._signal_poke(process)
        heapq.heappush(self._due, (time.monotonic() + POKE_AGAIN_S, POKE_AGAIN, process))

    def _signal_poke(self, process):
        if process in self._pids:  # the actor of a cancelled call may have ended
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pids[process], POKE_SIGNAL)

    def _grow(self, grow):
        if grow.on_disk:
            try:
                file = unnamed_file(self._disk, grow.size)
            except OSError as error:
                self._state.disk_refused(grow, str(error))
                return
        else:
            file = os.memfd_create("runtime", SEGMENT_MODE)
            os.ftruncate(file, grow.size)
        os.pwrite(file, wire.segment_header(grow.segment), 0)
        self._segments[grow.segment] = file
        flags, serial = wire.ON_DISK * grow.on_disk, grow.serial
        frame = wire.message(wire.GRANTED, wire.NODE, serial, grow.segment, file, grow.size, flags=flags)
        self._send(grow.process, frame)

    def _origin_of(self, process):
        """The driver for which a worker works, also when it has ended, and what its lines begin with."""
        name, pid = self._state.name_of(process), self._output.pid(process)
        return self._state.driver_of(process), f"({name} pid={pid}) "

    # -- the memory of the machine ------------------------------------------------------------------------------------

    def _look_later(self, pause_s):
        self._look_is_due = bool(self._memory.limits)
        if self._look_is_due:
            heapq.heappush(self._due, (time.monotonic() + pause_s, LOOK_AT_MEMORY, 0))

    def _look_at_memory(self):
        """Has a process ended if memory is short. While there are workers, the next look comes before it can be."""
        room, used, limit = self._memory.look()
        self._state.memory_room, pressure = room, self._state.memory_pressure
        pause_s = self._memory.pause_s(room)
        if room < 0 and not pressure.is_relieved:
            pids = {**self._driver_pids, **self._pids}
            del pids[wire.NODE]
            private = {process: private_bytes(pid) for process, pid in pids.items()}
            pressure.short(limit.name, used, limit.size_bytes, self._memory.reserve(limit), private)
            if not pressure.is_relieved:
                pause_s = LONGEST_PAUSE_S
        self._look_is_due = False
        if self._pids:
            self._look_later(pause_s)

    # -- workers ------------------------------------------------------------------------------------------------------

    def _receive_report(self):
        """(process, pid, wait status or BORN) as the zygote reports it; None when the zygote has died."""
        data = b""
        with contextlib.suppress(ConnectionError):
            data = self._channel.recv(wire.REPORT.size)
        if not data:
            return None
        process, pid, status = wire.REPORT.unpack(data)
        if status == wire.BORN:
            self._unborn.discard(process)
            self._pids[process] = pid
            self._output.began(process, pid)
            if not self._look_is_due:
                self._look_later(0.0)
        return process, pid, status

    def _read_report(self):
        report = self._receive_report()
        if report is None:
            self._zygote_died()
            return
        process, pid, status = report
        if status == wire.BORN:
            self._asked -= 1
            self._ask_for_births()
            if process in self._doomed:
                self._doomed.discard(process)
                _signal_group(pid, signal.SIGKILL)
        else:
            how = describe_exit(status)
            if how == "signal SIGKILL" and self._memory.kernel_has_killed():
                self._state.memory_pressure.ended_by_kernel(process)
            self._worker_ended(process, how)
        self._carry_out()

    def _worker_ended(self, process, how):
        pid = self._pids.get(process)
        if pid is not None:
            _signal_group(pid, signal.SIGKILL)  # processes that it started
            kill_children(but=self._zygote)  # and the ones that have left its group: the node's children now
            self._read_last_words(pid)
            stack_files.remove(self._session, process, pid)
            del self._pids[process]
        self._unborn.discard(process)
        output = self._output.close(process)
        self._forget(process, how, "\n".join(f"    {line}" for line in output))

    def _forget(self, process, how, output="", linger_ms=0):
        """A process has ended."""
        peer = self._peers.pop(process, None)
        if peer is not None:
            peer.close(linger_ms)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(mailbox_path(self._session, process))
        self._state.exited(process, how, output)
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

    # -- further drivers ----------------------------------------------------------------------------------------------

    def _guest_joined(self, process, pid):
        """A driver has joined: from now on it is known, and its end is noticed."""
        if process < wire.FIRST_GUEST or process in self._guests:
            raise wire.Malformed(f"{process} is no number for a driver that joins")
        try:
            self._guests[process] = os.pidfd_open(pid)
        except (OSError, OverflowError):  # it has ended already
            return
        self._poll.register(self._guests[process], select.EPOLLIN)
        self._driver_pids[process], self._output.show = pid, self._shown.show
        self._state.driver_joined(process)
        self._shown.driver_joined(process)
        self._send(process, wire.message(wire.JOIN, wire.NODE))

    def _leaving(self, process, why):
        if process in self._guests:
            self._output.read_all()  # the lines printed before it leaves are still shown by it
            self._output.show_partial_lines_of({p for p in self._pids if self._state.driver_of(p) == process})
            self._shown.show_all_of(process)
        self._state.leaving(process, why)
        if process in self._guests:
            self._carry_out()
            self._guest_ended(process)

    def _guest_ended(self, process):
        """A driver that had joined has left or died: its actors and tasks end."""
        pidfd = self._guests.pop(process)
        stack_files.remove(self._session, process, self._driver_pids.pop(process))
        self._shown.driver_ended(process)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        self._forget(process, "end of its process", linger_ms=LEAVE_MS)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _end(self):
        """Ends all processes, then removes every trace."""
        self._output.read_all()  # lines printed before the end join the ones that were read
        self._shown.show_due(math.inf)  # first, since the driver does not wait for ever
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
        self._output.close_all()
        self._shown.show_due(math.inf)
        # The drivers got the last lines; after GOODBYE nothing more will come.
        drivers = (wire.DRIVER, *self._guests)
        for driver in drivers:
            self._send(driver, wire.message(wire.GOODBYE, wire.NODE))
        for process, peer in self._peers.items():
            peer.close(LEAVE_MS if process in drivers else 0)
        self._connections.close()
        self._pull.close(0)
        self._context.term()
        shutil.rmtree(self._session, ignore_errors=True)

    def _await_ends(self, seconds):
        until = time.monotonic() + seconds
        while self._pids or self._unborn:
            left = until - time.monotonic()
            if left <= 0 or not readable(self._channel.fileno(), left):
                return
            report = self._receive_report()
            if report is None:
                return
            process, pid, status = report
            self._unborn.discard(process)
            if status == wire.BORN or self._pids.pop(process, None) is not None:
                _signal_group(pid, signal.SIGKILL)


def _disk_quota(directory, given):
    """Bytes that objects may take on the disk; more than it has, which would be waited for, are refused at once."""
    if directory is None:
        return 0
    most = int((1 - KEPT_FREE) * shutil.disk_usage(directory).total)
    return most if given is None else min(given, most)


def _signal_group(pid, number):
    """Sends a signal to a worker and the processes it has started (it leads its own group as soon as it runs)."""
    for send in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, number)


def main(config: dict, zygote: int, channel: socket.socket) -> None:
    """Entry point of the node.

    Args:
        config: see `launch.NodeProcess`.
        zygote: pid of the zygote, a child already.
        channel: socket to it.
    """
    adopt_orphans()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when the driver does
    try:
        node = Node(config, zygote, channel)
        describe_session(config["session"], config)
        StackFile(config["session"], wire.NODE, "node agent")
    except ProcessLookupError:  # the driver has died already
        shutil.rmtree(config["session"], ignore_errors=True)
        os._exit(1)
    ready = config["inherited"]["ready"]  # the other one, the session's lock, is held until this process ends
    os.write(ready, b"1")
    os.close(ready)
    node.run()
    os._exit(0)
