"""Classes that a checkpoint names, in a program that has defined them already."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rllib.storage.checkpoint import UserCode, read_checkpoint


def user_code_is_loaded(path: Path) -> bool:
    """Whether all code that a checkpoint's network names is defined in this process, so that naming it runs nothing."""
    try:
        files = read_checkpoint(path, only=("config.json",))
    except ValueError:
        return False
    named = list(_named(files.get("config.json", {}).get("model")))
    return bool(named) and all(map(_is_defined, named))


def _named(value: Any) -> Iterator[str]:
    if isinstance(value, UserCode):
        yield value.reference
    elif isinstance(value, dict):
        for each in value.values():
            yield from _named(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _named(each)


def _is_defined(reference: str) -> bool:
    module, _, path = reference.partition(":")
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found is not None
