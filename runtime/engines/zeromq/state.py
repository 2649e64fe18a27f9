"""What the node decides: events in, instructions out. No socket, clock, file or process in here.

Each method is an event. The instructions that follow from it are handed over by `take()`. Frames of tasks and actors
are passed on as they came; nothing is unpickled.

A *task* waits in a queue of its kind of request, deepest first, so that the children of a blocked task run before new
work of the driver. An *actor* waits for its request, then holds its resources for life. A process that waits in `get`
lends its CPUs to others.
"""

from __future__ import annotations

import logging
from collections import deque
from heapq import heappop, heappush

from ...options import RESOURCE_UNITS
from ...scheduling import GroupInfo, Placement
from ..placement_groups import Group, PlacementGroups, group_info
from ..resources import Request, Resources, quantities
from . import structs, wire
from .actor_names import ActorNames
from .entities import Actor, ActorState, Grow, Kill, Later, Poke, Process, ProcessKind, Send, Spawn, Task
from .file_budget import FileBudget
from .object_directory import ObjectDirectory
from .refcounts import ACTOR, BLOCK, RefCounts
from .shared_memory import SharedMemory

NOT_CREATED = structs.Create(b"", "", (), (), [], "")
NOTICE_AFTER_TICKS = 10  # ticks come once a second while a task or an actor waits
IDLE_TICKS = 60
COLLECT_TICKS = 10  # of a wait for memory, between two collections of garbage
HOLDERS_NAMED = 10
BACK_OFF_S = 0.0, 0.1, 0.5, 2.0, 10.0  # before a restart, by the number of deaths in a row that came early
STEADY_S = 5.0  # an actor that has lived this long does not die early


