"""Placement groups on one machine: who has booked what, and where a call is placed. Pure, for all our engines."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ..calls.options import ActorOptions, TaskOptions, check_feasible
from ..errors import UnschedulableError
from ..scheduling import (
    CREATED,
    PENDING,
    REMOVED,
    GroupInfo,
    NodeAffinitySchedulingStrategy,
    Placement,
    PlacementGroup,
    PlacementGroupSchedulingStrategy,
)
from .definitions import Definition
from .resources import Request, Resources, quantities

LARGEST_REMOVED_COUNT = 1000  # removed groups that are remembered


def _booked(group):
    return group


WHEN_BOOKED = Definition(_booked)  # run as a task, in the group, with `ready_options`


@dataclass
class Group:
    """A placement group.

    Attributes:
        namespace: namespace of the name.
        bundles: request of each.
        owner: with which it ends; 0 for none.
        pools: free resources of each bundle, once they are booked.
    """

    id: bytes
    namespace: str
    name: str
    bundles: list[Request]
    strategy: str
    owner: int
    state: str = PENDING
    pools: list[Resources] = field(default_factory=list)


class PlacementGroups:
    """The groups of a session.

    Args:
        resources: from which bundles are booked.
    """

    def __init__(self, resources: Resources):
        self._resources = resources
        self.groups: dict[bytes, Group] = {}
        self.waiting: deque[Group] = deque()
        self._removed: deque[bytes] = deque()
        self._emptying: list[Group] = []  # removed, with bundles that are still in use

    def create(self, group: Group) -> str:
        """A new group; it is booked by `book`. Why it cannot be, or ""."""
        name = group.namespace, group.name
        if group.name and any((g.namespace, g.name) == name and g.state != REMOVED for g in self.groups.values()):
            return f"there is a placement group named {group.name!r} in the namespace {group.namespace!r} already"
        self.groups[group.id] = group
        self.waiting.append(group)
        return ""

    def book(self) -> None:
        """Books the waiting groups that fit."""
        for group in list(self.waiting):
            pools = self._resources.split(group.bundles)
            if pools is not None:
                self.waiting.remove(group)
                group.pools, group.state = pools, CREATED

    def pool(self, placement: Placement, request: Request) -> Resources | None:
        """The bundle's resources if the request fits there now; for any bundle the first in which it does."""
        pools = self.groups[placement.group].pools
        if placement.bundle >= 0:
            pools = pools[placement.bundle : placement.bundle + 1]
        return next((pool for pool in pools if pool.fits(request)), None)

    def refusal(self, placement: Placement, request: Request) -> tuple[str, str] | None:
        """Reason why a request will never fit there: the name of an error and a text; None if it may."""
        group = self.groups.get(placement.group)
        if group is None or group.state == REMOVED:
            return "TaskPlacementGroupRemoved", "its placement group has been removed"
        bundles = group.bundles if placement.bundle < 0 else group.bundles[placement.bundle : placement.bundle + 1]
        if any(all(dict(bundle).get(name, 0) >= amount for name, amount in request) for bundle in bundles):
            return None
        return "UnschedulableError", too_large(quantities(request), [quantities(bundle) for bundle in bundles])

    def remove(self, group_id: bytes) -> bool:
        """Removes a group; whether it was there. Its bundles are free when nothing runs in them (`settle`)."""
        group = self.groups.get(group_id)
        if group is None or group.state == REMOVED:
            return False
        if group.state == PENDING:
            self.waiting.remove(group)
        group.state = REMOVED
        self._emptying.append(group)
        self._removed.append(group_id)
        if len(self._removed) > LARGEST_REMOVED_COUNT:
            del self.groups[self._removed.popleft()]
        return True

    @property
    def emptying(self) -> bool:
        """Whether `settle` has something to wait for."""
        return bool(self._emptying)

    def settle(self) -> None:
        """Gives back the bundles of removed groups that nothing uses any more."""
        for group in list(self._emptying):
            for pool in [pool for pool in group.pools if pool.unused]:
                group.pools.remove(pool)
                self._resources.join(pool)
            if not group.pools:
                self._emptying.remove(group)


