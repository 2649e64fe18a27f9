"""Pictures of runs and experiments: learning curves over seeds, parallel coordinates, best so far.

Runs with equal settings but the seed form a group. A group's curve is the interquartile mean (IQM) of its runs, with
the 95 % percentile bootstrap interval over runs: the definitions of Agarwal et al., arXiv:2108.13264 (rliable).
"""

import html
import io
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rllib.tune.checks import check_mode
from rllib.tune.experiment import journal_file, read_records
from rllib.tune.loggers import flatten, is_number, lookup, read_results, settings_by_path, write_whole
from rllib.tune.reporters import AUTOMATIC_KEYS
from rllib.tune.searchers.base import metric_value
from rllib.tune.trial import short

KINDS = ("curves", "parallel", "best")
_POINTS = 100
_RESAMPLES = 2000
_MOST_AXES = 10
_MOST_IN_NAME = 4
_NOT_SETTINGS = {"seed", "__trial_index__"}
# Number of other reported numbers that are drawn of a single run.
_MOST_DETAILS = 6
_RETURN, _LOWEST_AND_HIGHEST = "episode_reward_mean", ("episode_reward_min", "episode_reward_max")
_STEPS = "timesteps_total"
# Of the panels, in inches.
_HEIGHT, _DETAIL_HEIGHT = 4.6, 2.6
_FEW_POINTS = 30
# Pointing at a run brings it to the front.
_STYLE = """
body { max-width: 900px; margin: 2em auto; background: #fff } svg { width: 100%; height: auto }
g[id^=run]:hover path { stroke-width: 4 !important } svg:has(g[id^=run]:hover) g[id^=run]:not(:hover) { opacity: .25 }
"""


