"""Decisions of the node: events in, instructions out. No socket, clock, file or process in here.

Each method of `NodeState` is an event. The instructions that follow from it are handed over by `take()`. Frames of
tasks and actors are passed on as they came; nothing is unpickled.
"""

from __future__ import annotations

import logging
import sys

from ....calls.options import written
from ....scheduling import GroupInfo
from ...placement_groups import Group, PlacementGroups, group_info
from ...resources import Request, Resources, quantities
from ..transport import structs, wire
from .actor_table import ActorTable
from .entities import ActorState, ProcessKind, Send
from .memory_pressure import MemoryPressure
from .process_table import FileBudget, ProcessTable
from .scheduler import Scheduler
from .shared_items import SETTLE, SharedItems
from .shared_memory import SharedMemory

NOTICE_AFTER_TICKS = 10  # ticks come once a second while a task or an actor waits; the first one may come at once
STUCK_AFTER_TICKS = 2  # the same where no task runs, whose end would free something
COLLECT_TICKS = 10  # of a wait for memory, between two collections of garbage


class NodeState:
    """The state of a session, and every decision of its node.

    `submit`, `done`, `cancel`, `blocked`, `unblocked` and `task` come from Scheduler; `not_created`, `alive`,
    `start_failed`, `kill` and `watch` from ActorTable; `define`, `references`, `settled` and `subscribe` from
    SharedItems; `returned` and `disk_refused` from SharedMemory; `take`, `send`, `driver_joined`, `driver_of` and
    `name_of` from ProcessTable.

    Args:
        total: request of everything there is.
        gpu_ids: devices, one per whole GPU.
        quota: bytes of shared memory.
        disk_quota: bytes that objects may take on a disk when that is full.
        files: number of files that the node may have open for workers and segments.
        is_plain: whether the session has no environment; see ProcessTable.

    Attributes:
        memory_room: bytes of memory that may still be used on the machine, as far as known.
    """

    def __init__(
        self,
        total: Request,
        gpu_ids: tuple[str, ...] = (),
        quota: int = 2**30,
        files: int = 2**30,
        disk_quota: int = 0,
        is_plain: bool = True,
    ):
        self.resources = Resources(total, gpu_ids)
        self.groups = PlacementGroups(self.resources)
        files = FileBudget(files)
        self.table = table = ProcessTable(self.resources, files, self._owns_something, is_plain)
        self.memory = SharedMemory(quota, disk_quota, table.instruct, table.send, files)
        self._shared = shared = SharedItems(table, self.memory, lambda key: self._actors.handles_gone(key))
        self._actors = actors = ActorTable(table, shared, self.resources, self.groups)
        self._scheduler = scheduler = Scheduler(table, shared, actors, self.resources, self.groups)
        self.memory_pressure = MemoryPressure(table, self.memory)
        self.processes, self.actors, self.names = table.by_number, actors.by_key, actors.names
        self.refcounts = shared.refcounts
        self.submit, self.done, self.cancel = scheduler.submit, scheduler.done, scheduler.cancel
        self.blocked, self.unblocked, self.task = scheduler.blocked, scheduler.unblocked, scheduler.task
        self.not_created, self.alive, self.start_failed = actors.not_created, actors.alive, actors.start_failed
        self.kill, self.watch = actors.kill, actors.watch
        self.define, self.references, self.subscribe = shared.define, shared.references, shared.subscribe
        self.settled = shared.settled
        self.returned, self.disk_refused = self.memory.returned, self.memory.disk_refused
        self.take, self.send, self.driver_joined = table.take, table.send, table.driver_joined
        self.driver_of, self.name_of = table.driver_of, table.name_of
        self.memory_room = sys.maxsize
        self._said_stuck: set[tuple[str, Request]] = set()
        self._short_ticks = 0
        self._spilled = False

    # -- actors -------------------------------------------------------------------------------------------------------

    def create(self, source: int, serial: int, create: structs.Create, frame: bytes) -> None:
        """A process creates an actor."""
        self._actors.create(source, serial, create, frame)
        self._scheduler.dispatch()

    def due(self, key: bytes, process: int) -> None:
        """The time of a `Later` has come."""
        if key == SETTLE:
            self._shared.ask_callers(process)
            return
        self._actors.due(key, process)
        self._scheduler.dispatch()

    # -- placement groups ---------------------------------------------------------------------------------------------

    def new_group(self, source: int, serial: int, new: structs.NewGroup) -> None:
        """A process wants a placement group, which ends with it if it is an actor, and with the driver otherwise.

        Raises:
            wire.Malformed: there is or was a group with this key.
        """
        creator = self.processes.get(source)
        if creator is None:
            return
        owner = 0 if new.detached else source if creator.kind == ProcessKind.ACTOR else creator.driver
        group = Group(wire.key(serial, source), new.namespace, new.name, new.bundles, new.strategy, owner)
        if group.id in self.groups.groups:
            raise wire.Malformed("placement group with the key of another one")
        refusal = self.groups.create(group)
        self._scheduler.dispatch()
        self.send(source, wire.message(wire.NEW_GROUP, wire.NODE, serial, body=refusal.encode()))

    def remove_group(self, group_id: bytes) -> None:
        """Removes a placement group: kills its running work, and fails its pending work."""
        if not self.groups.remove(group_id):
            return
        self._scheduler.group_removed(group_id)
        self._actors.group_removed(group_id)
        self.groups.settle()
        self._scheduler.dispatch()

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
            spec = worker.actor.spec
            self._shared.send(worker, worker.actor.frame, spec.digest, spec.items)
        elif worker.task is not None:
            self._scheduler.start(worker)
        elif not worker.gpus:  # else it was started for a task that was cancelled, and is about to end
            self.table.become_idle(worker)
            self._scheduler.dispatch()

    def leaving(self, process: int, why: str) -> None:
        """A worker is about to end by itself. Others get its CPUs: destructors and exit functions may take long."""
        worker = self.processes.get(process)
        if worker is not None:
            worker.leaving = why
            self.table.leaves(worker)
            self.blocked(process)
        self.table.instruct(Send(process, wire.message(wire.GOODBYE, wire.NODE)))

    def exited(self, process: int, how: str, output: str = "") -> None:
        """A worker has ended.

        Args:
            how: "signal SIGKILL", "exit code 1".
            output: the last lines it wrote.
        """
        worker = self.table.remove(process)
        if worker is None:
            return
        reason = worker.ending(how, output)
        if worker.task is not None:
            self._scheduler.process_ended(worker, reason)
        if worker.actor is not None:
            self._scheduler.give_back(worker, worker.actor.spec.held, worker.actor.gpus)
            self._actors.process_ended(worker, reason)
        self._scheduler.owner_ended(process)
        self._actors.owner_ended(process)
        for group in list(self.groups.groups.values()):
            if group.owner == process:
                self.remove_group(group.id)
        self._shared.owner_ended(process)
        self._shared.ended(process)
        for other in sorted(worker.contacts):
            self.send(other, wire.message(wire.GONE, wire.NODE, a=process))
        self.memory.process_ended(process)
        self._scheduler.dispatch()

    def waiting(self, process: int, waits: structs.Waits) -> None:
        """A process has waited for seconds, or does not wait any more. A circle of waiting processes is reported."""
        worker = self.processes.get(process)
        if worker is None:
            return
        worker.waits = waits if waits.keys else None
        circle = self._circle_from(worker)
        if circle:
            names = ", which waits for ".join(p.waits.name for p in [*circle, worker])
            self.table.notice(
                f"deadlock: {names}. An actor runs one call at a time, so this never ends. Return the reference "
                "instead of waiting for it, or wait with a timeout",
                logging.WARNING,
                worker.driver,
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

    # -- shared memory ------------------------------------------------------------------------------------------------

    def grant(self, process: int, serial: int, size: int) -> None:
        """A process asks for a segment.

        Args:
            size: in bytes; 0: it does not wait for it any more.
        """
        if not size:
            self.memory.withdrawn(process, serial)
        elif process in self.processes:
            if not self.memory.is_short:
                self._short_ticks = 0
            self.memory.grant(process, serial, size)
            if self.memory.disk_bytes and not self._spilled:
                self._spilled = True
                text = f"the shared memory ({self.memory.quota / 2**20:.0f} MB) is full; further objects go to the disk"
                self.table.notice(text, logging.INFO)

    # -- time ---------------------------------------------------------------------------------------------------------

    @property
    def needs_ticks(self) -> bool:
        """Whether `tick` is to be called every second."""
        waits = self._something_waits() or self._scheduler.is_starved
        return waits or self.memory.is_short or self.table.has_spare

    def _something_waits(self):
        return bool(self._actors.waiting or self.groups.waiting) or self._scheduler.has_waiting

    def tick(self) -> None:
        """A second has passed."""
        if self._something_waits():
            self._scheduler.still_ticks += 1
            self._say_what_waits(self._scheduler.still_ticks)
        if self._scheduler.is_starved:
            self._scheduler.memory_tick(self.memory_room)
        if self.memory.is_short:
            self._short_ticks += 1
            self.memory.try_disk()
            if self._short_ticks % COLLECT_TICKS == 2:  # the first tick may come at once
                for process in self.processes:
                    self.send(process, wire.message(wire.COLLECT, wire.NODE))
        self.table.tick()

    def _owns_something(self, process):
        """Whether actors or unfinished tasks would end with this process."""
        running = [worker.task for worker in self.processes.values() if worker.task is not None]
        actors = (actor for actor in self.actors.values() if actor.state != ActorState.DEAD)
        return any(owned.owner == process for owned in (*self._scheduler.waiting(), *running, *actors))

    def waiting_for_resources(self) -> list[tuple[str, Request]]:
        """Name and need of each placement group, actor and task that waits."""
        waiting = [(f"placement group {g.name or g.id.hex()}", _sum(g.bundles)) for g in self.groups.waiting]
        waiting += [(f"actor {a.spec.name}", a.spec.request) for a in self._actors.waiting]
        tasks = self._scheduler.waiting()
        return waiting + [(f"task {task.spec.name}()", task.request) for task in tasks if not task.cancelled]

    def _say_what_waits(self, ticks):
        """Reports each kind of wait once, where only actors, which may never end, hold the needed resources."""
        if ticks not in (STUCK_AFTER_TICKS, NOTICE_AFTER_TICKS):
            return
        waiting = list(dict.fromkeys(self.waiting_for_resources()))
        tasks = any(process.task is not None for process in self.processes.values())
        if waiting and waiting[0] not in self._said_stuck and (ticks == NOTICE_AFTER_TICKS or not tasks):
            if ticks == STUCK_AFTER_TICKS:
                self._said_stuck.add(waiting[0])
            self.table.notice(self._what_waits(waiting, ticks, tasks), logging.WARNING)

    def _what_waits(self, waiting, ticks, tasks):
        name, request = waiting[0]
        needs = ", ".join(written(n, q) for n, q in quantities(request).items()) or "a free worker"
        free = ", ".join(written(n, q) for n, q in quantities(self.resources.free).items() if q > 0) or "nothing"
        more = f" (and {len(waiting) - 1} more kinds)" if len(waiting) > 1 else ""
        text = f"{name}{more} has waited {ticks} s for resources: it needs {needs}; free are {free}"
        holders = [p.name for p in self.processes.values() if p.actor is not None and p.actor.spec.held]
        if holders and not tasks:
            shown = f"{', '.join(holders[:5])}{' ...' if len(holders) > 5 else ''}"
            text += f". The rest is held by actors, which keep it until they end: {shown}"
        return text


def _sum(requests):
    """Several requests as one."""
    total: dict[str, int] = {}
    for name, amount in (entry for request in requests for entry in request):
        total[name] = total.get(name, 0) + amount
    return tuple(sorted(total.items()))
