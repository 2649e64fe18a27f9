"""The arguments of calls on their way out: encoded, waited for where they are references, and passed on."""

from __future__ import annotations

from typing import NamedTuple

from ... import errors
from ...refs import ObjectRef
from ...unpicklable import explain_call
from . import wire
from .local_refs import LocalRefs
from .refs import Reference
from .serializer import Encoded, Serializer


class Call(NamedTuple):
    """A call whose arguments may be pending.

    Attributes:
        serial: of its first result.
        refs: where its results go.
        start: its frame up to the values.
        arguments: the encoded (args, kwargs), and the references among them that stand for their values.
    """

    serial: int
    refs: tuple | Reference
    start: bytes
    arguments: tuple[Encoded, tuple[Reference, ...]]


class Arguments:
    """What is done with the pairs `Call.arguments`.

    Args:
        client: who calls.
        serializer: encodes them.
        local_refs: passes on what they hold.
    """

    def __init__(self, client, serializer: Serializer, local_refs: LocalRefs):
        self._client, self._serializer, self._local_refs = client, serializer, local_refs

    def encode(self, args, kwargs) -> tuple[Encoded, tuple[Reference, ...]]:
        """Encodes what a call is given. References at the top are left out and listed.

        Raises:
            TypeError: something cannot be pickled.
        """
        depends = ()
        for value in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(value, ObjectRef):
                given, depends = _without_references(args, kwargs)
                for ref in depends:
                    self._client.check_own(ref)
                break
        else:
            given = (args, kwargs)
        try:
            return self._serializer.encode(given), depends
        except errors.RuntimeFailure:
            raise
        except Exception as error:
            raise TypeError(explain_call(args, kwargs, error, self._serializer.dumps)) from error

    def unresolved(self, arguments, then) -> bool:
        """Whether arguments are pending; if so, `then()` runs when the last has come. Lock held."""
        pending = [ref for ref in arguments[1] if ref.frame is None]
        if not pending:
            return False
        self._client.mailbox.start_keeper()
        left = len(pending)

        def arrived():
            nonlocal left
            left -= 1
            if left == 0:
                then()

        for ref in pending:
            ref.when_done(arrived)
            if ref.shared is not None and not ref.shared.subscribed:
                self._local_refs.subscribe(ref)
        return True

    def register(self, arguments, receiver=None):
        """Makes the items of a call known to the node; an actor's process becomes their holder. Lock held."""
        encoded, depends = arguments
        self._local_refs.escape(encoded.items, encoded.pins, receiver)
        for ref in depends:
            self._local_refs.escape(wire.items_at(ref.frame, ref.start), ref.pins, receiver)


def failed_argument(arguments):
    """(frame, start, pins) of the first argument that is an error, or None."""
    return next(((ref.frame, ref.start, ref.pins) for ref in arguments[1] if ref.failed), None)


def with_values(arguments):
    """The bytes of all values of a call, and the keys of their items."""
    encoded, depends = arguments
    if not depends:
        return encoded.data, encoded.items
    parts, items = [wire.pad(encoded.data)], list(encoded.items)  # with repetitions: each value holds for itself
    for ref in depends:
        parts.append(wire.pad(ref.value_bytes()))
        items += wire.items_at(ref.frame, ref.start)
    return b"".join(parts), items


def _without_references(args, kwargs):
    """((args, kwargs, where the references were), the references); None stands in their places."""
    places, refs, kept = [], [], {}
    plain = list(args)
    for index, value in enumerate(args):
        if isinstance(value, ObjectRef):
            places.append(index)
            refs.append(value)
            plain[index] = None
    for name, value in kwargs.items():
        kept[name] = value
        if isinstance(value, ObjectRef):
            places.append(name)
            refs.append(value)
            kept[name] = None
    return (tuple(plain), kept, places), tuple(refs)
