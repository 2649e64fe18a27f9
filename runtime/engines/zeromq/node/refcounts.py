"""The node's table of holders of shared items, as pure data.

An *item* is a block of shared memory, an object that more than its owner knows, or an actor. A *holder* is a process
(its number), a process by what came to it from another worker (both numbers: an account, see shared_items.py), or a
thing the node keeps itself (bytes: `Task.holder` of a task that is not done, the key of a published object or of an
actor for its arguments).

Counts are signed, because messages of different senders overtake one another: the RELEASE of a receiver may arrive
before the HOLD of the sender. An item is free when its creator has registered it and every count is zero. This is safe
since a sender adds the receiver before it lets go itself, and its messages arrive in order: until the receiver's count
has arrived, the sender's own stands.
"""

from __future__ import annotations

from collections import Counter

import msgspec

BLOCK, OBJECT, ACTOR = "block", "object", "actor"


Holder = int | tuple[int, int] | bytes


class Item(msgspec.Struct):
    """One entry.

    Attributes:
        kind: BLOCK, OBJECT, ACTOR, or None as long as only counts are known.
        creator: process that registered it.
        segment: of a block.
        value: of an object: its bytes, or None while it is pending.
        lost: why the object will never have a value.
        unbalanced: number of holders whose count is not zero.
    """

    kind: str | None = None
    creator: int = 0
    segment: int = 0
    value: bytes | None = None
    lost: str = ""
    unbalanced: int = 0


class RefCounts:
    """The table. Methods that take counts away collect what became free in `freed` (keys and items, oldest first)."""

    def __init__(self):
        self.items: dict[bytes, Item] = {}
        self.freed: list[tuple[bytes, Item]] = []
        self._counts: dict[Holder, dict[bytes, int]] = {}  # holder -> key -> count, never zero

    def register(self, key: bytes, kind: str, creator: int, segment: int = 0) -> Item:
        """The creator makes an item known and holds it."""
        item = self.items.get(key)
        if item is None:
            item = self.items[key] = Item()
        if item.kind is None:
            item.kind, item.creator, item.segment = kind, creator, segment
            self.add(key, creator, 1)
        return item

    def add(self, key: bytes, holder: Holder, amount: int) -> None:
        """Changes the count of a holder."""
        item = self.items.get(key)
        if item is None:
            item = self.items[key] = Item()
        counts = self._counts.get(holder)
        if counts is None:
            counts = self._counts[holder] = {}
        before = counts.get(key, 0)
        after = before + amount
        if after:
            counts[key] = after
            item.unbalanced += before == 0
        elif before:
            del counts[key]
            item.unbalanced -= 1
        if item.unbalanced == 0 and self._remove(key, item):
            self.drop_holder(key)

    def drop_holder(self, holder: Holder) -> None:
        """A process has died, or the node lets go of a task or an object: all its counts vanish."""
        vanished = [holder]
        while vanished:  # not by recursion: objects may hold one another in a chain longer than the stack
            for key in self._counts.pop(vanished.pop(), ()):
                item = self.items[key]  # there as long as a count is not zero
                item.unbalanced -= 1
                if item.unbalanced == 0 and self._remove(key, item):
                    vanished.append(key)

    def held_by(self, holder: Holder) -> dict[bytes, int]:
        """Key -> count of a holder."""
        return self._counts.get(holder, {})

    def block_counts(self) -> Counter[int | bytes]:
        """Holder -> number of blocks that it holds, including its accounts'."""
        held = {(_process(holder), key) for holder, counts in self._counts.items() for key in counts}
        return Counter(holder for holder, key in held if self.items[key].kind == BLOCK)

    def holders(self) -> dict[bytes, list[int | bytes]]:
        """Key -> who holds it; a process is named once, whatever accounts it has."""
        found: dict[bytes, dict[int | bytes, None]] = {}
        for holder, counts in self._counts.items():
            for key in counts:
                found.setdefault(key, {})[_process(holder)] = None
        return {key: list(holders) for key, holders in found.items()}

    def take_freed(self) -> list[tuple[bytes, Item]]:
        """Items that became free since the last call."""
        freed, self.freed = self.freed, []
        return freed

    def _remove(self, key, item) -> bool:
        """Takes an item without holders out of the table; whether it is a holder that lets go of what it needs."""
        del self.items[key]
        if item.kind is None:  # nothing is known of it but counts, and they are even
            return False
        self.freed.append((key, item))
        return True


def _process(holder):
    return holder[0] if isinstance(holder, tuple) else holder
