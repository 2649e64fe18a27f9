"""Parses values that users type: YAML, in files and in key=value arguments."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import yaml

from rllib.config.conflicts import surrounded
from rllib.did_you_mean import did_you_mean
from rllib.notices import shown
from rllib.remote.url import is_url, place_of
from rllib.result import check_result_key, stored_names
from rllib.storage.foreign_files import WRONG_FORM
from rllib.storage.pickle_scan import refuse_collisions


class LocalPath(click.Path):
    """A path on this machine (Path), which stays relative where it is; "~" is the home directory, file:///PATH is PATH.

    Shells expand "~" at the beginning of a word alone, and so not in --results-dir=~/results.
    """

    def __init__(self, **options):
        super().__init__(path_type=Path, **options)

    def convert(self, value, param, ctx):
        try:
            place = place_of(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        if is_url(place):
            self.fail(f"{shown(value)} is in remote storage, and this takes a path of this machine.", param, ctx)
        return super().convert(place, param, ctx)


class Number(click.FloatRange):
    """A finite number within bounds."""

    def _describe_range(self):
        is_bounded = (self.min, self.max) != (None, None)
        return super()._describe_range() if is_bounded else ""  # click would say x<=None

    def convert(self, value, param, ctx):
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


# Seeds of everything random.
SEED = click.IntRange(min=0)


# Tag of "<<", which gives the keys of other mappings.
_MERGE = "tag:yaml.org,2002:merge"


# How environments and algorithms of one's own are named on the command line.
_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class _Loader(yaml.SafeLoader):
    """Loader with the floats of YAML 1.2: 1e-4 is a number, not a string.

    A key that a mapping has twice is refused, as YAML 1.2 has it, and keys whose hashes are equal.
    """

    def construct_mapping(self, node, deep=False):
        if isinstance(node, yaml.MappingNode):
            own = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE]
            for at, key in enumerate(own):
                if any((key.tag, key.value) == (other.tag, other.value) for other in own[:at]):
                    problem = f"the key {key.value} is there twice; one of its values would be lost"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            self.flatten_mapping(node)  # "<<: *other" gives the keys of others
            refuse_collisions(self.construct_object(key) for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:float"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_FLOAT = r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(f"^({_FLOAT})$"), list("-+0123456789."))


# Largest number of values in a file, with its aliases expanded.
_MOST_VALUES = 1_000_000


def read_file(path: Path) -> Any:
    """Reads a YAML file.

    Raises:
        ValueError: if it is not YAML; the message has line and column.
    """
    try:
        content = yaml.load(path.read_text(), _Loader)
        _count(content, {})
        return content
    except (yaml.YAMLError, *WRONG_FORM) as error:  # "2001-99-99", or brackets without end
        raise ValueError(f"{path} is not YAML: {error}") from error


def _count(value, known: dict[int, int]) -> int:
    """Number of values inside a value with its aliases (*name) expanded, by which a few characters may become millions.

    Args:
        value: what was read.
        known: id of a list or mapping -> its number; 0 while it is counted.

    Raises:
        ValueError: if a value contains itself, or there are too many.
    """
    if not isinstance(value, dict | list):
        return 1
    if id(value) in known:
        if known[id(value)] == 0:
            raise ValueError("an alias refers to a value that contains it")
        return known[id(value)]
    known[id(value)] = 0
    number = 1 + sum(_count(item, known) for item in (value.values() if isinstance(value, dict) else value))
    if number > _MOST_VALUES:
        raise ValueError(f"it represents more than {_MOST_VALUES:,} values")
    known[id(value)] = number
    return number


def parse_value(text: str) -> Any:
    """Parses a value as in a YAML file: 1e-4, true, null, [64, 64], {a: 1}, or a string."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, *WRONG_FORM) as error:
        raise ValueError(f"{text!r:.200} is not a YAML value: {getattr(error, 'problem', error)}") from error


def is_assignment(word: str) -> bool:
    """Whether a word of a command line is `key=value`; a name may have a "=" behind a colon, as godot:port=11008."""
    key, equals, _ = word.partition("=")
    return bool(equals) and ":" not in key


def parse_assignments(assignments: Iterable[str], example: str) -> dict[str, Any]:
    """Parses `a=1 b.c=[2,3]` into {"a": 1, "b": {"c": [2, 3]}}.

    Raises:
        ValueError: for an argument without `=`, or for a part (b.c) of a key (b) that has a value already.
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key:
            raise ValueError(f"settings are given as key=value, like {example}, but got {assignment!r}")
        put_once(values, key.strip(), parse_value(text))
    return nested(values)


def put_once(values: dict[str, Any], key: str, value: Any) -> None:
    """Sets a value that was typed as key=value.

    Raises:
        ValueError: if the key has another value already.
    """
    if key in values and values[key] != value:
        raise ValueError(f"{key} is given twice, as {values[key]!r:.60} and {value!r:.60}. Give it once.")
    values[key] = value


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turns {"a": 1, "b.c": 2} into {"a": 1, "b": {"c": 2}}.

    Raises:
        ValueError: for a part (b.c) of a key (b) that has a value already.
    """
    root: dict[str, Any] = {}
    for key, value in values.items():
        *sections, last = key.split(".")
        place = root
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise ValueError(f"{key}={value!r}: {section} already has a value, so {key} cannot be set")
        if isinstance(place.get(last), dict):  # parts of it stand before it
            place[last] = merged_parts(key, value, place[last])
        elif last in place:
            raise ValueError(f"{key} is given twice, as {place[last]!r:.60} and {value!r:.60}. Give it once.")
        else:
            place[last] = value
    return root


