"""The actors of the local engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ... import errors
from ...remote.refs import Unseen
from ..placement_groups import PlacementGroups
from ..resources import units


class Actor:
    """An instance, or the reason why there is none.

    `error` is set once it has ended. `busy` while one of its methods is on the stack, `holds` while it has resources.
    `restarts` counts how often it was started again, by the job `constructor`. `creator` is the id of the actor with
    whose instance it ends; None if the driver or a task has created it, or if it is detached.
    """

    def __init__(self, actor_id, cls, options, creator):
        self.id, self.cls, self.options = actor_id, cls, options
        self.creator = None if options.detached else creator
        self.name = options.label or options.name or cls.name
        self.label = f"actor {self.name}"
        self.instance = self.error = self.unseen = self.constructor = None
        self.alive = self.busy = self.holds = False
        self.handles = self.restarts = 0
        self.gpu_ids = ()
        self.placement = self.pool = None


class Actors:
    """The actors of a session.

    Args:
        groups: whose bundles actors hold.
        namespace: namespace of names that are given without one; an attribute as well.
        has_calls: whether calls wait for an actor.

    Attributes:
        by_id: actors that have a handle, or calls to finish.
        names: (namespace, name) -> id.
        dropped: ids of actors a handle of which has gone; `drop_handles` looks at them.
    """

    def __init__(self, groups: PlacementGroups, namespace: str, has_calls: Callable[[Actor], bool]):
        self._groups, self.namespace, self._has_calls = groups, namespace, has_calls
        self.by_id: dict[bytes, Actor] = {}
        self.names: dict[tuple[str, str], bytes] = {}
        self.dropped: deque[bytes] = deque()
        self._leaving: list[Actor] = []  # without a handle, but with calls to finish

    def namespaced(self, name: str, namespace: str | None) -> tuple[str, str]:
        """The key of a name in `names`."""
        return namespace or self.namespace, name

    def end(self, actor: Actor, reason, unseen: Unseen | None = None) -> None:
        """The actor is gone: its instance is dropped, its resources are free, later calls fail.

        Args:
            reason: a text, or what makes the error of later calls.
            unseen: that error, if no caller has seen it.
        """
        if actor.error is None:
            actor.unseen = unseen
            actor.error = reason if callable(reason) else lambda: errors.ActorDiedError(reason)
            self.release(actor)
            actor.constructor = None
            if actor.options.name is not None:
                name = self.namespaced(actor.options.name, actor.options.namespace)
                if self.names.get(name) == actor.id:
                    del self.names[name]

    def release(self, actor: Actor) -> None:
        """An instance is dropped, its resources are free, and the actors that it has created end with it."""
        if actor.holds:
            actor.pool.give_back(units(actor.options.held()), actor.gpu_ids)
            self._groups.settle()
        actor.instance, actor.alive, actor.holds = None, False, False
        for created in [other for other in self.by_id.values() if other.creator == actor.id]:
            self.end(created, f"{created.label} ended with the actor that created it")

    def drop_handles(self) -> None:
        """Ends the actors whose last handle is gone and which have nothing left to do."""
        while self.dropped:
            actor = self.by_id.get(self.dropped.popleft())
            if actor is not None:
                actor.handles -= 1
                if actor.handles == 0 and (actor.error is not None or not actor.options.detached):
                    self._leaving.append(actor)
        for actor in list(self._leaving):
            if not actor.busy and not self._has_calls(actor):
                self._leaving.remove(actor)
                del self.by_id[actor.id]
                self.end(actor, f"{actor.label} has ended with its last handle")
