"""Entries of results and settings: as JSON, by "a/b" path, and as the numbers worth a chart."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import msgspec

from rllib.result import AGENT_RESULT_KEYS, stored_names

# Of an array, in files for people.
_MOST_NUMBERS = 256
# Left out of each result: the settings are in params.json, and would be most of every line.
LEFT_OUT = ("config",)
# Key of the numbers of each seed.
SEEDS = "seeds"
_ABSENT = object()


def plain(value):
    """Replaces a value that JSON cannot hold: numpy by its content, other values by their repr."""
    if hasattr(value, "tolist") and not isinstance(value, type):
        return value.tolist()
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if isinstance(value, Real):
        return float(value)
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}:{name}" if name else repr(value)


def for_people(value):
    """The same value for a file that is read by people: arrays of many numbers are described."""
    if isinstance(value, Mapping):
        return {key: for_people(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return [for_people(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: for_people(getattr(value, field.name)) for field in dataclasses.fields(value)}
    text = text_of_array(value)
    return value if text is None else text


def text_of_array(value) -> str | None:
    """Dtype and shape of an array of many numbers; None for anything else."""
    shape = getattr(value, "shape", None)
    is_large = hasattr(value, "tolist") and isinstance(shape, tuple) and math.prod(shape) > _MOST_NUMBERS
    return f"array of {value.dtype} {list(shape)}" if is_large else None


def encode(value) -> bytes:
    """Encodes a value as JSON; NaN and infinity become null."""
    return msgspec.json.encode(value, enc_hook=plain)


def written_number(number: float) -> float | str | None:
    """A number in a form for JSON, which has no infinity: None is -inf, "inf" is inf."""
    return None if number == -math.inf else "inf" if number == math.inf else number


def read_number(written: float | str | None) -> float:
    """The number of which `written_number` has made this."""
    return -math.inf if written is None else float(written)


def flatten(result: Mapping, prefix: str = "") -> Iterator[tuple[str, float | int | str]]:
    """Yields the numbers and strings of a result by "a/b" name; lists and the settings are left out."""
    for key, value in result.items():
        if key in LEFT_OUT and not prefix:
            continue
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}/")
        elif isinstance(value := scalar(value), (int, float, str)):
            yield f"{prefix}{key}", value


def finite_numbers(result: Mapping) -> dict[str, float]:
    """Numbers of a result that are worth a chart, by "a/b" name: no NaN or infinity, no number twice."""
    numbers = {key: value for key, value in flatten(result) if isinstance(value, (int, float)) and is_finite(value)}
    originals = _original if AGENT_RESULT_KEYS.isdisjoint(result) else _original_of_several
    return {key: value for key, value in numbers.items() if key not in _NO_CHART and originals(key) not in numbers}


def is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that no float holds
        return False


# Numbers that say nothing about training.
_NO_CHART = frozenset(("pid", "timestamp", "done"))
# Ray's further name of a number -> the name that is drawn.
_ORIGINALS = {
    "num_env_steps_sampled": "timesteps_total",
    "num_env_steps_sampled_this_iter": "timesteps_this_iter",
    "num_steps_trained_this_iter": "num_env_steps_trained_this_iter",
    "agent_timesteps_total": "timesteps_total",
    "timesteps_since_restore": "timesteps_total",
    "iterations_since_restore": "training_iteration",
    "time_since_restore": "time_total_s",
    "policy_reward_min/default_policy": "episode_reward_min",
    "policy_reward_mean/default_policy": "episode_reward_mean",
    "policy_reward_max/default_policy": "episode_reward_max",
}


def _original(key: str) -> str | None:
    """The key of which this one is a copy, or None."""
    if key.startswith("num_agent_steps_"):  # there is one agent
        key = key.replace("agent", "env", 1)
        return _ORIGINALS.get(key, key)
    parent, _, name = key.partition("/")
    if parent == "counters":
        return name if name.startswith("num_env_steps_") else f"info/{name}"
    return name if parent in ("info", "fault_tolerance") else _ORIGINALS.get(key)


def _original_of_several(key: str) -> str | None:
    """The same where several agents act, so that steps and returns of a policy are not the environment's."""
    is_of_agents = "agent" in key.partition("/")[0] or key.startswith("policy_reward_")
    return None if is_of_agents else _original(key)


def lookup(result: Mapping, key: str, absent=None):
    """Finds the value of a key, an "a/b" path or a name of later versions (result.py); without an entry `absent`."""
    found = absent
    for name in (key, *stored_names(key)):
        value = _at(result, name, absent)
        if value is None:
            found = None
        elif value is not absent:
            return scalar(value)
    return found


def has_entry(result: Mapping, key: str) -> bool:
    """Whether a result has an entry for a key as `lookup` takes it, though it may be null."""
    return lookup(result, key, _ABSENT) is not _ABSENT


def numbers_of_seeds(result: Mapping) -> dict[str, Mapping]:
    """Seed, as text -> its numbers in a result of several seeds (tune/running/seeds.py); {} for other results."""
    seeds = result.get(SEEDS)
    if not isinstance(seeds, Mapping) or not all(isinstance(numbers, Mapping) for numbers in seeds.values()):
        return {}
    return dict(seeds)


def scalar(value):
    """Converts a number of numpy, torch, `fractions` or `decimal` to Python's own; other values stay as they are."""
    if value is None or isinstance(value, (int, float, str)):
        return value
    if getattr(value, "ndim", None) == 0:
        return value.item()
    return float(value) if isinstance(value, (Real, Decimal)) else value


def _at(result: Mapping, key: str, absent):
    try:
        return result[key]
    except KeyError:
        pass
    value = result
    for part in key.split("/"):
        if not isinstance(value, Mapping) or part not in value:
            return absent
        value = value[part]
    return value


def settings_by_path(settings: Mapping, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the settings of a configuration by "a/b" path; an empty mapping is a value."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from settings_by_path(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def is_number(value) -> bool:
    """Whether a value can be compared: an int or float, but neither a bool nor NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
