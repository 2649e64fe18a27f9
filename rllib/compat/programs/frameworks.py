"""Imports that may fail, as Ray's programs write them: `torch, nn = try_import_torch()`."""

import importlib
import importlib.util
from types import ModuleType
from typing import Any


def _tried(name: str, error: bool) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        if error:
            raise
        return None


def try_import_torch(error: bool = False) -> tuple[Any, Any]:
    """(torch, torch.nn); torch is always installed here."""
    torch = importlib.import_module("torch")
    return torch, torch.nn


def try_import_tf(error: bool = False) -> tuple[Any, Any, Any]:
    """(None, None, None): programs take the way that they have for machines without TensorFlow.

    Raises:
        ImportError: with `error`, since there are no networks in TensorFlow here.
    """
    if error:
        raise ImportError("there are no networks in TensorFlow here; write them in torch (docs/guide/networks.md)")
    return None, None, None


def try_import_tfp(error: bool = False) -> Any:
    """None, as `try_import_tf`; raises with `error`."""
    return try_import_tf(error)[0]


def try_import_jax(error: bool = False) -> tuple[Any, Any]:
    """(jax, flax), or None in the places of those that are not installed; with `error` an ImportError."""
    return _tried("jax", error), _tried("flax", error)


def try_import_pyspiel(error: bool = False) -> Any:
    """OpenSpiel's module `pyspiel`, or None where it is not installed; with `error` an ImportError."""
    return _tried("pyspiel", error)


def try_import_open_spiel(error: bool = False) -> Any:
    """The package `open_spiel`, or None where it is not installed; with `error` an ImportError."""
    return _tried("open_spiel", error)
