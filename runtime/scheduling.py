"""Placement groups, and the strategies by which tasks and actors are placed; the names are Ray's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from . import context
from .errors import SessionClosedError

if TYPE_CHECKING:
    from .remote.refs import ObjectRef

GROUP_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
WAIT_S = 30
PENDING, CREATED, REMOVED = "PENDING", "CREATED", "REMOVED"  # states of a group


class PlacementGroup:
    """A handle to resources that are booked together, bundle by bundle; made by `util.placement_group`.

    It can be passed to tasks and actors. Two handles of one group are equal.

    Args:
        id: 16 bytes, unique in the session; empty for no group.
        bundle_specs: resources of each bundle, by name; None: looked up when they are asked for.
        session_id: id of its session, since its id may name another group in others; None: this process's.
    """

    def __init__(self, id: bytes, bundle_specs: list[dict[str, float]] | None = None, session_id: str | None = None):
        self.id, self._bundle_specs, self._ready = id, bundle_specs, None
        self._session_id = _current_session() if session_id is None else session_id

    @staticmethod
    def empty() -> PlacementGroup:
        """No group: work placed in it runs anywhere, even if the caller's group captures its children."""
        return PlacementGroup(b"", [], "")

    @property
    def is_empty(self) -> bool:
        """Whether it is no group."""
        return not self.id

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        """The resources of each bundle, by name.

        Raises:
            ValueError: the session does not know the group.
        """
        if self._bundle_specs is None:
            groups = self._engine().placement_groups()
            found = next((group for group in groups if group.id == self.id), None)
            if found is None:
                raise ValueError(f"{self!r} is not known in this session")
            self._bundle_specs = found.bundles
        return [dict(bundle) for bundle in self._bundle_specs]

    @property
    def bundle_count(self) -> int:
        """Number of bundles."""
        return len(self.bundle_specs)

    @property
    def is_of_this_session(self) -> bool:
        """Whether it belongs to the session that this process has now."""
        return self._session_id == _current_session()

    def ready(self) -> ObjectRef[PlacementGroup]:
        """A reference that is done when all bundles are booked; its value is the group.

        `get` raises TaskPlacementGroupRemoved if the group is removed before.
        """
        if self._ready is None:
            self._ready = self._engine().placement_group_ready(self)
        return self._ready

    def wait(self, timeout_seconds: float = WAIT_S) -> bool:
        """Waits until all bundles are booked; whether that was in time.

        Raises:
            TaskPlacementGroupRemoved: the group was removed.
        """
        engine, ref = self._engine(), self.ready()
        done, _ = engine.wait([ref], 1, timeout_seconds)
        if done:
            engine.get(done, None)
        return bool(done)

    def _engine(self):
        engine = context.current_engine()
        if engine is None:
            raise SessionClosedError(f"{self!r} belongs to a session that has been shut down")
        self.check_session()
        return engine

    def check_session(self) -> None:
        """Refuses a group of another session.

        Raises:
            SessionClosedError: it is one.
        """
        if not self.is_of_this_session:
            raise SessionClosedError(f"{self!r} belongs to another session")

    def __eq__(self, other):
        return isinstance(other, PlacementGroup) and (self.id, self._session_id) == (other.id, other._session_id)

    def __hash__(self):
        return hash(self.id)

    def __repr__(self):
        return f"PlacementGroup({self.id.hex()})"

    def __reduce__(self):
        return PlacementGroup, (self.id, self._bundle_specs, self._session_id)


def _current_session():
    engine = context.current_engine()
    return "" if engine is None else engine.session_id


@dataclass(frozen=True)
class PlacementGroupSchedulingStrategy:
    """Runs a task or actor within a placement group.

    Attributes:
        placement_group: the group.
        placement_group_bundle_index: of the bundle; -1 for any.
        placement_group_capture_child_tasks: whether the tasks and actors that it starts are placed in the group too,
            unless they have a strategy of their own. None: as the caller's own group does, if it runs in one.

    Raises:
        TypeError, ValueError: not a group, or no such bundle.
    """

    placement_group: PlacementGroup
    placement_group_bundle_index: int = -1
    placement_group_capture_child_tasks: bool | None = None

    def __post_init__(self):
        group, index = self.placement_group, self.placement_group_bundle_index
        captures = self.placement_group_capture_child_tasks
        if not isinstance(group, PlacementGroup):
            raise TypeError(f"placement_group must be what util.placement_group() returned, got {group!r}")
        if isinstance(index, bool) or not isinstance(index, int):
            raise TypeError(f"placement_group_bundle_index must be an integer, got {index!r}")
        if index != -1 and not 0 <= index < group.bundle_count:
            raise ValueError(
                f"placement_group_bundle_index={index} must be -1 (any bundle) or less than the number of bundles, "
                f"{group.bundle_count}"
            )
        if not isinstance(captures, bool | None):
            raise TypeError(f"placement_group_capture_child_tasks must be True, False or None, got {captures!r}")


@dataclass(frozen=True)
class NodeAffinitySchedulingStrategy:
    """Runs a task or actor on a certain machine.

    Attributes:
        node_id: as `runtime.nodes()` and `get_runtime_context().get_node_id()` give it.
        soft: run elsewhere if there is no such machine, instead of failing.

    Raises:
        TypeError: a value of the wrong type.
    """

    node_id: str
    soft: bool

    def __post_init__(self):
        if not isinstance(self.node_id, str):
            raise TypeError(f"node_id must be a string, got {self.node_id!r}")
        if not isinstance(self.soft, bool):
            raise TypeError(f"soft must be True or False, got {self.soft!r}")


class Placement(NamedTuple):
    """Place of a call in a group: the group's id, the bundle (-1: any), whether its children are, too."""

    group: bytes
    bundle: int
    captures: bool


class GroupInfo(NamedTuple):
    """Description of a group for the user; `bundles` are resources by name, its own name is one of `namespace`."""

    id: bytes
    name: str
    bundles: list[dict[str, float]]
    strategy: str
    state: str
    node_id: str
    namespace: str = ""

    def describe(self) -> dict:
        """The entry of `util.placement_group_table`, as Ray has it."""
        placed = self.state == CREATED
        return {
            "placement_group_id": self.id.hex(),
            "name": self.name,
            "bundles": dict(enumerate(self.bundles)),
            "bundles_to_node_id": {index: self.node_id if placed else "" for index in range(len(self.bundles))},
            "strategy": self.strategy,
            "state": self.state,
        }


SchedulingStrategy = PlacementGroupSchedulingStrategy | NodeAffinitySchedulingStrategy | str | None


def check_strategy(name: str, value) -> SchedulingStrategy:
    """Checks that a value is a scheduling strategy.

    Raises:
        TypeError, ValueError: otherwise.
    """
    if value is None or isinstance(value, PlacementGroupSchedulingStrategy | NodeAffinitySchedulingStrategy):
        return value
    if isinstance(value, str) and value not in ("DEFAULT", "SPREAD"):
        raise ValueError(f"{name}={value!r} is unknown; there are 'DEFAULT' and 'SPREAD'")
    if not isinstance(value, str):
        raise TypeError(
            f"{name} must be 'DEFAULT', 'SPREAD', a PlacementGroupSchedulingStrategy or a "
            f"NodeAffinitySchedulingStrategy, got {value!r}"
        )
    return value
