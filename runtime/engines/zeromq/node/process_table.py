"""The processes of a session, as its node knows them, and the files that they cost the node."""

from __future__ import annotations

from collections.abc import Callable

from ....calls.options import RESOURCE_UNITS
from ....runtime_env import only_names
from ...resources import Resources
from ..transport import wire
from .entities import Kill, Process, ProcessKind, Send, Task

# Open files that a worker costs the node: the pipes of its output, a socket to it with its descriptor for waking, one
# from it. Segments of shared memory cost one each.
PROCESS_FILES = 5
SEGMENT_FILES = 8  # that actors leave to shared memory

IDLE_TICKS = 60


class ProcessTable:
    """The living processes of a session, the workers that are idle, and what the node is to do.

    Args:
        resources: of the session.
        files: the node's budget of open files, of which each worker takes some.
        owns_something: whether actors or unfinished tasks would end with a process.
        is_plain: whether the session's own environment says nothing, so that its workers may serve drivers that join.

    Attributes:
        by_number: the living processes.
        largest_worker_count: number of workers that may run tasks.
        files: the budget.
        instruct: takes an instruction for the node.
    """

    def __init__(self, resources: Resources, files: FileBudget, owns_something: Callable[[int], bool], is_plain: bool):
        self._is_plain, self._resources, self.files, self._owns_something = is_plain, resources, files, owns_something
        self.by_number = {wire.DRIVER: Process(wire.DRIVER, ProcessKind.DRIVER, resources, ready=True)}
        cpus = resources.total.get("CPU", 0) // RESOURCE_UNITS
        self.largest_worker_count = 8 * cpus + 64
        self._kept_idle = max(1, cpus)
        self._instructions: list = []
        self.instruct = self._instructions.append
        self._next_process = wire.DRIVER + 1
        self._idle: list[Process] = []  # of the session's environment
        self._idle_elsewhere: dict[str, list[Process]] = {}  # of each other one that has some
        self._retiring: list[Process] = []  # these get no task, and end when nothing would end with them

    # -- instructions -------------------------------------------------------------------------------------------------

    def take(self) -> list:
        """The instructions since the last call, in order."""
        taken = self._instructions[:]
        self._instructions.clear()
        return taken

    def send(self, process: int, frame: bytes) -> None:
        """Sends a frame to a process, if it lives."""
        if process in self.by_number:
            self.instruct(Send(process, frame))

    def notice(self, text: str, level: int, driver: int | None = None) -> None:
        """Has a driver log a text.

        Args:
            level: of `logging`.
            driver: None: all of them, since it concerns the session.
        """
        frame = wire.message(wire.NOTICE, wire.NODE, body=text.encode(), flags=level)
        for process in self.by_number.values():
            if process.kind == ProcessKind.DRIVER and driver in (None, process.number):
                self.send(process.number, frame)

    # -- births and ends ----------------------------------------------------------------------------------------------

    def new(self, kind: ProcessKind, environment: str) -> Process:
        """A worker that is about to be started."""
        process = Process(self._next_process, kind, self._resources, environment=environment)
        self._next_process += 1
        self.by_number[process.number] = process
        self.files.workers += 1
        self.files.task_workers += kind == ProcessKind.TASK
        return process

    def driver_joined(self, process: int) -> None:
        """A further driver; it ends by `NodeState.exited`, as any process does."""
        self.by_number[process] = Process(process, ProcessKind.DRIVER, self._resources, driver=process, ready=True)

    def remove(self, process: int) -> Process | None:
        """A process has ended; what was known of it, None if nothing."""
        ended = self.by_number.pop(process, None)
        if ended is not None:
            self.leaves(ended)
            self.files.workers -= ended.kind != ProcessKind.DRIVER
            self.files.task_workers -= ended.kind == ProcessKind.TASK
        return ended

    def driver_of(self, process: int) -> int:
        """The driver for which a process works, which may have ended; the session's if the process is not known."""
        worker = self.by_number.get(process)
        return wire.DRIVER if worker is None else worker.driver

    def name_of(self, process: int) -> str:
        """Name of what runs in a process, or ran there last, for the lines it writes."""
        worker = self.by_number.get(process)
        return worker.name if worker is not None else ""

    # -- idle workers -------------------------------------------------------------------------------------------------

    def worker_for(self, task: Task) -> Process | None:
        """An idle worker, or one that is about to be started; None if there may not be more."""
        needs_gpu = "GPU" in dict(task.request)
        environment = task.spec.environment
        if not needs_gpu and (self._idle if not environment else environment in self._idle_elsewhere):
            return self._idle.pop() if not environment else self._leave_idle(self._idle_elsewhere[environment][-1])
        if environment and not needs_gpu and self._idle and self._is_plain and only_names(environment):
            return self._move(self._idle.pop(), environment)
        if self.files.task_workers >= self.largest_worker_count or not self.files.has_room_for_task_worker():
            self._end_idle(environment)
            return None
        return self.new(ProcessKind.TASK, environment)

    def become_idle(self, worker: Process) -> None:
        """A worker has nothing to run; one that is about to end gets nothing any more."""
        if worker.killed or worker.leaving:
            return
        idle = self._idle_elsewhere.setdefault(worker.environment, []) if worker.environment else self._idle
        idle.append(worker)

    def leaves(self, worker: Process) -> None:
        """A worker is about to end: it gets no task any more."""
        if worker in self._retiring:
            self._retiring.remove(worker)
        if worker in self._all_idle():
            self._leave_idle(worker)

    def retire(self, worker: Process) -> None:
        """A worker is to end by itself, as soon as no task or actor that it has started would end with it."""
        self._retiring.append(worker)
        self._ask_to_stop(worker)

    def _ask_to_stop(self, worker):
        """Has a retiring worker end, unless something would end with it, as far as the node knows; of calls that wait
        for their arguments only the worker knows, which refuses then. With its driver it ends in any case.
        """
        if worker.driver not in self.by_number:
            self._stop(worker)
        elif not self._owns_something(worker.number):
            self.instruct(Send(worker.number, wire.message(wire.STOP, wire.NODE)))

    def _stop(self, worker):
        self._retiring.remove(worker)
        self.instruct(Send(worker.number, wire.message(wire.STOP, wire.NODE, flags=wire.FORCE)))

    def _move(self, worker, environment):
        """A worker serves a driver that has joined, from now on."""
        worker.environment = environment
        self.instruct(Send(worker.number, wire.message(wire.MOVE, wire.NODE, body=environment.encode())))
        return worker

    def _leave_idle(self, worker):
        """Takes a worker from the idle ones."""
        idle = self._idle_elsewhere[worker.environment] if worker.environment else self._idle
        idle.remove(worker)
        if worker.environment and not idle:
            del self._idle_elsewhere[worker.environment]
        return worker

    def _all_idle(self):
        return [*self._idle, *(worker for idle in self._idle_elsewhere.values() for worker in idle)]

    def _end_idle(self, environment):
        """Ends an idle worker of another environment, or one that was to end later: there may not be more workers, and
        its place is needed.
        """
        for worker in self._all_idle():
            if worker.environment != environment and not self._owns_something(worker.number):
                self.instruct(Kill(self._leave_idle(worker).number))
                return
        if self._retiring and not any(w.task is not None and not w.blocked for w in self.by_number.values()):
            self._stop(self._retiring[0])  # no task that runs would make room

    def all_busy(self) -> bool:
        """Whether there are as many workers for tasks as there may be, and none is idle."""
        return self.files.task_workers >= self.largest_worker_count and not self._all_idle()

    @property
    def has_spare(self) -> bool:
        """Whether there are workers without a task that are not kept for ever: `tick` ends them."""
        return bool(self._idle_elsewhere or self._retiring) or len(self._idle) > self._kept_idle

    def tick(self) -> None:
        """A second has passed."""
        for worker in list(self._retiring):
            self._ask_to_stop(worker)
        idle = self._all_idle()
        for worker in idle:
            worker.idle += 1
        for worker in (*self._idle[: -self._kept_idle], *idle[len(self._idle) :]):
            if worker.idle > IDLE_TICKS and not self._owns_something(worker.number):
                self.instruct(Kill(self._leave_idle(worker).number))


class FileBudget:
    """Number of files that the node has open, and whether there is room for more.

    Args:
        limit: number of files that the node may have open for workers and segments.

    Attributes:
        workers: number of living workers, including actors'.
        task_workers: number of workers that run tasks. There is always room for one.
        segments: number of segments.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self.workers = self.task_workers = self.segments = 0

    def has_room(self, files: int = 1) -> bool:
        """Whether this many more files may be opened."""
        workers = self.workers + (not self.task_workers)
        return self._limit - PROCESS_FILES * workers - self.segments >= files

    def has_room_for_task_worker(self) -> bool:
        """Whether a worker may be started to run tasks."""
        return not self.task_workers or self.has_room(PROCESS_FILES)

    def has_room_for_actor(self) -> bool:
        """Whether a worker may be started for an actor."""
        return self.has_room(PROCESS_FILES + SEGMENT_FILES)

    def refusal(self, actor: str) -> str:
        """Reason why an actor could not be started."""
        return (
            f"actor {actor} could not be started: under the limit of open files (ulimit -n) the session's "
            f"supervisor may use {self._limit}, and each of {self.workers} processes needs {PROCESS_FILES}. "
            "Raise the limit, or use fewer actors"
        )
