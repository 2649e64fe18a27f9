"""`ObjectRef`: the promise of a value that a task, an actor call or `put` will give."""

from __future__ import annotations


class ObjectRef:
    """A reference to one value of the session. Engines subclass it; users only pass it on, `get` it or `wait` for it.

    A subclass has an attribute `id` (bytes, unique within the session). Two references to the same value are equal.
    """

    __slots__ = ()

    id: bytes

    def hex(self) -> str:
        """The id in hexadecimal, for messages."""
        return self.id.hex()

    def __eq__(self, other):
        return self is other or (isinstance(other, ObjectRef) and self.id == other.id)

    def __hash__(self):
        return hash(self.id)

    def __repr__(self):
        return f"ObjectRef({self.hex()})"

    def __reduce_ex__(self, protocol):
        """An engine's pickler intercepts references in its messages; anywhere else one would lose its value."""
        raise TypeError(
            f"{self!r} cannot be pickled here: a reference means something only inside its session. Pass it to a task "
            "or an actor (as an argument, or inside one), or store the value: runtime.get(ref)."
        )

    def __iter__(self):
        raise TypeError(f"{self!r} is a reference, not its value. Use runtime.get(ref), or num_returns for several.")
