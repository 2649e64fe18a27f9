"""The names of actors, as the node knows them."""

from __future__ import annotations

from collections.abc import Callable, Container

from . import structs, wire


class ActorNames:
    """Which actor has which name. A name is taken when an actor is about to be created, and free when it has ended.

    Args:
        hold: (key, process) says that a process holds an actor from now on.
        tell: sends a frame to a process, if it lives.
    """

    def __init__(self, hold: Callable[[bytes, int], None], tell: Callable[[int, bytes], None]):
        self._hold, self._tell = hold, tell
        self._keys: dict[tuple[str, str], bytes] = {}
        self._entries: dict[bytes, tuple[tuple[str, str], bytes]] = {}  # key -> (namespace, name), description

    def claim(self, source: int, serial: int, claim: structs.Claim) -> None:
        """A process wants a name for an actor; `serial` is that of the request."""
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
        self._tell(source, wire.message(wire.LIST_NAMES, wire.NODE, serial, body=body))

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
        self._tell(source, wire.message(wire.NAMED, wire.NODE, serial, body=body, flags=flag))
