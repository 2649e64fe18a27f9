"""A search space: a configuration, nested to any depth, with domains and grids among its values.

    space = SearchSpace({"lr": loguniform(1e-5, 1e-2), "model": {"layers": grid_search([1, 2])}})
    space.variant(0, seed=1)    # {"lr": 0.00071..., "model": {"layers": 1}}

Variant number i depends on the space, the seed and i alone, so a search continues after a restart by counting on.
Grids come first, then the domains in their order, then functions (sample_from), which see the values drawn before and
may depend on one another. An option of a choice may be a domain, or hold some.
"""

import contextlib
import functools
import itertools
import math
import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rllib.runs.entries import settings_by_path
from rllib.tune.search.domains import Choice, Domain, Float, Function, Integer, Normal, grid_search, is_lambda_of_spec

Path = tuple[str | int, ...]


class SearchSpace:
    """Draws configurations.

    Args:
        config: the space.

    Attributes:
        grid_size: number of combinations of its grids; 1 without grids.

    Raises:
        ValueError: if a grid is empty, has other keys next to it in its dict, or stands in a choice.
    """

    def __init__(self, config: Mapping[str, Any]):
        self.config = config
        self._cells = list(_cells(config, ()))
        self.grid_size = len(self._cells)

    def variant(self, index: int, seed: int | str | None = None, constant_grid_search: bool = False) -> dict[str, Any]:
        """Variant number `index`: each sample goes through all combinations of the grids.

        Args:
            index: 0, 1, ...
            seed: equal seeds draw equal variants; None: from the operating system's entropy.
            constant_grid_search: draw the same random values for all of the grid's combinations.
        """
        sample, cell = divmod(index, self.grid_size)
        rng = random.Random(None if seed is None else f"{seed}/{sample if constant_grid_search else index}")
        return resolve(self._cells[cell], rng, seed is not None)


def resolve(config, rng: random.Random, seed_functions: bool = True):
    """Draws a configuration of a space without grids; functions may use numpy's and Python's global generators.

    Raises:
        ValueError: if functions depend on one another in a circle, or return a grid.
    """
    pending: list[tuple[Path, Function]] = []
    root = {"config": _draw(config, (), rng, pending)}
    while pending:
        waiting = []
        for path, function in pending:
            try:
                with _seeded_globals(rng) if seed_functions else contextlib.nullcontext():
                    value = _call(function, root["config"])
            except _Undrawn as undrawn:
                waiting.append((path, function, undrawn))
                continue
            if _holds_grid(value):
                raise ValueError(
                    f"{name(path)}: sample_from returned a grid_search, but a function draws one value. Put the grid "
                    "into the config, or return tune.choice([...]) for a draw from its values."
                )
            inner: list[tuple[Path, Function]] = []
            _set(root, ("config", *path), _draw(value, path, rng, inner))
            waiting += [(*entry, None) for entry in inner]
        if len(waiting) == len(pending) and all(undrawn for *_, undrawn in waiting):
            circle = ", ".join(f"{name(path)} needs {undrawn}" for path, _, undrawn in waiting)
            raise ValueError(f"sample_from: the functions wait for one another: {circle}")
        pending = [entry[:2] for entry in waiting]
    return root["config"]


def split(config) -> tuple[Any, dict[Path, Domain]]:
    """(the space with None in place of its domains, {path: domain}), for optimisers that do the drawing.

    Raises:
        ValueError: if the space has a grid.
    """
    domains: dict[Path, Domain] = {}

    def walk(node, path):
        if (domain := _as_domain(node)) is not None:
            domains[path] = domain
            return None
        if is_grid(node):
            raise ValueError(
                f"{name(path)} is a grid_search, which only the default search (BasicVariant, 'random') can do. "
                "Use tune.choice([...]) to leave the choice to the optimiser."
            )
        return rebuilt(node, path, walk)

    return walk(config, ()), domains


def evaluated_params(space, config) -> dict[str, Any]:
    """{"a/b": value} of the values drawn for `config`; an option that is a dict is listed by its entries."""
    found: dict[str, Any] = {}

    def walk(node, value, path):
        if _as_domain(node) is not None or is_grid(node):
            found.update(settings_by_path({name(path): value}))
        elif isinstance(node, Mapping) and isinstance(value, Mapping):
            for key, child in node.items():
                if key in value:
                    walk(child, value[key], (*path, key))
        elif isinstance(node, (list, tuple)) and isinstance(value, (list, tuple)):
            for index, (child, inner) in enumerate(zip(node, value)):
                walk(child, inner, (*path, index))

    walk(space, config, ())
    return found


