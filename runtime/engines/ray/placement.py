"""Placement groups and scheduling strategies, which are Ray's own."""

from __future__ import annotations

import ray
from ray.util import scheduling_strategies as rays
from ray.util.placement_group import PlacementGroup as RayGroup
from ray.util.placement_group import get_current_placement_group, placement_group_table

from ...scheduling import (
    GroupInfo,
    NodeAffinitySchedulingStrategy,
    Placement,
    PlacementGroupSchedulingStrategy,
    SchedulingStrategy,
)


def create(bundles: list[dict[str, float]], strategy: str, name: str, detached: bool) -> bytes:
    """A new group; see base.Engine."""
    group = ray.util.placement_group(bundles, strategy, name, "detached" if detached else None)
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
    return None if group is None else Placement(group.id.binary(), -1, False)


def options_of(strategy: SchedulingStrategy) -> dict:
    """Ray's option for a strategy; None leaves it to Ray, which then captures children."""
    if strategy is None or isinstance(strategy, str):
        return {} if strategy is None else {"scheduling_strategy": strategy}
    if isinstance(strategy, NodeAffinitySchedulingStrategy):
        return {"scheduling_strategy": rays.NodeAffinitySchedulingStrategy(strategy.node_id, strategy.soft)}
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