@dataclass
class Run:
    """A run: its results and settings.

    Attributes:
        name: for the legend.
        results: oldest first.
        params: its settings, "a/b" path -> value.
    """

    name: str
    results: Sequence[Mapping[str, Any]]
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Curve:
    """A line, and a band around it where there is one: float64 arrays of equal length; NaN in `y` is a gap.

    Attributes:
        low, high: the 95 % interval over runs; of a single run's return, the lowest and highest episode.
        runs: number of runs of which it is the interquartile mean.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    runs: int = 1


@dataclass
class Axis:
    """One axis of parallel coordinates: `places` in [0, 1], one for each run; `labels` are (place, text)."""

    name: str
    places: list[float]
    labels: list[tuple[float, str]]


@dataclass
class Figures:
    """All that is drawn.

    Attributes:
        curves, axes, best: of the kinds "curves", "parallel" and "best"; None if that kind is not drawn.
        colours: of the runs in [0, 1] by the metric, 1 the best.
        details: curves of what else a single run reported, by its name.
    """

    title: str
    metric: str
    x: str
    curves: list[Curve] | None = None
    axes: list[Axis] | None = None
    colours: list[float] = field(default_factory=list)
    best: Curve | None = None
    details: list[Curve] = field(default_factory=list)


def plot(
    runs: Sequence[Run],
    path: str | os.PathLike,
    metric: str = "episode_reward_mean",
    mode: str = "max",
    x: str = "timesteps_total",
    kinds: str | Sequence[str] | None = None,
    title: str = "",
) -> Path:
    """Draws runs into one file: .png, or .html, which loads nothing.

    Args:
        runs: see `read_runs`.
        path: of the file; its ending decides.
        metric: result key or "a/b" path.
        mode: whether "max" or "min" of it is best.
        x: result key of the horizontal axis; where a run has none, training_iteration.
        kinds: of "curves", "parallel" (of the first ten settings that differ) and "best"; None: all, and of a single
            run its curves: the metric and what else it reported.
        title: above everything.

    Raises:
        ValueError: if there is nothing to draw, or no such kind or ending, or no result has the metric.
        ImportError: if matplotlib is not installed.
    """
    path = Path(path)
    kinds = [kinds] if isinstance(kinds, str) else list(kinds or ())
    if unknown := set(kinds) - set(KINDS):
        raise ValueError(f"There is no kind of plot {unknown.pop()!r}. There are: {', '.join(KINDS)}.")
    if path.suffix not in (".png", ".html"):
        raise ValueError(f"A plot is a .png or a .html file, but got {path.name!r}")
    check_mode(mode)
    figures = _figures(runs, metric, mode, x, kinds, title)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, _rendered(figures, path.suffix[1:]))
    return path


class CurveLogger:
    """Draws a run's curve.png, return by environment steps, when it is closed.

    Args:
        directory: where curve.png goes.
        title: above the curve.

    Attributes:
        points_per_poll: number of results that are taken in each half second.

    Raises:
        ImportError: if matplotlib is not installed.
    """

    points_per_poll = 1000

    def __init__(self, directory: Path, title: str = ""):
        self._path, self._title = directory / "curve.png", title
        self._results: list[dict] = []
        # The first figure loads fonts and takes longer than all later ones: better now than at the end of the run.
        _rendered(Figures("", "", "", curves=[]), "png")

    def on_result(self, result: Mapping) -> None:
        """Remembers one point; results without a finished episode are gaps."""
        if result.get(_STEPS) is not None:
            self._results.append({key: result.get(key) for key in (_STEPS, _RETURN, *_LOWEST_AND_HIGHEST)})

    def close(self) -> None:
        run = Run("mean of the last episodes", self._results)
        x, y = _points(run, _RETURN, _STEPS)
        if len(y):
            curve = _with_band(Curve(run.name, x, y), run, _STEPS)
            figures = Figures(self._title, "episode return", "environment steps", [curve])
            write_whole(self._path, _rendered(figures, "png"))


def read_runs(*directories: str | os.PathLike) -> list[Run]:
    """The runs below the directories: those of `rllib train`, and the trials of experiments.

    Raises:
        ValueError: if there is no directory, or no result.json in it.
    """
    runs = []
    for directory in map(Path, directories):
        if not directory.is_dir():
            raise ValueError(f"There is no directory {directory}")
        found = sorted(directory.rglob("result.json"), key=_in_order)
        if not found:
            raise ValueError(f"There is no result.json in {directory} or below it: neither a run nor an experiment")
        runs += [_read_run(file) for file in found]
    return runs


def read_objective(*directories: str | os.PathLike) -> tuple[str | None, str | None]:
    """(metric, mode) by which the experiments in these directories compared their trials; None where there is none.

    A directory may be an experiment's or one of its trials'.

    Raises:
        ValueError: if they were compared by different metrics.
    """
    found = {}
    for directory in map(Path, directories):
        places = [place for place in (directory, directory.resolve().parent) if any(place.glob("experiment_state-*"))]
        for place in places[:1]:
            header = read_records(journal_file(place))[0]
            if header.get("metric"):
                found[header["metric"], header.get("mode")] = directory
    if len(found) > 1:
        kinds = ", ".join(f"{directory.name} by {metric} ({mode})" for (metric, mode), directory in found.items())
        raise ValueError(f"These experiments compared their trials by different metrics: {kinds}. Give one of them.")
    return next(iter(found), (None, None))


def _in_order(file: Path) -> list:
    """Trial 10 comes after trial 9."""
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in re.split(r"(\d+)", str(file))]


def _read_run(file: Path) -> Run:
    params_file = file.with_name("params.json")
    try:
        params = json.loads(params_file.read_text()) if params_file.exists() else {}
    except ValueError:
        params = {}
    return Run(file.parent.name, read_results(file.parent), dict(settings_by_path(params)))


def iqm(values: np.ndarray) -> np.ndarray:
    """Interquartile mean along the first axis: the mean without the lowest and highest quarter, rounded down.

    Args:
        values: [N, ...] float64.
    """
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


def interval(values: np.ndarray, confidence: float = 0.95, resamples: int = _RESAMPLES, seed: int = 0) -> np.ndarray:
    """Percentile bootstrap interval of the IQM over the first axis, runs drawn with replacement.

    Args:
        values: [N, P] float64, N runs at P points.

    Returns:
        [2, P]: low and high.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(values), size=(len(values), resamples))
    tails = [50 * (1 - confidence), 50 * (1 + confidence)]
    return np.stack([np.percentile(iqm(column[drawn]), tails) for column in values.T], axis=1)


