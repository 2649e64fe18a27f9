"""Tables of a comparison as rows of text, the first the heading: for the terminal and for reports."""

import math

from rllib.progress import elapsed
from rllib.runs.naming import short
from rllib.tune.reporting.comparison import Comparison, written


def rows_of_methods(comparison: Comparison) -> list[list[str]]:
    """The heading and a row for each method: its seeds, what it reached, its steps and time."""
    rows = [["method", "seeds", comparison.measure, "95 % interval", "best", "steps", "time"]]
    for name, standing in comparison.standings.items():
        runs, (low, high) = standing.runs, standing.steps
        score = standing.score
        rows.append([
            name, str(runs[0]) if len(set(runs)) == 1 else "+".join(map(str, runs)), written(score.value),
            "-" if max(runs) == 1 else f"{written(score.low)} to {written(score.high)}", written(standing.best),
            f"{low:,.10g}" if low == high else f"{low:,.10g} to {high:,.10g}",
            "-" if standing.time_s is None else elapsed(standing.time_s),
        ])  # fmt: skip
    return rows


def rows_of_contrasts(comparison: Comparison) -> list[list[str]]:
    """The heading and a row for each method but the baseline: difference, probability of improvement, effect, p."""
    baseline, sign = comparison.scored.methods[0].name, "<" if comparison.mode == "min" else ">"
    rows = [[f"against {baseline}", "difference", "95 % interval", f"P({sign})", "95 % interval", "effect (g)", "p"]]
    for name, each in comparison.contrasts.items():
        alone = math.isnan(each.corrected)
        rows.append([
            name, _signed(each.difference.value), *(["-"] * 5 if alone else [
                f"{written(each.difference.low)} to {written(each.difference.high)}", written(each.improvement.value),
                f"{written(each.improvement.low)} to {written(each.improvement.high)}", _signed(each.effect),
                f"{each.corrected:.2g}",
            ]),
        ])  # fmt: skip
    return rows


def rows_of_settings(comparison: Comparison, most: int | None = None) -> tuple[list[list[str]], int]:
    """The heading and a row for each setting that differs, as many as may be; and how many are left out."""
    settings = [method.settings for method in comparison.scored.methods]
    shown = comparison.differing[:most]
    rows = [[key, *(short(each[key]) if key in each else "-" for each in settings)] for key in shown]
    return [["setting", *comparison.standings], *rows], len(comparison.differing) - len(shown)


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + written(value)
