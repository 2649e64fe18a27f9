"""Draws figures with matplotlib, as a picture or as one HTML page that loads nothing."""

import html
import io
import math
import re
from pathlib import Path

# Of the panels, in inches.
_HEIGHT, _DETAIL_HEIGHT = 4.6, 2.6
_FEW_POINTS = 30
# Pointing at a run brings it to the front.
_STYLE = """
body { max-width: 900px; margin: 2em auto; background: #fff } svg { width: 100%; height: auto }
g[id^=run]:hover path { stroke-width: 4 !important } svg:has(g[id^=run]:hover) g[id^=run]:not(:hover) { opacity: .25 }
"""


def write_figures(figures, path: Path, kind: str) -> None:
    """Writes the figures below one another, the details of a single run in two columns.

    Args:
        figures: plots.Figures.
        path: of the file.
        kind: "png" or "html".

    Raises:
        ImportError: if matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
    except ImportError:
        raise ImportError("plots need matplotlib: pip install 'rllib[plot]'") from None
    figure, names = _drawn(figures)
    if kind == "png":
        figure.savefig(path, format="png", dpi=110)
        return
    drawn = io.StringIO()
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(drawn, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", drawn.getvalue()[drawn.getvalue().index("<svg") :])
    for name, meaning in names.items():
        svg = svg.replace(f'<g id="{name}">', f'<g id="{name}"><title>{html.escape(meaning)}</title>', 1)
    title = html.escape(figures.title or figures.metric)
    head = f'<head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head>'
    path.write_text(f"<!doctype html><html>{head}<body>{svg}</body></html>\n", encoding="utf-8")


def _drawn(figures):
    """The figure, and the SVG ids of its runs with what is said when one points at them."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    panels = [
        draw
        for draw, there in ((_curves, figures.curves), (_parallel, figures.axes), (_best, figures.best))
        if there is not None
    ]
    heights = [_HEIGHT] * len(panels) + [_DETAIL_HEIGHT] * math.ceil(len(figures.details) / 2)
    figure = Figure(figsize=(8, sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    for row, draw in enumerate(panels):
        axes = figure.add_subplot(grid[row, :])
        draw(axes, figures, colormaps["viridis"])
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
        axes.tick_params(labelsize="small")
    if figures.title:
        figure.suptitle(figures.title)
    curves = figures.curves or []
    return figure, {f"run{i}": f"{curve.name}: {curve.y[-1]:.5g} at the end" for i, curve in enumerate(curves)}


def _curves(axes, figures, colours) -> None:
    for index, curve in enumerate(figures.curves):
        name = curve.name + (f" (IQM of {curve.runs}, 95 % interval)" if curve.runs > 1 else "")
        _draw(axes, curve, name).set_gid(f"run{index}")
    if 0 < len(figures.curves) <= 12:
        axes.legend(frameon=False, fontsize="small")
    axes.set(xlabel=figures.x, ylabel=figures.metric)


def _draw(axes, curve, label: str | None = None):
    """A curve with its band; a point between two gaps, and each of a few points, has a mark. Returns the line."""
    lone = [part.start for part in curve.stretches() if part.stop - part.start == 1]
    marks = None if len(curve.x) < _FEW_POINTS else lone
    (line,) = axes.plot(curve.x, curve.y, linewidth=1.6, marker=".", markevery=marks, label=label)
    if curve.low is not None:
        axes.fill_between(curve.x, curve.low, curve.high, alpha=0.2, linewidth=0, color=line.get_color(),
                          label="lowest to highest episode" if curve.runs == 1 else None)  # fmt: skip
    axes.grid(alpha=0.3)
    return line


def _parallel(axes, figures, colours) -> None:
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


def _best(axes, figures, colours) -> None:
    axes.step(figures.best.x, figures.best.y, where="post", linewidth=1.8, marker=".")
    axes.set(xlabel="trials", ylabel=f"best {figures.metric} so far")
    axes.grid(alpha=0.3)
