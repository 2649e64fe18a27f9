"""Scores of runs by method and task, for the measures of runs/measures.py."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rllib.runs.drawing import RETURN, STEPS
from rllib.runs.naming import ALGORITHM, ENV, text_of
from rllib.storage.local_path import local_path
from rllib.tune.reporting.groups import Group, folder_of, groups_of, names_of, names_of_places
from rllib.tune.reporting.runs import Run, axis_of, check_metric, points_of, read_runs, runs_of_seeds

# What of a run's curve is its score.
AT_STEPS, LAST, AREA = "steps", "last", "area"
SCORED_BY = (AT_STEPS, LAST, AREA)
# A run that ends before this share of the longest one's steps is named.
_SHORT = 0.9


class Scored(NamedTuple):
    """Scores of several methods on the same tasks.

    Attributes:
        at: place on the axis of steps at which every run was scored, or the area ends; NaN for the last values.
        start: place at which every run has begun, and the area begins.
        x: result key of that axis.
        tasks: their names.
        scores: method -> for each task [N] float64, the scores of its N runs.
        methods: what was scored.
        notes: sentences about runs that were left out, or that end early.
    """

    at: float
    start: float
    x: str
    tasks: list[str]
    scores: dict[str, list[np.ndarray]]
    methods: "list[Method]"
    notes: list[str]


@dataclass
class Method:
    """Runs that differ in their task and their seed only.

    Attributes:
        name: by what differs between the methods.
        settings: "a/b" path -> value of each setting that is the same on all tasks, without the seed.
        runs: task -> its runs.
    """

    name: str
    settings: Mapping[str, Any]
    runs: dict[str, list[Run]]

    @property
    def all_runs(self) -> list[Run]:
        return [run for runs in self.runs.values() for run in runs]


def score_methods(
    *directories: str | os.PathLike,
    metric: str = RETURN,
    x: str = STEPS,
    at: float | None = None,
    scales: Mapping[str, tuple[float, float]] | None = None,
    by: str = AT_STEPS,
) -> Scored:
    """Reads the runs below the directories, those that differ in their seed as one method, and scores them.

    A run's task is its environment. Its score is the metric at `at`, on the line between the results around it, or
    the last value of the metric, or the mean of the line over the steps that all have reached: the area below it.

    Args:
        directories: directories of runs, or of experiments, whose runs are those of one method unless their settings
            differ.
        metric: result key or "a/b" path.
        x: result key of the steps.
        at: place at which runs are scored, or at which the area ends; None: the last one that all have reached.
        scales: task -> (low, high), values of the metric that become scores 0 and 1.
        by: "steps", "last" or "area".

    Raises:
        ValueError: if a directory is given twice or lies in another, or holds no results, or runs that end before `at`
            or have no metric up to there; if methods have different tasks; if a scale is of no task, or not rising; if
            `by` is unknown, or is "last" with an `at`.
    """
    if by not in SCORED_BY:
        raise ValueError(f"runs are scored by {', '.join(SCORED_BY)}, but got by={by!r}")
    if by == LAST and at is not None:
        raise ValueError(f"the last value of each run is at its own end. Leave out at={at:,.10g}, or score by steps.")
    _refuse_overlaps([local_path(each).resolve() for each in directories])
    runs = read_runs(*directories)
    having = [run for run in runs if run.results]
    notes = [
        f"{run.name} {'has failed without a result' if _has_failed(run) else 'has no result yet'} and is left out"
        for run in runs
        if not run.results
    ]
    for directory in directories:
        if not any(run.given == local_path(directory) for run in having):
            raise ValueError(f"No run in {os.fspath(directory)} has a result yet")
    methods, x = methods_of(having), axis_of(having, x)
    tasks = _tasks(methods)
    scales = _checked(scales or {}, tasks)
    curves = {
        method.name: [
            [(run.name, *curve_of(each, metric, x)) for run in method.runs[task] for each in runs_of_seeds(run, metric)]
            for task in tasks
        ]
        for method in methods
    }
    every = [(name, places) for of_task in curves.values() for task in of_task for name, places, _ in task]
    end, shortest = min((places[-1], run) for run, places in every)
    start, latest = max((places[0], run) for run, places in every)
    longest = max(places[-1] for _, places in every)
    given, at = at, float(end if at is None else at)
    if by != LAST:
        if at > end:
            raise ValueError(f"{shortest} ends at {x}={end:,.10g}, before {at:,.10g}. Compare at less.")
        if start > end:
            raise ValueError(
                f"{latest} has its first {metric} at {x}={start:,.10g}, after {shortest} has ended at {end:,.10g}. "
                "Train that one longer, or compare the last values: rllib compare --by last."
            )
        if at < start:
            raise ValueError(
                f"{latest} has its first {metric} at {x}={start:,.10g}, after {at:,.10g}. Compare at more, where all "
                "runs have one, or leave that run out."
            )
        if by == AREA and at == start:
            raise ValueError(
                f"there is no area: {latest} has its first {metric} at {x}={at:,.10g}, where it ends. Score by steps."
            )
    if end < _SHORT * longest and given is None:
        what = "these are the ends of their last values" if by == LAST else "all are compared at the former"
        notes.append(f"{shortest} ends at {x}={end:,.10g}, and the longest run at {longest:,.10g}: {what}")
    scores = {
        name: [_scaled(np.array([_score(places, values, by, start, at) for _, places, values in task]), scales.get(own))
               for own, task in zip(tasks, of_task)]
        for name, of_task in curves.items()
    }  # fmt: skip
    return Scored(np.nan if by == LAST else at, float(start), x, tasks, scores, methods, notes)


def methods_of(runs: Sequence[Run]) -> list[Method]:
    """The runs by method. A directory with one group of seeds for each of its environments is one method."""
    groups = groups_of(runs)
    by_folder: dict[Path | None, list[Group]] = {}
    for group in groups:
        by_folder.setdefault(folder_of(group.runs[0]), []).append(group)
    parts: list[list[Group]] = []
    for folder, own in by_folder.items():
        if folder is not None and _is_one_method(own):
            parts.append(own)
            continue
        by_settings: dict[tuple, list[Group]] = {}
        for index, group in enumerate(own):
            shared = {key: value for key, value in group.settings.items() if key != ENV}
            # Groups of equal settings in one environment are kept apart, as `groups_of` has them.
            same = sum(text_of(other.settings) == text_of(group.settings) for other in own[:index])
            by_settings.setdefault((text_of(shared) if group.runs[0].params else index, same), []).append(group)
        parts += by_settings.values()
    settings = [_shared([group.settings for group in part]) for part in parts]
    telling = settings
    if any(ENV in own for own in settings) and not all(ENV in own for own in settings):
        # A method on several environments has none in its name, so no other method in the table has one.
        telling = [{key: value for key, value in own.items() if key != ENV} for own in settings]
    names = names_of([[run for group in part for run in group.runs] for part in parts], telling)
    return [
        Method(name, own, {str(group.settings.get(ENV, "")): group.runs for group in part})
        for name, own, part in zip(names, settings, parts)
    ]


def final_scores(*directories: str | os.PathLike, metric: str = RETURN, x: str = STEPS) -> tuple[float, np.ndarray]:
    """Scores the runs below the directories at the last steps that all of them have reached.

    Returns:
        these steps, and [N] float64: the metric of each run there.

    Raises:
        ValueError: if a run has no result with the metric.
    """
    curves = [curve_of(run, metric, x) for run in read_runs(*directories)]
    at = min(places[-1] for places, _ in curves)
    return float(at), np.array([np.interp(at, *curve) for curve in curves])


def curve_of(run: Run, metric: str, x: str) -> tuple[np.ndarray, np.ndarray]:
    """Places and values of a run, without gaps.

    Raises:
        ValueError: if it has no result, none with the metric, or the metric is NaN in all.
    """
    if not run.results:
        raise ValueError(f"{run.name} has no result yet")
    places, values = points_of(run, metric, x)
    if not len(values):
        check_metric(run, metric)  # raises, with the metrics of the run
        raise ValueError(f"the metric {metric!r} of {run.name} is NaN in all results")
    known = np.isfinite(values)
    return places[known], values[known]


def _has_failed(run: Run) -> bool:
    return run.place is not None and (run.place / "error.txt").is_file()


def _refuse_overlaps(places: Sequence[Path]) -> None:
    if twice := [each for each in places if places.count(each) > 1]:
        raise ValueError(f"{twice[0].name} is given twice; a method is compared with others")
    if within := [(inner, outer) for inner in places for outer in places if outer in inner.parents]:
        inner, outer = within[0]
        raise ValueError(f"{inner.relative_to(outer.parent)} lies in {outer.name}, whose runs would count for both")


def _is_one_method(groups: Sequence[Group]) -> bool:
    """Whether these groups are of one algorithm, each on its own environment, for which its settings may be tuned."""
    envs = [group.settings.get(ENV) for group in groups]
    return len(set(map(text_of, envs))) == len(envs) and len({group.settings.get(ALGORITHM) for group in groups}) == 1


def _shared(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings that are the same on all tasks; the environment is one of them where there is one task."""
    first, *others = settings
    return {
        key: value
        for key, value in first.items()
        if all(key in other and text_of(other[key]) == text_of(value) for other in others)
    }


