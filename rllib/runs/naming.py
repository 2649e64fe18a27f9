"""Names of runs, and of groups of runs, by what differs between them.

Every list, legend and table of several runs uses these names. They are short, and no two of one list are the same.
"""

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath, PurePosixPath
from typing import Any

from rllib.runs.trackers import TRACKERS

ALGORITHM, ENV, SEED = "algorithm", "env", "seed"
# Last parts of paths of settings that say nothing about how a run learns.
_NOT_SETTINGS = {SEED, "log_dir", "profile", "__trial_index__"}
_MOST_SETTINGS = 4
_LONGEST_VALUE = 24
# Where shorter ones would be the same.
_LONGEST_WHOLE_VALUE = 60
# `plain` in entries.py writes a value that JSON cannot hold by its repr, whose address is another one in each run.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_MISSING = object()


def file_name(name: str) -> str:
    """A name as that of a file or directory."""
    return re.sub(r"[^\w.+-]+", "_", name)


def learning_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, by "a/b" path, that say how a run learns: without its seed, its directory and its trackers.

    An empty dict gives no path where another run has entries in the same dict, so it is left out.
    """
    return {
        key: value
        for key, value in sorted(settings.items())
        if value != {} and key.rpartition("/")[2] not in _NOT_SETTINGS and key.partition("/")[0] not in TRACKERS
    }


def text_of(value: Any) -> str:
    """Text that is the same for equal values: a resumed run has 1.0 where it had 1 before."""
    return _ADDRESS.sub("", json.dumps(json.loads(json.dumps(value, default=repr), parse_int=float)))


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Paths of the settings that are not the same everywhere, or not everywhere, in the order of their appearance."""
    keys = dict.fromkeys(key for each in settings for key in each)
    return [key for key in keys if len({_text_at(each, key) for each in settings}) > 1]


def names_by_difference(settings: Sequence[Mapping[str, Any]], otherwise: Sequence[str]) -> list[str]:
    """Names by the algorithm and the environment if these differ, and by the settings that tell the rest apart.

    "PPO" and "A2C", "lr=0.1" and "lr=0.01", or "PPO, lr=0.1" and "A2C" where both differ. Of more than four
    settings a name has those that are needed to tell it from the others, and ends in an ellipsis.

    Args:
        settings: "a/b" path -> value of each run or group, with "algorithm" and "env"; see `learning_settings`. A
            "seed" is used where nothing else differs.
        otherwise: names of those that differ in nothing, such as `names_apart` of their directories.

    Returns:
        a name for each, all of them different.
    """
    bare = [{key: value for key, value in each.items() if key != SEED} for each in settings]
    leads = _leads(bare)
    names = list(leads)
    for lead in dict.fromkeys(leads):
        members = [index for index, each in enumerate(leads) if each == lead]
        parts = _parts([bare[index] for index in members])
        for index, own in zip(members, parts):
            names[index] = ", ".join(filter(None, (lead, own)))
    names = _with_seeds(names, settings)
    counts = Counter(names)
    names = [
        name if counts[name] == 1 and name else f"{name} ({other})" if name else other
        for name, other in zip(names, otherwise)
    ]
    return _numbered(names)


def names_apart(places: Sequence[PurePath]) -> list[str]:
    """Names of directories: the shortest end of each one's path that no other one of them has."""
    ends = [place.parts for place in places]
    taken = Counter(end[-count:] for end in set(ends) for count in range(1, len(end) + 1))
    counts = [next((n for n in range(1, len(end)) if taken[end[-n:]] == 1), len(end)) for end in ends]
    return ["/".join(end[-count:]) for end, count in zip(ends, counts)]


def names_of_keys(keys: Iterable[str]) -> dict[str, str]:
    """Path of a setting -> the shortest end of it that no other one has: "lr" of "policies/a/lr" where it is alone."""
    keys = list(keys)
    return dict(zip(keys, names_apart([PurePosixPath(key) for key in keys])))


def short(value: Any) -> str:
    """A value in at most 24 characters."""
    text = _written(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def _written(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return _ADDRESS.sub("", getattr(value, "__name__", None) or str(value))


def _text_at(settings: Mapping[str, Any], key: str) -> str:
    return text_of(settings[key]) if key in settings else ""


def _leads(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The algorithm and the environment, as far as each differs between them."""
    shown = [key for key in (ALGORITHM, ENV) if key in differing(settings)]
    return [" on ".join(short(each[key]) for key in shown if each.get(key) not in (None, "")) for each in settings]


def _parts(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings in which these differ, as "key=value, ..."; "" where there is none."""
    keys = [key for key in differing(settings) if key not in (ALGORITHM, ENV)]
    chosen = keys if len(keys) <= _MOST_SETTINGS else _telling_apart(settings, keys)
    # By all keys that differ, so that "lr" is not read as another "lr" that differs too.
    names = names_of_keys(keys)
    columns = [_values(names[key], [each.get(key, _MISSING) for each in settings]) for key in chosen]
    rest = ["…"] if len(chosen) < len(keys) else []
    return [", ".join([*(column[index] for column in columns), *rest]) for index in range(len(settings))]


def _values(name: str, values: Sequence[Any]) -> list[str]:
    """ "name=value" of each, with more digits and letters where different values would be the same."""
    texts = [short(value) for value in values]
    there = [(text, text_of(value)) for text, value in zip(texts, values) if value is not _MISSING]
    if len({text for text, _ in there}) < len({whole for _, whole in there}):
        texts = [_ADDRESS.sub("", str(value))[:_LONGEST_WHOLE_VALUE] for value in values]
    return [f"no {name}" if value is _MISSING else f"{name}={text}" for text, value in zip(texts, values)]


def _telling_apart(settings: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[str]:
    """The fewest settings that tell all apart, at most four, each chosen for the most that it tells apart."""
    texts = {key: [_text_at(each, key) for each in settings] for key in keys}
    # A setting that all have, and whose values are short, says more.
    order = sorted(keys, key=lambda key: (any(key not in each for each in settings), max(map(len, texts[key]))))
    chosen: list[str] = []
    classes: list[tuple[str, ...]] = [()] * len(settings)
    while len(set(classes)) < len(settings) and len(chosen) < _MOST_SETTINGS:
        finer = {key: [(*own, text) for own, text in zip(classes, texts[key])] for key in order}
        best = max(order, key=lambda key: len(set(finer[key])))
        if len(set(finer[best])) == len(set(classes)):
            break
        classes = finer[best]
        chosen.append(best)
    return [key for key in keys if key in chosen]


def _with_seeds(names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names, with the seed where it tells apart those that have the same name."""
    named = list(names)
    for name in dict.fromkeys(names):
        members = [index for index, each in enumerate(names) if each == name]
        seeds = [settings[index].get(SEED) for index in members]
        if len(members) > 1 and None not in seeds and len(set(map(text_of, seeds))) == len(members):
            for index, seed in zip(members, seeds):
                named[index] = ", ".join(filter(None, (name, f"seed {short(seed)}")))
    return named


def _numbered(names: Sequence[str]) -> list[str]:
    """The names, with a number behind each further one of the same name."""
    numbered: dict[str, None] = {}  # an ordered set
    for name in names:
        numbers = (name if number == 1 else f"{name} #{number}" for number in itertools.count(1))
        numbered[next(each for each in numbers if each not in numbered)] = None
    return list(numbered)
