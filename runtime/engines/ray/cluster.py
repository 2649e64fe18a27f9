"""Resources of the cluster, what fits them, and the node of an actor whose CPUs Ray does not count."""

from __future__ import annotations

import logging
import weakref
from collections import Counter

import ray

from ...calls.options import ActorOptions, TaskOptions, check_feasible
from ...errors import UnschedulableError
from ...scheduling import PlacementGroupSchedulingStrategy
from . import placement
from .values import ActorId

logger = logging.getLogger("runtime")

PER_NODE = ("node:", "object_store_memory")  # resources of Ray that nobody asks for here


class Cluster:
    """The cluster as one process knows it."""

    def __init__(self):
        self._totals: dict[str, float] = {}
        self._placed = Counter()  # node -> number of actors that this process has placed there

    @property
    def totals(self) -> dict[str, float]:
        """All resources of the cluster, when it was last asked."""
        return self._totals or self.ask()

    def ask(self) -> dict[str, float]:
        """All resources that the cluster has now."""
        self._totals = named(ray.cluster_resources())
        return self._totals

    def check_feasible(self, options: TaskOptions | ActorOptions, what: str) -> None:
        """Refuses what can never start; where an autoscaler runs it waits for new nodes.

        Raises:
            UnschedulableError: it fits neither the cluster nor the bundles of its placement group.
        """
        if isinstance(options.scheduling_strategy, PlacementGroupSchedulingStrategy):
            placement.check_bundles(options, what)
        request = options.request()
        try:
            check_feasible(request, self.totals, what)
        except UnschedulableError as error:
            if _fits(request, self.ask()):  # nodes have joined
                return
            if not placement.cluster_grows():
                raise
            logger.warning("It waits until the cluster's autoscaler adds nodes: %s", error)

    def choose_node(self, options: ActorOptions) -> str | None:
        """Node of an actor that may exceed the CPUs, an option that Ray does not have: it asks Ray for none.

        Of the nodes with the other resources it takes the one with the fewest actors of this process for each CPU; this
        process's own where several are equal. None leaves the choice to Ray: the actor asks it for its CPUs, names a
        strategy, or runs in the group of its caller.
        """
        if not (options.oversubscribe and options.num_cpus and options.scheduling_strategy is None):
            return None
        if placement.current() is not None:
            return None
        own, request = ray.get_runtime_context().get_node_id(), options.request()
        loads = [
            ((self._placed[node["NodeID"]] + 1) / total["CPU"], node["NodeID"] != own, node["NodeID"])
            for node in ray.nodes()
            if node["Alive"] and (total := node["Resources"]).get("CPU", 0) > 0 and _fits(request, total)
        ]
        return min(loads)[2] if loads else None

    def place(self, actor_id: ActorId, node: str) -> None:
        """Counts an actor on the node that was chosen for it, until it is killed or its handle is dropped."""
        self._placed[node] += 1
        actor_id.on_end = weakref.finalize(actor_id.handle, self._placed.subtract, (node,))


def named(resources: dict[str, float]) -> dict[str, float]:
    """Resources that a task or actor may ask for."""
    return {name: quantity for name, quantity in resources.items() if not name.startswith(PER_NODE)}


def _fits(request, total):
    return all(total.get(name, 0) >= quantity for name, quantity in request.items())
