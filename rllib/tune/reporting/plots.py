"""Pictures of runs and experiments: learning curves over seeds, parallel coordinates, best value over trials.

Runs whose settings differ only in the seed form a group. A group's curve is the interquartile mean (IQM) of its runs,
with the 95 % percentile bootstrap interval over runs: the definitions of Agarwal et al., arXiv:2108.13264 (rliable).
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rllib.result import stored_names
from rllib.runs.drawing import (
    RETURN,
    WIDTH,
    Axis,
    Curve,
    Figures,
    Front,
    episode_quantiles,
    rendered,
    return_curve,
    smoothed,
)
from rllib.runs.entries import flatten, is_number
from rllib.runs.measures import interval, iqm
from rllib.runs.naming import ALGORITHM, short
from rllib.runs.safe_files import write_whole
from rllib.storage.local_path import local_path
from rllib.tune.experiment.directory import logarithmic
from rllib.tune.objectives import Metric, Mode, checked_objective, is_several, pairs, pareto_front
from rllib.tune.reporting.groups import groups_of
from rllib.tune.reporting.reporters import AUTOMATIC_KEYS
from rllib.tune.reporting.runs import Run, axis_of, check_metric, finite, place_of, points_of, runs_of_seeds, varying

KINDS = ("curves", "details", "parallel", "best", "front")
_POINTS = 100
_MOST_AXES = 10
# Number of further curves that are drawn for a single run.
_MOST_DETAILS = 6
# Statistics of learners that are drawn first, in this order.
_FIRST_DETAILS = ("vf_explained_var", "entropy", "policy_entropy", "kl", "mean_q", "mean_td_error")
_MOST_DECADES = 4


def plot(
    runs: Sequence[Run],
    path: str | os.PathLike,
    metric: Metric = "episode_reward_mean",
    mode: Mode = "max",
    x: str = "timesteps_total",
    kinds: str | Sequence[str] | None = None,
    title: str = "",
    goal: float | None = None,
    width: float = WIDTH,
) -> Path:
    """Draws runs into one file: .png, .svg, .pdf, or .html, which loads nothing.

    Args:
        runs: see `read_runs`.
        path: path of the file, whose suffix decides.
        metric: result key or "a/b" path, or a list of them, of which curves and parallel coordinates show the first.
        mode: whether "max" or "min" of it is best; a list for several metrics.
        x: result key of the horizontal axis; training_iteration for runs without it.
        kinds: "curves", "details" (of a single run: other numbers that it reported), "parallel" (of the first ten
            settings that differ), "best" (for one metric), "front" (for several: the last values, and which are on the
            Pareto front), or several of them; None: all that apply for trials of experiments that differ in settings
            and for a single run, else the curves.
        title: title of the page.
        goal: a value of the metric at which a line is drawn; None: the one at which the runs were to stop.
        width: width of the picture in inches; its height follows.

    Raises:
        ValueError: if there is nothing to draw, a kind or the suffix is unknown, no result has the metric or x, or the
            width is not within 2 ... 40.
        ImportError: if matplotlib is not installed.
    """
    path = local_path(path)
    kinds = [kinds] if isinstance(kinds, str) else list(kinds or ())
    if unknown := set(kinds) - set(KINDS):
        raise ValueError(f"There is no kind of plot {unknown.pop()!r}. There are: {', '.join(KINDS)}.")
    if path.suffix not in (".png", ".svg", ".pdf", ".html"):
        raise ValueError(f"A plot is a .png, .svg, .pdf or .html file, but got {path.name!r}")
    if not 2 <= width <= 40:
        raise ValueError(f"A plot is 2 to 40 inches wide, but got width={width:g}")
    metric, mode = checked_objective(metric, mode)
    for kind, needs_several in (("best", False), ("front", True)):
        if kind in kinds and is_several(metric) is not needs_several:
            what = "several metrics" if needs_several else "one metric"
            raise ValueError(f"{kind} is drawn of {what}, not of {metric!r}")
    figures = replace(_figures(runs, metric, mode, x, kinds, title), width=width)
    if goal is not None:
        figures.goal = goal
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, rendered(figures, path.suffix[1:]))
    return path


def _figures(runs, objective, modes, x, kinds, title) -> Figures:
    metric, mode = pairs(objective, modes)[0]
    runs = [run for run in runs if run.results]
    if not runs:
        raise ValueError("There is nothing to draw: no run has a result yet")
    x = axis_of(runs, x)
    points = {index: points_of(run, metric, x) for index, run in enumerate(runs)}
    drawn = [index for index, (_, ys) in points.items() if len(ys)]  # the others have no number
    if not drawn:
        check_metric(runs[0], metric)  # raises, with the metrics of the run
        raise ValueError(f"There is nothing to draw: the metric {metric!r} is NaN in all results")
    runs, points = [runs[index] for index in drawn], [points[index] for index in drawn]
    figures = Figures(title, metric, x)
    of_one = ("curves", "details")
    if len(runs) == 1 and set(kinds) - set(of_one):
        raise ValueError(f"{' and '.join(kinds)} compare runs, but there is only one, {runs[0].name}. Draw its curves.")
    if len(runs) > 1 and "details" in kinds:
        raise ValueError(f"details are drawn of a single run, but there are {len(runs)}. Draw their curves.")
    is_search = all(run.experiment is not None for run in runs) and any(map(varying, _by_experiment(runs)))
    of_search = ("curves", "parallel", "front" if is_several(objective) else "best")
    kinds = kinds or (of_search if is_search else of_one if len(runs) == 1 else ("curves",))
    stored = stored_names(metric) or [metric]
    of_metric = (value for run in runs for key, value in run.goals.items() if stored == (stored_names(key) or [key]))
    if len(goals := set(of_metric)) == 1:
        (figures.goal,) = goals
    better = np.nanmax if mode == "max" else np.nanmin
    if "curves" in kinds:
        figures.curves = _curves(runs, metric, x)
        if len(runs) == 1 and metric == RETURN and figures.curves[0].runs == 1:
            run = runs[0]
            bands = [(place_of(result, x, number), finite(result, metric), *episode_quantiles(result))
                     for number, result in enumerate(run.results, 1)]  # fmt: skip
            figures.curves = [return_curve(run.name, bands)]
    if "details" in kinds:
        figures.details = _details(runs[0], metric, x)
    if "parallel" in kinds:
        scales = {path: is_log for run in runs for path, is_log in logarithmic(run.experiment or {}).items()}
        figures.axes, figures.colours = parallel(runs, [better(ys) for _, ys in points], metric, mode, scales)
    if "front" in kinds:
        figures.fronts = _fronts(runs, pairs(objective, modes))
    if "best" in kinds:
        best = np.maximum.accumulate if mode == "max" else np.minimum.accumulate
        tops = np.array([better(ys) for _, ys in points])
        figures.best = Curve("best so far", np.arange(1, len(tops) + 1), best(tops))
    return figures


def _by_experiment(runs: Sequence[Run]) -> list[list[Run]]:
    """The trials of each experiment: those of several seeds differ from others' alone, and are no search."""
    groups: dict[Path | None, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.place and run.place.parent, []).append(run)
    return list(groups.values())


