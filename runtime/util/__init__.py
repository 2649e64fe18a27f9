"""Helpers on top of the verbs."""

from ..host.machine import node_ip_address as get_node_ip_address
from ..remote.actors import list_named_actors
from .actor_pool import ActorPool
from .placement_group import (
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from .serialization import deregister_serializer, inspect_serializability, register_serializer

__all__ = [
    "ActorPool",
    "deregister_serializer",
    "get_current_placement_group",
    "get_node_ip_address",
    "get_placement_group",
    "inspect_serializability",
    "list_named_actors",
    "placement_group",
    "placement_group_table",
    "register_serializer",
    "remove_placement_group",
]
