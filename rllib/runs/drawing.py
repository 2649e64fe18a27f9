"""Pictures of curves and parallel coordinates, as PNG, SVG or HTML with an SVG, and the curve.png of a run."""

import html
import importlib.util
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from rllib.extras import install_hint
from rllib.runs.entries import is_number
from rllib.runs.naming import names_of_keys
from rllib.runs.safe_files import write_whole

STEPS, RETURN, ITERATIONS = "timesteps_total", "episode_reward_mean", "training_iteration"
# A single run's curve is a moving mean over this share of its results.
_SMOOTHED_SHARE = 1 / 40
_QUANTILES, _BAND = (0.1, 0.9), "10 to 90 % of the last episodes"
# Result key -> title of its axis or chart; other keys have their own name as title.
_TITLES = {
    STEPS: "environment steps",
    RETURN: "episode return",
    "num_env_steps_sampled": "environment steps",
    ITERATIONS: "iterations",
    "num_updates": "updates",
    "time_total_s": "seconds of training",
    "episode_len_mean": "episode length",
    "episode_cost_mean": "episode cost",
    "evaluation/episode_reward_mean": "episode return in evaluation",
    "vf_explained_var": "explained variance of the value",
    "vf_loss": "value loss",
    "kl": "KL divergence",
    "grad_gnorm": "gradient norm",
    "cur_lr": "learning rate",
    "cur_kl_coeff": "coefficient of the KL divergence",
    "cur_epsilon": "epsilon",
    "mean_q": "mean Q",
    "mean_td_error": "mean TD error",
}
# Width of a picture, and heights of the panels where it is that wide, in inches.
WIDTH = 8.0
_HEIGHT, _DETAIL_HEIGHT = 4.6, 2.6
_FEW_POINTS = 30
# Pointing at a run brings it to the front.
_STYLE = """
body { max-width: 900px; margin: 2em auto; background: #fff } svg { width: 100%; height: auto }
g[id^=run]:hover path { stroke-width: 4 !important } svg:has(g[id^=run]:hover) g[id^=run]:not(:hover) { opacity: .25 }
"""


@dataclass
class Curve:
    """A line, and a band around it where there is one: float64 arrays of equal length; NaN in `y` is a gap.

    Attributes:
        low, high: the 95 % interval over runs; of a single run's return, the 10 % and 90 % quantile of its episodes.
        raw: `y` before it was smoothed, where that is drawn too.
        runs: number of runs of which it is the interquartile mean.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    raw: np.ndarray | None = None
    runs: int = 1


@dataclass
class Axis:
    """One axis of parallel coordinates: `places` in [0, 1], one for each run; `labels` are (place, text)."""

    name: str
    places: list[float]
    labels: list[tuple[float, str]]


@dataclass
class Front:
    """Two metrics of N runs: float64 [N], NaN without a value; `front` are the runs on the Pareto front, by x."""

    x_metric: str
    y_metric: str
    x: np.ndarray
    y: np.ndarray
    front: list[int]


@dataclass
class Figures:
    """Content of a picture.

    Attributes:
        metric, x: result keys of the vertical and the horizontal axis.
        curves, axes, best: of the kinds "curves", "parallel" and "best"; None if that kind is not drawn.
        colours: of the runs in [0, 1] by the metric, 1 the best.
        details: curves of what else a single run reported, by its name.
        fronts: of the kind "front".
        goal: value of the metric at which training was to stop; None if there is none.
        width: in inches.
    """

    title: str
    metric: str
    x: str
    curves: list[Curve] | None = None
    axes: list[Axis] | None = None
    colours: list[float] = field(default_factory=list)
    best: Curve | None = None
    details: list[Curve] = field(default_factory=list)
    fronts: list[Front] = field(default_factory=list)
    goal: float | None = None
    width: float = WIDTH


def title_of(key: str) -> str:
    """Title of a result key, for axes and charts."""
    name = key.rsplit("/", 1)[-1]
    return _TITLES.get(key) or _TITLES.get(name) or name.replace("_", " ")


def finite_part(points: Sequence[Sequence[float]], columns: int = 2) -> np.ndarray:
    """Columns of points: x, y and any others, float64 [columns, P].

    They are ordered by x, from the first to the last point whose y is finite; NaN in between.
    """
    array = np.array(points, float).reshape(-1, columns)
    array = array[np.isfinite(array[:, 0])]
    array = array[np.argsort(array[:, 0], kind="stable")]
    known = np.flatnonzero(np.isfinite(array[:, 1]))
    return (array[known[0] : known[-1] + 1] if len(known) else array[:0]).T


def smoothed(curve: Curve) -> Curve:
    """Smooths a single run's curve and band by a moving mean, if it has many points."""
    width = int(len(curve.x) * _SMOOTHED_SHARE)
    if width < 2:
        return curve
    lines = {name: getattr(curve, name) for name in ("y", "low", "high")}
    means = {name: _moving_mean(line, width) for name, line in lines.items() if line is not None}
    return replace(curve, **means, raw=curve.y)