def _tasks(methods: Sequence[Method]) -> list[str]:
    """The tasks of all methods, by name; raises a ValueError if these differ."""
    first, *others = methods
    tasks = sorted(first.runs)
    for method in others:
        if set(method.runs) != set(tasks):
            one, two = names_of_places([first.all_runs, method.all_runs])
            raise ValueError(
                f"methods are compared on the same tasks, but {one} has {_listed(tasks)} and {two} has "
                f"{_listed(sorted(method.runs))}. Leave out the runs of the other tasks."
            )
    return tasks


def _listed(tasks: Sequence[str]) -> str:
    # A damaged or missing params.json names no environment, nor does a run that learns from recorded data.
    return ", ".join(task if task not in ("", "None") else "no environment in its params.json" for task in tasks)


def _score(places: np.ndarray, values: np.ndarray, by: str, start: float, at: float) -> float:
    if by == LAST:
        return float(values[-1])
    if by == AT_STEPS:
        return float(np.interp(at, places, values))
    inside = (places > start) & (places < at)
    xs = np.concatenate([[start], places[inside], [at]])
    ys = np.concatenate([np.interp([start], places, values), values[inside], np.interp([at], places, values)])
    return float(((ys[1:] + ys[:-1]) / 2 * np.diff(xs)).sum() / (at - start))


def _checked(scales: Mapping[str, tuple[float, float]], tasks: Sequence[str]) -> Mapping[str, tuple[float, float]]:
    for task, (low, high) in scales.items():
        if task not in tasks:
            raise ValueError(f"there is a scale of {task}, but the runs are on {', '.join(tasks)}")
        if not low < high:
            raise ValueError(f"the scale of {task} must rise from score 0 to 1, but got {low:g} and {high:g}")
    return scales


def _scaled(values: np.ndarray, scale: tuple[float, float] | None) -> np.ndarray:
    if scale is None:
        return values
    low, high = scale
    return (values - low) / (high - low)
