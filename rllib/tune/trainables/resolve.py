"""Turns a name, class or function, as `tune.run` takes it, into a class Trainable."""

import contextlib
import functools
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.registry import absent, algorithm_names, algorithm_problem, get_algorithm_class
from rllib.did_you_mean import did_you_mean
from rllib.tune.search.space import options_of
from rllib.tune.trainables.resources import Resources
from rllib.tune.trainables.session import StatusReporter
from rllib.tune.trainables.trainable import AlgorithmTrainable, FunctionTrainable, Trainable

_registered: dict[str, Any] = {}


@dataclass(frozen=True)
class Resolved:
    """A trainable, ready for its trials.

    Attributes:
        name: name for people and files.
        cls: class derived from Trainable; pickled once, for all trials.
        config: its own settings, which the experiment's replace.
        resources: of `with_resources`: a dict, PlacementGroupFactory or function of the config; None: by default.
    """

    name: str
    cls: type[Trainable]
    config: dict[str, Any]
    resources: Any = None

    @property
    def is_function(self) -> bool:
        """Whether it is a function, which saves its own checkpoints."""
        return issubclass(self.cls, FunctionTrainable)

    def request(self, config: dict[str, Any]) -> Resources:
        """Resources of a trial with this configuration."""
        wanted = self.resources(config) if callable(self.resources) else self.resources
        return Resources.of(self.cls.default_resource_request(config) if wanted is None else wanted)


def register_trainable(name: str, trainable) -> None:
    """Gives a class or function a name that `tune.run` and `run_experiments` take."""
    resolve_trainable(trainable)
    _registered[name] = trainable


def get_trainable_cls(name: str) -> Any:
    """The class of an algorithm, or the class or function that `register_trainable` was given.

    Raises:
        ValueError: for an unknown name, with the nearest.
    """
    if name in _registered:
        return _registered[name]
    return _by_name(name).cls.algorithm_class


def resolve_trainable(given) -> Resolved:
    """Resolves a name, an Algorithm class, an AlgorithmConfig, a class Trainable or a function.

    Raises:
        ValueError: for an unknown name, with the nearest.
        TypeError: for anything that cannot be run.
    """
    if isinstance(given, Resolved):
        return given
    if isinstance(given, _With):
        return replace(resolve_trainable(given.trainable), resources=given.resources)
    if isinstance(given, str):
        return _by_name(given)
    if isinstance(given, AlgorithmConfig):
        algorithm = given._algorithm_class()
        return Resolved(algorithm.__name__, _of_algorithm(algorithm), given.changes())
    if isinstance(given, type):
        if issubclass(given, Trainable):
            return Resolved(given.__name__, given, {})
        if (problem := algorithm_problem(given)) is None:
            return Resolved(given.__name__, _of_algorithm(given), {})
        raise TypeError(f"the class {given.__name__} cannot be run, since it {problem}. Derive it from tune.Trainable.")
    if callable(given):
        return Resolved(_name_of(given), wrap_function(given), {})
    raise TypeError(
        f"a trainable is the name of an algorithm, an Algorithm class or config, a class derived from tune.Trainable, "
        f"or a function of the config, but got {given!r:.80}"
    )


def _by_name(name: str) -> Resolved:
    if name in _registered:
        return replace(resolve_trainable(_registered[name]), name=name)
    try:
        algorithm = get_algorithm_class(name)
    except ValueError:
        if absent(name) or ":" in name:
            raise
        known = [*_registered, *algorithm_names()]
        raise ValueError(
            f"there is no trainable {name!r}.{did_you_mean(name, known, repr)} There are: {', '.join(known)}; "
            "tune.register_trainable adds more."
        ) from None
    return Resolved(algorithm.__name__, _of_algorithm(algorithm), {})


def _of_algorithm(algorithm: type) -> type[Trainable]:
    return type(algorithm.__name__, (AlgorithmTrainable,), {"algorithm_class": algorithm})


def wrap_function(function) -> type[FunctionTrainable]:
    """Makes a class Trainable that runs the function.

    Its parameters decide its arguments: `f(config)`, `f(config, reporter)`, `f(config, checkpoint_dir=None)`, `f()`.

    Raises:
        TypeError: for a signature that is none of these.
    """
    call = _caller(function)
    return type(_name_of(function), (FunctionTrainable,), {"function": staticmethod(call)})


