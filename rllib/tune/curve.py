"""The learning curve as a picture: return by environment steps."""

import math
import os
from collections.abc import Mapping
from pathlib import Path


class CurveLogger:
    """Draws curve.png when it is closed.

    Args:
        directory: where curve.png goes.
        title: above the curve.

    Attributes:
        points_per_poll: how many results are taken in each half second.

    Raises:
        ImportError: if matplotlib is not installed.
    """

    points_per_poll = 1000

    def __init__(self, directory: Path, title: str = ""):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self._figure, self._canvas = Figure, FigureCanvasAgg
        self._path = directory / "curve.png"
        self._title = title
        self._points: list[tuple[float, float, float, float]] = []
        # The first figure loads fonts and takes longer than all later ones: better now than at the end of the run.
        self._draw().savefig(os.devnull, format="png")

    def on_result(self, result: Mapping) -> None:
        """Remembers one point; results without a finished episode are gaps."""
        keys = ("episode_reward_mean", "episode_reward_min", "episode_reward_max")
        point = tuple(math.nan if result.get(key) is None else result[key] for key in keys)
        if result.get("timesteps_total") is not None:
            self._points.append((result["timesteps_total"], *point))

    def close(self) -> None:
        """Draws the picture, if there is anything to draw."""
        if not all(math.isnan(mean) for _, mean, _, _ in self._points):
            draft = self._path.with_suffix(".png.tmp")
            self._draw().savefig(draft, format="png", dpi=110)
            os.replace(draft, self._path)

    def _draw(self):
        figure = self._figure(figsize=(7.5, 4.5))
        figure.subplots_adjust(left=0.11, right=0.97, top=0.92, bottom=0.12)  # automatic layout takes twice as long
        self._canvas(figure)
        axes = figure.subplots()
        if self._points:
            steps, mean, low, high = zip(*self._points)
            axes.fill_between(steps, low, high, alpha=0.15, linewidth=0, label="lowest to highest episode")
            gaps = [True, *map(math.isnan, mean), True]
            # A point between two gaps has no line, so it needs a mark.
            lone = [i for i, value in enumerate(mean) if value == value and gaps[i] and gaps[i + 2]]
            marks = None if len(steps) < 30 else lone
            axes.plot(steps, mean, linewidth=1.8, marker=".", markevery=marks, label="mean of the last episodes")
            axes.legend(loc="best", frameon=False)
        axes.set(title=self._title, xlabel="environment steps", ylabel="episode return")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        return figure
