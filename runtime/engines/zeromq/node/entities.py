"""Tasks, actors and processes as the node knows them, and the instructions that `NodeState.take` hands to the node."""

from __future__ import annotations

from enum import Enum

import msgspec

from ...resources import Request, Resources
from ..transport import structs, wire


class ProcessKind(Enum):
    """Purpose of a process."""

    TASK, ACTOR, DRIVER = "task", "actor", "driver"


class ActorState(Enum):
    """The life of an actor: it waits for resources, then for its constructor; between two lives for a moment."""

    PENDING, STARTING, ALIVE, RESTARTING, DEAD = "pending", "starting", "alive", "restarting", "dead"


# Begins the holder of what a task needs.
TASK = b"task "


class Task(msgspec.Struct):
    """A task until it is done.

    Attributes:
        driver: at the root of its calls; it ends with this one, too.
        attempts: number of processes that died of it.
        cancelled: its owner does not wait for it any more.
        interrupted: its worker was asked to end it.
    """

    key: bytes
    serial: int
    owner: int
    frame: bytes
    spec: structs.Task
    depth: int
    driver: int = wire.DRIVER
    attempts: int = 0
    gpus: tuple[str, ...] = ()
    cancelled: bool = False
    interrupted: bool = False

    @property
    def holder(self) -> bytes:
        """Holder of the items that the task needs. Its key will not do: that is also the key of its result, an object
        that holds further values, and that others may know before the node learns that the task is done."""
        return TASK + self.key

    @property
    def request(self) -> Request:
        return self.spec.request

    @property
    def may_be_retried(self) -> bool:
        """Whether it runs again if its process dies now."""
        return self.spec.max_retries < 0 or self.attempts < self.spec.max_retries


class StarvedTask(msgspec.Struct):
    """A task that was ended for its memory, and is to be run again.

    Attributes:
        size_bytes: bytes of private memory that it had.
        ticks: that it waits at least.
    """

    task: Task
    size_bytes: int
    ticks: int


class Actor(msgspec.Struct):
    """An actor until no process holds a handle to it.

    Attributes:
        owner: process with which it ends; NODE if it is detached.
        driver: at the root of its calls, with which it ends, too; the session's if it is detached.
        frame: sent to its process when it is ready.
        process: where it lives, or lived last.
        ending: why it is to end ("" while it is not).
        watchers: processes that learn of its state.
        last: the last message to them.
        restarts: how often it was started again.
        early_deaths: number of its last deaths in a row that came soon after a start.
    """

    key: bytes
    owner: int
    frame: bytes
    spec: structs.Create
    driver: int = wire.DRIVER
    state: ActorState = ActorState.PENDING
    process: int = 0
    gpus: tuple[str, ...] = ()
    ending: str = ""
    watchers: set[int] = msgspec.field(default_factory=set)
    last: bytes = b""
    restarts: int = 0
    early_deaths: int = 0

    @property
    def may_restart(self) -> bool:
        """Whether it has lives left."""
        return self.spec.max_restarts < 0 or self.restarts < self.spec.max_restarts


class Process(msgspec.Struct):
    """A living process of the session.

    Attributes:
        name: name of its task or actor, or of the last one.
        driver: at the root of its present or last work; its own number for a driver.
        idle: ticks since its last task.
        defined: digests of the definitions it has.
        calls: digest -> number of calls, of functions with max_calls.
        contacts: processes that may have a socket to it.
        pool: resources that its task or actor takes from: the session's, or a bundle's.
        leaving: the reason it gave before it ended by itself.
        killed: why it is killed, although its task or actor may start again.
        starved: bytes of private memory that it had when it was ended for want of memory, 0 if they are not known;
            None: it was not.
        started: order of the start of its task.
        waits: what its call has waited for during some seconds, else None.
        environment: in which it was started; see runtime_env.py.
    """

    number: int
    kind: ProcessKind
    pool: Resources
    name: str = ""
    driver: int = wire.DRIVER
    ready: bool = False
    task: Task | None = None
    actor: Actor | None = None
    gpus: tuple[str, ...] = ()
    blocked: bool = False
    idle: int = 0
    defined: set[bytes] = msgspec.field(default_factory=set)
    calls: dict[bytes, int] = {}
    contacts: set[int] = msgspec.field(default_factory=set)
    leaving: str = ""
    killed: str = ""
    starved: int | None = None
    started: int = 0
    waits: structs.Waits | None = None
    environment: str = ""

    @property
    def cpus(self) -> Request:
        """The CPUs of its task or actor."""
        held = self.task.request if self.task is not None else self.actor.spec.held if self.actor else ()
        return tuple(entry for entry in held if entry[0] == "CPU")

    def ending(self, how: str, output: str) -> str:
        """Reason of its end, in words.

        Args:
            how: "signal SIGKILL", "exit code 1".
            output: the last lines it wrote.
        """
        reason = self.leaving or self.killed or (self.actor.ending if self.actor is not None else "")
        if reason:
            return reason
        text = f"died by {how}" if how.startswith("signal") else f"ended with {how}"
        if how == "signal SIGKILL":
            text += " that this session did not send (the kernel does when memory runs out)"
        return f"{text}.\nThe last lines it wrote:\n{output}" if output else text


class Send(msgspec.Struct):
    """A frame for a process."""

    process: int
    frame: bytes


class Spawn(msgspec.Struct):
    """A worker process is to be started."""

    process: int
    name: str
    held: dict[str, float] = {}
    gpu_ids: tuple[str, ...] = ()
    environment: str = ""
    restarts: int = 0


class Later(msgspec.Struct):
    """Timer that calls `NodeState.due(key, process)` after `seconds`."""

    seconds: float
    key: bytes
    process: int


class Kill(msgspec.Struct):
    """A process and its group are to be killed."""

    process: int


class Poke(msgspec.Struct):
    """A process is to read its mailbox, even while user code runs."""

    process: int


class Grow(msgspec.Struct):
    """A segment is to be made and granted (request `serial` of `process`)."""

    process: int
    serial: int
    segment: int
    size: int
    on_disk: bool = False


class Close(msgspec.Struct):
    """A segment is to be closed."""

    segment: int
