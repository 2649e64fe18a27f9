"""The values of generators as Ray streams them."""

from __future__ import annotations

import ray

from ..base import Engine
from .values import Reference


class Turn(Reference):
    """Done when a generator has its next value, or has ended; for `wait`, which Ray does with the generator itself."""

    __slots__ = ()

    @property
    def id(self) -> bytes:
        """That of the generator."""
        return self.inner.completed().binary()


class RayStream:
    """The results of one generator; see base.Stream."""

    def __init__(self, engine: Engine, inner: ray.ObjectRefGenerator):
        self._engine, self._inner = engine, inner
        self.completed = Reference(engine, inner.completed())

    def next_reference(self) -> Reference:
        return Turn(self._engine, self._inner)

    def take(self) -> Reference | None:
        try:
            return Reference(self._engine, next(self._inner))
        except StopIteration:
            return None

    @property
    def is_finished(self) -> bool:
        return self._inner.is_finished()

    def close(self) -> None:
        """Ray lets the generator run to its end."""


class Refused:
    """The one value of a generator that will never run is its error; see base.Stream."""

    def __init__(self, completed: Reference):
        self.completed, self.is_finished = completed, False

    def next_reference(self) -> Reference:
        """Done at once."""
        return self.completed

    def take(self) -> Reference | None:
        taken = None if self.is_finished else self.completed
        self.is_finished = True
        return taken

    def close(self) -> None:
        """There is nothing to end."""
