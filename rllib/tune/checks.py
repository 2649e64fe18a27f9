"""Checks of user input: each refuses a value with its name and the rule that it breaks."""

import math
from collections.abc import Mapping
from datetime import timedelta

from rllib.did_you_mean import did_you_mean
from rllib.result import as_result, stored_names
from rllib.runs.entries import flatten, lookup, scalar

# Parts of results that are missing in the first one, or in some.
_NOT_ALWAYS = ("evaluation", "info", "custom_metrics")


class NotANumberError(ValueError):
    """A trial's result holds no number where one is needed, which is a mistake of that trial alone."""


def check(name: str, value, holds: bool, rule: str) -> None:
    """Raises ValueError for an argument that breaks its rule."""
    if not holds:
        raise ValueError(f"{name} must be {rule}, but got {value!r}")


def check_number(
    name: str, value, rule: str, *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf,
    whole: bool = False,
) -> None:  # fmt: skip
    """Refuses anything but a number within bounds.

    Args:
        name: name of the argument.
        value: the given one.
        rule: in words, as in "> 0".
        least, above, most: bounds, of which `above` is excluded.
        whole: whether it must be a whole number.
    """
    number = scalar(value)
    kinds = int if whole else (int, float)
    is_number = isinstance(number, kinds) and not isinstance(number, bool)
    holds = is_number and number >= least and number <= most and (number > above or above == -math.inf)
    check(name, value, holds, rule if is_number else f"a {'whole ' if whole else ''}number {rule}".rstrip())


def check_mode(mode: str | None) -> str | None:
    """Refuses anything but "max", "min" and None."""
    check("mode", mode, mode in ("max", "min", None), "'max' or 'min'")
    return mode


def check_count(name: str, value) -> None:
    """Refuses anything but a whole number >= 1."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    check(name, value, is_count, "a whole number >= 1")


def seconds(given: float | timedelta, name: str) -> float:
    """The seconds of a number or a timedelta; refuses anything that is not above 0 and finite."""
    value = given.total_seconds() if isinstance(given, timedelta) else given
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    check(name, given, is_number and 0 < value < math.inf, "a number of seconds > 0, or a timedelta")
    return float(value)


def number_in(result: Mapping, key: str, name: str) -> float | None:
    """The number under a result key, "a/b" path or later name; None if it is missing.

    Raises:
        NotANumberError: if the value, called `name` in the message, is no number.
    """
    value = lookup(result, key)
    if value is not None and not isinstance(value, (int, float)):
        raise NotANumberError(f"{name} must be a number in the results, but it is {value!r:.60}")
    return value


def no_number(result: Mapping, metric: str) -> str | None:
    """A sentence for a metric by which trials cannot be compared, as it is a bool or a text; None if it is missing."""
    value = lookup(result, metric)
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return None
    kind = type(value).__name__
    remedy = f"Report int({metric.rpartition('/')[2]})." if isinstance(value, bool) else "Report a number."
    return f"the metric {metric!r} is {value!r:.60} in the results, a {kind} and no number. {remedy}"


def check_key(result: Mapping, key: str, what: str) -> None:
    """Refuses a key that results will never have, with the nearest key that they have.

    Of keys that may be missing in the first result, like `evaluation/...`, only the first part is checked.
    """
    names = (key, *stored_names(key))
    if any(name in as_result(result) or name.partition("/")[0] in _NOT_ALWAYS for name in names):
        return
    known = sorted(name for name in result if "/" not in name and name != "config")
    hint = did_you_mean(key, [*known, *dict(flatten(result))])
    raise ValueError(f"{what}: the results have no {key}.{hint} They have: {', '.join(known)}.")
