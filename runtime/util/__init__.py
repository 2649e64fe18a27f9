"""Helpers built on the API functions."""

from ..host.machine import node_ip_address as get_node_ip_address
from ..lazy_modules import lazy_modules
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

# Names of Ray that are not here: what to use instead.
_INSTEAD = {
    **dict.fromkeys(("log_once", "disable_log_once_globally", "enable_periodic_logging"), "use the module logging"),
    "metrics": "keep counts in an actor; the command runtime status shows what runs",
    "state": "use nodes(), cluster_resources(), or the command runtime status",
    **dict.fromkeys(("connect", "disconnect", "client_connect"), "use init(address=...) and shutdown()"),
    **dict.fromkeys(("iter", "from_items", "from_iterators", "from_range"), "use ActorPool, or generators as tasks"),
    **dict.fromkeys(("accelerators", "tpu"), "name a resource of your own, init(resources={'name': 1})"),
    **dict.fromkeys(("pdb", "rpdb", "ray_debugpy"), "use init(engine='local'), in which a debugger works as usual"),
    "collective": "send arrays through the object store; they are never copied twice",
    "as_completed": "use runtime.as_completed(refs), which yields references",
    "get_node_instance_id": "use get_runtime_context().get_node_id()",
    "map_unordered": "use ActorPool(actors).map_unordered(function, values)",
}

__getattr__ = lazy_modules(__name__, _INSTEAD)