def _fronts(runs: Sequence[Run], objectives: Sequence[tuple[str, str]]) -> list[Front]:
    """The last values of the first metric and of each other one, with the front of all."""
    names, modes = zip(*objectives)
    values = np.array([[_last(run, name) for name in names] for run in runs])
    front = pareto_front(values, modes)
    if not front:
        raise ValueError(f"There is no front to draw: no run has finite last values of {' and '.join(names)}")
    order = sorted(front, key=lambda index: values[index, 0])
    return [Front(names[0], names[i], values[:, 0], values[:, i], order) for i in range(1, len(names))]


def _last(run: Run, metric: str) -> float:
    return next(filter(math.isfinite, (finite(result, metric) for result in reversed(run.results))), math.nan)


def _details(run: Run, metric: str, x: str) -> list[Curve]:
    """Curves of further numbers: episode length and learner statistics of an algorithm, all numbers of other runs."""
    names = list(dict.fromkeys(key for result in run.results for key, value in flatten(result)
                               if not isinstance(value, (str, bool))))  # fmt: skip
    if "episode_len_mean" in names:
        stats = [name for name in names if "/learner_stats/" in name]
        first = [name for last in _FIRST_DETAILS for name in stats if name.endswith(f"/{last}")]
        names = list(dict.fromkeys(["episode_len_mean", *first, *stats]))
    else:
        names = [name for name in names if name not in AUTOMATIC_KEYS]
    curves = [Curve(name, *points_of(run, name, x)) for name in names if name != metric]
    return [smoothed(curve) for curve in curves if len(set(curve.y)) > 1][:_MOST_DETAILS]


