"""Scores of runs at equal numbers of steps, by method and task, for the measures of runs/measures.py."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rllib.runs.drawing import RETURN, STEPS
from rllib.runs.naming import names_apart
from rllib.storage.local_path import local_path
from rllib.tune.reporting.runs import Run, points_of, read_runs, runs_of_seeds, varying
from rllib.tune.search.base import metric_value


class Scored(NamedTuple):
    """Scores of several methods on the same tasks.

    Attributes:
        at: place on the axis of steps at which every run was scored.
        tasks: their names.
        scores: method -> for each task [N] float64, the scores of its N runs.
    """

    at: float
    tasks: list[str]
    scores: dict[str, list[np.ndarray]]


def score_methods(
    *directories: str | os.PathLike,
    metric: str = RETURN,
    x: str = STEPS,
    at: float | None = None,
    scales: Mapping[str, tuple[float, float]] | None = None,
) -> Scored:
    """Reads the runs below each directory as those of one method, and scores them at equal steps.

    A run's task is its environment. Its score is the metric at `at`, on the line between the results around it.

    Args:
        directories: one for each method.
        metric: result key or "a/b" path.
        x: result key of the steps.
        at: place at which runs are scored; None: the last one that all have reached.
        scales: task -> (low, high), values of the metric that become scores 0 and 1.

    Raises:
        ValueError: if a directory is given twice or lies in another, or holds no results, runs of a task that differ in
            more than their seed, or runs that end before `at` or have no metric up to there; if methods have different
            tasks; or if a scale is of no task, or not rising.
    """
    places = [local_path(each).resolve() for each in directories]
    if twice := [each for each in places if places.count(each) > 1]:
        raise ValueError(f"{twice[0].name} is given twice; a method is compared with others")
    if within := [(inner, outer) for inner in places for outer in places if outer in inner.parents]:
        inner, outer = within[0]
        raise ValueError(f"{inner.relative_to(outer.parent)} lies in {outer.name}, whose runs would count for both")
    by_method = {name: _by_task(Path(each)) for name, each in zip(names_apart(places), directories)}
    tasks = list(next(iter(by_method.values())))
    for method, runs in by_method.items():
        if runs.keys() != set(tasks):
            first = next(iter(by_method))
            raise ValueError(
                f"methods are compared on the same tasks, but {first} has {', '.join(sorted(tasks))} and {method} has "
                f"{', '.join(sorted(runs))}. Leave out the runs of the other tasks."
            )
    scales = _checked(scales or {}, tasks)
    curves = {
        method: {
            task: [curve_of(each, metric, x) for run in runs[task] for each in runs_of_seeds(run, metric)]
            for task in tasks
        }
        for method, runs in by_method.items()
    }
    ends = [
        (curve[0][0], curve[0][-1], f"a run of {method} on {task}")
        for method, of_task in curves.items()
        for task in tasks
        for curve in of_task[task]
    ]
    end, shortest = min((last, run) for _, last, run in ends)
    start, latest = max((first, run) for first, _, run in ends)
    at = end if at is None else at
    if at > end:
        raise ValueError(f"{shortest} ends at {x}={end:,.10g}, before {at:,.10g}. Compare at less.")
    if at < start:
        raise ValueError(
            f"{latest} has its first {metric} at {x}={start:,.10g}, after {at:,.10g}. Compare at more, where all runs "
            "have one, or leave that run out."
        )
    scores = {
        method: [_scaled(np.array([np.interp(at, *curve) for curve in of_task[task]]), scales.get(task))
                 for task in tasks]
        for method, of_task in curves.items()
    }  # fmt: skip
    return Scored(float(at), tasks, scores)


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


def _by_task(directory: Path) -> dict[str, list[Run]]:
    """Runs below a directory that have results, by environment, in the order of their names."""
    by_task: dict[str, list[Run]] = {}
    for run in read_runs(directory):
        if run.results:
            by_task.setdefault(str(run.params.get("env", "")), []).append(run)
    if not by_task:
        raise ValueError(f"No run in {directory} has a result yet")
    for task, runs in by_task.items():
        if different := varying(runs):
            on = f" on {task}" if task else ""
            raise ValueError(
                f"{directory} holds runs{on} that differ in {', '.join(different[:3])}, and a method's runs "
                "differ in their seed alone. Name a directory for each of them."
            )
    return dict(sorted(by_task.items()))


def _checked(scales: Mapping[str, tuple[float, float]], tasks: Sequence[str]) -> Mapping[str, tuple[float, float]]:
    for task, (low, high) in scales.items():
        if task not in tasks:
            raise ValueError(f"there is a scale of {task}, but the runs are on {', '.join(tasks)}")
        if not low < high:
            raise ValueError(f"the scale of {task} must rise from score 0 to 1, but got {low:g} and {high:g}")
    return scales


def curve_of(run: Run, metric: str, x: str) -> tuple[np.ndarray, np.ndarray]:
    """Places and values of a run, without gaps.

    Raises:
        ValueError: if it has no result, none with the metric, or the metric is NaN in all.
    """
    if not run.results:
        raise ValueError(f"{run.name} has no result yet")
    places, values = points_of(run, metric, x)
    if not len(values):
        metric_value(run.results[-1], metric)  # raises, with the metrics of the run
        raise ValueError(f"the metric {metric!r} of {run.name} is NaN in all results")
    known = np.isfinite(values)
    return places[known], values[known]


def _scaled(values: np.ndarray, scale: tuple[float, float] | None) -> np.ndarray:
    if scale is None:
        return values
    low, high = scale
    return (values - low) / (high - low)