def group_info(group: Group, node_id: str) -> GroupInfo:
    """Description of the group for the user."""
    bundles = [quantities(bundle) for bundle in group.bundles]
    return GroupInfo(group.id, group.name, bundles, group.strategy, group.state, node_id, group.namespace)


def named(groups: list[GroupInfo], name: str, namespace: str) -> GroupInfo | None:
    """The group that has a name in a namespace; None if there is none."""
    wanted = namespace, name
    return next((group for group in groups if (group.namespace, group.name) == wanted and group.state != REMOVED), None)


def check_group(bundles: list[dict[str, float]], strategy: str, totals: dict[str, float]) -> None:
    """Refuses at once a group that one machine can never hold.

    Raises:
        UnschedulableError: more in all than there is, or more than one machine is needed.
    """
    if strategy == "STRICT_SPREAD" and len(bundles) > 1:
        raise UnschedulableError(
            f"STRICT_SPREAD places each of the {len(bundles)} bundles on another machine, and this session has one. "
            "Use SPREAD, which takes as many machines as there are."
        )
    total: dict[str, float] = {}
    for name, quantity in (item for bundle in bundles for item in bundle.items()):
        total[name] = total.get(name, 0) + quantity
    check_feasible({name: round(quantity, 4) for name, quantity in total.items()}, totals, "the placement group")


class Placements:
    """Placement of the calls of one process.

    Args:
        totals: all resources of the session.
        node_id: id of this machine.

    Attributes:
        current: where the caller itself runs; None: in no group.
    """

    def __init__(self, totals: dict[str, float], node_id: str):
        self._totals, self._node_id = totals, node_id
        self.current: Placement | None = None

    def find(self, options: TaskOptions | ActorOptions, what: str) -> Placement | None:
        """The place that the options name; None: anywhere.

        Raises:
            UnschedulableError: it can never run there.
            SessionClosedError: its group is one of another session.
        """
        strategy = options.scheduling_strategy
        inherits = self.current is not None and self.current.captures
        if strategy is None and inherits:
            return Placement(self.current.group, -1, True)
        if isinstance(strategy, PlacementGroupSchedulingStrategy) and not strategy.placement_group.is_empty:
            strategy.placement_group.check_session()
            index = strategy.placement_group_bundle_index
            bundles = strategy.placement_group.bundle_specs
            if index >= 0:
                bundles = bundles[index : index + 1]
            request = options.request()
            if not any(all(bundle.get(n, 0) >= q for n, q in request.items()) for bundle in bundles):
                raise UnschedulableError(f"{what}: {too_large(request, bundles)}")
            captures = strategy.placement_group_capture_child_tasks
            return Placement(strategy.placement_group.id, index, inherits if captures is None else captures)
        hard = isinstance(strategy, NodeAffinitySchedulingStrategy) and not strategy.soft
        if hard and strategy.node_id != self._node_id:
            raise UnschedulableError(
                f"{what} is to run on the node {strategy.node_id!r}, and this session has only {self._node_id!r}. "
                "runtime.nodes() lists them; soft=True runs it elsewhere."
            )
        check_feasible(options.request(), self._totals, what)
        return None


def ready_options(group: PlacementGroup) -> TaskOptions:
    """Options of the task that runs when a group is booked."""
    return TaskOptions(
        num_cpus=0, name="placement_group_ready", scheduling_strategy=PlacementGroupSchedulingStrategy(group)
    )


def too_large(request: dict[str, float], bundles: list[dict[str, float]]) -> str:
    """Text for a request that fits into none of these bundles."""
    asked = ", ".join(f"{name}: {quantity:g}" for name, quantity in request.items())
    have = "; ".join(", ".join(f"{n}: {q:g}" for n, q in bundle.items()) for bundle in bundles)
    return f"{asked} does not fit into a bundle of its placement group: {have}"
