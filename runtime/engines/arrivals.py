"""References that are waited for together for long, each until it is done, while others are added."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..remote.refs import ObjectRef


class Arrivals(Protocol):
    """References of this session, each of which is given back once, when it is done: with a value or an error."""

    def __len__(self) -> int:
        """Number of references that were added, and neither given back nor discarded."""

    def add(self, ref: ObjectRef) -> None:
        """Adds a reference, which may be done already."""

    def discard(self, ref: ObjectRef) -> None:
        """Takes a reference out, if it is in."""

    def take(self, timeout_s: float | None) -> list[ObjectRef]:
        """Takes out those that are done, in the order in which they were noticed; waits for the first one.

        Args:
            timeout_s: longest wait (seconds); None: as long as it takes. A discarded reference may end it as well.
        """


class ArrivalsByWaiting:
    """Arrivals of an engine that has to look at all references each time.

    Args:
        wait: that of the engine.
    """

    def __init__(self, wait: Callable[[list[ObjectRef], int, float | None], tuple[list, list]]):
        self._wait = wait
        self._refs: dict[ObjectRef, None] = {}

    def __len__(self) -> int:
        return len(self._refs)

    def add(self, ref: ObjectRef) -> None:
        """See Arrivals."""
        self._refs[ref] = None

    def discard(self, ref: ObjectRef) -> None:
        """See Arrivals."""
        self._refs.pop(ref, None)

    def take(self, timeout_s: float | None) -> list[ObjectRef]:
        """See Arrivals."""
        refs = list(self._refs)
        if not refs:
            return []
        done, _ = self._wait(refs, 1, timeout_s)
        if done and len(refs) > 1:
            done, _ = self._wait(refs, len(refs), 0)
        for ref in done:
            del self._refs[ref]
        return done