def _figures(runs, metric, mode, x, kinds, title) -> Figures:
    runs = [run for run in runs if run.results]
    if not runs:
        raise ValueError("There is nothing to draw: no run has a result yet")
    points = {index: _points(run, metric, x) for index, run in enumerate(runs)}
    drawn = [index for index, (_, ys) in points.items() if len(ys)]  # the others have no number
    if not drawn:
        metric_value(runs[0].results[-1], metric)  # says which metrics there are
        raise ValueError(f"There is nothing to draw: the metric {metric!r} is NaN in all results")
    runs, points = [runs[index] for index in drawn], [points[index] for index in drawn]
    figures = Figures(title, metric, x)
    if len(runs) == 1 and set(kinds) - {"curves"}:
        raise ValueError(f"{' and '.join(kinds)} compare runs, but there is only one, {runs[0].name}. Draw its curves.")
    kinds = kinds or (KINDS if len(runs) > 1 else ["curves"])
    better = np.nanmax if mode == "max" else np.nanmin
    if "curves" in kinds:
        figures.curves = _curves(runs, points)
    if len(runs) == 1:
        if metric == _RETURN:
            figures.curves = [_with_band(figures.curves[0], runs[0], x)]
        figures.details = _details(runs[0], metric, x)
    if "parallel" in kinds:
        figures.axes, figures.colours = parallel(runs, [better(ys) for _, ys in points], metric, mode)
    if "best" in kinds:
        best = np.maximum.accumulate if mode == "max" else np.minimum.accumulate
        tops = np.array([better(ys) for _, ys in points])
        figures.best = Curve("best so far", np.arange(1, len(tops) + 1), best(tops))
    return figures


def _points(run: Run, metric: str, x: str) -> tuple[np.ndarray, np.ndarray]:
    """[P] and [P] float64, from the first to the last result in which the metric is finite; NaN in between."""
    pairs = [(_place(result, x, number), _finite(result, metric)) for number, result in enumerate(run.results, 1)]
    array = np.array(pairs, float).reshape(-1, 2)
    array = array[np.argsort(array[:, 0], kind="stable")]
    known = np.flatnonzero(np.isfinite(array[:, 1]))
    array = array[known[0] : known[-1] + 1] if len(known) else array[:0]
    return array[:, 0], array[:, 1]


def _place(result: Mapping, x: str, number: int) -> float:
    """Where on the horizontal axis a result is, the `number`-th of its run."""
    place = lookup(result, x)
    return float(result.get("training_iteration", number) if place is None else place)


def _finite(result: Mapping, metric: str) -> float:
    """The metric; NaN where it is missing (as the return is before the first episode has ended) or infinite."""
    try:
        value = metric_value(result, metric)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _with_band(curve: Curve, run: Run, x: str) -> Curve:
    """The return of a single run with its lowest and highest episodes, where they are known."""
    bounds = [_points(run, key, x) for key in _LOWEST_AND_HIGHEST]
    if any(not np.array_equal(xs, curve.x) for xs, _ in bounds):
        return curve
    return replace(curve, low=bounds[0][1], high=bounds[1][1])


def _details(run: Run, metric: str, x: str) -> list[Curve]:
    """Curves of other numbers of the run: of an algorithm the episode length and its learner's statistics, else all."""
    names = list(dict.fromkeys(key for result in run.results for key, value in flatten(result)
                               if not isinstance(value, (str, bool))))  # fmt: skip
    if "episode_len_mean" in names:
        names = ["episode_len_mean", *(name for name in names if "/learner_stats/" in name)]
    else:
        names = [name for name in names if name not in AUTOMATIC_KEYS]
    curves = [Curve(name, *_points(run, name, x)) for name in names if name != metric]
    return [curve for curve in curves if len(set(curve.y)) > 1][:_MOST_DETAILS]