def merged_parts(key: str, value: Any, parts: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping that was typed as a whole, with the parts of it that were typed by themselves.

    Raises:
        ValueError: if it is no mapping, or has one of these parts as well.
    """
    if not isinstance(value, dict) or not value.keys().isdisjoint(parts):
        raise ValueError(f"{key}={value!r:.60}: {key} already has {', '.join(map(str, parts))}. Give each value once.")
    return {**value, **parts}


# Short name for --stop -> result key.
_SHORT_STOP_KEYS = {
    "return": "episode_reward_mean",
    "reward": "episode_reward_mean",
    "steps": "timesteps_total",
    "iterations": "training_iteration",
    "time": "time_total_s",
}
# Result keys with the number of all steps.
_ALL_STEPS = ("timesteps_total", "num_env_steps_sampled", "agent_timesteps_total")


def parse_stop(words: Iterable[str]) -> dict[str, Any]:
    """Parses values of --stop, `steps=1e5` or Ray's '{"timesteps_total": 100000}', as result key -> threshold.

    Raises:
        ValueError: for anything else.
    """
    thresholds: dict[str, Any] = {}
    for word in words:
        if word.lstrip().startswith("{"):
            more = parse_mapping(word, "--stop")
        else:
            more = parse_assignments([word], "--stop episode_reward_mean=475")
        for key, threshold in more.items():
            put_once(thresholds, key, threshold)
    return thresholds


@contextmanager
def hint_at_stop(config: Mapping[str, Any]) -> Iterator[None]:
    """Adds to a refusal of a setting that is the name of a stop criterion how one gives several criteria."""
    try:
        yield
    except (ValueError, TypeError) as error:
        meant = [f"--stop {key}={config[key]}" for key in config if key in (*_SHORT_STOP_KEYS, *_ALL_STEPS)]
        if not meant or getattr(error, "__notes__", None):
            raise
        raise surrounded(error, after=f"Each criterion needs its own --stop: {' '.join(meant)}.") from error


@contextmanager
def hint_at_code(config: Mapping[str, Any]) -> Iterator[None]:
    """Adds to a refusal of settings how one gives classes and functions, where MODULE:NAME was typed for one."""
    try:
        yield
    except (ValueError, TypeError) as error:
        texts = [text for text in _texts(config) if _CODE.fullmatch(text) and text in str(error)]
        if not texts or getattr(error, "__notes__", None):
            raise
        hint = (
            f"A class or function of yours, such as {texts[0]}, is given in a Python file that has `config`, and may "
            "have `stop`: rllib train -f FILE.py."
        )
        raise surrounded(error, after=hint) from error


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


def stop_keys(thresholds: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces short names in thresholds by result keys.

    Raises:
        ValueError: for a key that no result has, with the nearest; callbacks, if the config has any, may add keys.
    """
    full: dict[str, Any] = {}
    for key, threshold in thresholds.items():
        put_once(full, _SHORT_STOP_KEYS.get(key, key), threshold)
    if not any(config.get(name) for name in ("callbacks", "callbacks_class", "callback_functions")):
        for key in full:
            check_result_key(key, "stop", tuple(_SHORT_STOP_KEYS))
    return full


def merged_stops(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merges mappings of thresholds: a key of `above` replaces the same metric in `below`, under any of its names."""
    replaced = {stored for key in above for stored in _stored(key)}
    return {**{key: value for key, value in below.items() if replaced.isdisjoint(_stored(key))}, **above}


def _stored(key: str) -> list[str]:
    """Keys at which results store the number of a stop key of any name."""
    full = _SHORT_STOP_KEYS.get(key, key)
    return ["timesteps_total" if name in _ALL_STEPS else name for name in stored_names(full) or [full]]


def iteration_goal(thresholds: Mapping[str, float]) -> dict[str, float]:
    """The thresholds at which an iteration ends before its minima are reached: `Algorithm.goal`."""
    goal: dict[str, float] = {}
    for key, threshold in thresholds.items():
        for name, stored in (("timesteps", "timesteps_total"), ("episode_reward_mean", "episode_reward_mean")):
            if stored in _stored(key):
                goal[name] = min(threshold, goal.get(name, threshold))
    return goal


def parse_mapping(text: str, option: str) -> dict[str, Any]:
    """Parses a mapping in JSON or YAML: '{"lr": 0.001}'.

    Raises:
        ValueError: if it is anything else.
    """
    value = parse_value(text)
    if not isinstance(value, dict):
        raise ValueError(f"""{option} takes a mapping like '{{"lr": 0.001}}', but got {text!r:.60}""")
    return value


def merged(below: Mapping, above: Mapping) -> dict:
    """Merges `above` over `below`: mappings are merged, all other values replaced."""
    both = dict(below)
    for key, value in above.items():
        nested = isinstance(value, Mapping) and isinstance(both.get(key), Mapping)
        both[key] = merged(both[key], value) if nested else value
    return both


def refuse_unknown(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raises ValueError for an unknown key, naming the nearest known one."""
    known = list(known)
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known, repr, otherwise=f"Known are: {', '.join(known)}.")
            raise ValueError(f"{where}: unknown key {key!r}.{hint}")
