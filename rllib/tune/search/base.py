"""Base of the searchers, which suggest the configurations of an experiment.

A searcher is plain bookkeeping: it uses no clock and no process, and files only in `save` and `restore`.
"""

import inspect
import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from rllib.did_you_mean import did_you_mean
from rllib.result import as_result, stored_names
from rllib.runs.entries import encode, flatten
from rllib.runs.safe_files import write_whole
from rllib.storage.local_path import local_path
from rllib.tune.checks import number_in
from rllib.tune.objectives import Metric, Mode, checked_objective, is_several, pairs
from rllib.tune.search.domains import Domain
from rllib.tune.search.space import is_grid

# Arguments by which searchers and schedulers take a seed.
_SEEDS = ("seed", "random_state")


class Searcher:
    """Suggests configurations; base of all searchers.

    Args:
        metric: result key or "a/b" path to optimise, or a list of them; None: tune.run's.
        mode: "max" or "min", or a list with one for each metric; None: tune.run's.

    Attributes:
        FINISHED: returned by `suggest` when there is nothing left to try.
        needs_metric: whether it learns from results.
        takes_several: whether it optimises several metrics at once.
        is_exhaustive: whether it decides itself when there are enough trials, and suggests without waiting for results.
    """

    FINISHED = "FINISHED"
    needs_metric = True
    takes_several = False
    is_exhaustive = False

    def __init__(self, metric: Metric | None = None, mode: Mode | None = None):
        self.metric, self.mode = checked_objective(metric, mode)

    def set_search_properties(
        self, metric: Metric | None, mode: Mode | None, config: Mapping[str, Any], **spec
    ) -> bool:
        """Sets objective and search space; called once, before the first `suggest`.

        Args:
            metric, mode: tune.run's; may be None where the searcher has its own.
            config: the search space.
            spec: `num_samples`, for searchers that must know it.

        Raises:
            ValueError: if metric or mode is missing or contradicts the searcher's own, or the space cannot be searched.
        """
        self.metric, self.mode = joined_objective(self, metric, mode, self.needs_metric)
        return True

    def further_spaces(self, space: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Search spaces from which it suggests, next to the experiment's; not those of a searcher that it wraps."""
        return []

    def held_configs(self) -> list[Mapping[str, Any]]:
        """Configurations that it has drawn and will suggest again; not those of a searcher that it wraps."""
        return []

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The configuration for a new trial; None: not now; FINISHED: nothing is left to try."""
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: Mapping) -> None:
        """A trial has reported."""

    def on_trial_complete(self, trial_id: str, result: Mapping | None = None, error: bool = False) -> None:
        """A trial has ended; nothing is learnt from it without a result, or with `error`."""

    def get_state(self) -> dict[str, Any]:
        """State from which `set_state` continues exactly, as data that JSON can hold."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores a state of `get_state`; called after set_search_properties."""

    def save(self, path: str | os.PathLike) -> None:
        """Writes the state to a file."""
        write_whole(local_path(path), encode(self.get_state()))

    def restore(self, path: str | os.PathLike) -> None:
        """Reads the state from a file that `save` wrote."""
        self.set_state(json.loads(local_path(path).read_bytes()))
        self._is_restored = True  # so the next experiment begins with this state (running/fresh.py)

    def score(self, result: Mapping | None) -> float | None:
        """The metric of a result, higher is better; None if it is missing or NaN.

        Raises:
            ValueError: if the results have no such metric, with the metrics that they have.
        """
        if not result or self.metric is None:
            return None
        value = metric_value(result, self.metric)
        return None if math.isnan(value) else value if self.mode == "max" else -value


def made_by_name(
    kind: str,
    name: str,
    makers: Mapping[str, Callable],
    arguments: Mapping[str, Any],
    default_seed: int | None = None,
):
    """Makes the scheduler or searcher of this name.

    Args:
        kind: "scheduler" or "searcher", for messages.
        name: its name.
        makers: classes and functions by name.
        arguments: its keyword arguments.
        default_seed: its seed, if it takes one and the arguments do not have it; None: it chooses one.

    Raises:
        ValueError: if the name is unknown, with the known ones.
        TypeError: if it has no such argument, with those that it has.
    """
    if name not in makers:
        hint = did_you_mean(name, makers)
        raise ValueError(f"There is no {kind} {name!r}.{hint} There are: {', '.join(makers)}.")
    maker = makers[name]
    parameters = inspect.signature(maker).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for argument in arguments:
        if argument not in parameters and not takes_any:
            hint = did_you_mean(argument, parameters)
            has = f"It has: {', '.join(parameters)}." if parameters else "It has none."
            raise TypeError(f"The {kind} {name!r} has no argument {argument!r}.{hint} {has}")
    seeds = [key for key in _SEEDS if default_seed is not None and key in parameters]
    return maker(**{**dict.fromkeys(seeds, default_seed), **arguments})


def announce_search(searcher, metric: Metric | None, mode: Mode | None, config: Mapping[str, Any], **spec):
    """Calls `searcher.set_search_properties`; one written for Ray before 1.11 takes (metric, mode, config) alone.

    Returns:
        False if the searcher refuses.
    """
    parameters = inspect.signature(searcher.set_search_properties).parameters.values()
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        names = {parameter.name for parameter in parameters}
        spec = {key: value for key, value in spec.items() if key in names}
    return searcher.set_search_properties(metric, mode, config, **spec)


def joined_objective(
    part, metric: Metric | None, mode: Mode | None, needed: bool = True
) -> tuple[Metric | None, Mode | None]:
    """(metric, mode) of a searcher or scheduler and of tune.run, one of which may leave them out.

    Where tune.run has several metrics, a part that takes one only has its own, or does without.

    Raises:
        ValueError: if they contradict each other, or are missing though needed; if one is needed and several are given.
    """
    name = type(part).__name__
    metric, mode = checked_objective(metric, mode)
    if is_several(metric) and not getattr(part, "takes_several", False):
        if needed and not part.metric:
            raise ValueError(
                f"{name} compares trials by one metric, but tune.run was given metric={metric!r}. Give it one of its "
                f"own: {name}(metric={metric[0]!r}, mode={mode[0]!r}, ...)."
            )
        metric, mode = part.metric, part.mode or dict(pairs(metric, mode)).get(part.metric)
    for key, own, given in (("metric", part.metric, metric), ("mode", part.mode, mode)):
        if own and given and own != given:
            raise ValueError(f"{name} has {key}={own!r}, but tune.run was given {key}={given!r}. Give it once.")
    metric, mode = part.metric or metric, part.mode or mode
    if needed and not (metric and mode):
        missing = " and ".join(key for key, value in (("metric", metric), ("mode", mode)) if not value)
        raise ValueError(
            f"{name} must know what to optimise, but {missing} is missing. "
            "Use tune.run(..., metric='episode_reward_mean', mode='max') or TuneConfig(metric=..., mode=...)."
        )
    return metric, mode


def metric_value(result: Mapping, metric: str) -> float:
    """The metric's number; NaN if it is null.

    Raises:
        ValueError: if the result has no such key, with the nearest and all of its keys; if the value is no number.
    """
    value = number_in(result, metric, f"The metric {metric!r}")
    if value is None:
        if any(name in as_result(result) for name in (metric, *stored_names(metric))):
            return math.nan  # null, as JSON writes NaN
        known = sorted(key for key in map(str, result) if key != "config")
        deeper = [path for path, _ in flatten(result) if path.endswith(f"/{metric}")]  # as kl of learner_stats
        hint = f" Did you mean {' or '.join(deeper[:3])}?" if deeper else did_you_mean(metric, known)
        first, _, _ = metric.partition("/")
        if isinstance(result.get(first), Mapping):  # such as policy_reward_mean, by policy
            known = sorted(f"{first}/{key}" for key in result[first])
            hint = did_you_mean(metric, known)
        elif first == "evaluation" != metric:
            hint = " Results have evaluations only with evaluation_interval, which is 1 for one in each result."
        raise ValueError(f"The results have no metric {metric!r}.{hint} They have: {', '.join(known)}.")
    return float(value)


def with_point(space: Mapping, point: Mapping) -> dict[str, Any]:
    """The space with the values of one of `points_to_evaluate` in place of its domains; the others are still drawn.

    Points are nested like the space, or name their entries "a/b".

    Raises:
        ValueError: if the point has a key that the space does not have, or a value that cannot be drawn.
    """
    if not isinstance(point, Mapping):
        raise ValueError(f"points_to_evaluate needs a list of dicts, but one of them is {point!r:.80}")
    nested: dict = {}
    for key, value in point.items():
        way = [key] if key in space or not isinstance(key, str) else key.split("/")
        place = nested
        for part in way[:-1]:
            place = place.setdefault(part, {})
        place[way[-1]] = value
    return _merged(space, nested, "")


def _merged(space: Mapping, point: Mapping, prefix: str) -> dict:
    merged = dict(space)
    for key, value in point.items():
        path = f"{prefix}{key}"
        if key not in space:
            hint = did_you_mean(key, space)
            raise ValueError(f"points_to_evaluate: the search space has no {path}.{hint}")
        inside = space[key]
        if isinstance(inside, Mapping) and not is_grid(inside) and isinstance(value, Mapping):
            merged[key] = _merged(inside, value, f"{path}/")
            continue
        if isinstance(inside, Domain) and not inside.contains(value):
            raise ValueError(f"points_to_evaluate: {path}={value!r} is not in {inside!r}")
        merged[key] = value
    return merged
