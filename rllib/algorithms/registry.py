"""Algorithms by name, loaded when they are asked for."""

import importlib

from rllib.algorithms.names import ALGORITHMS
from rllib.algorithms.settings import nearest


def algorithm_names() -> list[str]:
    """The algorithms that are built in."""
    return list(ALGORITHMS)


def get_algorithm_class(name: str) -> type:
    """The class of an algorithm: get_algorithm_class("PPO") is PPO. Upper and lower case are the same.

    Raises:
        ValueError: if there is none of this name; tells which there are.
    """
    canonical = _canonical(name)
    return getattr(importlib.import_module(ALGORITHMS[canonical]), canonical)


def get_algorithm_config(name: str):
    """A new config of that algorithm, with its defaults: get_algorithm_config("PPO") is PPOConfig().

    Raises:
        ValueError: if there is none of this name; tells which there are.
    """
    canonical = _canonical(name)
    return getattr(importlib.import_module(ALGORITHMS[canonical]), f"{canonical}Config")()


def _canonical(name: str) -> str:
    by_lower = {known.lower(): known for known in ALGORITHMS}
    if isinstance(name, str) and name.lower() in by_lower:
        return by_lower[name.lower()]
    near = nearest(name, ALGORITHMS) if isinstance(name, str) else []
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ValueError(f"there is no algorithm {name!r}.{hint} There are: {', '.join(ALGORITHMS)}.")
