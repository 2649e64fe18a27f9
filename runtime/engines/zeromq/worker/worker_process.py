"""A worker process: runs tasks one after the other, or is one actor.

Its main thread reads the mailbox, runs what has come (see task_runner.py and served_actor.py), and reads on. While user
code in it waits in `get`, the same thread reads; calls that arrive meanwhile wait in the inbox.
"""

from __future__ import annotations

import _thread
import atexit
import faulthandler
import itertools
import logging
import os
import random
import signal
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic

import msgspec

from .... import context
from ....host.linux import adopt_orphans, be_ended_first, die_with_parent, end_process, reap_adopted
from ....remote.actors import handle_from_state
from ....runtime_context import RuntimeContext
from ....runtime_env import environment_dict
from ...resources import quantities
from ..client.cancellation import Cancellations
from ..client.client import BLOCKED_AFTER_S, NODE_ID, Client
from ..system.interrupts import POKE_SIGNAL, confine_handlers_to_user_code, runs_no_user_code
from ..system.stack_files import StackFile
from ..system.trace_files import TraceFile
from ..transport import structs, wire
from ..transport.mailbox import Waiter
from ..transport.packed import HeldReplies
from ..values.refs import SERIAL_STEP, Arrivals, Reference, Watch
from ..values.store import IDLE_SEGMENT_S
from .received_calls import ReceivedValues, received_call
from .results import Results
from .running import Leave, Running, left
from .served_actor import ServedActor
from .task_runner import TaskRunner

logger = logging.getLogger("runtime")

REPORT_WAIT_S = 5.0
GOODBYE_S = 1.0  # how long a leaving worker waits for the node to know
CONNECTS_WITHIN_S = 0.5  # a process that is stopped does not answer
REAP_S = 10.0  # least time between two looks for daemons that have ended


class Inbox:
    """Work that has arrived, for which the mailbox can wait.

    Attributes:
        queue: messages, and (source, serial, method, args) of calls that came packed in one (packed.py).
        frame: set when something arrives; the reader that finds the queue empty sets it to None, and looks again.
    """

    __slots__ = ("event", "frame", "queue")

    def __init__(self):
        self.queue: deque[bytes | tuple] = deque()
        self.frame = self.event = None

    def watch(self, event: threading.Event) -> None:
        """Sets the event when work arrives (see Mailbox.wait)."""
        self.event = event
        if self.frame is not None:
            event.set()

    def add(self, frame: bytes) -> None:
        """New work."""
        self.queue.append(frame)
        self.frame = True
        if self.event is not None:
            self.event.set()

    def add_all(self, work: Iterable) -> None:
        """The same of several."""
        self.queue.extend(work)
        self.frame = True
        if self.event is not None:
            self.event.set()


