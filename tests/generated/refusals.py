"""Refusals of settings, and what to try after one."""

import contextlib
import traceback
from collections.abc import Mapping
from typing import Any

from rllib.algorithms.base.registry import register_typed_algorithm
from rllib.config.conflicts import Unfit
from tests.generated.comparisons import HOME
from tests.generated.draw import Draw


def mistakes_of(error: Exception) -> tuple:
    """The mistakes that a refusal has as data."""
    return (error.mistake,) if isinstance(error, Unfit) else getattr(error, "mistakes", ())


def is_refusal(error: Exception, stage: str) -> bool:
    """Whether an exception says that settings are wrong, rather than that the library is: a rule raised it."""
    if mistakes_of(error):
        return True
    if not isinstance(error, (ValueError, TypeError)) or stage not in ("configure", "build"):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1].filename.startswith(HOME[0]) and (frames[-1].line or "").lstrip().startswith(
        ("raise ", 'f"', '"')
    )


def wrong_advice(error: Exception, algorithm: str) -> str | None:
    """What is wrong with a refusal's advice: it names as one to take instead the algorithm that is refused."""
    advice = [mistake.advice for mistake in mistakes_of(error) if f"such as {algorithm}" in (mistake.advice or "")]
    return f"{advice[0]} is told of {algorithm}" if advice else None


def wrong_owner(error: Exception, policy_id: str, own: Mapping[str, Any]) -> str | None:
    """What is wrong with the refusal of a policy's own settings: it does not say whose they are."""
    named = {name for mistake in mistakes_of(error) for name in mistake.names} & own.keys()
    if not named or repr(policy_id) in str(error):
        return None
    return f"{error} does not name {policy_id!r}, whose are {sorted(named)}"


def taken_slips(typed: str) -> list[str]:
    """Words like `typed`, "module:Class", of what is no algorithm, or only a base of some, that are not refused."""
    words, taken = [f"{typed.partition(':')[0]}:{name}" for name in ("Algorithm", "DefaultCallbacks", "Absent")], []
    for word in words:
        with contextlib.suppress(ValueError):
            register_typed_algorithm(word)
            taken.append(word)
    return taken


# Never left out: without them a run is another one, or takes minutes.
_KEPT = {"seed", "min_time_s_per_iteration", "noise_size"}


def without_named(draw: Draw, message: str) -> Draw | None:
    """The draw without a setting that a message names; None where it names none of them."""
    settings = draw["settings"]
    named = [name for name in reversed(settings) if name in message and name not in _KEPT]
    model = dict(settings.get("model", {}))
    in_model = [key for key in reversed(model) if key in message]
    if in_model:
        model.pop(in_model[0])
        return {**draw, "settings": {**settings, "model": model}}
    if not named:
        return None
    return {**draw, "settings": {name: value for name, value in settings.items() if name != named[0]}}


def names_in(remedy: Mapping[str, Any]) -> set:
    """Names of the settings, and of their keys where these have several, that a remedy changes."""
    return {
        (name, key) if isinstance(value, Mapping) else name
        for name, value in remedy.items()
        for key in (value if isinstance(value, Mapping) and value else [""])
    }


def plain(remedy: Mapping[str, Any]) -> dict:
    return {
        name: value if isinstance(value, bool | int | float | str | None) else repr(value)
        for name, value in remedy.items()
    }
