"""Helpers on top of the verbs."""

from ..machine import ip_address as get_node_ip_address
from .actor_pool import ActorPool
from .placement_group import (
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

__all__ = [
    "ActorPool",
    "get_current_placement_group",
    "get_node_ip_address",
    "get_placement_group",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
]
