"""Pictures of curves and of parallel coordinates, as a PNG or an HTML file with an SVG; and the curve.png of a run."""

import html
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from rllib.runs.files import write_whole

STEPS, RETURN = "timesteps_total", "episode_reward_mean"
LOWEST_AND_HIGHEST = "episode_reward_min", "episode_reward_max"
_DRAWN = (RETURN, *LOWEST_AND_HIGHEST)
# Of the panels, in inches.
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


def finite_part(pairs: Sequence[tuple[float, float | None]]) -> tuple[np.ndarray, np.ndarray]:
    """x and y, float64 [P] each and by x, from the first to the last point whose y is finite; NaN in between."""
    array = np.array(pairs, float).reshape(-1, 2)
    array = array[np.argsort(array[:, 0], kind="stable")]
    known = np.flatnonzero(np.isfinite(array[:, 1]))
    array = array[known[0] : known[-1] + 1] if len(known) else array[:0]
    return array[:, 0], array[:, 1]


def with_band(curve: Curve, low: tuple[np.ndarray, np.ndarray], high: tuple[np.ndarray, np.ndarray]) -> Curve:
    """The curve with a band from low to high, (x, y) each, where both are known at all of its points."""
    if any(not np.array_equal(x, curve.x) for x, _ in (low, high)):
        return curve
    return replace(curve, low=low[1], high=high[1])


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
    what = "curve.png is"

    def __init__(self, directory: Path, title: str = ""):
        self._path, self._title = directory / "curve.png", title
        self._results: list[dict] = []
        # The first figure loads fonts and takes longer than all later ones: better now than at the end of the run.
        rendered(Figures("", "", "", curves=[]), "png")

    def on_result(self, result: Mapping) -> None:
        """Remembers one point; results without a finished episode are gaps."""
        if result.get(STEPS) is not None:
            self._results.append({key: result.get(key) for key in (STEPS, *_DRAWN)})

    def close(self) -> None:
        points = {key: finite_part([(result[STEPS], result[key]) for result in self._results]) for key in _DRAWN}
        x, y = points[RETURN]
        if len(y):
            curve = with_band(Curve("mean of the last episodes", x, y), *(points[key] for key in LOWEST_AND_HIGHEST))
            figures = Figures(self._title, "episode return", "environment steps", [curve])
            write_whole(self._path, rendered(figures, "png"))


def rendered(figures: Figures, kind: str) -> bytes:
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