class Worker(Client):
    """The client of a worker process, and its loop.

    Args:
        settings: what the process was born with.
    """

    def __init__(self, settings: structs.Settings):
        super().__init__(settings.process, settings.session, settings.node_pid, settings.resources, settings.namespace)
        self._wait = self._wait_lending
        self._settings, self.environment = settings, settings.environment
        self.mailbox.connects_within_s = CONNECTS_WITHIN_S
        mailbox, next_serial, placements = self.mailbox, self.local_refs.next_serial, self.placements
        self._running = running = Running(settings.name)
        self._inbox, self._held = inbox, held = Inbox(), HeldReplies(mailbox)
        self._blocked = self._waiting = False
        self._blocks_loop = False  # it was said
        self._main = threading.get_ident()
        self._goodbye = Waiter()
        self._run: dict[int, Callable] = {}
        cancel_since = self.canceller.cancel_since
        cancellations = Cancellations(mailbox, inbox.queue, self._run, lambda: running.work, cancel_since)
        received = ReceivedValues(self.serializer, self._pins)
        results = Results(mailbox, self.serializer, self.local_refs, running, held, cancellations, self._wait)
        parts = mailbox, received, results, running
        changed = self.tasks.placement_changed
        task_runner = TaskRunner(*parts, cancellations, next_serial, placements, changed)
        self._actor = ServedActor(*parts, held, next_serial, placements, inbox.queue, self._run, self._wake_main)
        self._cancellations, self._results = cancellations, results
        self._run |= {
            wire.CALL: self._actor.call,
            wire.CALL_WITH: self._actor.call_with,
            wire.PACKED_CALLS: self._actor.call_packed,
            wire.SUBMIT: task_runner.run,
            wire.CREATE: self._actor.create,
        }
        self._trace: TraceFile | None = None
        if settings.timeline:
            self._trace = self._actor.trace = TraceFile(settings.session, settings.process, self._name_of)
            self._run |= {kind: self._trace.traced(function) for kind, function in self._run.items()}
        signal.signal(POKE_SIGNAL, self._on_poke)
        add = inbox.add
        self._handlers |= {kind: lambda frame, head: add(frame) for kind in (*self._run, wire.STOP)}
        self._handlers |= {
            wire.PACKED_CALLS: self._on_packed_calls,
            wire.DEFINE: received.on_define,
            wire.MOVE: self._on_move,
            wire.CANCEL: self._on_cancel,
            wire.CREDIT: results.on_credit,
            wire.GOODBYE: lambda frame, head: self._goodbye.tick(),
        }

    @runs_no_user_code
    def serve(self) -> int:
        """Works until the process is to end; its exit code."""
        self._send_to_node(wire.READY)
        inbox, queue, wait, run = self._inbox, self._inbox.queue, self.mailbox.wait, self._run
        reap_at = 0.0
        while True:
            try:
                if not queue:
                    if self._actor.stopping and self._actor.idle:
                        raise Leave(0, "ended")
                    if self._dropped or self._dropped_handles:
                        with self.mailbox.lock:
                            self.flush()
                    _flush_output()
                    if self._trace is not None:
                        self._trace.flush()
                    if monotonic() >= reap_at:
                        reap_adopted()
                        reap_at = monotonic() + REAP_S
                    inbox.frame = None
                    if not queue and not wait(inbox, IDLE_SEGMENT_S if self.store.idle_segments else None):
                        self.store.trim(IDLE_SEGMENT_S)
                    continue
                frame = queue.popleft()
                kind = wire.PACKED_CALLS if type(frame) is tuple else frame[wire.KIND_AT]
                if kind == wire.STOP:
                    if self._actor.exit is not None:
                        raise self._actor.exit
                    forced = wire.HEADER.unpack_from(frame)[2] & wire.FORCE
                    self._actor.stopping = bool(forced) or not self._task_calls_wait()
                else:
                    run[kind](frame)
            except (wire.Malformed, struct.error, UnicodeDecodeError):
                self.malformed += 1
            except Leave as leave:
                return self._leave(leave)
            except SystemExit as error:  # of a signal handler
                return self._leave(left(error))
            frame = None

    def _task_calls_wait(self):
        """Whether what tasks have called here is not done yet; some may not even have been sent."""
        if self._running.actor is not None:
            return False
        with self.mailbox.lock:
            channels = self.actor_channels.by_key.values()
            return bool(self.tasks.pending) or any(not channel.idle for channel in channels)

    def _name_of(self, frame):
        """The category and the name of what a frame runs, for the trace."""
        if type(frame) is tuple:
            return "call", f"{self._settings.name}.{frame[2]}()"
        _, kind, _, _, _, size, _, _ = wire.HEADER.unpack_from(frame)
        if kind == wire.SUBMIT:
            return "task", f"{structs.decode(structs.Task, frame, size).name}()"
        if kind == wire.CREATE:
            return "constructor", f"{self._settings.name}.__init__()"
        return "call", f"{self._settings.name}.{received_call(frame).method}()"

    def _wake_main(self):
        """Has the main thread look whether the process is to end; from another thread."""
        self._inbox.add(wire.message(wire.STOP, self.process))
        with self.mailbox.lock:
            self.mailbox.send(self.process, b"")

    def _send_to_node(self, kind, body=b""):
        with self.mailbox.lock:
            self.mailbox.send_to_node(kind, body=body)

    def _make_round(self):
        if self._held.replies:
            self._held.send_all()
        super()._make_round()

    def _on_frames(self, source, frames):
        if {frame[wire.KIND_AT] for frame in frames} == {wire.CALL}:
            self._inbox.add_all(frames)
        else:
            super()._on_frames(source, frames)

    def _on_packed_calls(self, frame, head):
        calls = structs.decode(structs.PackedCalls, frame)
        same = itertools.repeat
        self._inbox.add_all(zip(same(head[3]), calls.serials, same(calls.method), calls.arguments))

    def _on_move(self, frame, head):
        """Prepares for the work of another driver."""
        environment = frame[wire.HEADER_BYTES :].decode()
        try:
            self.named_actors.namespace = environment_dict(environment)["namespace"]
        except (ValueError, LookupError) as error:
            raise wire.Malformed(f"environment {environment!r}") from error
        self.environment = environment
        self.tasks.placement_changed()

    # -- cancelled work -----------------------------------------------------------------------------------------------

    def _on_cancel(self, frame, head):
        _, _, flags, source, serial, owner, _, _ = head
        if source == wire.NODE and flags & wire.RUNS:
            self._cancellations.cancel_task(serial, owner, flags)
        elif source == wire.NODE:
            self.canceller.on_cancel(frame, head)
        elif not self._cancellations.cancel_call(serial, owner, flags):
            self._actor.cancel_call(serial, owner)
        if flags & wire.CLOSE:
            self._results.go_on(serial, owner)

    def _on_gone(self, frame, head):
        super()._on_gone(frame, head)
        self._results.caller_has_gone(head[5])

    def _on_poke(self, number, frame):
        if not self._running.forked:
            _thread.start_new_thread(self._read_mailbox, ())  # not here: this may have interrupted what reads it

    def _read_mailbox(self):
        self.mailbox.start_keeper()
        self.mailbox.drain()

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _wait_lending(self, target, timeout_s):
        """Waits; replies that are held back go first, and after a while the CPUs of the waiting task go to others.

        After some seconds the awaited call is reported to the node, which looks for calls that wait for one another.
        """
        if self._held.replies:
            self._held.send_all()
        thread = threading.get_ident()
        if thread != self._main:
            if thread == self._running.loop_thread and not self._blocks_loop:
                self._blocks_loop = True
                logger.warning(
                    "get() or wait() in a coroutine of actor %s stops its event loop, and with it all its other "
                    "coroutines; use `await ref` instead",
                    self._settings.name,
                )
            with self._actor.waits():
                return self.mailbox.wait(target, timeout_s)
        try:
            return self.mailbox.wait(target, timeout_s, BLOCKED_AFTER_S, self._lend_cpus)
        finally:
            self._go_on()

    def _lend_cpus(self, target):
        if any(name == "CPU" for name, _ in self._running.request):
            self._blocked = True
            self._send_to_node(wire.BLOCKED)
        return REPORT_WAIT_S, self._report_wait

    def _report_wait(self, target):
        with self.mailbox.lock:
            keys = self._keys_of(target)
        if keys and self._running.work is not None:
            self._waiting = True
            self._send_to_node(wire.WAITING, body=structs.encode(structs.Waits(self._running.call_name(), keys)))

    def _keys_of(self, target):
        """Keys of the actors and tasks of this process that are needed for the end of a wait. Lock held."""
        refs = (target,) if type(target) is Reference else ()
        if type(target) in (Watch, Arrivals) and target.count >= len(target.refs):
            refs = target.refs
        serials = {ref.serial - ref.serial % SERIAL_STEP for ref in refs if ref.owner == self.process}
        tasks = [wire.key(serial, self.process) for serial in serials if serial in self.tasks.pending]
        return tasks + [channel.key for channel in self.actor_channels.by_key.values() if channel.owes(serials)]

    def _go_on(self):
        if self._blocked:
            self._blocked = False
            self._send_to_node(wire.UNBLOCKED)
        if self._waiting:
            self._waiting = False
            self._send_to_node(wire.WAITING, body=structs.encode(structs.Waits("", [])))

    # -- information --------------------------------------------------------------------------------------------------

    def context(self):
        self.enter()
        running, settings = self._running, self._settings
        kind, serial, source, name, _ = running.now() or (None, 0, 0, None, 0)
        return RuntimeContext(
            session_id=self.session_id,
            node_id=NODE_ID,
            worker_id=f"{self.process:x}",
            actor_id=running.actor.hex() if running.actor is not None else None,
            task_id=wire.key(serial, source).hex() if kind is not None else None,
            name=settings.name if running.actor is not None else name,
            gpu_ids=tuple(settings.gpu_ids),
            resources=quantities(running.request),
            placement=self.placements.current,
            namespace=self.named_actors.namespace,
            was_current_actor_reconstructed=settings.restarts > 0,
            _make_handle=self._own_handle if running.actor is not None else None,
        )

    def _own_handle(self):
        self.find_actor(self._running.actor)
        return handle_from_state(self._running.actor, *self._actor.describe())

    # -- the end ------------------------------------------------------------------------------------------------------

    def forked(self):
        super().forked()
        self._running.forked = True

    def _leave(self, leave):
        """Tells the node, and waits until it knows: what was sent before arrives before the end is noticed."""
        if not self._running.forked:  # else it has no connection to the node
            self._unseen_errors.report()
            with self.mailbox.lock:
                self._held.send()
                self.mailbox.send_to_node(wire.LEAVING, a=leave.code, body=leave.text.encode())
            self.mailbox.wait(self._goodbye, GOODBYE_S)
        self._actor.drop()
        return leave.code


