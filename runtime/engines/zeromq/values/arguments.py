"""Arguments of calls, waited for where they are references, and the functions and classes that calls name."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import NamedTuple

from .... import worker_imports
from ....remote.refs import ObjectRef
from ....unpicklable import refuse_call
from ...definitions import Definition
from ..transport import structs, wire
from ..transport.mailbox import Mailbox
from .local_refs import LocalRefs
from .refs import Reference
from .serializer import Encoded, Serializer


class Call(NamedTuple):
    """A call whose arguments may be pending.

    Attributes:
        serial: serial number of its first result.
        refs: where its results go.
        start: its frame up to the values. Of a call that is to be packed with others (packed.py), the method's name.
        arguments: the encoded (args, kwargs), and the references among them that represent their values. Of a call
            that is to be packed, args and ().
        attempts: how often it may be sent, if the actor dies meanwhile and starts again; -1 for no limit. 0: once, and
            not to an actor that is being restarted.
    """

    serial: int
    refs: tuple | Reference
    start: bytes | str
    arguments: tuple[Encoded | tuple, tuple[Reference, ...]]
    attempts: int = 0


NO_ARGUMENTS = Encoded(wire.value(pickle.dumps(((), {}), 5))), ()


class Arguments:
    """Encodes arguments of calls, and reports to the node which items they need.

    Args:
        mailbox: mailbox of this process.
        serializer: encodes values.
        local_refs: passes on what they hold.
        session_id: for which definitions are pickled.

    Attributes:
        defined: digest -> what keeps its items alive, of the definitions that the node knows.
    """

    def __init__(self, mailbox: Mailbox, serializer: Serializer, local_refs: LocalRefs, session_id: str):
        self._mailbox, self._serializer, self._local_refs = mailbox, serializer, local_refs
        self._session_id = session_id
        self.defined: dict[bytes, tuple] = {}
        self._captured: Encoded | None = None

    # -- definitions --------------------------------------------------------------------------------------------------

    def digest(self, definition: Definition) -> bytes:
        """Id of a definition, which is pickled when the id is first asked for."""
        return definition.pickled(self._session_id, self._dump)[0]

    def _dump(self, target) -> bytes:
        encoded = self._serializer.encode_by_value(target, inline=True)
        if encoded.items:
            self._captured = encoded
        return encoded.data

    def define(self, definition: Definition, digest: bytes) -> None:
        """Sends a function or class to the node. Lock held."""
        _, data = definition.pickled(self._session_id)
        captured = self._captured if self._captured is not None and self._captured.data == data else Encoded(data)
        self._captured = None
        self.defined[digest] = captured.pins
        self._local_refs.escape(captured.items, captured.pins, None)
        define = structs.Define(digest, data, list(captured.items), list(sys.path), worker_imports.names())
        self._mailbox.send_to_node(wire.DEFINE, body=structs.encode(define))

    # -- the pairs Call.arguments -------------------------------------------------------------------------------------

    def encode(self, args, kwargs) -> tuple[Encoded, tuple[Reference, ...]]:
        """Encodes the arguments of a call. References at the top are left out and listed.

        Raises:
            TypeError: something cannot be pickled.
        """
        if not args and not kwargs:
            return NO_ARGUMENTS
        depends = ()
        for value in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(value, ObjectRef):
                given, depends = _without_references(args, kwargs)
                for ref in depends:
                    self._local_refs.check_own(ref)
                break
        else:
            given = (args, kwargs)
        try:
            return self._serializer.encode(given), depends
        except Exception as error:
            refuse_call(args, kwargs, error, self._serializer.dumps)

    def unresolved(self, arguments, then: Callable[[], None]) -> bool:
        """Whether arguments are pending; if so, `then()` runs when the last has come. Lock held."""
        pending = [ref for ref in arguments[1] if ref.frame is None]
        if not pending:
            return False
        self._mailbox.start_keeper()
        left = len(pending)

        def arrived():
            nonlocal left
            left -= 1
            if left == 0:
                then()

        for ref in pending:
            ref.when_done(arrived)
            if ref.hold is not None and not ref.subscribed:
                self._local_refs.subscribe(ref)
        return True

    def complete(self, arguments, receiver=None) -> tuple[bytes, list[bytes]]:
        """The bytes of all values of a call, and the keys of their items, which the node learns of. Lock held.

        Args:
            arguments: none is pending, or an error.
            receiver: process that holds the items from now on.
        """
        encoded, depends = arguments
        if encoded.items:
            self._local_refs.escape(encoded.items, encoded.pins, receiver)
        if not depends:
            return encoded.data, encoded.items
        parts, items = [wire.pad(encoded.data)], list(encoded.items)  # with repetitions: each value holds for itself
        for ref in depends:
            own = wire.items_at(ref.frame, ref.start)
            if own:
                self._local_refs.escape(own, ref.pins, receiver)
                items += own
            parts.append(wire.pad(ref.value_bytes()))
        return b"".join(parts), items


def failed_argument(arguments):
    """(frame, start, pins) of the first argument that is an error, or None."""
    return next(((ref.frame, ref.start, ref.pins) for ref in arguments[1] if ref.failed), None)


def _without_references(args, kwargs):
    """((args, kwargs, where the references were), the references); None stands in their places."""
    plain, kept, refs = list(args), dict(kwargs), {}  # by loops: every sampling request comes by here
    for values, given in ((plain, enumerate(args)), (kept, kwargs.items())):
        for place, value in given:
            if isinstance(value, ObjectRef):
                refs[place], values[place] = value, None
    return (tuple(plain), kept, list(refs)), tuple(refs.values())
