"""Pictures of runs and experiments: learning curves over seeds, parallel coordinates, best value over trials.

Runs whose settings differ only in the seed form a group. A group's curve is the interquartile mean (IQM) of its runs,
with the 95 % percentile bootstrap interval over runs: the definitions of Agarwal et al., arXiv:2108.13264 (rliable).
"""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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
    finite_part,
    rendered,
    return_curve,
    smoothed,
)
from rllib.runs.entries import flatten, is_number, lookup, numbers_of_seeds
from rllib.runs.files import read_goals, read_params, read_results
from rllib.runs.measures import interval, iqm
from rllib.runs.safe_files import write_whole
from rllib.storage.local_path import local_path
from rllib.tune.experiment.directory import journal_file, logarithmic, read_records
from rllib.tune.experiment.trial import short
from rllib.tune.objectives import Metric, Mode, checked_objective, is_several, pairs, pareto_front
from rllib.tune.reporting.reporters import AUTOMATIC_KEYS
from rllib.tune.search.base import metric_value

KINDS = ("curves", "details", "parallel", "best", "front")
_POINTS = 100
_MOST_AXES = 10
_MOST_IN_NAME = 4
_NOT_SETTINGS = {"seed", "log_dir", "profile", "__trial_index__"}
# Number of further curves that are drawn for a single run.
_MOST_DETAILS = 6
# Statistics of learners that are drawn first, in this order.
_FIRST_DETAILS = ("vf_explained_var", "entropy", "policy_entropy", "kl", "mean_q", "mean_td_error")
_MOST_DECADES = 4


@dataclass
class Run:
    """A run: its results and settings.

    Attributes:
        name: name in the legend; of several that are read at once, by what differs in their paths.
        results: the oldest first.
        params: "a/b" path -> value of its settings.
        goals: result key -> threshold at which it stops.
        experiment: header of the journal, if it is a trial of an experiment; else None.
        place: its directory; None: unknown.
    """

    name: str
    results: Sequence[Mapping[str, Any]]
    params: Mapping[str, Any] = field(default_factory=dict)
    goals: Mapping[str, float] = field(default_factory=dict)
    experiment: Mapping[str, Any] | None = None
    place: Path | None = None


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
    """Draws runs into one file: .png, .svg, or .html, which loads nothing.

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
        width: of the picture in inches; its height follows.

    Raises:
        ValueError: if there is nothing to draw, a kind or the suffix is unknown, no result has the metric, or the width
            is not within 2 ... 40.
        ImportError: if matplotlib is not installed.
    """
    path = local_path(path)
    kinds = [kinds] if isinstance(kinds, str) else list(kinds or ())
    if unknown := set(kinds) - set(KINDS):
        raise ValueError(f"There is no kind of plot {unknown.pop()!r}. There are: {', '.join(KINDS)}.")
    if path.suffix not in (".png", ".svg", ".html"):
        raise ValueError(f"A plot is a .png, .svg or .html file, but got {path.name!r}")
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


def read_runs(*directories: str | os.PathLike) -> list[Run]:
    """Reads the runs below the directories: runs of `rllib train`, and trials of experiments.

    Raises:
        ValueError: if there is no directory, or no result.json in it.
    """
    runs, places = [], []
    for given in directories:
        directory = local_path(given)
        if not directory.is_dir():
            raise ValueError(f"There is no directory {os.fspath(given)}")
        found = sorted(directory.rglob("result.json"), key=_numeric_order)
        if not found:
            raise ValueError(f"There is no result.json in {os.fspath(given)} or below it: no run, no experiment")
        headers = {place: _header(place) for place in {file.parent.resolve().parent for file in found}}
        for place in (file.parent for file in found):
            header = headers[place.resolve().parent]
            goals = read_goals(place) or _goals_of(header)
            runs.append(Run(place.name, read_results(place), read_params(place), goals, header))
            places.append(place)
    return [replace(run, name=name, place=place) for run, name, place in zip(runs, names_apart(places), places)]


def names_apart(places: Sequence[Path]) -> list[str]:
    """Names of directories: the shortest end of each one's path that no other one of them has."""
    ends = [place.parts for place in places]
    taken = Counter(end[-count:] for end in set(ends) for count in range(1, len(end) + 1))
    counts = [next((n for n in range(1, len(end)) if taken[end[-n:]] == 1), len(end)) for end in ends]
    return ["/".join(end[-count:]) for end, count in zip(ends, counts)]


def _goals_of(header: Mapping[str, Any] | None) -> dict[str, float]:
    """Thresholds at which the trials of an experiment stop, by result key; {} if its criterion is no dict of them."""
    settings = (header or {}).get("settings")
    saved = settings.get("stop") if isinstance(settings, Mapping) else None
    stop = saved.get("config") if isinstance(saved, Mapping) else None
    return {key: value for key, value in stop.items() if is_number(value)} if isinstance(stop, Mapping) else {}


def _header(directory: Path) -> dict[str, Any] | None:
    """Header of the journal of the experiment in a directory; None without one."""
    return read_records(journal_file(directory))[0] if any(directory.glob("experiment_state-*")) else None


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


def _numeric_order(file: Path) -> list:
    """Sort key by which trial 10 comes after trial 9."""
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in re.split(r"(\d+)", str(file))]


