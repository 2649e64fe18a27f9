"""The structs in messages between clients and the node: msgpack by msgspec, never pickle."""

from __future__ import annotations

import functools
from typing import Annotated, Any

import msgspec

from ....scheduling import GroupInfo, Placement
from . import wire

LARGEST_BYTES = 2**28  # of a struct; the largest legal one holds a definition of 100 MB
Key = Annotated[bytes, msgspec.Meta(min_length=wire.KEY_BYTES, max_length=wire.KEY_BYTES)]
Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
KNOWN_TASKS, KNOWN_BYTES = 256, 512  # tasks that are kept decoded, and the largest size of one


class Task(msgspec.Struct, array_like=True, frozen=True):
    """A task, as node and worker must know it to run it.

    Attributes:
        digest: SHA-256 of the function's definition.
        name: for messages.
        request: resource -> quantity in 1/10000, sorted by name.
        items: keys of what the arguments need.
        max_retries: -1 for no limit.
        retry_on: pickled classes of exceptions that are worth another attempt; empty for none.
        max_calls: of the function in one process, which then ends; 0 for any number.
        environment: see runtime_env.py; empty for the session's.
        placement: in a placement group; None for none.
    """

    digest: Digest
    name: str
    request: tuple[tuple[str, int], ...]
    items: list[Key]
    max_retries: int
    retry_on: bytes
    max_calls: int = 0
    environment: str = ""
    placement: Placement | None = None


class Create(msgspec.Struct, array_like=True, frozen=True):
    """An actor, as node and worker must know it to start it; `request` must be free, `held` is taken for life.

    Attributes:
        name: for messages.
        max_restarts: -1 for no limit.
        detached: it outlives its handles and its creator.
        max_concurrency: number of calls at a time, but for those in groups.
        groups: concurrency group -> number of calls at a time.
        calls_at_a_time: in all groups together.
    """

    digest: Digest
    name: str
    request: tuple[tuple[str, int], ...]
    held: tuple[tuple[str, int], ...]
    items: list[Key]
    environment: str
    placement: Placement | None = None
    max_restarts: int = 0
    detached: bool = False
    max_concurrency: int = 1
    groups: dict[str, int] = {}
    calls_at_a_time: int = 1


class CallName(msgspec.Struct, array_like=True, frozen=True):
    """Name of a method with options of the call: a concurrency group, or retries.

    Attributes:
        group: concurrency group; "": the group of methods without one.
        retries: how often it is made again after exceptions; -1 for no limit.
        retry_on: pickled `MethodOptions.retry_exceptions`; empty for none.
    """

    method: str
    group: str
    retries: int
    retry_on: bytes


class PackedCalls(msgspec.Struct, array_like=True, frozen=True):
    """Calls of one method of an actor, in this order, with their arguments by position (packed.py)."""

    method: str
    serials: list[int]
    arguments: list[list[Any]]


class PackedReplies(msgspec.Struct, array_like=True, frozen=True):
    """(serial, value) of calls of an actor."""

    replies: list[tuple[int, Any]]


class Name(msgspec.Struct, array_like=True, frozen=True):
    """A name that is looked up."""

    namespace: str
    name: str


class Claim(msgspec.Struct, array_like=True, frozen=True):
    """A name for an actor that is about to be created.

    Attributes:
        key: key of the actor.
        share: whether an actor that has the name already will do.
        description: description of the actor, for processes that look it up by name; opaque to the node.
    """

    namespace: str
    name: str
    key: Key
    share: bool
    description: bytes


class Names(msgspec.Struct, array_like=True, frozen=True):
    """(namespace, name) of all actors that have one."""

    names: list[tuple[str, str]]


class NewGroup(msgspec.Struct, array_like=True, frozen=True):
    """A placement group that the sender wants."""

    namespace: str
    name: str
    bundles: list[tuple[tuple[str, int], ...]]
    strategy: str
    detached: bool


class Groups(msgspec.Struct, array_like=True, frozen=True):
    """All placement groups of the session."""

    groups: list[GroupInfo]