def _curves(runs: Sequence[Run], points) -> list[Curve]:
    groups: dict[str, list[int]] = {}
    varying = _varying(runs)
    for index, run in enumerate(runs):
        # Without settings it is unknown which runs differ in the seed only.
        key = json.dumps(_settings(run), default=repr) if run.params else run.name
        groups.setdefault(key, []).append(index)
    curves = []
    for members in groups.values():
        run = runs[members[0]]
        name = ", ".join(f"{key.rsplit('/', 1)[-1]}={short(run.params.get(key))}" for key in varying)
        name = name if 0 < len(varying) <= _MOST_IN_NAME else run.name
        if len(groups) == 1 and len(members) > 1:
            name = f"{run.name} and {len(members) - 1} more"
        curves.append(_curve(name, [points[index] for index in members]))
    return curves


def _curve(name: str, members: Sequence) -> Curve:
    if len(members) == 1:
        return Curve(name, *members[0])
    # Only as far as all runs have come: beyond, the curve would be that of the runs that are left.
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


def _varying(runs: Sequence[Run]) -> list[str]:
    """The settings in which the runs differ."""
    keys = dict.fromkeys(key for run in runs for key in _settings(run))
    return [key for key in keys if len({json.dumps(run.params.get(key), default=repr) for run in runs}) > 1]


def parallel(
    runs: Sequence[Run], tops: Sequence[float], metric: str, mode: str
) -> tuple[list[Axis], list[float]]:
    """Parallel coordinates: the settings in which the runs differ, ten at most, and the metric.

    Args:
        runs: two or more.
        tops: each run's best value of the metric.
        metric: its name.
        mode: whether "max" or "min" of it is best.

    Returns:
        the axes, that of the metric last, and each run's place in [0, 1] by the metric, 1 the best.
    """
    # Runs of different algorithms differ in dozens of settings, too many to read.
    axes = [_axis(key, [run.params.get(key) for run in runs]) for key in _varying(runs)[:_MOST_AXES]]
    axes.append(_axis(metric, tops))
    colours = axes[-1].places
    return axes, [place if mode == "max" else 1 - place for place in colours]


def _axis(name: str, values: list) -> Axis:
    """Numbers by size (by logarithm where they span more than two decades), all else in order of appearance."""
    if all(map(is_number, values)):
        low, high = min(values), max(values)
        is_log = low > 0 and high / low > 100
        scale = math.log if is_log else float
        span = scale(high) - scale(low)
        places = [(scale(value) - scale(low)) / span if span else 0.5 for value in values]
        return Axis(name, places, [(0.0, short(low)), (1.0, short(high))] if span else [(0.5, short(low))])
    texts = [short(value) for value in values]
    known = list(dict.fromkeys(texts))
    place = {text: index / (len(known) - 1) if len(known) > 1 else 0.5 for index, text in enumerate(known)}
    return Axis(name, [place[text] for text in texts], [(place[text], text) for text in known])


# ---------------------------------------------------------------------- drawing


def _rendered(figures: Figures, kind: str) -> bytes:
    """A "png" or "html" file; an ImportError without matplotlib."""
    try:
        from matplotlib import rc_context
    except ImportError:
        raise ImportError("plots need matplotlib: pip install 'rllib[plot]'") from None
    figure, names = _drawn(figures)
    drawn = io.BytesIO()
    if kind == "png":
        figure.savefig(drawn, format="png", dpi=110)
        return drawn.getvalue()
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(drawn, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = drawn.getvalue().decode()
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg[svg.index("<svg") :])
    for name, meaning in names.items():
        svg = svg.replace(f'<g id="{name}">', f'<g id="{name}"><title>{html.escape(meaning)}</title>', 1)
    title = html.escape(figures.title or figures.metric)
    head = f'<head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head>'
    return f"<!doctype html><html>{head}<body>{svg}</body></html>\n".encode()