def _figures(runs, objective, modes, x, kinds, title) -> Figures:
    metric, mode = pairs(objective, modes)[0]
    runs = [run for run in runs if run.results]
    if not runs:
        raise ValueError("There is nothing to draw: no run has a result yet")
    points = {index: points_of(run, metric, x) for index, run in enumerate(runs)}
    drawn = [index for index, (_, ys) in points.items() if len(ys)]  # the others have no number
    if not drawn:
        metric_value(runs[0].results[-1], metric)  # raises, with the metrics of the run
        raise ValueError(f"There is nothing to draw: the metric {metric!r} is NaN in all results")
    runs, points = [runs[index] for index in drawn], [points[index] for index in drawn]
    figures = Figures(title, metric, x)
    of_one = ("curves", "details")
    if len(runs) == 1 and set(kinds) - set(of_one):
        raise ValueError(f"{' and '.join(kinds)} compare runs, but there is only one, {runs[0].name}. Draw its curves.")
    if len(runs) > 1 and "details" in kinds:
        raise ValueError(f"details are drawn of a single run, but there are {len(runs)}. Draw their curves.")
    is_search = all(run.experiment is not None for run in runs) and varying(runs)
    of_search = ("curves", "parallel", "front" if is_several(objective) else "best")
    kinds = kinds or (of_search if is_search else of_one if len(runs) == 1 else ("curves",))
    stored = stored_names(metric) or [metric]
    of_metric = (value for run in runs for key, value in run.goals.items() if stored == (stored_names(key) or [key]))
    if len(goals := set(of_metric)) == 1:
        (figures.goal,) = goals
    better = np.nanmax if mode == "max" else np.nanmin
    if "curves" in kinds:
        figures.curves = _curves(runs, [_points_of_seeds(run, metric, x) for run in runs])
        if len(runs) == 1 and metric == RETURN and figures.curves[0].runs == 1:
            run = runs[0]
            bands = [(_place(result, x, number), _finite(result, metric), *episode_quantiles(result))
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
    return next(filter(math.isfinite, (_finite(result, metric) for result in reversed(run.results))), math.nan)


def points_of(run: Run, metric: str, x: str) -> tuple[np.ndarray, np.ndarray]:
    """[P] and [P] float64, from the first to the last result in which the metric is finite; NaN in between."""
    return finite_part(
        [(_place(result, x, number), _finite(result, metric)) for number, result in enumerate(run.results, 1)]
    )


def _points_of_seeds(run: Run, metric: str, x: str) -> list[tuple[np.ndarray, np.ndarray]]:
    points = [points_of(of_seed, metric, x) for of_seed in runs_of_seeds(run, metric)]
    return [each for each in points if len(each[1])]


def runs_of_seeds(run: Run, metric: str) -> list[Run]:
    """The runs of a trial's seeds, as far as its results have their metric; the run alone if it has one seed."""
    seeds = [numbers_of_seeds(result) for result in run.results]
    results: dict[str, list[dict]] = {}
    for result, numbers in zip(run.results, seeds):
        for seed, own in numbers.items():
            if lookup(own, metric) is not None:
                results.setdefault(seed, []).append({**result, **own})
    return [replace(run, name=f"{run.name}_seed_{seed}", results=own) for seed, own in results.items()] or [run]


def _place(result: Mapping, x: str, number: int) -> float:
    """Place on the horizontal axis of a result, the `number`-th of its run."""
    place = lookup(result, x)
    place = result.get("training_iteration", number) if place is None else place
    return float(place) if is_number(place) else math.nan


def _finite(result: Mapping, metric: str) -> float:
    """The metric; NaN where it is infinite or missing, as the return is before the first episode has ended."""
    try:
        value = metric_value(result, metric)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


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


def _curves(runs: Sequence[Run], points) -> list[Curve]:
    """A curve for each group of runs; `points` are those of each run's seeds."""
    groups: dict[str, list[int]] = {}
    differing = varying(runs)
    for index, run in enumerate(runs):
        # Without settings it is unknown which runs differ in the seed only.
        key = _text(_settings(run)) if run.params else run.name
        groups.setdefault(key, []).append(index)
    curves = []
    names = _names_of_groups([[runs[index] for index in members] for members in groups.values()])
    for members, own_name in zip(groups.values(), names):
        run = runs[members[0]]
        name = ", ".join(f"{key.rsplit('/', 1)[-1]}={short(run.params.get(key))}" for key in differing)
        name = name if 0 < len(differing) <= _MOST_IN_NAME else own_name
        if len(groups) == 1 and len(members) > 1:
            name = f"{run.name} and {len(members) - 1} more"
        curves.append(seeds_as_one(name, [of_seed for index in members for of_seed in points[index]]))
    return curves


def _names_of_groups(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Names of groups of runs that differ in the seed only: of a folder, if one holds the group alone, or of a run."""
    if any(run.place is None for group in groups for run in group):
        return [group[0].name for group in groups]
    folders = [{run.place.parent for run in group} for group in groups]
    places = []
    for group, own in zip(groups, folders):
        holds_it_alone = len(own) == 1 and not any(own & other for other in folders if other is not own)
        places.append(group[0].place.parent if len(group) > 1 and holds_it_alone else group[0].place)
    return names_apart(places)


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


def _settings(run: Run) -> dict[str, Any]:
    return {key: value for key, value in sorted(run.params.items()) if key.split("/")[-1] not in _NOT_SETTINGS}


def varying(runs: Sequence[Run]) -> list[str]:
    """The settings in which the runs differ."""
    keys = dict.fromkeys(key for run in runs for key in _settings(run))
    return [key for key in keys if len({_text(run.params.get(key)) for run in runs}) > 1]


def _text(value) -> str:
    """Text that is the same for equal values: a resumed run has 1.0 where it had 1 before."""
    return json.dumps(json.loads(json.dumps(value, default=repr), parse_int=float))


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
    axes = [_axis(key, [run.params.get(key) for run in runs], scales.get(key)) for key in varying(runs)[:_MOST_AXES]]
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
