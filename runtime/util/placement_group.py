"""Placement groups: resources that are booked together before the tasks and actors that use them start.

    group = placement_group([{"CPU": 2}, {"CPU": 1, "GPU": 1}], strategy="PACK")
    runtime.get(group.ready())
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=1)
    learner = Learner.options(num_cpus=1, num_gpus=1, scheduling_strategy=strategy).remote()

On one machine all bundles lie on it; a group waits until all its bundles are free at once.
"""

from __future__ import annotations

from ..calls.options import check_bundle
from ..scheduling import GROUP_STRATEGIES, PlacementGroup
from ..session import engine

__all__ = [
    "PlacementGroup",
    "get_current_placement_group",
    "get_placement_group",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
]


def placement_group(
    bundles: list[dict[str, float]], strategy: str = "PACK", name: str = "", lifetime: str | None = None
) -> PlacementGroup:
    """Books resources: all bundles or none, as soon as they are free.

    Args:
        bundles: resources of each, by name: "CPU", "GPU", "memory" (bytes) and the session's own.
        strategy: "PACK": bundles on as few machines as possible; "SPREAD": on as many as possible; "STRICT_PACK": on
            one; "STRICT_SPREAD": each on another.
        name: for `get_placement_group`, one of the caller's namespace; "" for none.
        lifetime: None: until it is removed or the driver (or the actor) that has made it ends; "detached": until it is
            removed or the session ends.

    Returns:
        The group; it need not be booked yet (`ready`, `wait`).

    Raises:
        UnschedulableError: the session can never give this.
        TypeError, ValueError: a wrong argument, or a name that another group has.
    """
    if not isinstance(bundles, list | tuple) or not bundles:
        raise ValueError(f"bundles must be a list of at least one dict of name -> quantity, got {bundles!r}")
    checked = [check_bundle(f"bundles[{index}]", bundle) for index, bundle in enumerate(bundles)]
    if strategy not in GROUP_STRATEGIES:
        raise ValueError(f"strategy={strategy!r} is unknown; there are {', '.join(map(repr, GROUP_STRATEGIES))}")
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {name!r}")
    if lifetime not in (None, "detached"):
        raise ValueError(f"lifetime must be None or 'detached', got {lifetime!r}")
    group_id = engine().create_placement_group(checked, strategy, name, lifetime == "detached")
    return PlacementGroup(group_id, checked)


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Removes a group: what runs in it is killed, what waits for it fails. Harmless when it is gone.

    Raises:
        TypeError: not a group.
    """
    _check_group(placement_group)
    if placement_group.is_of_this_session:
        engine().remove_placement_group(placement_group.id)


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """The group with this name in the caller's namespace.

    Raises:
        ValueError: there is none.
    """
    if not placement_group_name:
        raise ValueError("get_placement_group() takes the name of a group, got an empty one")
    group = engine().find_placement_group(placement_group_name)
    if group is None:
        namespace = engine().context().namespace
        raise ValueError(f"there is no placement group named {placement_group_name!r} in the namespace {namespace!r}")
    return PlacementGroup(group.id, group.bundles)


def get_current_placement_group() -> PlacementGroup | None:
    """The group in which the calling task or actor runs; None if there is none, as in the driver."""
    group_id = engine().context().placement_group_id
    return None if group_id is None else PlacementGroup(bytes.fromhex(group_id))


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict:
    """Description of a group: id, name, bundles, machines, strategy and state ("PENDING", "CREATED", "REMOVED").

    Args:
        placement_group: None: a dict of all groups by their ids.

    Returns:
        A dict; empty if the group is not known.
    """
    if placement_group is not None:
        _check_group(placement_group)
        if not placement_group.is_of_this_session:
            return {}
    table = {group.id.hex(): group.describe() for group in engine().placement_groups()}
    return table if placement_group is None else table.get(placement_group.id.hex(), {})


def _check_group(group):
    if not isinstance(group, PlacementGroup):
        raise TypeError(f"placement_group must be what util.placement_group() returned, got {group!r}")
