"""`rllib compare`."""

import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click
import numpy as np

from rllib.cli.failures import Mistake, reported, user_input
from rllib.cli.values import LocalPath, Number
from rllib.progress import counted
from rllib.runs.drawing import RETURN, STEPS, title_of
from rllib.runs.measures import (
    iqm_of_scores,
    mean_of_scores,
    median_of_scores,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
)
from rllib.tune.reporting.scores import Scored, score_methods

# Averages of scores, which need one scale for all tasks.
_AVERAGES: dict[str, Callable] = {"iqm": iqm_of_scores, "mean": mean_of_scores, "median": median_of_scores}
_IMPROVEMENT, _PROFILE = "improvement", "profile"
# Number of thresholds of a profile, from the lowest to the highest score.
_THRESHOLDS = 11


@click.command("compare", short_help="Compare algorithms over several seeds.")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=LocalPath())
@click.option("--measure", type=click.Choice([*_AVERAGES, _IMPROVEMENT, _PROFILE]), default="iqm", show_default=True,
              help="Interquartile mean, mean or median of the scores, probability of improvement of each DIR over the "
              "others, or share of runs that are better than each of some scores.")  # fmt: skip
@click.option("--metric", default=RETURN, show_default=True, help="Result key or a/b path.")
@click.option("--mode", type=click.Choice(["max", "min"]), default="max", show_default=True,
              help="Whether more or less of it is better.")  # fmt: skip
@click.option("--x", default=STEPS, show_default=True, help="Result key of the steps.")
@click.option("--at", type=Number(min=0), metavar="STEPS", help="Compare there [default: the last steps that all "
              "runs have reached].")  # fmt: skip
@click.option("--scale", multiple=True, metavar="ENV=LOW:HIGH", help="Values of the metric that count as 0 and 1, for "
              "the averages over several environments; repeatable.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(directories, measure, metric, mode, x, at, scale, as_json) -> None:
    """Compare the runs below each DIR, which differ in their seed, with those below the others, at equal steps. A DIR
    may hold runs on several environments, on the same as the others.

    \b
    rllib train PPO CartPole-v1 --seeds 5 --name ppo
    rllib train A2C CartPole-v1 --seeds 5 --name a2c
    rllib compare results/ppo results/a2c
    rllib compare results/ppo results/a2c --measure improvement --at 5e4

    Measures and their 95 % intervals (bootstrap over the runs of each environment) are those of Agarwal et al.,
    arXiv:2108.13264.
    """
    with reported(verbose=False), user_input():
        scored = score_methods(*directories, metric=metric, x=x, at=at, scales=dict(map(_scale, scale)))
        if len(scored.scores) < 2 and measure == _IMPROVEMENT:
            raise Mistake("--measure improvement compares two DIR or more")
        if len(scored.tasks) > 1 and not scale and measure != _IMPROVEMENT:
            raise Mistake(
                f"returns of {' and '.join(scored.tasks)} are on different scales. Give what counts as 0 and 1 for "
                f"each, as in --scale {scored.tasks[0]}=0:500, or compare by --measure improvement."
            )
        if scale and (without := [task for task in scored.tasks if task not in dict(map(_scale, scale))]):
            raise Mistake(f"--scale is missing for {', '.join(without)}")
    found = {"metric": metric, "mode": mode, x: scored.at, "measure": measure, **_measured(scored, measure, mode)}
    click.echo(json.dumps(found) if as_json else "\n".join(_lines(scored, metric, x, found)))


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


def _measured(scored: Scored, measure: str, mode: str) -> dict[str, Any]:
    """The measure of each method, or pair of methods, with its interval, as JSON has it."""
    sign = -1.0 if mode == "min" else 1.0
    if measure == _IMPROVEMENT:
        # Of heights, which are greater where a run is better.
        heights = {name: [sign * task for task in scores] for name, scores in scored.scores.items()}
        pairs = itertools.permutations(heights.items(), 2)
        return {
            "pairs": [
                {"better": name, "than": other, **_estimate(probability_of_improvement, own, others)}
                for (name, own), (other, others) in pairs
            ]
        }
    if measure == _PROFILE:
        every = np.concatenate([task for scores in scored.scores.values() for task in scores])
        thresholds = np.linspace(every.min(), every.max(), _THRESHOLDS)
        share = partial(_better, thresholds=thresholds, sign=sign)
        methods = {name: _estimate(share, scores) for name, scores in scored.scores.items()}
        return {"thresholds": thresholds.tolist(), "methods": methods}
    return {"methods": {name: _estimate(_AVERAGES[measure], scores) for name, scores in scored.scores.items()}}


def _better(scores, thresholds: np.ndarray, sign: float) -> np.ndarray:
    """Share of runs above each threshold; with the sign -1 below it."""
    return performance_profile([sign * task for task in scores], sign * thresholds)


def _estimate(measure: Callable, *scores) -> dict[str, Any]:
    low, high = stratified_interval(measure, *scores)
    number = dict(zip(("value", "low", "high"), (np.asarray(each).tolist() for each in (measure(*scores), low, high))))
    return {**number, "runs": [len(task) for task in scores[0]]}


def _lines(scored: Scored, metric: str, x: str, found: dict[str, Any]) -> Iterator[str]:
    tasks = counted(len(scored.tasks), "environment")
    note, sign, side = (" (less is better)", "<", "below") if found["mode"] == "min" else ("", ">", "above")
    yield f"{title_of(metric)}{note} at {scored.at:,.10g} {title_of(x)}, on {tasks}; [95 % interval]"
    if "pairs" in found:
        for pair in found["pairs"]:
            yield f"P({pair['better']} {sign} {pair['than']})  {_text(pair['value'], pair['low'], pair['high'])}"
        return
    width = max(map(len, scored.scores))
    for name, each in found["methods"].items():
        runs = counted(sum(each["runs"]), "run")
        if "thresholds" not in found:
            yield f"{name:<{width}}  {found['measure']} {_text(each['value'], each['low'], each['high'])}  of {runs}"
            continue
        yield f"{name}, share of {runs} {side}"
        for threshold, *share in zip(found["thresholds"], each["value"], each["low"], each["high"]):
            yield f"  {threshold:>12,.5g}  {_text(*share)}"


def _text(value: float, low: float, high: float) -> str:
    return f"{value:,.4g} [{low:,.4g}, {high:,.4g}]"
