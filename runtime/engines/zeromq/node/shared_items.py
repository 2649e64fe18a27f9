"""Items that the processes of a session share, as the node knows them: objects, blocks of memory, functions, classes.

A worker that replies to a call tells the node first that the caller holds what the value needs. If it is killed in
between, the reply never arrives. So what a caller gets in replies counts on an account of the two until the worker has
ended. Then the caller says what has arrived and is still needed, and the account is closed.
"""

from __future__ import annotations

from collections.abc import Callable

from ..transport import structs, wire
from .entities import Later, Process, Send
from .process_table import ProcessTable
from .refcounts import ACTOR, BLOCK, OBJECT, Holder, RefCounts
from .shared_memory import SharedMemory

SETTLE = b"settle"  # what a `Later` calls the time for the accounts of a process that has ended
# By then its last replies have long been read, unless a caller was stopped all the time. It claims what comes too late,
# which may have gone.
SETTLE_S = 2.0


class SharedItems:
    """Holders of items, and the places of their values.

    Args:
        table: the session's processes.
        memory: the segments in which blocks lie.
        handles_gone: called with the key of an actor to which no handle is left.

    Attributes:
        refcounts: who holds what.
        definitions: digest -> message that defines a function or class, and keys of items that it needs.
    """

    def __init__(self, table: ProcessTable, memory: SharedMemory, handles_gone: Callable[[bytes], None]):
        self._table, self._processes, self._memory, self._handles_gone = table, table.by_number, memory, handles_gone
        self.refcounts = RefCounts()
        self._accounts: dict[int, set[int]] = {}  # caller -> processes whose replies it has got
        self._objects = ObjectDirectory(self.refcounts, self.hold, table.send)
        self.definitions: dict[bytes, tuple[bytes, list[bytes]]] = {}

    def define(self, source: int, define: structs.Define, frame: bytes) -> None:
        """A process makes a function or class known; it stays for the session."""
        if define.digest not in self.definitions:
            self.definitions[define.digest] = frame, define.items
            for key in define.items:
                self.refcounts.add(key, define.digest, 1)

    def send(self, worker: Process, frame: bytes, digest: bytes, items: list[bytes]) -> None:
        """Sends a worker a task or an actor, after the definition and the items that it needs."""
        if digest not in worker.defined:
            worker.defined.add(digest)
            definition, needed = self.definitions[digest]
            for key in needed:
                self.hold(key, worker.number)
            self._table.instruct(Send(worker.number, definition))
        for key in items:
            self.hold(key, worker.number)
        self._table.instruct(Send(worker.number, frame))

    def references(self, source: int, changes: structs.References) -> None:
        """A process reports items that it has shared, with which processes, and items that it no longer needs."""
        if source not in self._processes:  # a driver that has left still releases items that it no longer holds
            return
        for key, segment in changes.blocks:
            known = self.refcounts.items.get(key)
            if known is None or known.kind is None:
                self._memory.block_added(segment)
            self.refcounts.register(key, BLOCK, source, segment)
        for key, value, items in changes.objects:
            self._objects.publish(source, key, value, items)
        for key, receiver in changes.hold:
            self.hold(key, receiver)
        for key, caller in changes.reply:
            self.hold(key, caller, source)
        for key in changes.release:
            self.refcounts.add(key, source, -1)
        for key, replier in changes.release_replied:
            self.refcounts.add(key, self._holder(source, replier), -1)
        self.settle()

    def subscribe(self, source: int, key: bytes) -> None:
        """A process wants the value of an object that another owns."""
        self._objects.subscribe(source, key, wire.KEY.unpack(key)[1] in self._processes)

    def owner_ended(self, process: int) -> None:
        """The values that a dead process owned and had not published will never come."""
        self._objects.owner_ended(process)

    def hold(self, key: bytes, process: int, replier: int = wire.NODE) -> None:
        """A process holds an item from now on.

        Args:
            replier: the process in whose reply it comes.
        """
        if process not in self._processes:
            return
        self.refcounts.add(key, self._holder(process, replier), 1)
        item = self.refcounts.items.get(key)
        if item is not None and item.kind == BLOCK:
            self._memory.read_by(item.segment, process)

    def _holder(self, caller, replier):
        """A caller's account with a process that replies; the caller itself if that has ended without one."""
        if replier in self._processes and replier != wire.NODE:
            self._accounts.setdefault(caller, set()).add(replier)
        return (caller, replier) if replier in self._accounts.get(caller, ()) else caller

    def ended(self, process: int) -> None:
        """A process has ended: what only it held is closed, forgotten or ended. Its callers are asked later."""
        for replier in self._accounts.pop(process, ()):
            self.refcounts.drop_holder((process, replier))
        if any(process in repliers for repliers in self._accounts.values()):
            self._table.instruct(Later(SETTLE_S, SETTLE, process))
        self.drop_holder(process)

    def ask_callers(self, process: int) -> None:
        """Asks who has an account with a process that has ended what has arrived."""
        for caller, repliers in self._accounts.items():
            if process in repliers:
                self._table.send(caller, wire.message(wire.SETTLE, wire.NODE, a=process))

    def settled(self, source: int, process: int, keys: list[bytes]) -> None:
        """A caller reports the replies that it has from an ended process, whose account is closed."""
        if process in self._processes or process not in self._accounts.get(source, ()):
            return
        self._accounts[source].discard(process)
        for key in keys:
            self.refcounts.add(key, source, 1)
        self.drop_holder((source, process))

    def drop_holder(self, holder: Holder) -> None:
        """A process, a task or an actor has ended: what only it held is closed, forgotten or ended."""
        self.refcounts.drop_holder(holder)
        self.settle()

    def settle(self) -> None:
        """Closes, forgets and ends what became free."""
        freed: dict[int, list[bytes]] = {}
        while self.refcounts.freed:
            for key, item in self.refcounts.take_freed():
                if item.kind == BLOCK:
                    self._block_freed(item, freed, key)
                elif item.kind == ACTOR:
                    self._handles_gone(key)
                else:
                    self._objects.forget(key)
        for process, keys in freed.items():
            self._table.send(process, wire.message(wire.FREED, wire.NODE, body=b"".join(keys)))
            if self._memory.is_short:
                self._table.send(process, wire.message(wire.CLOSED, wire.NODE))

    def _block_freed(self, item, freed, key):
        left = self._memory.block_freed(item.segment)
        if left is None:
            return
        if item.creator in self._processes:
            freed.setdefault(item.creator, []).append(key)
        elif not left:
            self._memory.close(item.segment)


