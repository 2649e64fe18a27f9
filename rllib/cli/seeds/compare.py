"""`rllib compare`."""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import click
import numpy as np

from rllib.cli.failures import Mistake, reported, user_input
from rllib.cli.values import LocalPath, Number
from rllib.runs.drawing import STEPS, title_of
from rllib.runs.measures import performance_profile, probability_of_improvement, stratified_interval
from rllib.tune.reporting.comparison import (
    AVERAGES,
    Comparison,
    Estimate,
    check_scales,
    compare,
    heights,
    objective_of,
    written,
)
from rllib.tune.reporting.scores import AT_STEPS, SCORED_BY, score_methods
from rllib.tune.reporting.tables import rows_of_contrasts, rows_of_methods, rows_of_settings

_IMPROVEMENT, _PROFILE = "improvement", "profile"
# Number of thresholds of a profile, from the lowest to the highest score.
_THRESHOLDS = 11
# Settings that differ, and sentences, which are printed; of two algorithms, or in a search, there are dozens.
_MOST_SETTINGS = 12
_MOST_SENTENCES = 8


@click.command("compare", short_help="Compare algorithms over several seeds.")
@click.argument("directories", metavar="RUN...", nargs=-1, required=True, type=LocalPath())
@click.option("--measure", type=click.Choice([*AVERAGES, _IMPROVEMENT, _PROFILE]), default="iqm", show_default=True,
              help="Interquartile mean, mean or median of the scores, probability of improvement of each over the "
              "others, or share of runs that are better than each of some scores.")  # fmt: skip
@click.option("--metric", help="Result key or a/b path  [default: the experiment's own, else episode_reward_mean].")
@click.option("--mode", type=click.Choice(["max", "min"]), help="Whether more or less of it is better  [default: as "
              "the experiment, else max].")  # fmt: skip
@click.option("--x", default=STEPS, show_default=True, help="Result key of the steps.")
@click.option("--by", type=click.Choice(SCORED_BY), default=AT_STEPS, show_default=True, help="Score of a run: "
              "the metric at --at, its last value, or the area under its curve up to --at, per step.")  # fmt: skip
@click.option("--at", type=Number(min=0), metavar="STEPS", help="Compare there [default: the last steps that all "
              "runs have reached].")  # fmt: skip
