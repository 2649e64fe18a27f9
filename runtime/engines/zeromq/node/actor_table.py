"""The actors of a session, as its node knows them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container

from ...placement_groups import PlacementGroups
from ...resources import Resources, quantities
from ..transport import structs, wire
from .entities import Actor, ActorState, Kill, Later, Process, ProcessKind, Send, Spawn
from .process_table import ProcessTable
from .refcounts import ACTOR
from .shared_items import SharedItems

NOT_CREATED = structs.Create(b"", "", (), (), [], "")
BACK_OFF_S = 0.0, 0.1, 0.5, 2.0, 10.0  # before a restart, by the number of deaths in a row that came early
STEADY_S = 5.0  # an actor that has lived this long does not die early


class ActorTable:
    """The actors that some process knows. One waits for its request, then holds its resources for life.

    Args:
        table: the session's processes.
        shared: what they share.
        resources, groups: where actors get what they need.

    Attributes:
        by_key: the actors.
        names: their names.
        waiting: actors that wait for resources.
    """

    def __init__(self, table: ProcessTable, shared: SharedItems, resources: Resources, groups: PlacementGroups):
        self._table, self._processes, self._shared = table, table.by_number, shared
        self._resources, self._groups = resources, groups
        self.by_key: dict[bytes, Actor] = {}
        self.names = ActorNames(shared.hold, table.send)
        self.waiting: deque[Actor] = deque()
        self._early: dict[bytes, tuple[set[int], str]] = {}  # key -> watchers, why to end: they overtook the creator
        self._oversubscribed = False

    # -- beginning ----------------------------------------------------------------------------------------------------

    def create(self, source: int, serial: int, create: structs.Create, frame: bytes) -> None:
        """A process creates an actor.

        Raises:
            wire.Malformed: its class is not known, or an actor with this key is.
        """
        if source not in self._processes:
            return
        if create.digest not in self._shared.definitions:
            raise wire.Malformed("actor of a class that no process has defined")
        actor = self._add(source, serial, create, frame)
        for key in create.items:
            self._shared.refcounts.add(key, actor.key, 1)
        self.waiting.append(actor)
        refusal = create.placement and self._groups.refusal(create.placement, create.request)
        if refusal:
            actor.ending = f"cannot start: {refusal[1]}"
        if actor.driver not in self._processes:  # of a thread that a task of it has left behind
            actor.ending = "cannot start: the driver for which it was created has ended"
        if actor.ending:
            self.kill(actor.key, actor.ending)

    def not_created(self, source: int, serial: int, value: bytes) -> None:
        """A process will not create an actor that others may know of: an argument of its constructor has failed."""
        if source in self._processes:
            self._bury(self._add(source, serial, NOT_CREATED, b""), wire.ACTOR_START_FAILED, value)

    def _add(self, source, serial, create, frame):
        owner = wire.NODE if create.detached else source
        driver = wire.DRIVER if create.detached else self._table.driver_of(source)
        actor = Actor(wire.key(serial, source), owner, frame, create, driver, watchers={source})
        if actor.key in self.by_key:
            raise wire.Malformed("actor with the key of another one")
        self.by_key[actor.key] = actor
        self._shared.refcounts.register(actor.key, ACTOR, source)
        if create.detached:
            self._shared.refcounts.add(actor.key, wire.NODE, 1)
        watchers, actor.ending = self._early.pop(actor.key, ((), ""))
        actor.watchers.update(watchers)
        return actor

    def place(self) -> bool:
        """Starts the actors that wait and can start; whether there was one."""
        refused, placed = [], False
        for actor in list(self.waiting):
            spec = actor.spec
            pool = self._resources if spec.placement is None else self._groups.pool(spec.placement, spec.request)
            if pool is None or not pool.fits(spec.request):
                continue
            self.waiting.remove(actor)
            if not self._table.files.has_room_for_actor():
                refused.append(actor)
                continue
            placed = True
            actor.gpus = pool.take(spec.held)
            worker = self._table.new(ProcessKind.ACTOR, spec.environment)
            worker.pool = pool
            worker.driver = actor.driver
            worker.actor, worker.name, worker.gpus = actor, spec.name, actor.gpus
            actor.state, actor.process = ActorState.STARTING, worker.number
            held = quantities(spec.held)
            self._table.instruct(Spawn(worker.number, spec.name, held, actor.gpus, spec.environment, actor.restarts))
            self._notice_oversubscription()
        for actor in refused:  # now, since its end may end others that wait
            self._bury(actor, wire.ACTOR_DEAD, self._table.files.refusal(actor.spec.name).encode())
        return placed

    def _notice_oversubscription(self):
        if self._resources.free.get("CPU", 0) >= 0 or self._oversubscribed:
            return
        self._oversubscribed = True
        # Without the number of actors: often more are on the way.
        total = quantities(self._resources.total).get("CPU", 0)
        text = f"actors share the {total:g} CPUs of this session, fewer than they ask for"
        self._table.notice(text, logging.INFO)

    def alive(self, process: int) -> None:
        """An actor's constructor has returned."""
        worker = self._processes.get(process)
        if worker is None or worker.actor is None or worker.actor.state != ActorState.STARTING:
            return
        actor = worker.actor
        actor.state = ActorState.ALIVE
        self._announce(actor, wire.ACTOR_ALIVE, process)
        if actor.early_deaths:
            self._table.instruct(Later(STEADY_S, actor.key, process))
        if actor.ending:
            self._table.instruct(Send(process, wire.message(wire.STOP, wire.NODE)))

    def start_failed(self, process: int, value: bytes) -> None:
        """An actor's constructor has raised; its process will end."""
        worker = self._processes.get(process)
        if worker is not None and worker.ready and worker.actor is not None:
            self._bury(worker.actor, wire.ACTOR_START_FAILED, value)

    # -- those who know it --------------------------------------------------------------------------------------------

    def watch(self, source: int, key: bytes) -> None:
        """A process that has received a handle asks where the actor is."""
        actor = self.by_key.get(key)
        if source not in self._processes:
            return
        serial, creator = wire.KEY.unpack(key)
        if actor is None and creator in self._processes:  # a handle keeps the actor alive, so it is still to come
            self._early.setdefault(key, (set(), ""))[0].add(source)
            return
        if actor is None:
            body = b"the actor has ended, and so has the process that made it"
            frame = wire.message(wire.ACTOR_STATE, wire.NODE, serial, creator, body=body, flags=wire.ACTOR_DEAD)
            self._table.send(source, frame)
            return
        actor.watchers.add(source)
        if actor.last:
            self._introduce(actor, source)
            self._table.send(source, actor.last)

    def _announce(self, actor, state, process=0, body=b""):
        serial, creator = wire.KEY.unpack(actor.key)
        calls = actor.spec.calls_at_a_time
        actor.last = wire.message(wire.ACTOR_STATE, wire.NODE, serial, creator, process, calls, body=body, flags=state)
        for watcher in sorted(actor.watchers):
            self._introduce(actor, watcher)
            self._table.send(watcher, actor.last)

    def _introduce(self, actor, watcher):
        """An actor and a process that knows it may have sockets to one another from now on."""
        process, other = self._processes.get(actor.process), self._processes.get(watcher)
        if process is not None and other is not None:
            process.contacts.add(watcher)
            other.contacts.add(actor.process)

    # -- ends and restarts --------------------------------------------------------------------------------------------

    def kill(self, key: bytes, why: str = "was killed by runtime.kill()", restart: bool = False) -> None:
        """Ends an actor now. Its name is free before its process has ended, for requests that follow the kill.

        Args:
            why: for messages.
            restart: it starts again as after any other death, if it may.
        """
        actor = self.by_key.get(key)
        if actor is None and not restart and wire.KEY.unpack(key)[1] in self._processes:
            self._early[key] = self._early.get(key, (set(), ""))[0], why
            self.names.release(key)
        if actor is None or actor.state == ActorState.DEAD:
            return
        running = actor.state in (ActorState.STARTING, ActorState.ALIVE)
        if restart and actor.spec.max_restarts:
            if running:
                self._processes[actor.process].killed = why
                self._table.instruct(Kill(actor.process))
                if not actor.may_restart:
                    self.names.release(key)
            return
        actor.ending = why
        self.names.release(key)
        if running:
            self._table.instruct(Kill(actor.process))
        else:
            self._stop_waiting(actor)
            self._bury(actor, wire.ACTOR_DEAD, f"actor {actor.spec.name} {why}".encode())

    def _stop_waiting(self, actor):
        if actor.state == ActorState.PENDING:
            self.waiting.remove(actor)

    def process_ended(self, worker: Process, reason: str) -> None:
        """The process of an actor has ended: the actor starts again, or it has ended too."""
        actor = worker.actor
        if actor.may_restart and not worker.leaving and not actor.ending and actor.state != ActorState.DEAD:
            self._restart(actor, reason)
        else:
            state = wire.ACTOR_DEAD if worker.starved is None else wire.ACTOR_STARVED
            self._bury(actor, state, f"actor {actor.spec.name} {reason}".encode())

    def _restart(self, actor, reason):
        """It gets another process, at once or, if it dies early again and again, a little later."""
        actor.restarts += 1
        pause = BACK_OFF_S[min(actor.early_deaths, len(BACK_OFF_S) - 1)]
        actor.early_deaths += 1
        actor.state = ActorState.RESTARTING
        self._announce(actor, wire.ACTOR_RESTARTING, body=f"actor {actor.spec.name} {reason}".encode())
        if pause:
            self._table.instruct(Later(pause, actor.key, actor.process))
        else:
            self.due(actor.key, actor.process)

    def due(self, key: bytes, process: int) -> None:
        """The time of a `Later` has come: the pause before a restart is over, or an actor has lived for a while."""
        actor = self.by_key.get(key)
        if actor is None or actor.process != process:
            return
        if actor.state == ActorState.RESTARTING:
            actor.state = ActorState.PENDING
            self.waiting.append(actor)
        elif actor.state == ActorState.ALIVE:
            actor.early_deaths = 0

    def handles_gone(self, key: bytes) -> None:
        """No handle is left: the actor ends after the calls it has."""
        actor = self.by_key.pop(key, None)
        if actor is None or actor.state == ActorState.DEAD:
            return
        actor.ending = "ended with its last handle"
        self.names.release(key)
        if actor.state in (ActorState.PENDING, ActorState.RESTARTING):
            self._stop_waiting(actor)
            self._shared.refcounts.drop_holder(key)
        elif actor.state == ActorState.ALIVE:
            self._table.instruct(Send(actor.process, wire.message(wire.STOP, wire.NODE)))

    def owner_ended(self, process: int) -> None:
        """A process has died: the actors that it has created end with it; those of a driver whatever created them."""
        for actor in list(self.by_key.values()):
            actor.watchers.discard(process)
            if process in (actor.owner, actor.driver):
                self.kill(actor.key, "ended with the process that created it")
        for key in [key for key in self._early if wire.KEY.unpack(key)[1] == process]:
            for watcher in sorted(self._early.pop(key)[0]):
                self.watch(watcher, key)
        self.names.creator_ended(process, self.by_key)

    def group_removed(self, group_id: bytes) -> None:
        """A placement group was removed: its actors end."""
        for actor in list(self.by_key.values()):
            if actor.spec.placement is not None and actor.spec.placement.group == group_id:
                self.kill(actor.key, "ended with its placement group, which was removed")

    def _bury(self, actor, state, body):
        """An actor has ended; the processes that know it learn why."""
        if actor.state == ActorState.DEAD:
            return
        actor.state, actor.frame = ActorState.DEAD, b""
        self.names.release(actor.key)
        self._shared.refcounts.drop_holder(actor.key)
        if actor.spec.detached:
            self._shared.refcounts.add(actor.key, wire.NODE, -1)
        self._announce(actor, state, body=body)
        self._shared.settle()


