"""Small helpers of Ray that its programs import: marks of classes and functions, and operations on dicts."""

import logging
import random
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, TypeVar

logger = logging.getLogger("rllib")

T = TypeVar("T")

DEPRECATED_VALUE = -1

_logged: set = set()


class EnvError(Exception):
    """Raised by programs whose environment does what it must not."""


class NotProvided:
    """Default of an argument that was not given, where None is a valid value."""


def unchanged(marked: T) -> T:
    """Returns what it is given: a mark without an effect."""
    return marked


def _mark(*arguments, **options):
    """A mark without an effect, with or without arguments: @Deprecated and @Deprecated(new="f")."""
    return arguments[0] if len(arguments) == 1 and not options and callable(arguments[0]) else unchanged


DeveloperAPI = Deprecated = ExperimentalAPI = OldAPIStack = PublicAPI = _mark
OverrideToImplementCustomLogic = OverrideToImplementCustomLogic_CallToSuperRecommended = _mark


def override(parent_cls: Any) -> Callable[[T], T]:
    """Mark of a method that overrides one of its class's base, without a check that the base has it."""
    return unchanged


def log_once(key: Any) -> bool:
    """Whether this is the first call with this key in the process."""
    is_first = key not in _logged
    _logged.add(key)
    return is_first


def deprecation_warning(old: str, new: str | None = None, *, help: str | None = None, error: Any = None) -> None:
    """Logs that a name of the program's is out of date.

    Args:
        old, new, help: the name, the one to use instead, and a sentence.
        error: True or a class of exceptions: raised instead of the warning.

    Raises:
        ValueError: as `error` says, or its class.
    """
    text = f"{old} is out of date" + (f": use {new}" if new else "") + (f". {help}" if help else "")
    if error:
        raise error(text) if isinstance(error, type) else ValueError(text)
    logger.warning(text)


def merge_dicts(first: Mapping, second: Mapping) -> dict:
    """A new dict of both, nested ones merged; values of the second go first."""
    merged = dict(first)
    for key, value in second.items():
        is_nested = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge_dicts(merged[key], value) if is_nested else value
    return merged


def deep_update(original: MutableMapping, new_dict: Mapping, *args, **kwargs) -> MutableMapping:
    """Merges a dict into another, in place, and returns it."""
    original.update(merge_dicts(original, new_dict))
    return original


def flatten_dict(nested: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """One level: {"a": {"b": 1}} becomes {"a/b": 1}."""
    flat = {}
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            flat |= {f"{key}{delimiter}{inner}": found for inner, found in flatten_dict(value, delimiter).items()}
        else:
            flat[key] = value
    return flat


def force_list(elements: Any = None, to_tuple: bool = False) -> list | tuple:
    """A list (or tuple) of what is given: [] for None, [x] for one element."""
    kind = tuple if to_tuple else list
    if elements is None:
        return kind()
    return kind(elements) if isinstance(elements, (list, tuple, set)) else kind([elements])


def update_global_seed_if_necessary(framework: str | None = None, seed: int | None = None) -> None:
    """Seeds `random`, numpy and torch, those that have been imported; nothing without a seed."""
    if seed is None:
        return
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)