def _caller(function):
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of C
        return functools.partial(_call, function, True, False, False, {})
    named = {parameter.name: parameter for parameter in parameters}
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [p.name for p in named.values() if p.kind in by_position and p.default is p.empty]
    wants_checkpoint = "checkpoint_dir" in named
    wants_reporter = "reporter" in named or len([name for name in positional if name != "checkpoint_dir"]) == 2
    needed = [name for name in positional if name not in ("checkpoint_dir", "reporter")]
    keyword = [p.name for p in named.values() if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    keyword = [name for name in keyword if name not in ("checkpoint_dir", "reporter")]
    if len(needed) > (1 if "reporter" in named else 2) or keyword:
        more = ", ".join([*needed[1:], *keyword])
        raise TypeError(
            f"{_name_of(function)} must take (config), (config, reporter) or (config, checkpoint_dir=None), but it "
            f"also takes {more}. Use tune.with_parameters({_name_of(function)}, ...) for them."
        )
    takes_config = bool(needed) or any(p.kind is p.VAR_POSITIONAL for p in named.values()) or "config" in named
    # The function's own default holds until there is a checkpoint.
    must_be_given = wants_checkpoint and named["checkpoint_dir"].default is inspect.Parameter.empty
    without = {"checkpoint_dir": None} if must_be_given else {}
    return functools.partial(_call, function, takes_config, wants_reporter, wants_checkpoint, without)


def _call(function, takes_config, wants_reporter, wants_checkpoint, without_checkpoint, config, restored):
    arguments = [config] if takes_config else []
    if wants_reporter:
        arguments.append(StatusReporter())
    more = {"checkpoint_dir": restored} if wants_checkpoint and restored is not None else without_checkpoint
    return function(*arguments, **more)


def with_parameters(trainable, **parameters):
    """Adds arguments to a trainable, such as a data set, which are sent once for all trials.

    A function gets them by name; a class in `setup(config, **parameters)`. A trainable of `with_resources` keeps its
    resources.
    """
    if isinstance(trainable, _With):
        return with_resources(with_parameters(trainable.trainable, **parameters), trainable.resources)
    if isinstance(trainable, type) and issubclass(trainable, Trainable):

        class WithParameters(trainable):
            def setup(self, config: dict[str, Any]) -> None:
                trainable.setup(self, config, **parameters)

        WithParameters.__name__ = WithParameters.__qualname__ = trainable.__name__
        return WithParameters
    if isinstance(trainable, (str, type)) or not callable(trainable):
        raise TypeError(f"with_parameters takes a function or a class of tune.Trainable, but got {trainable!r:.80}")
    bound = functools.partial(trainable, **parameters)
    functools.update_wrapper(bound, trainable)
    del bound.__wrapped__  # its signature would hide that these parameters are given
    return bound


@dataclass(frozen=True)
class _With:
    trainable: Any
    resources: Any

    @property
    def __name__(self) -> str:
        return resolve_trainable(self.trainable).name


def with_resources(trainable, resources):
    """Sets the resources that each trial of a trainable needs.

    Args:
        resources: {"cpu": 2, "gpu": 1}, a PlacementGroupFactory, or a function of the config that gives one of them.
    """
    if not callable(resources):
        Resources.of(resources)
    return _With(trainable, resources)


def _name_of(function) -> str:
    if isinstance(function, functools.partial):
        return getattr(function, "__name__", None) or _name_of(function.func)
    name = getattr(function, "__name__", type(function).__name__)
    return "lambda" if name == "<lambda>" else name


def merged_config(resolved: Resolved, config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The trainable's own settings, replaced by the experiment's."""
    return {**resolved.config, **(config or {})}


def possible_settings(resolved: Resolved, space: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Settings of a space's trials, among which each option of its grids and choices occurs.

    They are configs, whatever names and sections the space has them under.

    Raises:
        TypeError, ValueError: for settings that the algorithm's config refuses.
    """
    return [settings_of(resolved, option) for option in options_of(space, leave_out=True)]


def settings_of(resolved: Resolved, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings that a trial of this configuration is built with: an algorithm's config.

    Functions and classes of your own have none: what the keys of their configurations mean is known to them alone.

    Raises:
        TypeError, ValueError: for settings that the algorithm's config refuses.
    """
    if not issubclass(resolved.cls, AlgorithmTrainable):
        return {}
    return resolved.cls.algorithm_class.get_default_config().copy(copy_frozen=False).update_from_dict(dict(config))


def settings_one_by_one(resolved: Resolved, config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The settings of a configuration that is refused as a whole: each alone, as far as the algorithm takes it.

    A scheduler may replace the ones that are refused, and build a trial with the others.
    """
    found = []
    for one in _one_by_one(config):
        with contextlib.suppress(TypeError, ValueError):
            found.append(settings_of(resolved, one))
    return found


def _one_by_one(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from ({key: inner} for inner in _one_by_one(value))
        else:
            yield {key: value}