class ActorNames:
    """Names of actors. A name is taken when an actor is about to be created, and free when it has ended or is killed.

    Args:
        hold: (key, process) says that a process holds an actor from now on.
        send: sends a frame to a process, if it lives.
    """

    def __init__(self, hold: Callable[[bytes, int], None], send: Callable[[int, bytes], None]):
        self._hold, self._send = hold, send
        self._keys: dict[tuple[str, str], bytes] = {}
        self._entries: dict[bytes, tuple[tuple[str, str], bytes]] = {}  # key -> (namespace, name), description

    def claim(self, source: int, serial: int, claim: structs.Claim) -> None:
        """A process wants a name for an actor; `serial` is of the request.

        Raises:
            wire.Malformed: the actor has a name already.
        """
        if claim.key in self._entries:
            raise wire.Malformed("a second name for one actor")
        name = claim.namespace, claim.name
        if name not in self._keys:
            self._keys[name] = claim.key
            self._entries[claim.key] = name, claim.description
            self._answer(source, serial, wire.NAME_GRANTED)
        elif claim.share:
            self._give(source, serial, self._keys[name])
        else:
            self._answer(source, serial, wire.NAME_TAKEN)

    def find(self, source: int, serial: int, wanted: structs.Name) -> None:
        """A process wants the actor that has a name."""
        key = self._keys.get((wanted.namespace, wanted.name))
        if key is None:
            self._answer(source, serial, wire.NAME_UNKNOWN)
        else:
            self._give(source, serial, key)

    def list(self, source: int, serial: int) -> None:
        """A process wants all names."""
        body = structs.encode(structs.Names(sorted(self._keys)))
        self._send(source, wire.message(wire.LIST_NAMES, wire.NODE, serial, body=body))

    def release(self, key: bytes) -> None:
        """An actor has ended."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            del self._keys[entry[0]]

    def creator_ended(self, process: int, created: Container[bytes]) -> None:
        """A process has ended; the actors that it was about to create will not be."""
        for key in [key for key in self._entries if wire.KEY.unpack(key)[1] == process and key not in created]:
            self.release(key)

    def _give(self, source, serial, key):
        self._hold(key, source)
        self._answer(source, serial, wire.NAME_HELD, key + self._entries[key][1])

    def _answer(self, source, serial, flag, body=b""):
        self._send(source, wire.message(wire.NAMED, wire.NODE, serial, body=body, flags=flag))