def _drawn(figures: Figures):
    """The figure, and the SVG ids of its runs with what is said when one points at them.

    The panels stand below one another, the details of a single run in two columns.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    panels = [
        draw
        for draw, there in ((_draw_curves, figures.curves), (_draw_parallel, figures.axes), (_draw_best, figures.best))
        if there is not None
    ]
    heights = [_HEIGHT] * len(panels) + [_DETAIL_HEIGHT] * math.ceil(len(figures.details) / 2)
    figure = Figure(figsize=(8, sum(heights)), layout="constrained")
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    for row, draw in enumerate(panels):
        axes = figure.add_subplot(grid[row, :])
        draw(axes, figures)
        axes.spines[["top", "right"]].set_visible(False)
    for index, curve in enumerate(figures.details):
        axes = figure.add_subplot(grid[len(panels) + index // 2, index % 2])
        _draw(axes, curve)
        axes.set_title(curve.name.rsplit("/", 1)[-1], fontsize="medium")
        axes.set_xlabel(figures.x, fontsize="small")
        axes.spines[["top", "right"]].set_visible(False)
    for index, axes in enumerate(figure.axes):
        if axes.get_xlabel() and all(float(x).is_integer() for line in axes.lines for x in line.get_xdata()):
            axes.xaxis.set_major_locator(MaxNLocator("auto" if index < len(panels) else 4, integer=True))
            axes.xaxis.set_major_formatter("{x:,.0f}")
        if 1e3 <= max(map(abs, axes.get_ylim())) < 1e7:
            axes.yaxis.set_major_formatter("{x:,.10g}")
        axes.tick_params(labelsize="small")
    if figures.title:
        figure.suptitle(figures.title)
    curves = figures.curves or []
    return figure, {f"run{i}": f"{curve.name}: {curve.y[-1]:.5g} at the end" for i, curve in enumerate(curves)}


def _draw_curves(axes, figures: Figures) -> None:
    for index, curve in enumerate(figures.curves):
        name = curve.name + (f" (IQM of {curve.runs}, 95 % interval)" if curve.runs > 1 else "")
        _draw(axes, curve, name).set_gid(f"run{index}")
    if 0 < len(figures.curves) <= 12:
        axes.legend(frameon=False, fontsize="small")
    axes.set(xlabel=figures.x, ylabel=figures.metric)


def _draw(axes, curve: Curve, label: str | None = None):
    """A curve with its band; a point between two gaps, and each of a few points, has a mark. Returns the line."""
    known = np.isfinite(curve.y)
    lone = np.flatnonzero(known & ~np.r_[False, known[:-1]] & ~np.r_[known[1:], False])
    marks = None if len(curve.x) < _FEW_POINTS else lone.tolist()
    (line,) = axes.plot(curve.x, curve.y, linewidth=1.6, marker=".", markevery=marks, label=label)
    if curve.low is not None:
        if len(lone):  # a band has no width there
            heights = curve.low[lone], curve.high[lone]
            axes.vlines(curve.x[lone], *heights, alpha=0.2, linewidth=8, color=line.get_color())
        axes.fill_between(curve.x, curve.low, curve.high, alpha=0.2, linewidth=0, color=line.get_color(),
                          label="lowest to highest episode" if curve.runs == 1 else None)  # fmt: skip
    axes.grid(alpha=0.3)
    return line


def _draw_parallel(axes, figures: Figures) -> None:
    from matplotlib import colormaps

    colours = colormaps["viridis"]
    names = [axis.name.rsplit("/", 1)[-1] for axis in figures.axes]
    for run, colour in sorted(enumerate(figures.colours), key=lambda item: item[1]):
        places = [axis.places[run] for axis in figures.axes]
        axes.plot(range(len(places)), places, color=colours(colour), linewidth=1, marker="o", markersize=3, alpha=0.8,
                  gid=f"run of axes {run}")  # fmt: skip
    for index, axis in enumerate(figures.axes):
        axes.axvline(index, color="0.8", linewidth=0.8, zorder=0)
        for place, text in axis.labels:
            axes.text(index, place, f" {text}", fontsize="small")
    slant = {"rotation": 25, "ha": "right"} if len(names) > 5 else {}
    axes.set_xticks(range(len(names)), names, **slant)
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)


def _draw_best(axes, figures: Figures) -> None:
    axes.step(figures.best.x, figures.best.y, where="post", linewidth=1.8, marker=".")
    axes.set(xlabel="trials", ylabel=f"best {figures.metric} so far")
    axes.grid(alpha=0.3)
