"""Who still needs what: the node's table of holders, as pure data.

An *item* is a block of shared memory, an object that more than its owner knows, or an actor. A *holder* is a process
(its number) or a thing the node keeps itself (a key: a queued task, a published object, an actor's arguments).

Counts are signed, because messages of different senders overtake one another: the RELEASE of a receiver may arrive
before the HOLD of the sender. An item is free when its creator has registered it and every count is zero. This is safe
since a sender adds the receiver before it lets go itself, and its messages arrive in order: until the receiver's count
has arrived, the sender's own stands.
"""

from __future__ import annotations

from collections import Counter

import msgspec

BLOCK, OBJECT, ACTOR = "block", "object", "actor"


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
        self._counts: dict[int | bytes, dict[bytes, int]] = {}  # holder -> key -> count, never zero

    def register(self, key: bytes, kind: str, creator: int, segment: int = 0) -> Item:
        """The creator makes an item known and holds it."""
        item = self.items.get(key)
        if item is None:
            item = self.items[key] = Item()
        if item.kind is None:
            item.kind, item.creator, item.segment = kind, creator, segment
            self.add(key, creator, 1)
        return item

    def add(self, key: bytes, holder: int | bytes, amount: int) -> None:
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
        if item.unbalanced == 0:
            self._settle(key, item)

    def drop_holder(self, holder: int | bytes) -> None:
        """A process has died, or the node lets go of a task or an object: all its counts vanish."""
        for key in self._counts.pop(holder, ()):
            item = self.items[key]  # there as long as a count is not zero
            item.unbalanced -= 1
            if item.unbalanced == 0:
                self._settle(key, item)

    def held_by(self, holder: int | bytes) -> dict[bytes, int]:
        """Key -> count of a holder."""
        return self._counts.get(holder, {})

    def block_counts(self) -> Counter[int | bytes]:
        """Holder -> number of blocks that it holds."""
        return Counter(
            {
                holder: number
                for holder, counts in self._counts.items()
                if (number := sum(1 for key in counts if self.items[key].kind == BLOCK))
            }
        )

    def holders(self) -> dict[bytes, list[int | bytes]]:
        """Key -> who holds it."""
        found: dict[bytes, list[int | bytes]] = {}
        for holder, counts in self._counts.items():
            for key in counts:
                found.setdefault(key, []).append(holder)
        return found

    def take_freed(self) -> list[tuple[bytes, Item]]:
        """What became free since the last call."""
        freed, self.freed = self.freed, []
        return freed

    def _settle(self, key, item):
        if item.kind is not None:
            del self.items[key]
            self.freed.append((key, item))
            self.drop_holder(key)  # an object lets go of what its value needs
        else:
            del self.items[key]  # nothing is known of it but counts, and they are even
