"""Placement groups and scheduling strategies, which are Ray's own, and whether nodes may join for what fits nowhere."""

from __future__ import annotations

import json

import ray
from ray.exceptions import RayError
from ray.experimental.internal_kv import _internal_kv_get
from ray.util import scheduling_strategies as rays
from ray.util.placement_group import PlacementGroup as RayGroup
from ray.util.placement_group import get_current_placement_group, placement_group_table

from ...calls.options import ActorOptions, TaskOptions
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


def create(bundles: list[dict[str, float]], strategy: str, name: str, detached: bool) -> bytes:
    """A new group; see base.Engine."""
    try:
        group = ray.util.placement_group(bundles, strategy, name, "detached" if detached else None)
    except RayError as error:
        if name and any(info.name == name and info.state != REMOVED for info in table()):
            raise ValueError(f"there is a placement group named {name!r} already") from error
        raise error_of(error) from error
    return group.id.binary()


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
    theirs = RayGroup(ray.PlacementGroupID(group.id), group.bundle_specs)
    return {
        "scheduling_strategy": rays.PlacementGroupSchedulingStrategy(
            theirs, strategy.placement_group_bundle_index, strategy.placement_group_capture_child_tasks
        )
    }


def cluster_grows() -> bool:
    """Whether an autoscaler adds nodes to the cluster for what waits.

    Ray says it only in what `ray status` reads: the second autoscaler has an entry; of the first, which also runs on
    clusters of a fixed size, the report has types of nodes: "node_<id>" is one that nobody has described to it.
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
