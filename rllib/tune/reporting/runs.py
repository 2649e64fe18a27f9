"""Recorded runs and trials: their results and settings, as far as pictures, comparisons and reports need them."""

import functools
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rllib.algorithms.base.registry import get_algorithm_class, get_algorithm_config
from rllib.compat.names.aliases import ALIASES
from rllib.did_you_mean import did_you_mean
from rllib.runs.drawing import ITERATIONS, STEPS, finite_part
from rllib.runs.entries import encode, has_entry, is_number, lookup, numbers_of_seeds, settings_by_path
from rllib.runs.files import read_algorithm, read_goals, read_params, read_results
from rllib.runs.naming import ALGORITHM, SEED, differing, learning_settings, names_apart
from rllib.storage.local_path import local_path
from rllib.tune.experiment.directory import journal_file, read_records
from rllib.tune.objectives import Metric, Mode, checked_objective, is_several
from rllib.tune.search.base import metric_value


@dataclass
class Run:
    """A run: its results and settings.

    Attributes:
        name: of several that are read at once, by what differs in their paths.
        results: the oldest first.
        params: "a/b" path -> value of its settings, as params.json has them.
        goals: result key -> threshold at which it stops.
        experiment: header of the journal, if it is a trial of an experiment; else None.
        place: its directory; None: unknown.
        algorithm: name of the algorithm or trainable; "" if it is unknown.
        given: the directory that was named, in which it lies or which it is; None: unknown.
    """

    name: str
    results: Sequence[Mapping[str, Any]]
    params: Mapping[str, Any] = field(default_factory=dict)
    goals: Mapping[str, float] = field(default_factory=dict)
    experiment: Mapping[str, Any] | None = None
    place: Path | None = None
    algorithm: str = ""
    given: Path | None = None

    @cached_property
    def written(self) -> dict[str, Any]:
        """The settings of `params` by today's names."""
        return today(self.algorithm, self.params)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All settings that say how it learns, with those that keep their default: what two runs may differ in."""
        algorithm = {ALGORITHM: self.algorithm} if self.algorithm else {}
        return algorithm | learning_settings(with_defaults(self.algorithm, self.params))

    @property
    def seed(self) -> int | None:
        """The seed of everything random; None if it is unknown."""
        seed = self.params.get(SEED)
        return int(seed) if is_number(seed) else None


@functools.cache
def defaults_of(algorithm: str) -> dict[str, Any] | None:
    """Default settings of an algorithm by "a/b" path, as params.json has them; None for an unknown algorithm."""
    try:
        config = get_algorithm_config(algorithm)
    except ValueError:
        return None
    return dict(settings_by_path(msgspec.json.decode(encode(config.to_dict()))))


def algorithm_called(name: str) -> str:
    """The algorithm's own name, for "ppo" PPO; another name stays as it is."""
    try:
        return get_algorithm_class(name).__name__
    except ValueError:
        return name


