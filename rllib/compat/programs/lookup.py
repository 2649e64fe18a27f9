"""Looking names of Ray up in the table."""

import functools
import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any, NamedTuple

from rllib.compat.programs.names import FOUND, MOVED, WHERE_BUILT, is_of_tensorflow


class Ours(NamedTuple):
    """Place of a name in this library."""

    module: str
    name: str

    def load(self) -> Any:
        """The object itself."""
        return getattr(importlib.import_module(self.module), self.name)


def present_path(path: str) -> str:
    """The path of a module under the folders that the table has, where an earlier Ray had others."""
    known = path
    while known and known not in MOVED:
        known = known.rpartition(".")[0]
    return MOVED[known] + path[len(known) :] if known else path


def find(module: str, name: str) -> Ours | None:
    """The place here of a name in a module of Ray; None if it is not here.

    A name is found as well by a path that the table does not have, if it is called so in one place of its package: Ray
    has moved most classes and functions at least once, and kept their names. A module that is called as its package is
    (`ray.rllib.algorithms.ppo.ppo`) has the names of its package.
    """
    module = present_path(module)
    package, _, last = module.rpartition(".")
    for place in (module, package) if package.rpartition(".")[2] == last else (module,):
        if ours := row(place).get(name):
            return ours
    if not name[:1].isupper() and ("." not in module or is_of_tensorflow(module)):
        return (
            None  # `ray` itself holds too many for one of this name to be meant, and helpers for TensorFlow are others
        )
    alike = _by_name(".".join(module.split(".")[:2])).get(name, set())
    return next(iter(alike)) if len(alike) == 1 else None


@functools.cache
def row(module: str) -> dict[str, Ours]:
    """Names that a module of Ray has here -> their places.

    Args:
        module: as the table writes it.
    """
    found = {theirs: ours for place, names in FOUND.get(module, {}).items() for theirs, ours in _pairs(place, names)}
    for place, names in WHERE_BUILT.get(module, {}).items():
        if importlib.util.find_spec(place) is not None:
            pairs = _pairs(place, names)
            found |= {theirs: ours for theirs, ours in pairs if names == "*" or _has(ours)}
    return found


def counterpart(module: str) -> str | None:
    """Our module that represents one of Ray as a whole; None where there is none."""
    module = present_path(module)
    return next(iter(FOUND.get(module, {}) or WHERE_BUILT.get(module, {})), None)


@functools.cache
def modules() -> frozenset[str]:
    """The modules of Ray that the table knows, and the packages that they stand in."""
    found: set[str] = set()
    for module in (*FOUND, *WHERE_BUILT, *MOVED):
        while module:
            found.add(module)
            module = module.rpartition(".")[0]
    return frozenset(found)


@functools.cache
def _by_name(package: str) -> dict[str, set[Ours]]:
    """Names -> places, of all modules of a package like ray.rllib."""
    found: dict[str, set[Ours]] = {}
    for module in (*FOUND, *WHERE_BUILT):
        if module == package or module.startswith(f"{package}."):
            for name, ours in row(module).items():
                found.setdefault(name, set()).add(ours)
    return found


def _pairs(place: str, names: str) -> Iterator[tuple[str, Ours]]:
    words = importlib.import_module(place).__all__ if names == "*" else names.split()
    for word in words:
        theirs, _, ours = word.partition("=")
        yield theirs, Ours(place, ours or theirs)


def _has(ours: Ours) -> bool:
    return hasattr(importlib.import_module(ours.module), ours.name)
