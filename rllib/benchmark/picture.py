"""The picture of a benchmark: a panel for each task, with published scores as lines, and one for all tasks together."""

import itertools
import math
import os
from pathlib import Path

import numpy as np

from rllib.benchmark.standings import Standings
from rllib.benchmark.suite import label
from rllib.runs.drawing import STEPS, draw_curve, refuse_missing_matplotlib, saved, title_of
from rllib.runs.safe_files import write_whole
from rllib.storage.local_path import local_path

SUFFIXES = (".png", ".svg", ".pdf")
# Width of a picture and height of a panel in inches; most panels in a row.
_WIDTH, _HEIGHT, _COLUMNS = 9.0, 2.6, 4
# Lines of the published scores of one algorithm, in the order of their columns.
_DASHES = ("--", ":", "-.", (0, (1, 3)), (0, (5, 1, 1, 1, 1, 1)))


def draw(standings: Standings, path: str | os.PathLike, width: float = _WIDTH) -> Path:
    """Draws the curves of all tasks, and the normalised interquartile means, into a .png, .svg or .pdf file.

    Args:
        standings: see `read_standings`.
        path: path of the file.
        width: in inches.

    Raises:
        ValueError: for another kind of file, or if no run has a result.
        ImportError: if matplotlib is not installed.
    """
    path = local_path(path)
    refuse_other_kinds(path)
    refuse_missing_matplotlib()
    if not standings.has_curves:
        raise ValueError("There is nothing to draw: no run has a result yet")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, saved(_drawn(standings, width), path.suffix[1:]))
    return path


def refuse_other_kinds(path: Path) -> None:
    """Raises a ValueError for a file that is no picture of a benchmark."""
    if path.suffix not in SUFFIXES:
        raise ValueError(f"The picture of a benchmark is a .png, .svg or .pdf file, but got {path.name!r}")


def _drawn(standings: Standings, width: float):
    from matplotlib.figure import Figure

    panels = len(standings.tasks) + bool(standings.aggregates)
    rows = math.ceil(panels / _COLUMNS)
    columns = math.ceil(panels / rows)
    scale = width / _WIDTH
    figure = Figure(figsize=(width, (_HEIGHT * rows + 0.7) * scale), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, task in zip(grid, standings.tasks):
        _draw_task(axes, standings, task)
    if standings.aggregates:
        _draw_aggregates(grid[len(standings.tasks)], standings)
    for axes in grid[panels:]:
        axes.remove()
    handles: dict[str, object] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels()):
            handles.setdefault(name, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False,
                  fontsize="x-small")  # fmt: skip
    return figure


def _draw_task(axes, standings: Standings, task: str) -> None:
    """The curves of the algorithms, and a line at each published score."""
    for index, (name, of_tasks) in enumerate(standings.standings.items()):
        if (curve := of_tasks[task].curve) is not None:
            draw_curve(axes, curve, f"{name} (IQM, 95 % interval)" if curve.runs > 1 else name, f"C{index}")
        published = [each for each in standings.published if each.algorithm == name]
        for each, dashes in zip(published, itertools.cycle(_DASHES)):
            if task in each.scores:
                axes.axhline(each.scores[task][0], linestyle=dashes, linewidth=1.2, color=f"C{index}", label=each.name)
    axes.set_title(label(task), fontsize="medium")
    axes.set_xlabel(title_of(STEPS), fontsize="small")
    axes.set_ylabel(title_of(standings.plan.metric), fontsize="small")
    axes.xaxis.set_major_formatter(_short)
    axes.tick_params(labelsize="small")
    axes.spines[["top", "right"]].set_visible(False)


def _short(steps: float, _place: int) -> str:
    """Steps on an axis: 30k, 1.5M."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(steps) >= unit:
            return f"{steps / unit:g}{letter}"
    return f"{steps:g}"


def _draw_aggregates(axes, standings: Standings) -> None:
    """The normalised interquartile mean of each algorithm with its interval."""
    names = list(standings.aggregates)
    axes.use_sticky_edges = False  # bars begin at an interval's end, not at the edge
    for index, name in enumerate(standings.plan.algorithms):
        if name in standings.aggregates:
            score, place = standings.aggregates[name]["iqm"], names.index(name)
            axes.barh(place, score.high - score.low, left=score.low, height=0.5, alpha=0.35, color=f"C{index}")
            axes.vlines(score.value, place - 0.25, place + 0.25, color=f"C{index}", linewidth=2)
    axes.set_yticks(np.arange(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_title("all tasks", fontsize="medium")
    axes.set_xlabel("normalised score, IQM", fontsize="small")
    axes.tick_params(labelsize="small")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
