"""Looking names of other libraries' modules up in the tables."""

import functools
import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any, NamedTuple

from rllib.compat.programs import names as of_ray
from rllib.compat.programs import names_of_sb3 as of_sb3
from rllib.compat.programs.table import Table

# First package of a module's path -> the table that has it.
TABLES: dict[str, Table] = {library: table for table in (of_ray.TABLE, of_sb3.TABLE) for library in table.libraries}


class Ours(NamedTuple):
    """Place of a name in this library."""

    module: str
    name: str

    def load(self) -> Any:
        """The object itself."""
        return getattr(importlib.import_module(self.module), self.name)


def table_of(path: str) -> Table:
    """The table of the library that a module, or a name with its module, belongs to."""
    return TABLES[path.partition(".")[0]]


def reason_for(path: str) -> str | None:
    """The reason why a module or name is not here; None if nothing is known about it.

    Args:
        path: with all its parents: "ray.tune.search.ax.AxSearch".
    """
    return table_of(path).reason_for(path)


def present_path(path: str) -> str:
    """The path of a module under the folders that the table has, where an earlier release had others."""
    moved = table_of(path).moved
    known = path
    while known and known not in moved:
        known = known.rpartition(".")[0]
    return moved[known] + path[len(known) :] if known else path


def find(module: str, name: str) -> Ours | None:
    """The place here of a name in a module of another library; None if it is not here.

    A name is found as well by a path that the table does not have, if it is called so in one place of its package: Ray
    has moved most classes and functions at least once, and kept their names. A module that is called as its package is
    (`ray.rllib.algorithms.ppo.ppo`) has the names of its package.
    """
    module = present_path(module)
    package, _, last = module.rpartition(".")
    for place in (module, package) if package.rpartition(".")[2] == last else (module,):
        if ours := row(place).get(name):
            return ours
    if not name[:1].isupper() and ("." not in module or of_ray.is_of_tensorflow(module)):
        return (
            None  # `ray` itself holds too many for one of this name to be meant, and helpers for TensorFlow are others
        )
    alike = _by_name(".".join(module.split(".")[:2])).get(name, set())
    return next(iter(alike)) if len(alike) == 1 else None


@functools.cache
def row(module: str) -> dict[str, Ours]:
    """Names that a module of another library has here -> their places.

    Args:
        module: as the table writes it.
    """
    table = table_of(module)
    rows = table.found.get(module, {})
    found = {theirs: ours for place, names in rows.items() for theirs, ours in _pairs(place, names)}
    for place, names in table.where_built.get(module, {}).items():
        if importlib.util.find_spec(place) is not None:
            pairs = _pairs(place, names)
            found |= {theirs: ours for theirs, ours in pairs if names == "*" or _has(ours)}
    return found


def counterpart(module: str) -> str | None:
    """Our module that represents one of another library as a whole; None where there is none."""
    module, table = present_path(module), table_of(module)
    return next(iter(table.found.get(module, {}) or table.where_built.get(module, {})), None)


@functools.cache
def modules() -> frozenset[str]:
    """The modules that the tables know, and the packages that they stand in."""
    found: set[str] = set()
    for table in (of_ray.TABLE, of_sb3.TABLE):
        for module in (*table.libraries, *table.found, *table.where_built, *table.moved):
            while module:
                found.add(module)
                module = module.rpartition(".")[0]
    return frozenset(found)


@functools.cache
def _by_name(package: str) -> dict[str, set[Ours]]:
    """Names -> places, of all modules of a package like ray.rllib."""
    found: dict[str, set[Ours]] = {}
    table = table_of(package)
    for module in (*table.found, *table.where_built):
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
