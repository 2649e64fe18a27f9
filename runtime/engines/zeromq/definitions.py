"""The functions and classes that the node, and through it the workers, know from this process."""

from __future__ import annotations

import sys

from ..base import Definition
from . import structs, wire
from .local_refs import LocalRefs
from .serializer import Encoded, Serializer


class Definitions:
    """Args:
    client: who defines.
    serializer: encodes them.
    local_refs: passes on what they capture.

    Attributes:
        sent: digest -> what keeps its items alive, of those that the node knows.
    """

    def __init__(self, client, serializer: Serializer, local_refs: LocalRefs):
        self._client, self._serializer, self._local_refs = client, serializer, local_refs
        self.sent: dict[bytes, tuple] = {}
        self._captured: Encoded | None = None

    def digest(self, definition: Definition) -> bytes:
        """What a definition is known by; it is pickled when this is first asked."""
        return definition.pickled(self._client.session_id, self._dump)[0]

    def _dump(self, target) -> bytes:
        encoded = self._serializer.encode_by_value(target, inline=True)
        if encoded.items:
            self._captured = encoded
        return encoded.data

    def send(self, definition: Definition, digest: bytes) -> None:
        """Sends a function or class to the node. Lock held."""
        _, data = definition.pickled(self._client.session_id)
        captured = self._captured if self._captured is not None and self._captured.data == data else Encoded(data)
        self._captured = None
        self.sent[digest] = captured.pins
        self._local_refs.escape(captured.items, captured.pins, None)
        define = structs.Define(digest, data, list(captured.items), list(sys.path))
        message = wire.message(wire.DEFINE, self._client.process, body=structs.encode(define))
        self._client.mailbox.send(wire.NODE, message)