def name(path: Path) -> str:
    """ "a/b/0" of a path."""
    return "/".join(map(str, path))


def is_grid(node) -> bool:
    """Whether this is {"grid_search": [...]}."""
    return isinstance(node, Mapping) and "grid_search" in node


def holds_domains(node, or_grids: bool = True) -> bool:
    """Whether the node holds domains, or grids."""
    if _as_domain(node) is not None or (or_grids and is_grid(node)):
        return True
    return any(holds_domains(child, or_grids) for child in _children(node))


def changeable(space: Mapping, kind=Domain) -> dict[str, Any]:
    """The settings of a space that can be changed while a trial runs, nested as they are there.

    Args:
        space: the search space.
        kind: class of domains; Domain also represents grids, of which there are the lists.
    """
    found: dict[str, Any] = {}
    for key, node in space.items():
        options = node["grid_search"] if is_grid(node) else node.values if isinstance(node, Choice) else ()
        if isinstance(node, Function) or any(map(holds_domains, options)):
            continue
        if is_grid(node):
            found |= {key: list(options)} if kind is Domain else {}
        elif isinstance(node, Mapping):
            found |= {key: inner} if (inner := changeable(node, kind)) else {}
        elif isinstance(node, kind):
            found[key] = node
    return found


def options_of(node, leave_out: bool = False) -> list:
    """Values of a part of a space in which each option of its grids and choices, and both ends of its ranges, occur.

    Several of them are not combined; the first option represents the others. An end that is drawn with probability 0
    represents the number next to it.

    Args:
        node: the part.
        leave_out: whether keys whose values cannot be listed, since other domains draw them, are left out. By default
            the result is [] if there is one.
    """
    if (is_grid(node) and len(node) == 1) or isinstance(node, Choice):  # with other keys it is no grid, but a value
        options = [options_of(each, leave_out) for each in (node["grid_search"] if is_grid(node) else node.values)]
        return [value for of_one in options for value in of_one] if leave_out or all(options) else []
    if isinstance(node, Float) and node.q is None:
        return [math.nextafter(node.low, node.high), math.nextafter(node.high, node.low)]
    if isinstance(node, Float | Integer):
        return [node.low, node.high]
    if isinstance(node, Domain):
        return []
    if not isinstance(node, Mapping | list | tuple):
        return [node]
    keys = list(node) if isinstance(node, Mapping) else range(len(node))
    options = [options_of(node[key], leave_out) for key in keys]
    if leave_out and isinstance(node, Mapping):
        keys, options = [key for key, each in zip(keys, options) if each], list(filter(None, options))
    if not all(options):
        return []
    first = [of_one[0] for of_one in options]
    found = [first, *([*first[:i], value, *first[i + 1 :]] for i, each in enumerate(options) for value in each[1:])]
    made = dict if isinstance(node, Mapping) else type(node)
    return [made(zip(keys, values)) if made is dict else made(values) for values in found]


def draws_unlisted(node) -> bool:
    """Whether values are drawn in a way that `options_of` cannot list: by functions and by domains of the user's."""
    domain = _as_domain(node)
    if isinstance(domain, Choice):
        return any(map(draws_unlisted, domain.values))
    if domain is not None:
        return not isinstance(domain, Float | Integer | Normal)
    return any(map(draws_unlisted, _children(node)))


def drawn_again(space, config):
    """The configuration of a space whose domains draw what they have drawn for `config`; functions are called again.

    Raises:
        ValueError: if a domain cannot draw the value in `config`, or does not say what it can draw.
        another error: of a function, or if `config` lacks a value.
    """

    def walk(node, path):
        domain = Choice(node["grid_search"]) if is_grid(node) else _as_domain(node)
        if domain is None:
            return rebuilt(node, path, walk)
        if isinstance(domain, Function):
            return domain
        value = functools.reduce(lambda part, key: part[key], path, config)
        if isinstance(domain, Choice):
            option = domain.option_of(value)
            if option is not None:
                return walk(domain.values[option], path)
        elif type(domain).contains is not Domain.contains and domain.contains(value):
            return value
        raise ValueError(f"{name(path)}: {domain!r:.200} does not draw {value!r:.80}")

    return resolve(walk(space, ()), random.Random(0))


def _as_domain(node) -> Domain | None:
    if isinstance(node, Domain):
        return node
    return Function(node) if is_lambda_of_spec(node) else None