class ObjectDirectory:
    """The objects that more than one process knows.

    Args:
        refcounts: the table in which they stand.
        hold: (key, process) says that a process holds an item from now on.
        send: sends a frame to a process, if it lives.
    """

    def __init__(self, refcounts: RefCounts, hold: Callable[[bytes, int], None], send: Callable[[int, bytes], None]):
        self._refcounts, self._hold, self._send = refcounts, hold, send
        self._subscribers: dict[bytes, set[int]] = {}

    def publish(self, source: int, key: bytes, value: bytes | None, items: list[bytes]) -> None:
        """The owner makes an object known.

        Args:
            value: None as long as it is pending.
            items: keys of what the value needs.
        """
        item = self._refcounts.register(key, OBJECT, source)
        if value is not None and item.value is None:
            item.value = value
            for inner in items:
                self._refcounts.add(inner, key, 1)
            for subscriber in sorted(self._subscribers.pop(key, ())):
                self._answer(subscriber, key, item)

    def subscribe(self, source: int, key: bytes, owner_lives: bool) -> None:
        """A process wants the value: it is sent now, or when it comes, or the reason why it never will."""
        item = self._refcounts.items.get(key)
        if item is not None and (item.value is not None or item.lost):
            self._answer(source, key, item)
        elif (item is not None and item.kind is not None) or owner_lives:
            self._subscribers.setdefault(key, set()).add(source)
        else:
            self._answer_lost(source, key, "the process that owned this value has died")

    def forget(self, key: bytes) -> None:
        """Drops the subscribers of an object that no process holds."""
        self._subscribers.pop(key, None)

    def owner_ended(self, process: int) -> None:
        """The values that a dead process owned and had not published will never come."""
        for key, item in self._refcounts.items.items():
            if item.kind == OBJECT and item.creator == process and item.value is None:
                item.lost = "the process that was to produce this value has died"
                for subscriber in self._subscribers.pop(key, ()):
                    self._answer(subscriber, key, item)
        for key in [key for key in self._subscribers if wire.KEY.unpack(key)[1] == process]:
            for subscriber in self._subscribers.pop(key):  # their requests had overtaken the object's registration
                self._answer_lost(subscriber, key, "the process that owned this value has died")

    def _answer(self, process, key, item):
        if item.value is None:
            self._answer_lost(process, key, item.lost)
            return
        for inner in wire.items_at(item.value, 0):
            self._hold(inner, process)
        serial, owner = wire.KEY.unpack(key)
        self._send(process, wire.message(wire.OBJECT, wire.NODE, serial, owner, body=item.value))

    def _answer_lost(self, process, key, text):
        serial, owner = wire.KEY.unpack(key)
        self._send(process, wire.message(wire.OBJECT, wire.NODE, serial, owner, body=text.encode(), flags=wire.LOST))
