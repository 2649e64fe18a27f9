"""The engine of a cluster: Ray runs the tasks and actors, stores the objects, and places them on its nodes.

connection   joining a cluster, or starting one        engine       the API functions
worker       what runs in Ray's worker processes       options      options of tasks, actors and calls as Ray's
cluster      its resources, and which node to take     placement    groups and strategies
streams      the values of generators                  failures     errors of Ray as our own
values       what Ray stores: pickled values, references and ids of actors
"""

from __future__ import annotations

import importlib.metadata
import re

from ..base import Engine, EngineConfig

OLDEST = (2, 40)


def start(config: EngineConfig) -> Engine:
    """Joins or starts a cluster. See base.Engine, and connection.start.

    Raises:
        ImportError: Ray is not installed, or too old.
    """
    check_installed()
    from .connection import start  # Ray is an optional extra

    return start(config)


def check_installed() -> None:
    """Refuses to continue without Ray.

    Raises:
        ImportError: it is not installed, or too old.
    """
    wanted = f"ray>={OLDEST[0]}.{OLDEST[1]}"
    needed = f"engine='ray' needs {wanted}"
    try:
        version = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(f"{needed}, which is not installed: pip install '{wanted}'") from None
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST:
        raise ImportError(f"{needed}, and {version} is installed: pip install '{wanted}'")
