"""Packages that some formats need, imported when a file of theirs is read."""

import importlib
from types import ModuleType

from rllib.extras import install_hint


def package(name: str, purpose: str) -> ModuleType:
    """The package, or a module of it.

    Args:
        name: "pyarrow.parquet".
        purpose: what needs it, for the message: "data.parquet".

    Raises:
        ImportError: if it is not installed, with what installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        top = name.partition(".")[0]
        raise ImportError(f"{purpose} needs {top} ({error}): pip install {top}, or {install_hint('offline')}") from None