def _cells(node, path: Path) -> Iterator:
    """The node with each combination of its grids' values."""
    if is_grid(node):
        for value in _grid_values(node, path):
            yield from _cells(value, path)
    elif isinstance(node, Choice):
        if any(map(_holds_grid, node.values)):
            raise ValueError(f"{name(path)}: a grid_search cannot stand in an option of a choice")
        yield node
    elif not _holds_grid(node):
        # Still looks for misplaced grids in choices.
        yield rebuilt(node, path, lambda child, inner: next(iter(_cells(child, inner))))
    elif isinstance(node, Mapping):
        for values in _combinations([list(_cells(child, (*path, key))) for key, child in node.items()]):
            yield dict(zip(node, values))
    else:
        for values in _combinations([list(_cells(child, (*path, index))) for index, child in enumerate(node)]):
            yield type(node)(values)


def _combinations(options: list[list]) -> Iterator[tuple]:
    """One of each list in every combination; the first varies fastest, as in Ray."""
    return (values[::-1] for values in itertools.product(*reversed(options)))


def _grid_values(node: Mapping, path: Path) -> list:
    if len(node) > 1:
        others = ", ".join(str(key) for key in node if key != "grid_search")
        raise ValueError(f"{name(path)}: next to grid_search, the dict has {others}; grid_search must be alone in it")
    try:
        return grid_search(node["grid_search"])["grid_search"]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name(path)}: {error}") from None


def _holds_grid(node) -> bool:
    return is_grid(node) or any(map(_holds_grid, _children(node)))


def _children(node):
    return node.values() if isinstance(node, Mapping) else node if type(node) in (list, tuple) else ()


def rebuilt(node, path: Path, child):
    """A copy of a dict, list or tuple with `child(value, path)` for each value; other nodes themselves."""
    if isinstance(node, Mapping):
        return {key: child(value, (*path, key)) for key, value in node.items()}
    if type(node) in (list, tuple):
        return type(node)(child(value, (*path, index)) for index, value in enumerate(node))
    return node


def _draw(node, path: Path, rng, pending: list):
    """A copy of the node with its domains drawn, and a mark in place of each function, which goes to `pending`."""
    domain = _as_domain(node)
    if isinstance(domain, Function):
        pending.append((path, domain))
        return _Mark(path)
    if domain is not None:  # an option of a choice may be a domain
        return _draw(domain.draw(rng), path, rng, pending)
    return rebuilt(node, path, lambda child, inner: _draw(child, inner, rng, pending))


class _Mark:
    """Represents a value that has not been drawn yet."""

    def __init__(self, path: Path):
        self.path = path


class _Undrawn(Exception):
    """A function has asked for a value that has not been drawn yet."""


class _View(dict):
    """A configuration with attributes, which raises _Undrawn at marks."""

    def __getitem__(self, key):
        return _shown(dict.__getitem__(self, key))

    def get(self, key, default=None):
        return _shown(dict.get(self, key, default))

    def __getattr__(self, key):
        try:
            return self[key]
        except KeyError:
            raise AttributeError(f"there is no {key} in this part of the configuration, only {list(self)}") from None


def _shown(value):
    if isinstance(value, _Mark):
        raise _Undrawn(name(value.path))
    return _View(value) if type(value) is dict else value


def _call(function: Function, config):
    """Ray's `spec` has the configuration below `config`; newer code takes the configuration itself."""
    arguments = getattr(getattr(function.function, "__code__", None), "co_argcount", 1)
    return function.function(*[_View({**config, "config": config})][:arguments])


def _set(root, path: Path, value) -> None:
    """Sets a value in nested dicts, lists and tuples (which are made again)."""
    *way, last = path
    parents = [root]
    for key in way:
        parents.append(parents[-1][key])
    for key, parent in zip(reversed([*way, last]), reversed(parents)):
        if not isinstance(parent, tuple):
            parent[key] = value
            return
        value = (*parent[:key], value, *parent[key + 1 :])


@contextlib.contextmanager
def _seeded_globals(rng: random.Random):
    """Context in which Python's and numpy's global generators follow rng; their state is restored afterwards."""
    seed = rng.getrandbits(32)
    numpy_random = getattr(sys.modules.get("numpy"), "random", None)
    states = random.getstate(), numpy_random and numpy_random.get_state()
    random.seed(seed)
    if numpy_random:
        numpy_random.seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        if numpy_random:
            numpy_random.set_state(states[1])
