"""Names of actors, as a process asks the node for them."""

from __future__ import annotations

import pickle
from collections.abc import Callable

from .... import pickling
from ...definitions import Method
from ..transport import structs, wire
from ..transport.node_requests import NodeRequests
from ..values.local_refs import LocalRefs
from ..values.store import Hold
from .actor_channels import ActorChannels


class NamedActors:
    """Claims names for actors, and finds actors by name.

    Args:
        node_requests, actor_channels, local_refs: of this process.
        namespace: namespace of names that are given without one; an attribute as well.
        enter: `Client.enter`.
    """

    def __init__(
        self,
        node_requests: NodeRequests,
        actor_channels: ActorChannels,
        local_refs: LocalRefs,
        namespace: str,
        enter: Callable[[], None],
    ):
        self._ask, self._actor_channels, self._local_refs = node_requests.ask, actor_channels, local_refs
        self.namespace, self._enter = namespace, enter

    def claim(self, key: bytes, options, class_name: str, methods: dict[str, Method]) -> bytes:
        """Takes the name in the options for an actor that is about to be created.

        Returns:
            The key of the actor to use: with get_if_exists, of the one that has the name already.

        Raises:
            ValueError: another actor has the name.
        """
        namespace = options.namespace or self.namespace
        description = pickling.dumps((class_name, methods))
        claim = structs.Claim(namespace, options.name, key, options.get_if_exists, description)
        answer = self._ask(wire.CLAIM_NAME, body=structs.encode(claim))
        flag = wire.header(answer)[2]
        if flag == wire.NAME_TAKEN:
            raise ValueError(
                f"a living actor has the name {options.name!r} in the namespace {namespace!r} already. Find it with "
                "runtime.get_actor(), add .options(get_if_exists=True), or take another name"
            )
        return self._held(answer)[0] if flag == wire.NAME_HELD else key

    def get_actor(self, name: str, namespace: str | None) -> tuple[bytes, str, dict[str, Method]]:
        """See base.Engine."""
        self._enter()
        wanted = structs.Name(namespace or self.namespace, name)
        answer = self._ask(wire.FIND_NAME, body=structs.encode(wanted))
        if wire.header(answer)[2] == wire.NAME_UNKNOWN:
            raise LookupError(name)
        key, description = self._held(answer)
        return key, *pickle.loads(description)

    def list_named_actors(self) -> list[tuple[str, str]]:
        """See base.Engine."""
        self._enter()
        return structs.decode(structs.Names, self._ask(wire.LIST_NAMES)).names

    def _held(self, answer):
        """(key, description) of an actor that this process holds since the answer."""
        start = wire.HEADER_BYTES + wire.KEY_BYTES
        key = answer[wire.HEADER_BYTES : start]
        self._actor_channels.find(key, Hold(key, self._local_refs.release))
        return key, answer[start:]