@click.option("--scale", multiple=True, metavar="ENV=LOW:HIGH", help="Values of the metric that count as 0 and 1, for "
              "the averages over several environments; repeatable.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(directories, measure, metric, mode, x, by, at, scale, as_json) -> None:
    """Compare runs over their seeds at equal steps, with what one may write of the differences. A RUN is the directory
    of a run, of several seeds, or of an experiment; runs whose settings differ in the seed only are one method. The
    first one is the baseline. A RUN may hold runs on several environments, on the same as the others.

    \b
    rllib train PPO CartPole-v1 --seeds 5 --name ppo
    rllib train A2C CartPole-v1 --seeds 5 --name a2c
    rllib compare results/ppo results/a2c
    rllib compare results/ppo results/a2c --measure improvement --at 5e4

    Measures and their 95 % intervals (bootstrap over the runs of each environment) are those of Agarwal et al.,
    arXiv:2108.13264. The p-values are of a permutation test with Welch's statistic, corrected for the number of
    comparisons (Holm); see Colas et al., arXiv:1904.06979.
    """
    with reported(verbose=False), user_input():
        scales = dict(map(_scale, scale))
        if measure in AVERAGES:
            comparison = compare(
                *directories, metric=metric, mode=mode, x=x, at=at, by=by, measure=measure, scales=scales
            )
            click.echo(json.dumps(_as_json(comparison)) if as_json else "\n".join(_lines(comparison)))
            return
        metric, mode = objective_of(directories, metric, mode)
        scored = score_methods(*directories, metric=metric, x=x, at=at, by=by, scales=scales)
        comparison = Comparison(metric, mode, scored.x, by, measure, scored)
        if len(scored.scores) < 2 and measure == _IMPROVEMENT:
            raise Mistake(
                "--measure improvement compares two methods or more, and these runs differ in their seed only"
            )
        if scales or measure == _PROFILE:
            check_scales(scored, scales)
    found = {**_head(comparison), **_measured(comparison)}
    click.echo(json.dumps(found) if as_json else "\n".join(_lines_of(comparison, found)))


def _scale(text: str) -> tuple[str, tuple[float, float]]:
    """The environment, and low and high, of a --scale."""
    task, _, ends = text.rpartition("=")
    try:
        low, high = map(float, ends.split(":"))
    except ValueError:
        task = ""
    if not task:
        raise Mistake(f"--scale {text} must be ENV=LOW:HIGH, as in --scale CartPole-v1=0:500")
    return task, (low, high)


# ---------------------------------------------------------------------- averages


def _head(comparison: Comparison) -> dict[str, Any]:
    at = comparison.scored.at
    return {
        "metric": comparison.metric,
        "mode": comparison.mode,
        comparison.x: None if math.isnan(at) else at,
        "by": comparison.by,
        "measure": comparison.measure,
        "environments": comparison.scored.tasks,
    }


def _as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison for other programs; NaN and infinity as null."""
    methods = {}
    for method in comparison.scored.methods:
        standing = comparison.standings[method.name]
        methods[method.name] = {
            **_numbers(standing.score),
            "runs": standing.runs,
            "seeds": standing.seeds,
            "scores": [task.tolist() for task in comparison.scored.scores[method.name]],
            "best": standing.best,
            "steps": list(standing.steps),
            "time_s": standing.time_s,
            "settings": {key: method.settings.get(key) for key in comparison.differing},
            "directories": [str(run.place) for run in method.all_runs],
        }
    baseline = comparison.scored.methods[0].name
    contrasts = [
        {
            "method": name,
            "baseline": baseline,
            "difference": _numbers(each.difference),
            "improvement": _numbers(each.improvement),
            "effect": _finite(each.effect),
            "p": _finite(each.p_value),
            "p_corrected": _finite(each.corrected),
            "shows_a_difference": each.shows_a_difference,
            "sentence": each.sentence,
        }
        for name, each in comparison.contrasts.items()
    ]
    return {
        **_head(comparison),
        "methods": methods,
        "comparisons": contrasts,
        "sentences": comparison.sentences,
        "notes": comparison.scored.notes,
    }


def _numbers(estimate: Estimate) -> dict[str, float | None]:
    return {name: _finite(getattr(estimate, name)) for name in ("value", "low", "high")}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _lines(comparison: Comparison) -> Iterator[str]:
    yield _title(comparison)
    yield from table(rows_of_methods(comparison))
    if comparison.contrasts:
        yield ""
        yield from table(rows_of_contrasts(comparison))
    if comparison.differing:
        yield ""
        rows, left_out = rows_of_settings(comparison, _MOST_SETTINGS)
        yield from table(rows)
        if left_out:
            yield f"... and {left_out} more settings that differ (--json has all)"
    yield ""
    yield from comparison.sentences[:_MOST_SENTENCES]
    if (left_out := len(comparison.sentences) - _MOST_SENTENCES) > 0:
        yield f"... and {left_out} more sentences (--json has all)"
    yield from (f"Note: {note}." for note in comparison.scored.notes)


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table of text."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def _title(comparison: Comparison) -> str:
    note = " (less is better)" if comparison.mode == "min" else ""
    return ", ".join(filter(None, (f"{title_of(comparison.metric)}{note} {comparison.where}", comparison.tasks)))


# ---------------------------------------------------------------------- other measures


def _measured(comparison: Comparison) -> dict[str, Any]:
    """The measure of each method, or pair of methods, with its interval, as JSON has it."""
    scores = {name: heights(each, comparison.mode) for name, each in comparison.scored.scores.items()}
    if comparison.measure == _IMPROVEMENT:
        pairs = itertools.permutations(scores.items(), 2)
        return {
            "pairs": [
                {"better": name, "than": other, **_estimate(probability_of_improvement, own, others)}
                for (name, own), (other, others) in pairs
            ]
        }
    every = np.concatenate([task for each in comparison.scored.scores.values() for task in each])
    thresholds = np.linspace(every.min(), every.max(), _THRESHOLDS)
    (of_heights,) = heights([thresholds], comparison.mode)
    share = partial(performance_profile, thresholds=of_heights)
    return {
        "thresholds": thresholds.tolist(),
        "methods": {name: _estimate(share, each) for name, each in scores.items()},
    }


def _estimate(measure: Callable, *scores) -> dict[str, Any]:
    low, high = stratified_interval(measure, *scores)
    number = dict(zip(("value", "low", "high"), (np.asarray(each).tolist() for each in (measure(*scores), low, high))))
    return {**number, "runs": [len(task) for task in scores[0]]}


def _lines_of(comparison: Comparison, found: dict[str, Any]) -> Iterator[str]:
    sign, side = ("<", "below") if found["mode"] == "min" else (">", "above")
    yield f"{_title(comparison)}; [95 % interval]"
    for pair in found.get("pairs", ()):
        yield f"P({pair['better']} {sign} {pair['than']})  {_text(pair['value'], pair['low'], pair['high'])}"
    for name, each in found.get("methods", {}).items():
        yield f"{name}, share of {sum(each['runs'])} runs {side}"
        for threshold, *share in zip(found["thresholds"], each["value"], each["low"], each["high"]):
            yield f"  {written(threshold):>12}  {_text(*share)}"
    yield from (f"Note: {note}." for note in comparison.scored.notes)


def _text(value: float, low: float, high: float) -> str:
    return str(Estimate(value, low, high))
