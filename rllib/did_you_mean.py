"""The known name that a misspelt one looks like, for messages."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that look most like `name`, the nearest first."""
    by_lower = {known_name.lower(): known_name for known_name in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    return [by_lower[match] for match in matches]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence with the known name that looks most like `name`, with a space before it; "" if none does."""
    near = nearest(name, known)
    return f" Did you mean {near[0]}?" if near else ""