def _moving_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Mean over at most `width` values around each known value; NaN stays."""
    known = np.isfinite(values)
    sums, counts = (np.convolve(each, np.ones(width), "same") for each in (np.where(known, values, 0.0), known))
    return np.where(known, sums / np.maximum(counts, 1.0), np.nan)


def episode_quantiles(result: Mapping) -> tuple[float, float]:
    """10 % and 90 % quantile of the returns of a result's last episodes; NaN without episodes."""
    stats = result.get("hist_stats")
    returns = stats.get("episode_reward") if isinstance(stats, Mapping) else None
    returns = [each for each in returns if is_number(each)] if isinstance(returns, list) else []
    low, high = np.quantile(np.array(returns, float), _QUANTILES) if returns else (math.nan, math.nan)
    return float(low), float(high)


def return_curve(name: str, points: Sequence[tuple[float, float, float, float]]) -> Curve:
    """Makes the curve of a single run's return.

    Args:
        name: name of the curve.
        points: x, return, and its quantiles, of each result.
    """
    x, y, low, high = finite_part(points, 4)
    return smoothed(Curve(name, x, y, low, high) if np.isfinite(low).any() else Curve(name, x, y))


class CurveLogger:
    """Draws a run's curve.png, return by environment steps, when it is closed.

    Args:
        directory: where curve.png goes.
        title: above the curve.
        goal: the return at which training is to stop; None if there is none.

    Attributes:
        points_per_poll: largest number of results taken in each half second.

    Raises:
        ImportError: if matplotlib is not installed.
    """

    points_per_poll = 1000
    what = "curve.png is"

    def __init__(self, directory: Path, title: str = "", goal: float | None = None):
        self._path, self._title, self._goal = directory / "curve.png", title, goal
        self._points: list[tuple[float, float, float, float]] = []
        # The first figure loads fonts and takes longer than all later ones: better now than at the end of the run.
        rendered(Figures("", "", "", curves=[]), "png")

    def on_result(self, result: Mapping) -> None:
        """Adds one point; results without a finished episode are gaps."""
        steps, reached = (value if is_number(value) else math.nan for value in map(result.get, (STEPS, RETURN)))
        self._points.append((steps, reached, *episode_quantiles(result)))

    def close(self) -> None:
        curve = return_curve("mean of the last episodes", self._points)
        if len(curve.y):
            figures = Figures(self._title, RETURN, STEPS, [curve], goal=self._goal)
            write_whole(self._path, rendered(figures, "png"))


