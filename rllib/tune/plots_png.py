"""Draws figures with matplotlib."""

from pathlib import Path


def write_png(figures, path: Path) -> None:
    """Writes the figures below one another.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    try:
        from matplotlib import colormaps
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("A .png needs matplotlib: pip install 'rllib[plot]'; a .html needs nothing") from None
    panels = [
        draw
        for draw, there in ((_curves, figures.curves), (_parallel, figures.axes), (_best, figures.best))
        if there is not None
    ]
    figure = Figure(figsize=(8, 4.6 * len(panels)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, draw in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels):
        draw(axes, figures, colormaps["viridis"])
        axes.spines[["top", "right"]].set_visible(False)
    if figures.title:
        figure.suptitle(figures.title)
    figure.savefig(path, format="png", dpi=110)


def _curves(axes, figures, colours) -> None:
    for curve in figures.curves:
        label = curve.name + (f" (IQM of {curve.runs})" if curve.runs > 1 else "")
        (line,) = axes.plot(curve.x, curve.y, linewidth=1.6, label=label)
        if curve.low is not None:
            axes.fill_between(curve.x, curve.low, curve.high, alpha=0.2, linewidth=0, color=line.get_color())
    if len(figures.curves) <= 12:
        axes.legend(frameon=False, fontsize="small")
    axes.set(xlabel=figures.x, ylabel=figures.metric)
    axes.grid(alpha=0.3)


def _parallel(axes, figures, colours) -> None:
    names = [axis.name.rsplit("/", 1)[-1] for axis in figures.axes]
    for run, colour in sorted(enumerate(figures.colours), key=lambda item: item[1]):
        places = [axis.places[run] for axis in figures.axes]
        axes.plot(range(len(places)), places, color=colours(colour), linewidth=1, marker="o", markersize=3, alpha=0.8)
    for index, axis in enumerate(figures.axes):
        axes.axvline(index, color="0.8", linewidth=0.8, zorder=0)
        for place, text in axis.labels:
            axes.text(index, place, f" {text}", fontsize="small")
    slant = {"rotation": 25, "ha": "right"} if len(names) > 5 else {}
    axes.set_xticks(range(len(names)), names, **slant)
    axes.set_yticks([])


def _best(axes, figures, colours) -> None:
    axes.step(figures.best.x, figures.best.y, where="post", linewidth=1.8, marker=".")
    axes.set(xlabel="trials", ylabel=f"best {figures.metric} so far")
    axes.grid(alpha=0.3)
