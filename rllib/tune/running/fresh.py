"""Schedulers, searchers and stoppers that are given to several experiments: each experiment begins with a fresh one.

Such an object holds the trials that it has seen, by which those of a further experiment would be compared, counted and
ended. Its attributes are copied before its first experiment, and set back to that copy before each further one. The
state that `Searcher.restore` has read counts as a first one.
"""

import copy
import types
import weakref
from collections.abc import Iterator
from typing import Any

from rllib.tune.experiment.spec import ExperimentSpec

_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, type)


class _Use:
    """Record of an object that an experiment has used.

    Attributes:
        before: its attributes before the first experiment; None: they could not be copied, for `problem`.
        user: reference of the newest experiment's runner, whose `is_running` says whether the object is in use.
    """

    def __init__(self, part, before: dict[str, Any] | None, problem: Exception | None):
        self.before, self.problem = before, problem
        self.user = None
        identity = id(part)
        self._alive = weakref.ref(part, lambda _: _uses.pop(identity, None))


_uses: dict[int, _Use] = {}


def begin_anew(spec: ExperimentSpec) -> None:
    """Sets the searcher, scheduler and stoppers of an experiment back to what they were before they were used.

    Raises:
        ValueError: for an object that an experiment uses at present; for one that was used, and could not be copied.
    """
    parts = list(_parts(spec))
    for setting, part in parts:
        use, name = _uses.get(id(part)), type(part).__name__
        if use is not None and use.user is not None and (user := use.user()) is not None and user.is_running:
            raise ValueError(f"{setting}: an experiment that runs is using this {name}. Make one for each experiment.")
        if use is not None and use.before is None and use.user is not None:
            raise ValueError(
                f"{setting}: this {name} was used by another experiment, whose trials it holds, and cannot be set back "
                f"since it could not be copied before ({use.problem!s:.200}). Make a new one for each experiment."
            )
    for _, part in parts:
        is_restored = vars(part).pop("_is_restored", False)
        use = _uses.get(id(part))
        if use is not None and use.before is not None and not is_restored:
            attributes = _copied(part, use.before)
            vars(part).clear()
            vars(part).update(attributes)
            continue
        try:
            _uses[id(part)] = _Use(part, _copied(part, vars(part)), None)
        except Exception as error:  # any error of a user's object
            _uses[id(part)] = _Use(part, None, error)


def belong_to(spec: ExperimentSpec, runner) -> None:
    """Notes that an experiment's searcher, scheduler and stoppers are in use while `runner.is_running`."""
    for _, part in _parts(spec):
        _uses[id(part)].user = weakref.ref(runner)


def _parts(spec: ExperimentSpec) -> Iterator[tuple[str, Any]]:
    """(setting, object) of all that may hold an experiment's trials, also within others."""
    stops = spec.stop if isinstance(spec.stop, list | tuple) else [spec.stop]
    given = [("search_alg", spec.search_alg), ("scheduler", spec.scheduler), *(("stop", stop) for stop in stops)]
    while given:
        setting, part = given.pop(0)
        holds_state = hasattr(part, "__dict__") and hasattr(part, "__weakref__")
        if holds_state and not isinstance(part, (str, dict, *_FUNCTIONS)):
            yield setting, part
            given += [(setting, inner) for inner in _within(part)]


def _within(part) -> list:
    """The searcher that one wraps, or the stoppers and the function of a stopper."""
    inner = [vars(part).get("searcher"), vars(part).get("_function"), *(vars(part).get("_stoppers") or ())]
    return [each for each in inner if each is not None]


def _copied(part, attributes: dict[str, Any]) -> dict[str, Any]:
    """A deep copy of attributes, but for modules, functions, objects within that are set back by themselves, and what
    the class names in `_shared`.
    """
    shared = [attributes.get(name) for name in getattr(type(part), "_shared", ())]
    kept = [value for value in attributes.values() if callable(value) or isinstance(value, types.ModuleType)]
    return copy.deepcopy(attributes, {id(each): each for each in [part, *kept, *shared, *_within(part)]})