def main(config: dict) -> None:
    """Entry point of a spawned worker: takes its settings, as built-in types, and the pid of the zygote."""
    run(msgspec.convert(config["settings"], structs.Settings), config["parent"])


def run(settings: structs.Settings, parent: int) -> None:
    """Serves as a worker, in a process just forked or spawned. Never returns.

    Args:
        settings: settings of the worker.
        parent: pid of the zygote.
    """
    os.setsid()
    pid = os.getpid()
    die_with_parent(parent)
    adopt_orphans()  # background processes of this worker become the node's, which kills them, only when it dies
    _set_up(settings)
    StackFile(settings.session, settings.process, settings.name)
    code = 1
    try:
        worker = Worker(settings)
        context.set_engine(worker)
        code = worker.serve()
        atexit._run_exitfuncs()
        if os.getpid() == pid:  # else a child that user code has forked
            worker.mailbox.close(linger_ms=500)
    finally:
        if sys.exc_info()[0] is not None:
            sys.excepthook(*sys.exc_info())
        end_process(code)


def _flush_output():
    """Writes out a line that user code has begun; whole lines are written at once."""
    try:
        sys.__stdout__.flush()
        sys.__stderr__.flush()
    except (OSError, ValueError):  # closed by user code
        pass


def default_threads(settings) -> str:
    """OMP_NUM_THREADS of a worker for which it is not set: the CPUs that its actor holds, or one."""
    return str(max(1, int(settings.held.get("CPU", 1))))


