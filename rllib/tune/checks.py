"""Checks of what users give: each refuses a value with its name and the rule that it breaks."""

import math
from datetime import timedelta


def check(name: str, value, holds: bool, rule: str) -> None:
    """Raises ValueError for an argument that breaks its rule."""
    if not holds:
        raise ValueError(f"{name} must be {rule}, but got {value!r}")


def check_mode(mode: str | None) -> str | None:
    """Refuses anything but "max", "min" and None."""
    check("mode", mode, mode in ("max", "min", None), "'max' or 'min'")
    return mode


def check_count(name: str, value) -> None:
    """Refuses anything but a whole number >= 1."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    check(name, value, is_count, "a whole number >= 1")


def seconds(given: float | timedelta, name: str) -> float:
    """The seconds of a number or a timedelta; refuses anything that is not above 0, or infinite."""
    value = given.total_seconds() if isinstance(given, timedelta) else given
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    check(name, given, is_number and 0 < value < math.inf, "a number of seconds > 0, or a timedelta")
    return float(value)
