"""Modules that worker processes import before they load a function or class of this driver: import hooks, above all."""

from __future__ import annotations

import importlib

_names: list[str] = []


def add(module: str) -> None:
    """Adds a module by its name. Functions and classes that are sent from now on bring it along, and so do workers'."""
    if module not in _names:
        _names.append(module)


def names() -> list[str]:
    """The modules that were added, in their order."""
    return list(_names)


def load(modules: list[str]) -> None:
    """Imports modules that a driver has added, and adds them here: for functions that this process sends in turn."""
    for name in modules:
        add(name)
        importlib.import_module(name)
