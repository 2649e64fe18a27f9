"""Values of a journal: data as JSON, and code next to it, which is loaded on request only.

| record                                          | value                                                       |
|-------------------------------------------------|-------------------------------------------------------------|
| {"config": ...}                                 | plain, as JSON gives it back                                |
| {"config": ..., "exact": ..., "pickle": {...}}  | other: as people read it, as encoding.py writes it, and     |
|                                                 | {place: {"name", "data"}} of each object that was pickled   |

The library's own domains, schedulers, searchers and stoppers are data: their class's name and attributes.
"""

import base64
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import cloudpickle

from rllib.errors import DamagedFileError
from rllib.runs.entries import for_people, plain, text_of_array
from rllib.storage.encoding import decode, encode, import_path, importable_path
from rllib.storage.foreign_files import WRONG_FORM, printable
from rllib.storage.plain_values import enum_path, written_plain
from rllib.storage.unpickling import unpickled
from rllib.tune import schedulers
from rllib.tune import search as searchers
from rllib.tune.experiment import stoppers
from rllib.tune.experiment.seed_runs import RunCheckpoints, SeedDirectories
from rllib.tune.experiment.spec import CheckpointConfig, FailureConfig
from rllib.tune.search import domains, wrappers
from rllib.tune.search.domains import Choice, Domain
from rllib.tune.search.space import is_grid
from rllib.tune.trainables.resources import PlacementGroupFactory

_PLAIN = (str, int, float, bool, type(None))
_OWN, _STATE = "rllib.tune", "attributes"
# Collections in their attributes, and functions that give their items.
_COLLECTIONS = {set: iter, Counter: Counter.items}
# Written name -> class; a journal can make no other objects.
_CLASSES = {
    cls.__name__: cls
    for cls in (
        *(each for module in (domains, schedulers, searchers, stoppers, wrappers) for each in vars(module).values()),
        CheckpointConfig,
        FailureConfig,
        RunCheckpoints,
        SeedDirectories,
        PlacementGroupFactory,
    )
    if isinstance(cls, type) and cls.__module__.startswith("rllib.tune.")
}


def written(value) -> dict[str, Any]:
    """A value as items of a record.

    Raises:
        any error: if it holds something that cannot be pickled.
    """
    if is_plain(value):
        return {"config": value}
    code: dict[str, Any] = {}
    exact = encode(_as_data(value), "", code)
    entries = {
        place: {"name": _name(each), "data": base64.b64encode(cloudpickle.dumps(each)).decode()}
        for place, each in code.items()
    }
    return {"config": for_people(value), "exact": exact, **({"pickle": entries} if entries else {})}


def code_in(record: Mapping[str, Any] | None) -> list[str]:
    """Names of the code that a record of `written` holds, each with its place if it was pickled."""
    if record is None or "exact" not in record:
        return []
    pickled = [_described(place, entry["name"]) for place, entry in record.get("pickle", {}).items()]
    return [*_imports_in(record["exact"]), *pickled]


def _described(place: str, name: str) -> str:
    return f"{place} ({name})" if place else name


def _imports_in(data) -> Iterator[str]:
    if isinstance(data, Mapping):
        if isinstance(path := data.get("$import"), str):
            yield path
        data = data.values()
    elif not isinstance(data, list):
        return
    for item in data:
        yield from _imports_in(item)


class ValueReader:
    """Reads the values of records; called with a record.

    Args:
        load_user_code: import and unpickle the code that records hold: it is run.
        given: search space of the program that continues its experiment. Its objects replace code in the records, by
            their place in the space or by their name.

    Attributes:
        load_user_code, given: see above.

    Raises:
        ValueError: (by a call) if a record holds code that is neither given nor to be loaded.
        DamagedFileError: (by a call) if `written` cannot have returned the record.
    """

    def __init__(self, load_user_code: bool = False, given=None):
        self.load_user_code, self.given = load_user_code, given
        self._by_place: dict[str, list] = defaultdict(list)
        self._by_name: dict[str, list] = defaultdict(list)
        for place, value in _code_in(given, ""):
            self._by_place[place].append(value)
            self._by_name[_name(value)].append(value)

    def __call__(self, record: Mapping[str, Any]):
        if "exact" not in record:
            if not isinstance(record.get("pickle"), str):
                return record["config"]
            if not self.load_user_code:  # of an earlier version, as a whole
                raise code_not_loaded("a configuration", "pickled")
            return unpickled(base64.b64decode(record["pickle"]))
        pickled = record.get("pickle", {})

        def load(kind: str, reference: str):
            entry = pickled[reference] if kind == "pickle" else {"name": reference}
            if (own := self._own(reference if kind == "pickle" else "", entry["name"])) is not None:
                return own
            if not self.load_user_code:
                raise code_not_loaded(reference, entry["name"])
            return import_path(reference) if kind == "import" else unpickled(base64.b64decode(entry["data"]))

        try:
            return _from_data(decode(record["exact"], load))
        except _CodeNotLoadedError:
            raise
        except WRONG_FORM as error:
            if self.load_user_code:  # it is trusted, and the user's own code may have raised
                raise
            raise DamagedFileError(f"a value cannot be read ({type(error).__name__}: {error})") from error

    def _own(self, place: str, name: str):
        """The given object at this place, or of this name; None if there is none, or more than one."""
        here = self._by_place.get(place, [])
        named = [value for value in here or self._by_name.get(name, []) if _name(value) == name]
        for found in (here, named):
            if len({id(value) for value in found}) == 1:
                return found[0]
        return None


