"""Places of tasks and actors: resources of the cluster, placement groups, and the node of an actor.

Groups and scheduling strategies are Ray's own. Ray does not count the CPUs of an actor that may exceed them, so its
node is chosen here.
"""

from __future__ import annotations

import json
import logging
import weakref
from collections import Counter

import ray
from ray.exceptions import RayError
from ray.experimental.internal_kv import _internal_kv_get
from ray.util import scheduling_strategies as rays
from ray.util.placement_group import PlacementGroup as RayGroup
from ray.util.placement_group import get_current_placement_group, placement_group_table

from ...calls.options import ActorOptions, TaskOptions, check_feasible
from ...errors import UnschedulableError
from ...scheduling import (
    REMOVED,
    GroupInfo,
    NodeAffinitySchedulingStrategy,
    Placement,
    PlacementGroupSchedulingStrategy,
    SchedulingStrategy,
)
from ..placement_groups import too_large
from .failures import error_of
from .values import ActorId

logger = logging.getLogger("runtime")

PER_NODE = ("node:", "object_store_memory")  # resources of Ray that no option asks for here


def create(bundles: list[dict[str, float]], strategy: str, name: str, detached: bool) -> bytes:
    """A new group; see base.Engine."""
    try:
        group = ray.util.placement_group(bundles, strategy, name, "detached" if detached else None)
    except RayError as error:
        if name and find(name) is not None:
            namespace = ray.get_runtime_context().namespace
            raise ValueError(
                f"there is a placement group named {name!r} in the namespace {namespace!r} already"
            ) from error
        raise error_of(error) from error
    return group.id.binary()


def find(name: str) -> GroupInfo | None:
    """The group that has this name in the caller's namespace, which Ray alone knows."""
    try:
        id_ = ray.util.get_placement_group(name).id.binary()
    except ValueError:
        return None
    return next((info for info in table() if info.id == id_ and info.state != REMOVED), None)


def remove(group_id: bytes) -> None:
    """Ends a group, and what runs in it."""
    ray.util.remove_placement_group(_group(group_id))


def table() -> list[GroupInfo]:
    """All groups of the cluster that Ray remembers."""
    return [_info(entry) for entry in placement_group_table().values()]


def current() -> Placement | None:
    """The group in which the calling task or actor runs."""
    group = get_current_placement_group()
    if group is None:
        return None
    return Placement(group.id.binary(), -1, ray.get_runtime_context().should_capture_child_tasks_in_placement_group)


def check_bundles(options: TaskOptions | ActorOptions, what: str) -> None:
    """Refuses what fits into no bundle of the group in which it would be placed.

    Raises:
        UnschedulableError: it never fits.
    """
    strategy, index = options.scheduling_strategy, -1
    if isinstance(strategy, PlacementGroupSchedulingStrategy):
        bundles, index = strategy.placement_group.bundle_specs, strategy.placement_group_bundle_index
    elif strategy is None and (placement := current()) is not None and placement.captures:
        bundles = next((info.bundles for info in table() if info.id == placement.group), [])
    else:
        return
    if index >= 0:
        bundles = bundles[index : index + 1]
    request = options.request()
    if not any(all(bundle.get(name, 0) >= quantity for name, quantity in request.items()) for bundle in bundles):
        raise UnschedulableError(f"{what}: {too_large(request, bundles)}")


def strategy_options(strategy: SchedulingStrategy, what: str) -> dict:
    """Ray's option for a strategy; None leaves it to Ray, which then captures children.

    Raises:
        UnschedulableError: `what` is to run on a node that there is not.
        SessionClosedError: its group is one of another session.
    """
    if strategy is None or isinstance(strategy, str):
        return {} if strategy is None else {"scheduling_strategy": strategy}
    if isinstance(strategy, NodeAffinitySchedulingStrategy):
        alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        if strategy.node_id in alive:
            return {"scheduling_strategy": rays.NodeAffinitySchedulingStrategy(strategy.node_id, strategy.soft)}
        if strategy.soft:
            return {"scheduling_strategy": "DEFAULT"}
        raise UnschedulableError(
            f"{what} is to run on the node {strategy.node_id!r}, and this session has only "
            f"{', '.join(map(repr, alive))}. runtime.nodes() lists them; soft=True runs it elsewhere."
        )
    assert isinstance(strategy, PlacementGroupSchedulingStrategy)
    group = strategy.placement_group
    if group.is_empty:
        return {"scheduling_strategy": "DEFAULT"}
    group.check_session()
    theirs = RayGroup(ray.PlacementGroupID(group.id), group.bundle_specs)
    return {
        "scheduling_strategy": rays.PlacementGroupSchedulingStrategy(
            theirs, strategy.placement_group_bundle_index, strategy.placement_group_capture_child_tasks
        )
    }


def cluster_grows() -> bool:
    """Whether an autoscaler adds nodes to the cluster for what waits.

    Ray says it only in what `ray status` reads: the second autoscaler has an entry; of the first, which also runs on
    clusters of a fixed size, the report has types of nodes: "node_<id>" is one without a description.
    """
    if _internal_kv_get(b"__autoscaler_v2_enabled", namespace=b"__autoscaler") == b"1":
        return True
    report = json.loads(_internal_kv_get(b"__autoscaling_status") or b"{}").get("autoscaler_report") or {}
    kinds = {*report.get("active_nodes", ()), *(report.get("node_type_mapping") or {}).values()}
    return any(not kind.startswith("node_") for kind in kinds)


def _group(group_id):
    return RayGroup(ray.PlacementGroupID(group_id))


class _Info(GroupInfo):
    """A group whose bundles lie on several nodes."""

    nodes: dict[int, str]

    def describe(self) -> dict:
        """See GroupInfo."""
        return {**super().describe(), "bundles_to_node_id": self.nodes}


def _info(entry):
    bundles = [entry["bundles"][index] for index in sorted(entry["bundles"])]
    id_ = bytes.fromhex(entry["placement_group_id"])
    info = _Info(id_, entry["name"], bundles, entry["strategy"], entry["state"], "")
    info.nodes = entry["bundles_to_node_id"]
    return info


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
            check_bundles(options, what)
        request = options.request()
        try:
            check_feasible(request, self.totals, what)
        except UnschedulableError as error:
            if _fits(request, self.ask()):  # nodes have joined
                return
            if not cluster_grows():
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
        if current() is not None:
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