def _set_up(settings):
    """Undoes in a worker what only the zygote needs, and sets up streams, environment and seeds."""
    confine_handlers_to_user_code()
    be_ended_first()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    faulthandler.enable(all_threads=False)  # the one that a signal ended; worker_output.py knows this form
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(settings.gpu_ids)
    os.environ.update(settings.env_vars)
    # Also for a torch that is imported later; without it each worker would take all cores.
    threads = os.environ.setdefault("OMP_NUM_THREADS", default_threads(settings))
    sys.path[:] = [*filter(None, settings.env_vars.get("PYTHONPATH", "").split(os.pathsep)), *settings.path]
    if settings.working_dir:
        try:
            os.chdir(settings.working_dir)
        except OSError as error:  # it was checked when it was given, and may have been removed since
            print(
                f"the working_dir {settings.working_dir!r} of its runtime_env cannot be entered: {error.strerror}",
                file=sys.stderr,
                flush=True,
            )
            os._exit(1)
        sys.path.insert(0, settings.working_dir)
    random.seed()
    # A module that the zygote has not imported seeds itself later; importing numpy.random takes 13 ms.
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed(int.from_bytes(os.urandom(4), "little"))
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(int.from_bytes(os.urandom(7), "little"))
        if threads.isdecimal() and threads != "0":
            torch.set_num_threads(int(threads))