def _curves(runs: Sequence[Run], metric: str, x: str) -> list[Curve]:
    """A curve for each group of runs that has a number under the metric."""
    curves = (curve_of_group(group.name, group.runs, metric, x) for group in groups_of(runs))
    return [curve for curve in curves if curve is not None]


def curve_of_group(name: str, runs: Sequence[Run], metric: str, x: str) -> Curve | None:
    """The curve of runs that differ in their seed, of all their seeds; None if none of them has the metric."""
    points = [each for run in runs for each in _points_of_seeds(run, metric, x)]
    return seeds_as_one(name, points) if points else None


def _points_of_seeds(run: Run, metric: str, x: str) -> list[tuple[np.ndarray, np.ndarray]]:
    points = [points_of(of_seed, metric, x) for of_seed in runs_of_seeds(run, metric)]
    return [each for each in points if len(each[1])]


def seeds_as_one(name: str, members: Sequence[tuple[np.ndarray, np.ndarray]]) -> Curve:
    """The interquartile mean of runs, with its interval, where all of them have results; a single run, smoothed.

    Args:
        name: name of the curve.
        members: places and values of each run, [P] float64 each, in ascending order; NaN in the values is a gap.
    """
    if len(members) == 1:
        return replace(smoothed(Curve(name, *members[0])), raw=None)
    # Only the part that all runs have reached: beyond it, the curve would show the longest runs alone.
    start, end = max(xs[0] for xs, _ in members), min(xs[-1] for xs, _ in members)
    x = np.linspace(min(start, end), end, _POINTS)
    is_count = all(float(place).is_integer() for xs, _ in members for place in xs)
    x = np.unique(x.round() if is_count else x)
    values = np.stack([np.interp(x, xs, ys) for xs, ys in members])
    gap = np.isnan(values).any(axis=0)
    values[:, gap] = 0.0
    lines = [np.where(gap, np.nan, line) for line in (iqm(values), *interval(values))]
    return Curve(name, x, *lines, runs=len(members))


def parallel(
    runs: Sequence[Run], tops: Sequence[float], metric: str, mode: str, scales: Mapping[str, bool] | None = None
) -> tuple[list[Axis], list[float]]:
    """Parallel coordinates: the settings in which the runs differ, ten at most, and the metric.

    Args:
        runs: two or more.
        tops: each run's best value of the metric.
        metric: its name.
        mode: whether "max" or "min" of it is best.
        scales: path of a setting -> whether it was searched, and is drawn, by its logarithm; None: unknown.

    Returns:
        the axes, the metric's last, and each run's place in [0, 1] by the metric, 1 the best.
    """
    # Runs of different algorithms differ in dozens of settings, too many to read.
    scales = scales or {}
    # A default that one of two algorithms does not have is no choice.
    chosen = [key for key in varying(runs) if key == ALGORITHM or any(key in run.written for run in runs)]
    axes = [_axis(key, [run.settings.get(key) for run in runs], scales.get(key)) for key in chosen[:_MOST_AXES]]
    axes.append(_axis(metric, tops))
    colours = axes[-1].places
    return axes, [place if mode == "max" else 1 - place for place in colours]


def _axis(name: str, values: list, is_log: bool | None = None) -> Axis:
    """An axis with numbers by size, other values in order of appearance.

    Args:
        name: name of the axis.
        values: values of the runs.
        is_log: whether numbers are drawn by their logarithm; None: if they span more than two decades.
    """
    if all(map(is_number, values)):
        low, high = min(values), max(values)
        is_log = low > 0 and (high / low > 100 if is_log is None else is_log)
        scale = math.log10 if is_log else float
        span = scale(high) - scale(low)
        if not span:
            return Axis(name, [0.5] * len(values), [(0.5, short(low))])
        labels = [(0.0, short(low)), (1.0, short(high))]
        if is_log:
            decades = [power for power in range(math.ceil(scale(low)), math.floor(scale(high)) + 1)
                       if 0.08 < (power - scale(low)) / span < 0.92]  # fmt: skip
            step = math.ceil(len(decades) / _MOST_DECADES) or 1
            labels += [((power - scale(low)) / span, short(10.0**power)) for power in decades[::step]]
        return Axis(name, [(scale(value) - scale(low)) / span for value in values], labels)
    texts = [short(value) for value in values]
    known = list(dict.fromkeys(texts))
    place = {text: index / (len(known) - 1) if len(known) > 1 else 0.5 for index, text in enumerate(known)}
    return Axis(name, [place[text] for text in texts], [(place[text], text) for text in known])