def refuse_missing_matplotlib() -> None:
    """Raises an ImportError without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError(f"plots need matplotlib: {install_hint('plot')}")


def saved(figure, kind: str) -> bytes:
    """A matplotlib figure as a "png", "svg" or "pdf" file."""
    from matplotlib import rc_context

    drawn = io.BytesIO()
    if kind == "png":
        figure.savefig(drawn, format="png", dpi=110)
    elif kind == "pdf":  # equal data, equal bytes; type 42, since journals refuse fonts of type 3
        with rc_context({"pdf.fonttype": 42}):
            figure.savefig(drawn, format="pdf", metadata={"Creator": None, "CreationDate": None})
    else:
        with rc_context({"svg.fonttype": "none"}):
            figure.savefig(drawn, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return drawn.getvalue()


def rendered(figures: Figures, kind: str) -> bytes:
    """Draws a "png", "svg", "pdf" or "html" file; raises an ImportError without matplotlib."""
    refuse_missing_matplotlib()
    figure, names = _drawn(figures)
    if kind != "html":
        return saved(figure, kind)
    svg = saved(figure, "svg").decode()
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg[svg.index("<svg") :])
    for name, meaning in names.items():
        svg = svg.replace(f'<g id="{name}">', f'<g id="{name}"><title>{html.escape(meaning)}</title>', 1)
    title = html.escape(figures.title or title_of(figures.metric))
    head = f'<head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head>'
    return f"<!doctype html><html>{head}<body>{svg}</body></html>\n".encode()


def _drawn(figures: Figures):
    """Draws the figure; returns it with SVG id -> text that is shown when one points at a run.

    The panels stand below one another, the details of a single run in two columns.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    panels = [
        draw
        for draw, there in ((_draw_curves, figures.curves), (_draw_parallel, figures.axes), (_draw_best, figures.best))
        if there is not None
    ]
    panels += [partial(_draw_front, front=front) for front in figures.fronts]
    heights = [_HEIGHT] * len(panels) + [_DETAIL_HEIGHT] * math.ceil(len(figures.details) / 2)
    figure = Figure(figsize=(figures.width, sum(heights) * figures.width / WIDTH), layout="constrained")
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    for row, draw in enumerate(panels):
        axes = figure.add_subplot(grid[row, :])
        draw(axes, figures)
        axes.spines[["top", "right"]].set_visible(False)
    for index, curve in enumerate(figures.details):
        axes = figure.add_subplot(grid[len(panels) + index // 2, index % 2])
        draw_curve(axes, curve)
        axes.set_title(title_of(curve.name), fontsize="medium")
        axes.set_xlabel(title_of(figures.x), fontsize="small")
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
        draw_curve(axes, curve, name).set_gid(f"run{index}")
    if figures.goal is not None:
        axes.axhline(figures.goal, linestyle="--", linewidth=1.2, color="0.4", label=f"goal {figures.goal:g}")
    if 0 < len(figures.curves) <= 12:
        axes.legend(frameon=False, fontsize="small")
    axes.set(xlabel=title_of(figures.x), ylabel=title_of(figures.metric))


def draw_curve(axes, curve: Curve, label: str | None = None, color: str | None = None):
    """Draws a curve with its band, and marks points between two gaps, or all of a few points. Returns the line."""
    known = np.isfinite(curve.y)
    lone = np.flatnonzero(known & ~np.r_[False, known[:-1]] & ~np.r_[known[1:], False])
    marks = None if len(curve.x) < _FEW_POINTS else lone.tolist()
    (line,) = axes.plot(curve.x, curve.y, linewidth=1.6, marker=".", markevery=marks, label=label,
                         color=color)  # fmt: skip
    if curve.raw is not None and curve.low is None:
        axes.plot(curve.x, curve.raw, linewidth=0.7, alpha=0.35, color=line.get_color(), zorder=1)
    if curve.low is not None:
        if len(lone):  # at these points a band has no width
            heights = curve.low[lone], curve.high[lone]
            axes.vlines(curve.x[lone], *heights, alpha=0.2, linewidth=8, color=line.get_color())
        axes.fill_between(curve.x, curve.low, curve.high, alpha=0.2, linewidth=0, color=line.get_color(),
                          label=_BAND if curve.runs == 1 else None)  # fmt: skip
    axes.grid(alpha=0.3)
    return line


def _draw_parallel(axes, figures: Figures) -> None:
    from matplotlib import colormaps

    colours = colormaps["viridis"]
    *settings, metric = (axis.name for axis in figures.axes)
    names = [*names_of_keys(settings).values(), title_of(metric)]
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


def _draw_front(axes, figures: Figures, front: Front) -> None:
    """Draws the runs as points, and the front as a line of larger ones."""
    axes.plot(front.x, front.y, linestyle="", marker=".", color="0.6", label="other trials")
    axes.plot(front.x[front.front], front.y[front.front], linewidth=1.2, marker="o", label="Pareto front")
    axes.legend(frameon=False, fontsize="small")
    axes.set(xlabel=title_of(front.x_metric), ylabel=title_of(front.y_metric))
    axes.grid(alpha=0.3)


def _draw_best(axes, figures: Figures) -> None:
    axes.step(figures.best.x, figures.best.y, where="post", linewidth=1.8, marker=".")
    axes.set(xlabel="trials", ylabel=f"best {title_of(figures.metric)} so far")
    axes.grid(alpha=0.3)