class Define(msgspec.Struct, array_like=True, frozen=True):
    """A pickled function or class (a value), the keys of captured items, and the sender's import path and modules that
    are imported before the value is loaded (worker_imports.py)."""

    digest: Digest
    data: bytes
    items: list[Key]
    path: list[str]
    imports: list[str] = []


class References(msgspec.Struct, array_like=True, frozen=True):
    """Changes to who holds what, in this order: `blocks` are new (key, segment); `objects` are now known to others
    (key, value or none yet, keys of its items); `hold` adds a holder (key, process), and `reply` a caller that holds
    the item because a reply needs it; `release` removes the sender as a holder, and `release_replied` where the item
    came in a reply (key, process that replied).
    """

    blocks: list[tuple[Key, int]]
    objects: list[tuple[Key, bytes | None, list[Key]]]
    hold: list[tuple[Key, int]]
    release: list[Key]
    reply: list[tuple[Key, int]] = []
    release_replied: list[tuple[Key, int]] = []


class Waits(msgspec.Struct, array_like=True, frozen=True):
    """References that a call waits for without a timeout; all of them are needed.

    Attributes:
        name: name of the call, for messages.
        keys: keys of the actors whose answers, and the tasks whose results it needs. Empty: it does not wait any more.
    """

    name: str
    keys: list[Key]


class Failed(msgspec.Struct, array_like=True, frozen=True):
    """A task failed before or outside of user code; `error` names a class of runtime.errors."""

    error: str
    text: str


class Free(msgspec.Struct, array_like=True, frozen=True):
    """Resources that a session has left, and that it holds.

    Attributes:
        free: resources in 1/10000; the totals are known to everyone.
        items: number of blocks, objects and actors that a process holds.
        malformed: number of messages that the node has dropped.
    """

    free: dict[str, int]
    items: int
    malformed: int


class Settings(msgspec.Struct, frozen=True):
    """Settings with which a worker process starts.

    Attributes:
        process: its number.
        session: the session's directory; mailboxes are files in it.
        node_pid: whose /proc/PID/fd holds the segments.
        name: for messages and logs.
        resources: totals of the session.
        held: what the actor holds, for the context; empty for a task worker.
        gpu_ids: devices it may see.
        env_vars: set before any user code.
        path: the driver's import path.
        working_dir: where it runs, and from where it imports first; empty for the driver's.
        environment: its own, inherited by its calls; see runtime_env.py.
        namespace: namespace of names that are given without one.
        restarts: how often the actor was started before.
        timeline: whether its calls are written to a trace file.
    """

    process: int
    session: str
    node_pid: int
    name: str
    resources: dict[str, float]
    held: dict[str, float]
    gpu_ids: tuple[str, ...]
    env_vars: dict[str, str]
    path: list[str]
    working_dir: str = ""
    environment: str = ""
    namespace: str = ""
    restarts: int = 0
    timeline: bool = False


encode = msgspec.msgpack.Encoder().encode
_received = Task, Create, CallName, PackedCalls, PackedReplies, Name, Claim, Names, Define, References, Waits, Failed
_received += Free, NewGroup, Groups
_decoders = {kind: msgspec.msgpack.Decoder(kind).decode for kind in _received}


def decode(kind: type, frame: bytes, size: int | None = None):
    """The struct behind the header of a frame.

    Raises:
        wire.Malformed: it is not of this kind.
    """
    start = wire.HEADER_BYTES
    end = len(frame) if size is None else start + size
    if end > len(frame) or end - start > LARGEST_BYTES:
        raise wire.Malformed("struct cut off")
    try:
        return _decoders[kind](memoryview(frame)[start:end])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise wire.Malformed(str(error)) from error


def task(frame: bytes, size: int) -> Task:
    """The same of a SUBMIT. The tasks of one function mostly have the same bytes: they are decoded once."""
    end = wire.HEADER_BYTES + size
    if size > KNOWN_BYTES or end > len(frame):
        return decode(Task, frame, size)
    try:
        return _known_task(frame[wire.HEADER_BYTES : end])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise wire.Malformed(str(error)) from error


_known_task = functools.lru_cache(KNOWN_TASKS)(_decoders[Task])