def with_defaults(algorithm: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of params.json by today's names, and those that keep the default of the algorithm."""
    given = today(algorithm, params)
    merged = {**(defaults_of(algorithm) or {}), **given}
    above = {"/".join(parts[:count]) for parts in (key.split("/") for key in given) for count in range(1, len(parts))}
    return {key: value for key, value in merged.items() if key not in above}


def today(algorithm: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with today's names, where the algorithm is known: a search may be written in those of Ray."""
    if defaults_of(algorithm) is None:
        return dict(params)
    named = ((key.partition("/"), value) for key, value in params.items())
    return {f"{ALIASES.get(first, first)}{slash}{rest}": value for (first, slash, rest), value in named}


def read_runs(*directories: str | os.PathLike) -> list[Run]:
    """Reads the runs below the directories, each once: runs of `rllib train`, and trials of experiments.

    Raises:
        ValueError: if there is no directory, or no result.json in it.
    """
    runs: dict[Path, Run] = {}
    for given in directories:
        directory = local_path(given)
        if not directory.is_dir():
            raise ValueError(f"There is no directory {os.fspath(given)}{_similar(directory)}")
        found = sorted(directory.rglob("result.json"), key=_numeric_order)
        if not found:
            raise ValueError(f"There is no result.json in {os.fspath(given)} or below it: no run, no experiment")
        headers = {place: _header(place) for place in {file.parent.resolve().parent for file in found}}
        for place in (file.parent for file in found):
            header, params = headers[place.resolve().parent], read_params(place)
            trained = algorithm_called(str((header or {}).get("trainable") or "") or read_algorithm(place))
            # An algorithm that writes into a log_dir adds its name to its settings.
            logged = params.pop(ALGORITHM, "") if not trained and params.get("log_dir") is not None else ""
            goals = read_goals(place) or _goals_of(header)
            run = Run(place.name, read_results(place), params, goals, header, place, trained or str(logged), directory)
            if place.resolve() not in runs or directory != place:  # if its folder is given as well, that counts
                runs[place.resolve()] = run
    named = zip(runs.values(), names_apart([run.place for run in runs.values()]))
    return [replace(run, name=name) for run, name in named]


def _similar(missing: Path) -> str:
    """A sentence that suggests directories with similar names in the parent of a missing directory."""
    if not missing.parent.is_dir():
        return ""
    hint = did_you_mean(missing.name, (each.name for each in missing.parent.iterdir() if each.is_dir()))
    return hint and f".{hint}"


def read_objective(*directories: str | os.PathLike) -> tuple[Metric | None, Mode | None]:
    """(metric, mode) by which the experiments in these directories compared their trials; None without a metric.

    A directory may be an experiment's or one of its trials'.

    Raises:
        ValueError: if they were compared by different metrics.
    """
    found = {}
    for directory in map(local_path, directories):
        header = _header(directory) or _header(directory.resolve().parent) or {}
        if header.get("metric"):
            metric, mode = checked_objective(header["metric"], header.get("mode"))
            found[(tuple(metric), tuple(mode)) if is_several(metric) else (metric, mode)] = directory
    if len(found) > 1:
        kinds = ", ".join(f"{directory.name} by {metric} ({mode})" for (metric, mode), directory in found.items())
        raise ValueError(f"These experiments compared their trials by different metrics: {kinds}. Give one of them.")
    return checked_objective(*next(iter(found), (None, None)))


def varying(runs: Sequence[Run]) -> list[str]:
    """The settings in which the runs differ."""
    return differing([run.settings for run in runs])


def points_of(run: Run, metric: str, x: str) -> tuple[np.ndarray, np.ndarray]:
    """[P] and [P] float64, from the first to the last result in which the metric is finite; NaN in between.

    Results without an entry for it are left out: evaluations, or the statistics of a policy that learns now and then,
    come with some of them only.
    """
    having = [(number, result) for number, result in enumerate(run.results, 1) if has_entry(result, metric)]
    return finite_part([(place_of(result, x, number), finite(result, metric)) for number, result in having])


def check_metric(run: Run, metric: str) -> None:
    """Raises a ValueError, which names the metrics of the run, if none of its results has an entry for this one."""
    section = metric.partition("/")[0]  # such as evaluation, which only some of the results have
    metric_value(max(reversed(run.results), key=lambda each: (has_entry(each, metric), section in each)), metric)


def axis_of(runs: Sequence[Run], x: str) -> str:
    """The result key of the horizontal axis; iterations in place of environment steps where no run counts these.

    Raises:
        ValueError: if no result has a number under another key that is given.
    """
    results = [result for run in runs for result in run.results]
    if not results or any(is_number(lookup(result, x)) for result in results):
        return x
    if x != STEPS:
        known = list(results[-1])
        raise ValueError(
            f"no result has a number {x!r} for the horizontal axis.{did_you_mean(x, known)} "
            f"Keys of results: {', '.join(known)}"
        )
    return ITERATIONS


def runs_of_seeds(run: Run, metric: str) -> list[Run]:
    """The runs of a trial's seeds, as far as its results have their metric; the run alone if it has one seed."""
    seeds = [numbers_of_seeds(result) for result in run.results]
    results: dict[str, list[dict]] = {}
    for result, numbers in zip(run.results, seeds):
        for seed, own in numbers.items():
            if lookup(own, metric) is not None:
                results.setdefault(seed, []).append({**result, **own})
    return [
        replace(run, name=f"{run.name}_seed_{seed}", results=own, params={**run.params, SEED: _number(seed)})
        for seed, own in results.items()
    ] or [run]


def place_of(result: Mapping, x: str, number: int) -> float:
    """Place on the horizontal axis of a result, the `number`-th of its run."""
    place = lookup(result, x)
    place = result.get("training_iteration", number) if place is None else place
    return float(place) if is_number(place) else math.nan


def finite(result: Mapping, metric: str) -> float:
    """The metric; NaN where it is infinite or missing, as the return is before the first episode has ended."""
    try:
        value = metric_value(result, metric)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _number(seed: str) -> int | str:
    return int(seed) if re.fullmatch(r"-?\d{1,18}", seed) else seed


def _goals_of(header: Mapping[str, Any] | None) -> dict[str, float]:
    """Thresholds at which the trials of an experiment stop, by result key; {} if its criterion is no dict of them."""
    settings = (header or {}).get("settings")
    saved = settings.get("stop") if isinstance(settings, Mapping) else None
    stop = saved.get("config") if isinstance(saved, Mapping) else None
    return {key: value for key, value in stop.items() if is_number(value)} if isinstance(stop, Mapping) else {}


def _header(directory: Path) -> dict[str, Any] | None:
    """Header of the journal of the experiment in a directory; None without one."""
    return read_records(journal_file(directory))[0] if any(directory.glob("experiment_state-*")) else None


def _numeric_order(file: Path) -> list:
    """Sort key by which trial 10 comes after trial 9."""
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in re.split(r"(\d+)", str(file))]
