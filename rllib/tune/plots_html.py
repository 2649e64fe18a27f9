"""Draws figures as one HTML file with inline SVG: it loads nothing, from nowhere."""

import html
import itertools
import math
from collections.abc import Iterable

_WIDTH, _HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 20, 50
_COLOURS = (
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
)
_STYLE = """
body { font: 14px system-ui, sans-serif; max-width: 820px; margin: 2em auto; color: #222; background: #fff }
svg { width: 100%; height: auto } svg text { font-size: 12px; fill: #444 }
.line { fill: none; stroke-width: 1.8 } g.run:hover .line { stroke-width: 4 }
svg:has(g.run:hover) g.run:not(:hover) { opacity: .25 }
.legend { columns: 2; padding: 0; list-style: none }
.legend span { display: inline-block; width: 1em; height: .7em; margin-right: .5em }
"""


def html_page(figures) -> str:
    """The whole page."""
    parts = []
    if figures.curves is not None:
        parts += ["<h2>Learning curves</h2>", _curves(figures), _legend(figures.curves)]
    if figures.axes is not None:
        parts += ["<h2>Parallel coordinates</h2>", _parallel(figures)]
    if figures.best is not None:
        parts += ["<h2>Best so far</h2>", _best(figures)]
    for curve in figures.details:
        name = curve.name.rsplit("/", 1)[-1]
        parts += [f"<h2>{_safe(name)}</h2>", _drawn([curve], figures.x, name)]
    title = _safe(figures.title or figures.metric)
    head = f'<head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head>'
    return f"<!doctype html><html>{head}<body><h1>{title}</h1>{''.join(parts)}</body></html>\n"


def _curves(figures) -> str:
    return _drawn(figures.curves, figures.x, figures.metric)


def _drawn(curves, x_name: str, y_name: str) -> str:
    """Curves with their bands, in one frame."""
    values = [
        y
        for curve in curves
        for line in (curve.y, curve.low, curve.high)
        if line is not None
        for y in line
        if not math.isnan(y)
    ]
    frame = _Frame([x for curve in curves for x in curve.x], values)
    drawn = []
    for index, curve in enumerate(curves):
        shapes = [_shape(frame, curve, part, _COLOURS[index % len(_COLOURS)]) for part in curve.stretches()]
        title = f"<title>{_safe(curve.name)}: {curve.y[-1]:.5g} at the end</title>"
        drawn.append(f'<g class="run">{title}{"".join(shapes)}</g>')
    return frame.svg("".join(drawn), x_name, y_name)


def _shape(frame: "_Frame", curve, part: slice, colour: str) -> str:
    """What lies between two gaps: a line with its band, or a dot."""
    x, y = curve.x[part], curve.y[part]
    band = ""
    if curve.low is not None:
        around = [*zip(x, curve.high[part]), *reversed(list(zip(x, curve.low[part])))]
        band = f'<polygon points="{frame.points(around)}" fill="{colour}" opacity="0.2"/>'
    if len(x) == 1:
        return f'{band}<circle cx="{frame.x(x[0]):.1f}" cy="{frame.y(y[0]):.1f}" r="2.5" fill="{colour}"/>'
    return f'{band}<polyline class="line" points="{frame.points(zip(x, y))}" stroke="{colour}"/>'


def _legend(curves) -> str:
    items = (
        f'<li><span style="background:{colour}"></span>{_safe(curve.name)}{_meaning(curve)}</li>'
        for curve, colour in zip(curves, itertools.cycle(_COLOURS))
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _meaning(curve) -> str:
    if curve.runs > 1:
        return f" (IQM of {curve.runs}, 95 % interval)"
    return "" if curve.low is None else ", lowest to highest episode"


def _parallel(figures) -> str:
    count = len(figures.axes)
    frame = _Frame([0, max(count - 1, 1)], [0, 1])
    drawn = []
    for index, axis in enumerate(figures.axes):
        x = frame.x(index)
        drawn.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{frame.y(0):.1f}" y2="{frame.y(1):.1f}" stroke="#bbb"/>')
        side = 'dx="-5" text-anchor="end"' if index and index == count - 1 else 'dx="5"'
        drawn += [
            f'<text x="{x:.1f}" y="{frame.y(at) - 3:.1f}" {side}>{_safe(text)}</text>' for at, text in axis.labels
        ]
        name = _safe(axis.name.rsplit("/", 1)[-1])
        drawn.append(f'<text x="{x:.1f}" y="{_HEIGHT - 32 + 14 * (index % 2)}" text-anchor="middle">{name}</text>')
    for run, colour in sorted(enumerate(figures.colours), key=lambda item: item[1]):
        points = frame.points((index, axis.places[run]) for index, axis in enumerate(figures.axes))
        shade = f"hsl({240 - 200 * colour:.0f} 70% 45%)"
        drawn.append(f'<g class="run"><polyline class="line" points="{points}" stroke="{shade}"/></g>')
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}">{"".join(drawn)}</svg>'


def _best(figures) -> str:
    curve = figures.best
    steps = [
        point for x, y, after in zip(curve.x, curve.y, [*curve.x[1:], curve.x[-1]]) for point in ((x, y), (after, y))
    ]
    frame = _Frame(curve.x, curve.y)
    line = f'<polyline class="line" points="{frame.points(steps)}" stroke="{_COLOURS[0]}"/>'
    return frame.svg(line, "trials", f"best {figures.metric} so far")


class _Frame:
    """Turns numbers into places on the paper."""

    def __init__(self, xs: Iterable[float], ys: Iterable[float]):
        xs, ys = list(xs), list(ys)
        self._whole_x = all(float(x).is_integer() for x in xs)
        self._x0, self._x1, self._y0, self._y1 = min(xs), max(xs), min(ys), max(ys)

    def x(self, value: float) -> float:
        """Horizontal place."""
        return _LEFT + (value - self._x0) / ((self._x1 - self._x0) or 1) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Vertical place."""
        return _HEIGHT - _BOTTOM - (value - self._y0) / ((self._y1 - self._y0) or 1) * (_HEIGHT - _TOP - _BOTTOM)

    def points(self, pairs: Iterable[tuple[float, float]]) -> str:
        """For a polyline."""
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in pairs)

    def svg(self, drawn: str, x_name: str, y_name: str) -> str:
        """The drawing with its axes."""
        ticks = []
        for x in _ticks(self._x0, self._x1, self._whole_x):
            shown = f"{x:,.0f}" if self._whole_x else f"{x:,.5g}"
            ticks.append(f'<text x="{self.x(x):.1f}" y="{_HEIGHT - 30}" text-anchor="middle">{shown}</text>')
        for y in _ticks(self._y0, self._y1):
            ticks.append(f'<text x="{_LEFT - 8}" y="{self.y(y) + 4:.1f}" text-anchor="end">{y:,.5g}</text>')
            ticks.append(f'<path d="M{_LEFT} {self.y(y):.1f}H{_WIDTH - _RIGHT}" stroke="#e4e4e4"/>')
        names = (
            f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 10}" text-anchor="middle">{_safe(x_name)}</text>'
            f'<text transform="translate(16 {_HEIGHT / 2}) rotate(-90)" text-anchor="middle">{_safe(y_name)}</text>'
        )
        return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}">{"".join(ticks)}{drawn}{names}</svg>'


def _ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """About five round numbers between the ends; whole ones if asked for."""
    if low == high:
        return [low]
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.9)
    step = max(step, 1.0) if whole else step
    return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _safe(text: str) -> str:
    return html.escape(str(text))
