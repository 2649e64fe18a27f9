"""What a report shows, read from the files of runs."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rllib.reports.recorded import Facts, facts_of, videos_of
from rllib.runs.drawing import STEPS
from rllib.runs.naming import names_apart
from rllib.storage.local_path import local_path
from rllib.tune.reporting.comparison import Comparison, compare, objective_of
from rllib.tune.reporting.plots import curve_of_group
from rllib.tune.reporting.runs import Run, axis_of, read_runs
from rllib.tune.reporting.scores import Method, methods_of


@dataclass
class Report:
    """Content of a report.

    Attributes:
        title: title of the page.
        methods: the runs that have results, by what they differ in.
        facts: what is recorded of each run, in the order of the methods, then of those without results.
        comparison: of the methods; None if they cannot be compared.
        problem: why they cannot.
        metric, mode, x: of the curves.
        videos: paths of videos, and the largest size together that the page may have.
    """

    title: str
    methods: list[Method]
    facts: list[Facts]
    comparison: Comparison | None
    problem: str
    metric: str
    mode: str
    x: str
    videos: list[Path]
    most_video_mb: float


def report_of(
    directories: Sequence[str | os.PathLike],
    metric: str | None,
    mode: str | None,
    x: str,
    title: str,
    most_video_mb: float,
) -> Report:
    """Reads what a report shows; see `write_report`."""
    runs = read_runs(*directories)
    if not any(run.results for run in runs):
        raise ValueError("There is nothing to report: no run has a result yet")
    is_given, x = metric is not None, axis_of(runs, x)
    metric, mode = objective_of(directories, metric, mode)
    comparison, problem = None, ""
    try:
        comparison = compare(*directories, metric=metric, mode=mode, x=x)
    except ValueError as error:
        if is_given and not any(_has(run, metric) for run in runs):
            raise
        problem = str(error)
    having = [run for run in runs if run.results]
    methods = comparison.scored.methods if comparison else methods_of(having)
    if not title:
        places = names_apart([local_path(each).resolve() for each in directories])
        title = ", ".join(places[:4]) + (f" and {len(places) - 4} more" if len(places) > 4 else "")
    ordered = [run for method in methods for run in method.all_runs] + [run for run in runs if not run.results]
    return Report(
        title, methods, facts_of(ordered), comparison, problem, metric, mode, x, videos_of(runs), most_video_mb
    )


def _has(run: Run, metric: str) -> bool:
    return curve_of_group("", [run], metric, STEPS) is not None
