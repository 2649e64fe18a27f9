"""Objects that more than their owner knows: their values, and who waits for them."""

from __future__ import annotations

from collections.abc import Callable

from . import wire
from .refcounts import OBJECT, RefCounts


class ObjectDirectory:
    """The objects that more than one process knows.

    Args:
        refcounts: the table in which they stand.
        hold: (key, process) says that a process holds an item from now on.
        tell: sends a frame to a process, if it lives.
    """

    def __init__(self, refcounts: RefCounts, hold: Callable[[bytes, int], None], tell: Callable[[int, bytes], None]):
        self._refcounts, self._hold, self._tell = refcounts, hold, tell
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
        """Nobody needs an object any more."""
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
        self._tell(process, wire.message(wire.OBJECT, wire.NODE, serial, owner, body=item.value))

    def _answer_lost(self, process, key, text):
        serial, owner = wire.KEY.unpack(key)
        self._tell(process, wire.message(wire.OBJECT, wire.NODE, serial, owner, body=text.encode(), flags=wire.LOST))
