"""Curves as SVG, with the classes of the dashboard's page, so that both have one look, light and dark."""

import math
from collections.abc import Sequence

import numpy as np

from rllib.reports.markup import Html, h
from rllib.runs.drawing import Curve, title_of

_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 8, 34
_DASHES = (None, "7 4", "2 3", "10 3 2 3")
_COLOURS = 8
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def look(number: int) -> tuple[str, str | None]:
    """Class of the colour, and kind of line, of the n-th curve: neighbours differ without colours as well."""
    return f"c{number % _COLOURS}", _DASHES[(number + number // _COLOURS) % len(_DASHES)]


def swatch(number: int) -> Html:
    """The line of a curve, shown next to its name."""
    colour, dash = look(number)
    return h("svg", {"class": f"key {colour}", "viewBox": "0 0 26 10", "aria-hidden": "true"},
             h("path", {"d": "M0 5H26", "stroke-width": 2.4, "stroke-dasharray": dash}))  # fmt: skip


def chart(
    curves: Sequence[tuple[int, Curve]],
    metric: str,
    x: str,
    goal: float | None = None,
    title: str = "",
    width: int = 760,
    height: int = 300,
) -> Html:
    """A chart of curves with their bands.

    Args:
        curves: number of its look, and the curve; with at least one finite value.
        metric, x: result keys of the vertical and the horizontal axis.
        goal: value at which a line is drawn.
        title: title of the chart; "": that of the metric.
        width, height: width and height of the drawing in pixels; it fills the width that it is given.
    """
    lines = [
        line[np.isfinite(line)] for _, curve in curves for line in (curve.y, curve.low, curve.high) if line is not None
    ]
    y_low, y_high = _range([each for line in lines if len(line) for each in (line.min(), line.max())], goal)
    x_low, x_high = _range([each for _, curve in curves for each in (curve.x[0], curve.x[-1])])

    def place(x_value: float, y_value: float) -> tuple[float, float]:
        across = (x_value - x_low) / (x_high - x_low) * (width - _LEFT - _RIGHT)
        up = (y_value - y_low) / (y_high - y_low) * (height - _TOP - _BOTTOM)
        return _LEFT + across, height - _BOTTOM - up

    parts = []
    for value in ticks(y_low, y_high, height / 42):
        left, y = place(x_low, value)
        parts.append(_level("grid", y, width))
        parts.append(_label(left - 6, y + 4, short(value), "end"))
    for value in ticks(x_low, x_high, width / 110):
        at, bottom = place(value, y_low)
        parts.append(_label(at, bottom + 15, short(value), "middle"))
    parts.append(_label((_LEFT + width - _RIGHT) / 2, height - 4, title_of(x), "middle"))
    if goal is not None:
        _, y = place(x_low, goal)
        parts.append(_level("cursor", y, width))
        parts.append(_label(_LEFT + 4, y - 4, f"goal {short(goal)}", "start"))
    for number, curve in curves:
        parts.append(_band(curve, look(number)[0], place))
    for number, curve in curves:
        parts.append(_line(curve, number, place))
    title = title or title_of(metric)
    label = f"{title} by {title_of(x)}: {', '.join(curve.name for _, curve in curves)}"
    drawing = {"class": "chart", "viewBox": f"0 0 {width} {height}", "role": "img", "aria-label": label}
    heading = h("figcaption", None, h("h3", {"title": metric}, title))
    return h("figure", {"class": "panel"}, heading, h("svg", drawing, parts))


def ticks(low: float, high: float, count: float) -> list[float]:
    """Round numbers that divide [low, high], about `count` of them."""
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999) * power
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def short(value: float) -> str:
    """1234567 as "1.23M"."""
    for unit, letter in _UNITS:
        if abs(value) >= unit * 0.9995:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.3g}"


def _range(values: Sequence[float], more: float | None = None) -> tuple[float, float]:
    """Least and greatest, some apart where they are equal."""
    known = [float(each) for each in values] + ([] if more is None else [more])
    low, high = min(known), max(known)
    gap = 0.5 * abs(low) or 0.5
    return (low, high) if high - low > 1e-9 * max(abs(low), abs(high)) else (low - gap, high + gap)


def _level(kind: str, y: float, width: int) -> Html:
    return h("line", {"class": kind, "x1": _LEFT, "x2": width - _RIGHT, "y1": f"{y:.1f}", "y2": f"{y:.1f}"})


def _label(x: float, y: float, text: str, anchor: str) -> Html:
    return h("text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}, text)


def _band(curve: Curve, colour: str, place) -> Html | None:
    if curve.low is None:
        return None
    parts = []
    for run in _stretches(np.isfinite(curve.low) & np.isfinite(curve.high)):
        over = [place(x, y) for x, y in zip(curve.x[run], curve.high[run])]
        under = [place(x, y) for x, y in zip(curve.x[run], curve.low[run])]
        parts.append(f"M{_points([*over, *under[::-1]])}Z")
    return h("path", {"class": f"band {colour}", "d": "".join(parts)})


def _line(curve: Curve, number: int, place) -> list[Html]:
    colour, dash = look(number)
    known = np.flatnonzero(np.isfinite(curve.y))
    meaning = f"{curve.name}: {curve.y[known[-1]]:.5g} at the end" if len(known) else curve.name
    stretches = [[place(x, y) for x, y in zip(curve.x[run], curve.y[run])] for run in _stretches(np.isfinite(curve.y))]
    path = "".join(f"M{_points(points)}" for points in stretches)
    # A lone point has no line.
    dots = [h("circle", {"class": colour, "fill": "currentColor", "cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": 2.5})
            for points in stretches if len(points) == 1 for x, y in points]  # fmt: skip
    return [
        h("path", {"class": f"line {colour}", "d": path, "stroke-dasharray": dash}, h("title", None, meaning)),
        *dots,
    ]


def _stretches(known: np.ndarray) -> list[slice]:
    """Slices of known values without a gap."""
    edges = np.flatnonzero(np.diff(np.r_[False, known, False].astype(int)))
    return [slice(start, end) for start, end in edges.reshape(-1, 2)]


def _points(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
