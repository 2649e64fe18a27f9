"""States of objects that are saved by the names of their classes."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def paired(objects: Iterable[T], saved: Iterable[Sequence]) -> tuple[list[tuple[T, Any]], list[Sequence]]:
    """Gives each object the first saved state of its class that no object before it has.

    Args:
        objects: of any classes.
        saved: (name of a class, state), in the order of the objects that were saved.

    Returns:
        (object, state) of those that have one, and what is left of `saved`.
    """
    pairs, left = [], list(saved)
    for each in objects:
        own = next((one for one in left if one[0] == type(each).__name__), None)
        if own is not None:
            left.remove(own)
            pairs.append((each, own[1]))
    return pairs, left