class NodeState:
    """The state of a session, and every decision of its node.

    Args:
        total: request of everything there is.
        gpu_ids: devices, one per whole GPU.
        quota: bytes of shared memory.
        disk_quota: bytes that objects may take on a disk when that is full.
        files: number of files that the node may have open for workers and segments.
    """

    def __init__(
        self,
        total: Request,
        gpu_ids: tuple[str, ...] = (),
        quota: int = 2**30,
        files: int = 2**30,
        disk_quota: int = 0,
    ):
        self.resources = Resources(total, gpu_ids)
        self.groups = PlacementGroups(self.resources)
        self.refcounts = RefCounts()
        self._files = FileBudget(files)
        self.memory = SharedMemory(quota, disk_quota, self._send, self._tell, self._files)
        self.object_directory = ObjectDirectory(self.refcounts, self._hold, self._tell)
        self.processes = {wire.DRIVER: Process(wire.DRIVER, ProcessKind.DRIVER, self.resources, ready=True)}
        self.actors: dict[bytes, Actor] = {}
        self.names = ActorNames(self._hold, self._tell)
        cpus = dict(total).get("CPU", 0) // RESOURCE_UNITS
        self.largest_worker_count = 8 * cpus + 64
        self._kept_idle = max(1, cpus)
        self._instructions: list = []
        self._next_process = wire.DRIVER + 1
        self._submitted = 0
        # Heaps of (-depth, order, task), none empty, by what their tasks need: a request, and where in a group.
        self._queues: dict[Request | tuple[Request, Placement], list] = {}
        self._queued_by_key: dict[bytes, Task] | None = None  # made for a cancel, void when a queue changes
        self._waiting_actors: deque[Actor] = deque()
        self._early: dict[bytes, tuple[set[int], str]] = {}  # key -> watchers, why to end: they overtook the creator
        self._idle: list[Process] = []  # of the session's environment
        self._idle_elsewhere: dict[str, list[Process]] = {}  # of each other one that has some
        self._definitions: dict[bytes, tuple[bytes, list[bytes]]] = {}  # digest -> frame, items
        self._still_ticks = self._short_ticks = 0
        self._spilled = False
        self._oversubscribed = False

    def take(self) -> list:
        """The instructions since the last call, in order."""
        taken, self._instructions = self._instructions, []
        return taken

    # -- tasks --------------------------------------------------------------------------------------------------------

    def submit(self, source: int, serial: int, task: structs.Task, frame: bytes) -> None:
        """A process submits a task."""
        submitter = self.processes.get(source)
        if submitter is None:
            return
        depth = submitter.task.depth + 1 if submitter.task is not None else submitter.kind == ProcessKind.ACTOR
        entry = Task(wire.key(serial, source), serial, source, frame, task, int(depth))
        for key in task.items:
            self.refcounts.add(key, entry.key, 1)
        if task.placement is not None and (refusal := self.groups.refusal(task.placement, task.request)) is not None:
            self._fail(entry, refusal[0], f"task {task.name}(): {refusal[1]}")
            return
        self._push(entry)
        self._dispatch()

    def done(self, process: int, serial: int, owner: int) -> None:
        """A worker has finished its task."""
        worker = self.processes.get(process)
        if worker is None or worker.task is None or (worker.task.serial, worker.task.owner) != (serial, owner):
            return
        spec = worker.task.spec
        self._finish(worker)
        if spec.max_calls:
            worker.calls[spec.digest] = worker.calls.get(spec.digest, 0) + 1
        if worker.gpus or (spec.max_calls and worker.calls[spec.digest] >= spec.max_calls):
            # The CUDA context of a worker with GPUs would keep memory on a device that others get. It leaves by itself:
            # a kill might overtake its reply.
            self._send(Send(process, wire.message(wire.STOP, wire.NODE)))
        else:
            worker.idle = 0
            self._become_idle(worker)
        self._dispatch()

    def cancel(self, source: int, serial: int, owner: int, flags: int) -> None:
        """A process cancels a task; one that is not its own through the owner, which may not have submitted it yet.

        What a running task has called, its worker cancels.
        """
        if source != owner:
            self._tell(owner, wire.message(wire.CANCEL, wire.NODE, serial, owner, flags=flags))
            return
        key = wire.key(serial, owner)
        worker = next((p for p in self.processes.values() if p.task is not None and p.task.key == key), None)
        task = worker.task if worker is not None else self._queued_tasks().get(key)
        if task is None or task.cancelled:
            return
        if worker is None:
            self._cancel_queued(task)
        elif not worker.ready:
            self._finish(worker)
            self._fail(task, "TaskCancelledError", f"task {task.spec.name}() was cancelled before it ran")
            if worker.gpus:  # it was started for these
                self._send(Kill(worker.number))
        elif flags & wire.FORCE:
            task.cancelled = True
            self._send(Kill(worker.number))
            self._fail(task, "TaskKilledError", f"task {task.spec.name}() was ended by cancel(force=True)")
        elif flags & wire.CLOSE:
            self._send(Send(worker.number, wire.message(wire.CANCEL, wire.NODE, task.serial, task.owner, flags=flags)))
        elif not task.interrupted:
            task.interrupted = True
            frame = wire.message(wire.CANCEL, wire.NODE, task.serial, task.owner, flags=flags)
            self._send(Send(worker.number, frame))
            self._send(Poke(worker.number))
        self._dispatch()

    def _cancel_queued(self, task):
        """It stays in its heap, and is left out when it comes up."""
        task.cancelled, task.frame = True, b""
        self._fail(task, "TaskCancelledError", f"task {task.spec.name}() was cancelled before it ran")

    def _queued_tasks(self):
        if self._queued_by_key is None:
            self._queued_by_key = {task.key: task for queue in self._queues.values() for _, _, task in queue}
        return self._queued_by_key

    def pass_on(self, process: int, frame: bytes) -> None:
        """A message for a process that the sender has no socket to."""
        self._tell(process, frame)

    def blocked(self, process: int) -> None:
        """A process waits in `get`: others may have its CPUs."""
        worker = self.processes.get(process)
        if worker is not None and not worker.blocked:
            worker.blocked = True
            worker.pool.give_back(worker.cpus)
            self._dispatch()

    def unblocked(self, process: int) -> None:
        """The process goes on, whether a CPU is free or not."""
        worker = self.processes.get(process)
        if worker is not None and worker.blocked and not worker.leaving:
            worker.blocked = False
            worker.pool.take(worker.cpus)

    def waiting(self, process: int, waits: structs.Waits) -> None:
        """A process has waited for seconds, or does not wait any more. A circle of waiting processes is reported."""
        worker = self.processes.get(process)
        if worker is None:
            return
        worker.waits = waits if waits.keys else None
        circle = self._circle_from(worker)
        if circle:
            names = ", which waits for ".join(p.waits.name for p in [*circle, worker])
            self._notice(
                f"deadlock: {names}. An actor runs one call at a time, so this never ends. Return the reference "
                "instead of waiting for it, or wait with a timeout",
                logging.WARNING,
            )

    def _circle_from(self, start):
        """Processes that wait for one another, the last of them for the first; empty if there are none."""
        paths, seen = [[start]], set()
        while paths:
            path = paths.pop()
            for process in self._waited_for_by(path[-1]):
                if process is start:
                    return path
                if process.number not in seen:
                    seen.add(process.number)
                    paths.append([*path, process])
        return []

    def _waited_for_by(self, worker):
        """The processes that a process waits for."""
        keys = worker.waits.keys if worker.waits is not None else ()
        running = {p.task.key: p for p in self.processes.values() if p.task is not None} if keys else {}
        for key in keys:
            actor = self.actors.get(key)
            process = running.get(key) if actor is None else self.processes.get(actor.process)
            if process is not None:
                yield process

    def _push(self, task):
        self._submitted += 1
        self._queued_by_key = None
        spec = task.spec
        need = spec.request if spec.placement is None else (spec.request, spec.placement)
        heappush(self._queues.setdefault(need, []), (-task.depth, self._submitted, task))

    def _dispatch(self):
        """Books the placement groups, then starts the actors, then the tasks, that can start."""
        if self.groups.waiting:
            self.groups.book()
        if self._waiting_actors:
            self._place_actors()
        if not self._queues:
            return
        for need, queue in list(self._queues.items()):
            while queue:
                task = queue[0][2]
                if task.cancelled:
                    heappop(queue)
                    continue
                spec = task.spec
                pool = self.resources if spec.placement is None else self.groups.pool(spec.placement, spec.request)
                if pool is None or not pool.fits(spec.request):
                    break
                worker = self._worker_for(task)
                if worker is None:
                    break
                self._assign(heappop(queue)[2], worker, pool)
            if not queue:
                del self._queues[need]
        if self._queues and self._files.task_workers >= self.largest_worker_count and not self._all_idle():
            self._find_deadlock()

    def _worker_for(self, task):
        needs_gpu = any(name == "GPU" for name, _ in task.request)
        environment = task.spec.environment
        if not needs_gpu and (self._idle if not environment else environment in self._idle_elsewhere):
            return self._idle.pop() if not environment else self._leave_idle(self._idle_elsewhere[environment][-1])
        if self._files.task_workers >= self.largest_worker_count or not self._files.has_room_for_task_worker():
            self._end_idle(environment)
            return None
        process = self._new_process(ProcessKind.TASK)
        process.environment = environment
        return process

    def _become_idle(self, worker):
        idle = self._idle_elsewhere.setdefault(worker.environment, []) if worker.environment else self._idle
        idle.append(worker)

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
        """Ends an idle worker of another environment: there may not be more workers, and its place is needed."""
        for worker in self._all_idle():
            if worker.environment != environment and not self._owns_something(worker.number):
                self._send(Kill(self._leave_idle(worker).number))
                return

    def _assign(self, task, worker, pool):
        task.gpus = pool.take(task.request)
        self._queued_by_key = None
        worker.pool, worker.task, worker.name = pool, task, task.spec.name
        self._still_ticks = 0
        if not worker.ready:
            worker.gpus = task.gpus
            self._send(Spawn(worker.number, f"worker {worker.number}", {}, task.gpus, worker.environment))
        else:
            self._start(worker)

    def _start(self, worker):
        """Sends a worker its task, after the definition and the items that it needs."""
        task = worker.task
        owner = self.processes.get(task.owner)
        if owner is not None:
            owner.contacts.add(worker.number)
            worker.driver = owner.driver
        self._define(worker, task.spec.digest)
        for key in task.spec.items:
            self._hold(key, worker.number)
        self._send(Send(worker.number, task.frame))

    def _finish(self, worker):
        """A task is done: what it needed is free."""
        task, worker.task = worker.task, None
        self._give_back(worker, task.request, task.gpus)
        self.refcounts.drop_holder(task.key)
        self._settle_refcounts()

    def _give_back(self, worker, held, gpus):
        """A worker does not hold these resources any more; while it is blocked, others have its CPUs already."""
        if worker.blocked:
            worker.blocked, held = False, tuple(entry for entry in held if entry[0] != "CPU")
        worker.pool.give_back(held, gpus)
        if self.groups.emptying:
            self.groups.settle()

    def _find_deadlock(self):
        """At the largest number of workers, all blocked: nothing will ever move, so the deepest task fails."""
        workers = [p for p in self.processes.values() if p.task is not None]
        if len(workers) < self._files.task_workers or not all(p.blocked and not p.leaving for p in workers):
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

    def _fail(self, task, error, text):
        self.refcounts.drop_holder(task.key)
        self._settle_refcounts()
        body = structs.encode(structs.Failed(error, text))
        self._tell(task.owner, wire.message(wire.FAILED, wire.NODE, task.serial, body=body))

    # -- actors -------------------------------------------------------------------------------------------------------

    def create(self, source: int, serial: int, create: structs.Create, frame: bytes) -> None:
        """A process creates an actor."""
        creator = self.processes.get(source)
        if creator is None:
            return
        actor = self._new_actor(source, serial, create, frame)
        for key in create.items:
            self.refcounts.add(key, actor.key, 1)
        self._waiting_actors.append(actor)
        refusal = create.placement and self.groups.refusal(create.placement, create.request)
        if refusal:
            actor.ending = f"cannot start: {refusal[1]}"
        if actor.ending:
            self.kill(actor.key, actor.ending)
        self._dispatch()

    def not_created(self, source: int, serial: int, value: bytes) -> None:
        """A process will not create an actor that others may know of: an argument of its constructor has failed."""
        if source in self.processes:
            self._bury(self._new_actor(source, serial, NOT_CREATED, b""), wire.ACTOR_START_FAILED, value)

    def _new_actor(self, source, serial, create, frame):
        owner = wire.NODE if create.detached else source
        actor = Actor(wire.key(serial, source), owner, frame, create, watchers={source})
        self.actors[actor.key] = actor
        self.refcounts.register(actor.key, ACTOR, source)
        if create.detached:
            self.refcounts.add(actor.key, wire.NODE, 1)
        watchers, actor.ending = self._early.pop(actor.key, ((), ""))
        actor.watchers.update(watchers)
        return actor

    def alive(self, process: int) -> None:
        """An actor's constructor has returned."""
        worker = self.processes.get(process)
        if worker is None or worker.actor is None:
            return
        actor = worker.actor
        actor.state = ActorState.ALIVE
        self._announce(actor, wire.ACTOR_ALIVE, process)
        if actor.early_deaths:
            self._send(Later(STEADY_S, actor.key, process))
        if actor.ending:
            self._send(Send(process, wire.message(wire.STOP, wire.NODE)))

    def start_failed(self, process: int, value: bytes) -> None:
        """An actor's constructor has raised; its process will end."""
        worker = self.processes.get(process)
        if worker is not None and worker.actor is not None:
            self._bury(worker.actor, wire.ACTOR_START_FAILED, value)

    def kill(self, key: bytes, why: str = "was killed by runtime.kill()", restart: bool = False) -> None:
        """Ends an actor now.

        Args:
            why: for messages.
            restart: it starts again as after any other death, if it may.
        """
        actor = self.actors.get(key)
        if actor is None and not restart and wire.KEY.unpack(key)[1] in self.processes:
            self._early[key] = self._early.get(key, (set(), ""))[0], why
        if actor is None or actor.state == ActorState.DEAD:
            return
        running = actor.state in (ActorState.STARTING, ActorState.ALIVE)
        if restart and actor.spec.max_restarts:
            if running:
                self.processes[actor.process].killed = why
                self._send(Kill(actor.process))
            return
        actor.ending = why
        if running:
            self._send(Kill(actor.process))
        else:
            self._stop_waiting(actor)
            self._bury(actor, wire.ACTOR_DEAD, f"actor {actor.spec.name} {why}".encode())

    def _stop_waiting(self, actor):
        if actor.state == ActorState.PENDING:
            self._waiting_actors.remove(actor)

    def _restart(self, actor, reason):
        """Its process has died: it gets another one, at once or, if it dies early again and again, a little later."""
        actor.restarts += 1
        pause = BACK_OFF_S[min(actor.early_deaths, len(BACK_OFF_S) - 1)]
        actor.early_deaths += 1
        actor.state = ActorState.RESTARTING
        self._announce(actor, wire.ACTOR_RESTARTING, body=f"actor {actor.spec.name} {reason}".encode())
        if pause:
            self._send(Later(pause, actor.key, actor.process))
        else:
            self.due(actor.key, actor.process)

    def due(self, key: bytes, process: int) -> None:
        """The time of a `Later` has come: the pause before a restart is over, or an actor has lived for a while."""
        actor = self.actors.get(key)
        if actor is None or actor.process != process:
            return
        if actor.state == ActorState.RESTARTING:
            actor.state = ActorState.PENDING
            self._waiting_actors.append(actor)
            self._dispatch()
        elif actor.state == ActorState.ALIVE:
            actor.early_deaths = 0

    def watch(self, source: int, key: bytes) -> None:
        """A process that has received a handle asks where the actor is."""
        actor = self.actors.get(key)
        if source not in self.processes:
            return
        serial, creator = wire.KEY.unpack(key)
        if actor is None and creator in self.processes:  # a handle keeps the actor alive, so it is still to come
            self._early.setdefault(key, (set(), ""))[0].add(source)
            return
        if actor is None:
            body = b"the actor has ended, and so has the process that made it"
            frame = wire.message(wire.ACTOR_STATE, wire.NODE, serial, creator, body=body, flags=wire.ACTOR_DEAD)
            self._tell(source, frame)
            return
        actor.watchers.add(source)
        if actor.last:
            self._introduce(actor, source)
            self._tell(source, actor.last)

    def _place_actors(self):
        refused = []
        for actor in list(self._waiting_actors):
            spec = actor.spec
            pool = self.resources if spec.placement is None else self.groups.pool(spec.placement, spec.request)
            if pool is None or not pool.fits(spec.request):
                continue
            self._waiting_actors.remove(actor)
            if not self._files.has_room_for_actor():
                refused.append(actor)
                continue
            self._still_ticks = 0
            actor.gpus = pool.take(actor.spec.held)
            worker = self._new_process(ProcessKind.ACTOR)
            worker.pool = pool
            creator = self.processes.get(actor.owner)
            worker.driver = wire.DRIVER if creator is None else creator.driver
            worker.actor, worker.name, worker.gpus = actor, actor.spec.name, actor.gpus
            actor.state, actor.process = ActorState.STARTING, worker.number
            worker.environment = actor.spec.environment
            held, restarts = quantities(actor.spec.held), actor.restarts
            self._send(Spawn(worker.number, actor.spec.name, held, actor.gpus, worker.environment, restarts))
            self._notice_oversubscription()
        for actor in refused:  # now, since its end may end others that wait
            self._bury(actor, wire.ACTOR_DEAD, self._files.refusal(actor.spec.name).encode())

    def _notice_oversubscription(self):
        if self.resources.free.get("CPU", 0) >= 0 or self._oversubscribed:
            return
        self._oversubscribed = True
        # Without the number of actors: often more are on the way.
        total = quantities(self.resources.total).get("CPU", 0)
        self._notice(f"actors share the {total:g} CPUs of this session, fewer than they ask for", logging.INFO)

    def _announce(self, actor, state, process=0, body=b""):
        serial, creator = wire.KEY.unpack(actor.key)
        calls = actor.spec.calls_at_a_time
        actor.last = wire.message(wire.ACTOR_STATE, wire.NODE, serial, creator, process, calls, body=body, flags=state)
        for watcher in sorted(actor.watchers):
            self._introduce(actor, watcher)
            self._tell(watcher, actor.last)

    def _introduce(self, actor, watcher):
        """An actor and a process that knows it may have sockets to one another from now on."""
        process, other = self.processes.get(actor.process), self.processes.get(watcher)
        if process is not None and other is not None:
            process.contacts.add(watcher)
            other.contacts.add(actor.process)

    def _bury(self, actor, state, body):
        """An actor has ended; the processes that know it learn why."""
        if actor.state == ActorState.DEAD:
            return
        actor.state, actor.frame = ActorState.DEAD, b""
        self.names.release(actor.key)
        self.refcounts.drop_holder(actor.key)
        if actor.spec.detached:
            self.refcounts.add(actor.key, wire.NODE, -1)
        self._announce(actor, state, body=body)
        self._settle_refcounts()

    # -- placement groups ---------------------------------------------------------------------------------------------

    def new_group(self, source: int, serial: int, new: structs.NewGroup) -> None:
        """A process wants a placement group, which ends with it if it is an actor, and with the driver otherwise."""
        creator = self.processes.get(source)
        if creator is None:
            return
        owner = 0 if new.detached else source if creator.kind == ProcessKind.ACTOR else creator.driver
        group = Group(wire.key(serial, source), new.name, new.bundles, new.strategy, owner)
        refusal = self.groups.create(group)
        self._dispatch()
        self._tell(source, wire.message(wire.NEW_GROUP, wire.NODE, serial, body=refusal.encode()))

    def remove_group(self, group_id: bytes) -> None:
        """Nothing more runs in a group: what runs there is killed, what waits for it fails."""
        if not self.groups.remove(group_id):
            return
        for need, queue in list(self._queues.items()):
            placement = queue[0][2].spec.placement
            if placement is not None and placement.group == group_id:
                del self._queues[need]
                self._queued_by_key = None
                for _, _, task in queue:
                    self._group_removed(task)
        for worker in self.processes.values():
            task = worker.task
            if task is not None and task.spec.placement is not None and task.spec.placement.group == group_id:
                self._group_removed(task)
                self._send(Kill(worker.number))
        for actor in list(self.actors.values()):
            if actor.spec.placement is not None and actor.spec.placement.group == group_id:
                self.kill(actor.key, "ended with its placement group, which was removed")
        self.groups.settle()
        self._dispatch()

    def _group_removed(self, task):
        if not task.cancelled:
            task.cancelled = True
            self._fail(
                task, "TaskPlacementGroupRemoved", f"task {task.spec.name}(): its placement group has been removed"
            )

    def group_table(self) -> list[GroupInfo]:
        """All placement groups."""
        return [group_info(group, f"{wire.NODE:x}") for group in self.groups.groups.values()]

    # -- processes ----------------------------------------------------------------------------------------------------

    def ready(self, process: int) -> None:
        """A worker's mailbox is bound."""
        worker = self.processes.get(process)
        if worker is None or worker.ready:
            return
        worker.ready = True
        if worker.actor is not None:
            actor = worker.actor
            self._define(worker, actor.spec.digest)
            for key in actor.spec.items:
                self._hold(key, process)
            self._send(Send(process, actor.frame))
        elif worker.task is not None:
            self._start(worker)
        elif not worker.gpus:  # else it was started for a task that was cancelled, and is about to end
            self._become_idle(worker)
            self._dispatch()

    def leaving(self, process: int, why: str) -> None:
        """A worker is about to end by itself. Others get its CPUs: destructors and exit functions may take long."""
        worker = self.processes.get(process)
        if worker is not None:
            worker.leaving = why
            self.blocked(process)
        self._send(Send(process, wire.message(wire.GOODBYE, wire.NODE)))

    def exited(self, process: int, how: str, output: str = "") -> None:
        """A worker has ended.

        Args:
            how: "signal SIGKILL", "exit code 1".
            output: the last lines it wrote.
        """
        worker = self.processes.pop(process, None)
        if worker is None:
            return
        if worker in self._all_idle():
            self._leave_idle(worker)
        self._files.workers -= worker.kind != ProcessKind.DRIVER
        self._files.task_workers -= worker.kind == ProcessKind.TASK
        reason = worker.ending(how, output)
        if worker.task is not None:
            self._task_crashed(worker, reason)
        if worker.actor is not None:
            self._actor_ended(worker, reason)
        self._owner_ended(process)
        self.refcounts.drop_holder(process)
        self._settle_refcounts()
        for other in sorted(worker.contacts):
            self._tell(other, wire.message(wire.GONE, wire.NODE, a=process))
        self.memory.process_ended(process)
        self._dispatch()

    def _task_crashed(self, worker, reason):
        task, worker.task = worker.task, None
        self._give_back(worker, task.request, task.gpus)
        if task.cancelled or task.owner not in self.processes:
            self.refcounts.drop_holder(task.key)
            return
        task.attempts += 1
        if task.interrupted:
            self._fail(task, "TaskCancelledError", f"task {task.spec.name}() was cancelled, and its process {reason}")
        elif worker.leaving:
            self._fail(task, "WorkerExitedError", f"task {task.spec.name}() {reason}")
        elif 0 <= task.spec.max_retries < task.attempts:
            tries = f" at each of {task.attempts} attempts" if task.attempts > 1 else ""
            self._fail(task, "WorkerCrashedError", f"the process of task {task.spec.name}() died{tries}: {reason}")
        else:
            self._push(task)

    def _actor_ended(self, worker, reason):
        actor = worker.actor
        self._give_back(worker, actor.spec.held, actor.gpus)
        if actor.may_restart and not worker.leaving and not actor.ending and actor.state != ActorState.DEAD:
            self._restart(actor, reason)
        else:
            self._bury(actor, wire.ACTOR_DEAD, f"actor {actor.spec.name} {reason}".encode())

    def _owner_ended(self, process):
        """A process has died: its tasks are cancelled, its actors end, and values it owed are lost."""
        for queue in self._queues.values():
            for _, _, task in queue:
                if task.owner == process:
                    task.cancelled = True
                    self.refcounts.drop_holder(task.key)
        for worker in self.processes.values():
            if worker.task is not None and worker.task.owner == process:
                worker.task.cancelled = True
                self._send(Kill(worker.number))
        for actor in list(self.actors.values()):
            actor.watchers.discard(process)
            if actor.owner == process:
                self.kill(actor.key, "ended with the process that created it")
        for group in list(self.groups.groups.values()):
            if group.owner == process:
                self.remove_group(group.id)
        for key in [key for key in self._early if wire.KEY.unpack(key)[1] == process]:
            for watcher in sorted(self._early.pop(key)[0]):
                self.watch(watcher, key)
        self.object_directory.owner_ended(process)
        self.names.creator_ended(process, self.actors)

    def _new_process(self, kind):
        process = Process(self._next_process, kind, self.resources)
        self._next_process += 1
        self.processes[process.number] = process
        self._files.workers += 1
        self._files.task_workers += kind == ProcessKind.TASK
        return process

    def driver_joined(self, process: int) -> None:
        """A further driver; it ends by `exited`, as any process does."""
        self.processes[process] = Process(process, ProcessKind.DRIVER, self.resources, driver=process, ready=True)

    def driver_of(self, process: int) -> int:
        """The driver for which a process works; that of the session if the process or its driver is not known."""
        worker = self.processes.get(process)
        return worker.driver if worker is not None and worker.driver in self.processes else wire.DRIVER

    def name_of(self, process: int) -> str:
        """What runs in a process, or ran there last, for the lines it writes."""
        worker = self.processes.get(process)
        return worker.name if worker is not None else ""

    # -- definitions and objects --------------------------------------------------------------------------------------

    def define(self, source: int, define: structs.Define, frame: bytes) -> None:
        """A process makes a function or class known; it stays for the session."""
        if define.digest not in self._definitions:
            self._definitions[define.digest] = frame, define.items
            for key in define.items:
                self.refcounts.add(key, define.digest, 1)

    def _define(self, worker, digest):
        if digest not in worker.defined:
            worker.defined.add(digest)
            frame, items = self._definitions[digest]
            for key in items:
                self._hold(key, worker.number)
            self._send(Send(worker.number, frame))

    def references(self, source: int, changes: structs.References) -> None:
        """A process reports what it has shared, with which processes, and what it does not need any more."""
        for key, segment in changes.blocks:
            known = self.refcounts.items.get(key)
            if known is None or known.kind is None:
                self.memory.block_added(segment)
            self.refcounts.register(key, BLOCK, source, segment)
        for key, value, items in changes.objects:
            self.object_directory.publish(source, key, value, items)
        for key, receiver in changes.hold:
            self._hold(key, receiver)
        for key in changes.release:
            self.refcounts.add(key, source, -1)
        self._settle_refcounts()

    def subscribe(self, source: int, key: bytes) -> None:
        """A process wants the value of an object that another owns."""
        self.object_directory.subscribe(source, key, wire.KEY.unpack(key)[1] in self.processes)

    def _hold(self, key, process):
        if process not in self.processes:
            return
        self.refcounts.add(key, process, 1)
        item = self.refcounts.items.get(key)
        if item is not None and item.kind == BLOCK:
            self.memory.read_by(item.segment, process)

    def _settle_refcounts(self):
        """Closes, forgets and ends what became free."""
        freed: dict[int, list[bytes]] = {}
        while self.refcounts.freed:
            for key, item in self.refcounts.take_freed():
                if item.kind == BLOCK:
                    self._block_freed(item, freed, key)
                elif item.kind == ACTOR:
                    self._handles_gone(key)
                else:
                    self.object_directory.forget(key)
        for process, keys in freed.items():
            self._tell(process, wire.message(wire.FREED, wire.NODE, body=b"".join(keys)))
            if self.memory.is_short:
                self._tell(process, wire.message(wire.CLOSED, wire.NODE))

    def _block_freed(self, item, freed, key):
        left = self.memory.block_freed(item.segment)
        if left is None:
            return
        if item.creator in self.processes:
            freed.setdefault(item.creator, []).append(key)
        elif not left:
            self.memory.close(item.segment)

    def _handles_gone(self, key):
        """No handle is left: the actor ends after the calls it has."""
        actor = self.actors.pop(key, None)
        if actor is None or actor.state == ActorState.DEAD:
            return
        actor.ending = "ended with its last handle"
        self.names.release(key)
        if actor.state in (ActorState.PENDING, ActorState.RESTARTING):
            self._stop_waiting(actor)
            self.refcounts.drop_holder(key)
        elif actor.state == ActorState.ALIVE:
            self._send(Send(actor.process, wire.message(wire.STOP, wire.NODE)))

    # -- shared memory ------------------------------------------------------------------------------------------------

    def grant(self, process: int, serial: int, size: int) -> None:
        """A process asks for a segment."""
        if process in self.processes:
            if not self.memory.is_short:
                self._short_ticks = 0
            self.memory.grant(process, serial, size)
            if self.memory.disk_bytes and not self._spilled:
                self._spilled = True
                text = f"the shared memory ({self.memory.quota / 2**20:.0f} MB) is full; further objects go to the disk"
                self._notice(text, logging.INFO)

    def disk_refused(self, grow: Grow, text: str) -> None:
        """A segment on disk could not be made."""
        self.memory.disk_refused(grow, text)

    def memory_report(self) -> str:
        """Who has made the shared memory, and who holds what of it, for the error of a process that got none."""
        memory = self.memory
        lines = [f"{memory.size_bytes / 2**20:.1f} of {memory.quota / 2**20:.1f} MB of shared memory are taken"]
        if memory.disk_quota:
            lines[0] += f", and {memory.disk_bytes / 2**20:.1f} MB on the disk"
        if memory.refusal:
            lines.append(f"the disk takes no more: {memory.refusal}")
        for process, (count, in_memory, on_disk) in sorted(memory.made().items(), key=lambda made: -sum(made[1][1:])):
            place = f", {on_disk / 2**20:.1f} MB of them on the disk" if on_disk else ""
            size = (in_memory + on_disk) / 2**20
            lines.append(f"{self._holder_name(process)} has made {size:.1f} MB in {count} segments{place}")
        for holder, count in self.refcounts.block_counts().most_common(HOLDERS_NAMED):
            lines.append(f"{self._holder_name(holder)} holds {count} blocks that others know")
        return "; ".join(lines[: 2 + 2 * HOLDERS_NAMED])

    def _holder_name(self, holder):
        if isinstance(holder, int):
            worker = self.processes.get(holder)
            if worker is None or worker.kind == ProcessKind.DRIVER:
                return "a process that has ended" if worker is None else f"driver {holder:x}"
            kind = "actor" if worker.actor is not None else "the worker of task"
            return f"{kind} {worker.name or 'that has not run any'} (process {holder:x})"
        tasks = {p.task.key: p.task for p in self.processes.values() if p.task is not None} | self._queued_tasks()
        if holder in tasks:
            return f"the arguments of task {tasks[holder].spec.name}()"
        return "the arguments of an actor" if holder in self.actors else "another object"

    def returned(self, process: int, segment: int) -> None:
        """A process does not need a segment any more."""
        self.memory.returned(process, segment)

    # -- time ---------------------------------------------------------------------------------------------------------

    @property
    def needs_ticks(self) -> bool:
        """Whether `tick` is to be called every second."""
        busy = self._waiting_actors or self._queues or self.memory.is_short or self._idle_elsewhere
        return bool(busy or self.groups.waiting) or len(self._idle) > self._kept_idle

    def tick(self) -> None:
        """A second has passed."""
        if self._waiting_actors or self._queues or self.groups.waiting:
            self._still_ticks += 1
            if self._still_ticks == NOTICE_AFTER_TICKS:
                self._notice(self._what_waits(), logging.WARNING)
        if self.memory.is_short:
            self._short_ticks += 1
            self.memory.try_disk()
            if self._short_ticks % COLLECT_TICKS == 2:  # the first tick may come at once
                for process in self.processes:
                    self._tell(process, wire.message(wire.COLLECT, wire.NODE))
        idle = self._all_idle()
        for worker in idle:
            worker.idle += 1
        for worker in (*self._idle[: -self._kept_idle], *idle[len(self._idle) :]):
            if worker.idle > IDLE_TICKS and not self._owns_something(worker.number):
                self._send(Kill(worker.number))

    def _owns_something(self, process) -> bool:
        """Whether actors or unfinished tasks would end with this process."""
        tasks = [entry[2] for queue in self._queues.values() for entry in queue]
        tasks += [worker.task for worker in self.processes.values() if worker.task is not None]
        actors = (actor for actor in self.actors.values() if actor.state != ActorState.DEAD)
        return any(owned.owner == process for owned in (*tasks, *actors))

    def waiting_for_resources(self) -> list[tuple[str, Request]]:
        """What each placement group, actor and task that waits is called, and what it needs."""
        waiting = [(f"placement group {g.name or g.id.hex()}", _sum(g.bundles)) for g in self.groups.waiting]
        waiting += [(f"actor {a.spec.name}", a.spec.request) for a in self._waiting_actors]
        tasks = [task for queue in self._queues.values() for _, _, task in queue if not task.cancelled]
        return waiting + [(f"task {task.spec.name}()", task.request) for task in tasks]

    def _what_waits(self):
        waiting = list(dict.fromkeys(self.waiting_for_resources()))
        name, request = waiting[0]
        needs = ", ".join(f"{n}: {q:g}" for n, q in quantities(request).items()) or "a free worker"
        free = ", ".join(f"{n}: {q:g}" for n, q in quantities(self.resources.free).items() if q > 0) or "nothing"
        more = f" (and {len(waiting) - 1} more kinds)" if len(waiting) > 1 else ""
        return f"{name}{more} has waited {NOTICE_AFTER_TICKS} s for resources: it needs {needs}; free are {free}"

    # -- instructions -------------------------------------------------------------------------------------------------

    def _send(self, instruction):
        self._instructions.append(instruction)

    def _tell(self, process, frame):
        if process in self.processes:
            self._instructions.append(Send(process, frame))

    def _notice(self, text, level):
        self._tell(wire.DRIVER, wire.message(wire.NOTICE, wire.NODE, body=text.encode(), flags=level))


def _sum(requests):
    """Several requests as one."""
    total: dict[str, int] = {}
    for name, amount in (entry for request in requests for entry in request):
        total[name] = total.get(name, 0) + amount
    return tuple(sorted(total.items()))
