"""The scheduler of the node: the time and the process of each task.

A task waits in a queue of its kind of request, deepest first, so that the children of a blocked task run before new
work of the driver. A process that waits in `get` lends its CPUs to others. A task whose process was ended for want of
memory waits until there is some.
"""

from __future__ import annotations

from heapq import heappop, heappush

from ....scheduling import Placement
from ...placement_groups import PlacementGroups
from ...resources import Request, Resources
from ..transport import structs, wire
from .actor_table import ActorTable
from .entities import Kill, Poke, Process, ProcessKind, Send, Spawn, StarvedTask, Task
from .process_table import ProcessTable
from .shared_items import SharedItems

MEMORY_TICKS = 1, 2, 10  # that a task waits at least, by the number of its processes that have died


class Scheduler:
    """The tasks of a session that are not done, and `dispatch`, which starts what can start.

    Args:
        table: the session's processes.
        shared: what they share.
        actors: the session's actors; waiting ones start before tasks.
        resources, groups: from which tasks get their resources.

    Attributes:
        still_ticks: seconds in which something waited and nothing was started.
    """

    def __init__(
        self,
        table: ProcessTable,
        shared: SharedItems,
        actors: ActorTable,
        resources: Resources,
        groups: PlacementGroups,
    ):
        self._table, self._processes, self._shared, self._actors = table, table.by_number, shared, actors
        self._resources, self._groups, self._definitions = resources, groups, shared.definitions
        self.still_ticks = 0
        self._submitted = self._started = 0
        self._starved: list[StarvedTask] = []
        # Heaps of (-depth, order, task), none empty, by what their tasks need: a request, and where in a group.
        self._queues: dict[Request | tuple[Request, Placement], list] = {}
        self._queued_by_key: dict[bytes, Task] | None = None  # made for a cancel, void when a queue changes

    # -- what owners and workers ask ----------------------------------------------------------------------------------

    def submit(self, source: int, serial: int, task: structs.Task, frame: bytes) -> None:
        """A process submits a task.

        Raises:
            wire.Malformed: its function is not known.
        """
        submitter = self._processes.get(source)
        if submitter is None:
            return
        if task.digest not in self._definitions:
            raise wire.Malformed("task of a function that no process has defined")
        depth = submitter.task.depth + 1 if submitter.task is not None else submitter.kind == ProcessKind.ACTOR
        entry = Task(wire.key(serial, source), serial, source, frame, task, int(depth), submitter.driver)
        for key in task.items:
            self._shared.refcounts.add(key, entry.holder, 1)
        if entry.driver in self._processes:
            self._enter(entry)
        else:  # of a thread that its task has left behind
            self._fail(entry, "OwnerDiedError", f"task {task.name}(): the driver for which it was called has ended")

    def _enter(self, task):
        """A task waits for resources from now on, unless its placement group has gone."""
        placement = task.spec.placement
        if placement is not None and (refusal := self._groups.refusal(placement, task.request)) is not None:
            self._fail(task, refusal[0], f"task {task.spec.name}(): {refusal[1]}")
            return
        self._push(task)
        self.dispatch()

    def done(self, process: int, serial: int, owner: int) -> None:
        """A worker has finished its task."""
        worker = self._processes.get(process)
        task = None if worker is None or not worker.ready else worker.task
        if task is None or (task.serial, task.owner) != (serial, owner):
            return
        spec = task.spec
        self._finish(worker)
        if spec.max_calls:
            worker.calls[spec.digest] = worker.calls.get(spec.digest, 0) + 1
        if worker.gpus or (spec.max_calls and worker.calls[spec.digest] >= spec.max_calls):
            # The CUDA context of a worker with GPUs would keep memory on a device that others get. It leaves by itself:
            # a kill might overtake its reply.
            self._table.retire(worker)
        else:
            worker.idle = 0
            self._table.become_idle(worker)
        self.dispatch()

    def cancel(self, source: int, serial: int, owner: int, flags: int) -> None:
        """A process cancels a task; one that is not its own through the owner, which may not have submitted it yet.

        What a running task has called, its worker cancels.
        """
        if source != owner:
            self._table.send(owner, wire.message(wire.CANCEL, wire.NODE, serial, owner, flags=flags))
            return
        worker, task = self._find(wire.key(serial, owner))
        if task is None or task.cancelled:
            return
        if worker is None:
            self._cancel_queued(task)
        elif not worker.ready:
            self._finish(worker)
            self._fail(task, "TaskCancelledError", f"task {task.spec.name}() was cancelled before it ran")
            if worker.gpus:  # it was started for these
                self._table.instruct(Kill(worker.number))
        elif flags & wire.FORCE:
            task.cancelled, worker.killed = True, "was killed by cancel(force=True)"
            self._table.instruct(Kill(worker.number))
            self._fail(task, "TaskKilledError", f"task {task.spec.name}() was ended by cancel(force=True)")
        elif flags & wire.CLOSE or not task.interrupted:
            frame = wire.message(wire.CANCEL, wire.NODE, task.serial, task.owner, flags=flags | wire.RUNS)
            self._table.instruct(Send(worker.number, frame))
            if not flags & wire.CLOSE:
                task.interrupted = True
                self._table.instruct(Poke(worker.number))
        self.dispatch()

    def _cancel_queued(self, task):
        """It stays in its heap, and is left out when it comes up."""
        task.cancelled, task.frame = True, b""
        self._fail(task, "TaskCancelledError", f"task {task.spec.name}() was cancelled before it ran")

    def task(self, key: bytes) -> Task | None:
        """A task that waits or runs; None if there is none with this key."""
        return self._find(key)[1]

    def _find(self, key):
        """The process in which a task runs, or None if it waits, and the task."""
        worker = next((p for p in self._processes.values() if p.task is not None and p.task.key == key), None)
        if worker is not None:
            return worker, worker.task
        if self._queued_by_key is None:
            self._queued_by_key = {task.key: task for task in self.waiting()}
        return None, self._queued_by_key.get(key)

    def blocked(self, process: int) -> None:
        """A process waits in `get`: others may have its CPUs."""
        worker = self._processes.get(process)
        if worker is not None and not worker.blocked and (worker.task or worker.actor) is not None:
            worker.blocked = True
            worker.pool.give_back(worker.cpus)
            self.dispatch()

    def unblocked(self, process: int) -> None:
        """Lets the process continue, whether a CPU is free or not."""
        worker = self._processes.get(process)
        if worker is not None and worker.blocked and not worker.leaving:
            worker.blocked = False
            worker.pool.take(worker.cpus)

    # -- starting -----------------------------------------------------------------------------------------------------

    def _push(self, task):
        self._submitted += 1
        self._queued_by_key = None
        spec = task.spec
        need = spec.request if spec.placement is None else (spec.request, spec.placement)
        heappush(self._queues.setdefault(need, []), (-task.depth, self._submitted, task))

    def dispatch(self) -> None:
        """Books the placement groups, then starts the actors, then the tasks, that can start."""
        if self._groups.waiting:
            self._groups.book()
        if self._actors.waiting and self._actors.place():
            self.still_ticks = 0
        if not self._queues:
            return
        for need, queue in list(self._queues.items()):
            while queue:
                task = queue[0][2]
                if task.cancelled:
                    heappop(queue)
                    continue
                spec = task.spec
                pool = self._resources if spec.placement is None else self._groups.pool(spec.placement, spec.request)
                if pool is None or not pool.fits(spec.request):
                    break
                worker = self._table.worker_for(task)
                if worker is None:
                    break
                self._assign(heappop(queue)[2], worker, pool)
            if not queue:
                del self._queues[need]
        if self._queues and self._table.all_busy():
            self._find_deadlock()

    def _assign(self, task, worker, pool):
        task.gpus = pool.take(task.request)
        self._queued_by_key = None
        self._started += 1
        worker.pool, worker.task, worker.name, worker.started = pool, task, task.spec.name, self._started
        self.still_ticks = 0
        if not worker.ready:
            worker.gpus = task.gpus
            self._table.instruct(Spawn(worker.number, f"worker {worker.number}", {}, task.gpus, worker.environment))
        else:
            self.start(worker)

    def start(self, worker: Process) -> None:
        """Sends a worker its task."""
        task = worker.task
        owner, worker.driver = self._processes.get(task.owner), task.driver
        if owner is not None:
            owner.contacts.add(worker.number)
        self._shared.send(worker, task.frame, task.spec.digest, task.spec.items)

    def _find_deadlock(self):
        """At the largest number of workers, all blocked: nothing will ever move, so the deepest task fails."""
        workers = [p for p in self._processes.values() if p.task is not None]
        if len(workers) < self._table.files.task_workers or not all(p.blocked and not p.leaving for p in workers):
            return
        for need in list(self._queues):
            queue = self._queues[need]
            task = heappop(queue)[2]
            task.cancelled = True
            if not queue:
                del self._queues[need]
            chain = ", ".join(f"{p.task.spec.name}()" for p in workers[-10:])
            self._fail(
                task,
                "ResourceDeadlockError",
                f"task {task.spec.name}() cannot start: all {len(workers)} workers wait for other tasks, the last "
                f"of them in {chain}",
            )

    # -- ends ---------------------------------------------------------------------------------------------------------

    def _finish(self, worker):
        """A task is done: frees its resources and arguments."""
        task, worker.task = worker.task, None
        self.give_back(worker, task.request, task.gpus)
        self._shared.drop_holder(task.holder)

    def give_back(self, worker: Process, held: Request, gpus: tuple[str, ...]) -> None:
        """A worker does not hold these resources any more; while it is blocked, others have its CPUs already."""
        if worker.blocked:
            worker.blocked, held = False, tuple(entry for entry in held if entry[0] != "CPU")
        worker.pool.give_back(held, gpus)
        if self._groups.emptying:
            self._groups.settle()

    def _fail(self, task, error, text):
        self._shared.drop_holder(task.holder)
        body = structs.encode(structs.Failed(error, text))
        self._table.send(task.owner, wire.message(wire.FAILED, wire.NODE, task.serial, body=body))

    def process_ended(self, worker: Process, reason: str) -> None:
        """The process of a task has ended: the task runs again, or has failed."""
        task, worker.task = worker.task, None
        self.give_back(worker, task.request, task.gpus)
        if task.cancelled or task.owner not in self._processes:
            self._shared.refcounts.drop_holder(task.holder)
            return
        may_be_retried = task.may_be_retried
        task.attempts += 1
        if task.interrupted:
            self._fail(task, "TaskCancelledError", f"task {task.spec.name}() was cancelled, and its process {reason}")
        elif worker.leaving:
            self._fail(task, "WorkerExitedError", f"task {task.spec.name}() {reason}")
        elif may_be_retried and worker.starved is not None:
            pause = MEMORY_TICKS[min(task.attempts, len(MEMORY_TICKS)) - 1]
            self._starved.append(StarvedTask(task, worker.starved, pause))
        elif may_be_retried:
            self._push(task)
        elif worker.starved is not None:
            tries = f"\nIt was attempt {task.attempts}." if task.attempts > 1 else ""
            self._fail(task, "OutOfMemoryError", f"task {task.spec.name}() {reason}{tries}")
        else:
            tries = f" at each of {task.attempts} attempts" if task.attempts > 1 else ""
            self._fail(task, "WorkerCrashedError", f"the process of task {task.spec.name}() died{tries}: {reason}")

    def memory_tick(self, room: int) -> None:
        """A second has passed. Runs at most one of the tasks that wait for memory again: when there is as much as it
        had, or nothing else runs that could give some back.

        Args:
            room: bytes that are left.
        """
        for starved in self._starved:
            starved.ticks -= 1
        runs = any(p.task is not None and not p.blocked for p in self._processes.values())
        for starved in self._starved:
            if starved.ticks <= 0 and (starved.size_bytes <= room or not runs):
                self._starved.remove(starved)
                if not starved.task.cancelled:
                    self._enter(starved.task)
                return

    @property
    def is_starved(self) -> bool:
        """Whether tasks wait for memory."""
        return bool(self._starved)

    def owner_ended(self, process: int) -> None:
        """A process has died: its tasks are cancelled; those of a driver wherever they were called."""
        for task in self.waiting():
            if process in (task.owner, task.driver):
                task.cancelled = True
                self._shared.refcounts.drop_holder(task.holder)
        for worker in self._processes.values():
            if worker.task is not None and process in (worker.task.owner, worker.task.driver):
                worker.task.cancelled = True
                self._table.instruct(Kill(worker.number))

    def group_removed(self, group_id: bytes) -> None:
        """A placement group was removed: its tasks fail, running ones included."""
        for need, queue in list(self._queues.items()):
            placement = queue[0][2].spec.placement
            if placement is not None and placement.group == group_id:
                del self._queues[need]
                self._queued_by_key = None
                for _, _, task in queue:
                    self._fail_without_group(task)
        for worker in self._processes.values():
            task = worker.task
            if task is not None and task.spec.placement is not None and task.spec.placement.group == group_id:
                self._fail_without_group(task)
                self._table.instruct(Kill(worker.number))

    def _fail_without_group(self, task):
        if not task.cancelled:
            task.cancelled = True
            self._fail(
                task, "TaskPlacementGroupRemoved", f"task {task.spec.name}(): its placement group has been removed"
            )

    @property
    def has_waiting(self) -> bool:
        """Whether tasks wait."""
        return bool(self._queues)

    def waiting(self) -> list[Task]:
        """Waiting tasks, in no order, including cancelled ones."""
        queued = [task for queue in self._queues.values() for _, _, task in queue]
        return queued + [starved.task for starved in self._starved]