class _CodeNotLoadedError(ValueError):
    """A record holds the user's code."""


def code_not_loaded(place: str, name: str) -> ValueError:
    """The error for the user's code at some place in an experiment, which is not loaded."""
    return _CodeNotLoadedError(
        f"the experiment holds code, which is loaded only on request: {printable(_described(place, name))}. If "
        "you trust where it comes from, use load_user_code=True (in tune.run or Tuner.restore), or rllib tune "
        "--load-user-code; or give it again, in config, param_space, tune_config or run_config."
    )


def is_plain(value) -> bool:
    """Whether JSON gives back exactly this value."""
    if type(value) is dict:
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    if type(value) is list:
        return all(map(is_plain, value))
    return type(value) in _PLAIN and value == value and value not in (float("inf"), float("-inf"))


def _name(value) -> str:
    """Name of an object, by which one of another process is found: its class's, if its repr has its address."""
    if type(value).__repr__ is object.__repr__ and not hasattr(value, "__qualname__"):
        return importable_path(type(value)) or type(value).__qualname__
    return importable_path(value) or text_of_array(value) or str(plain(value))


def _as_data(value):
    """The value with the library's own objects as dicts."""
    if isinstance(value, dict) and type(value) not in _COLLECTIONS:
        return {key: _as_data(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_as_data, value))
    if type(value) in _COLLECTIONS and _is_exact(value):
        return {_OWN: type(value).__name__, _STATE: [_as_data(item) for item in _COLLECTIONS[type(value)](value)]}
    if _is_data(value):
        return {_OWN: type(value).__name__, _STATE: _as_data(vars(value))}
    return value


def _is_data(value) -> bool:
    """Whether an object of the library's is the same after it was written and read."""
    is_own = _CLASSES.get(type(value).__name__) is type(value)
    return is_own and _is_exact(vars(value)) and not _outside(type(value), vars(value))


def _outside(cls: type, state: Mapping[str, Any]) -> list[str]:
    """Attributes that name what outlives an experiment, such as a study's file: no journal may choose it."""
    return [name for name in getattr(cls, "_shared", ()) if state.get(name) is not None]


def _is_exact(value) -> bool:
    """Whether an attribute is the same after it was written and read; a random generator is not, for instance."""
    if type(value) is dict:
        return all(map(_is_exact, (*value.keys(), *value.values())))
    if type(value) in (list, tuple, *_COLLECTIONS):
        return all(map(_is_exact, _COLLECTIONS.get(type(value), iter)(value)))
    if type(value) in _PLAIN or callable(value) or _is_data(value):
        return True
    return enum_path(value) is not None or written_plain(value) is not None


def _from_data(value):
    """The value that `_as_data` took apart."""
    if isinstance(value, dict):
        value = {key: _from_data(item) for key, item in value.items()}
        if value.keys() != {_OWN, _STATE}:
            return value
        name, state = value[_OWN], value[_STATE]
        for collection in _COLLECTIONS:
            if name == collection.__name__:
                return collection(dict(state) if issubclass(collection, dict) else state)
        if outside := _outside(_CLASSES[name], state):
            raise ValueError(f"{name} with {', '.join(outside)}")
        made = object.__new__(_CLASSES[name])
        # With __setstate__ a class makes an object whole again, or refuses a state that its constructor cannot make.
        getattr(made, "__setstate__", vars(made).update)(state)
        return made
    return type(value)(map(_from_data, value)) if type(value) in (list, tuple) else value


def _code_in(node, place: str) -> Iterator[tuple[str, Any]]:
    """(place, object) of everything in a space that is no data; a domain's options have the place of the domain."""
    if is_grid(node) or isinstance(node, Choice):
        for option in node["grid_search"] if is_grid(node) else node.values:
            yield from _code_in(option, place)
    elif isinstance(node, Mapping | list | tuple):
        for key, item in node.items() if isinstance(node, Mapping) else enumerate(node):
            yield from _code_in(item, f"{place}.{key}" if place else str(key))
    elif not isinstance(node, (*_PLAIN, Domain)):
        yield place, node
