"""Comparison of methods over several seeds: measures, differences to the first method, and what one may write of them.

Measures and their intervals are those of Agarwal et al., arXiv:2108.13264; the test and its correction those of
runs/measures.py.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rllib.progress import counted
from rllib.runs.drawing import RETURN, STEPS, title_of
from rllib.runs.entries import is_number, lookup
from rllib.runs.measures import (
    Scores,
    corrected,
    iqm_of_scores,
    least_p_value,
    mean_of_scores,
    median_of_scores,
    permutation_p_value,
    probability_of_improvement,
    standardised_difference,
    stratified_interval,
)
from rllib.runs.naming import ALGORITHM, differing, text_of
from rllib.tune.objectives import is_several
from rllib.tune.reporting.runs import defaults_of, read_objective, runs_of_seeds
from rllib.tune.reporting.scores import AREA, AT_STEPS, LAST, Method, Scored, curve_of, score_methods

# Averages of scores, which need one scale for all tasks, and their names in a sentence.
AVERAGES: dict[str, Callable[[Scores], float]] = {
    "iqm": iqm_of_scores,
    "mean": mean_of_scores,
    "median": median_of_scores,
}
_IN_WORDS = {"iqm": "an interquartile mean", "mean": "a mean", "median": "a median"}
LEVEL = 0.05


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % bootstrap interval over runs."""

    value: float
    low: float
    high: float

    def __str__(self):
        return f"{written(self.value)} [{written(self.low)}, {written(self.high)}]"


@dataclass(frozen=True)
class Standing:
    """What a method has reached.

    Attributes:
        score: the measure of its scores.
        runs: number of runs on each task.
        seeds: seeds of all runs; None where a seed is unknown.
        best: the best value of the metric in any result of its runs.
        steps: least and greatest place at which a run ends.
        time_s: mean training time of a run in seconds; None if it is unknown.
    """

    score: Estimate
    runs: list[int]
    seeds: list[int | None]
    best: float
    steps: tuple[float, float]
    time_s: float | None


@dataclass(frozen=True)
class Contrast:
    """A method against the first one, the baseline.

    Attributes:
        difference: its measure minus the baseline's.
        improvement: probability that one of its runs is better than one of the baseline's; ties count one half.
        effect: difference of the means in standard deviations (Hedges' g); infinite where runs have no spread.
        p_value: of the permutation test; NaN with a single run.
        corrected: the same, corrected for all comparisons (Holm).
        least: smallest p-value that so few runs can have, corrected.
        sentence: what one may write.
    """

    difference: Estimate
    improvement: Estimate
    effect: float
    p_value: float
    corrected: float
    least: float
    sentence: str

    @property
    def shows_a_difference(self) -> bool:
        return self.corrected <= LEVEL


@dataclass(frozen=True)
class Comparison:
    """Methods compared over several seeds; the first one is the baseline.

    Attributes:
        metric, mode, x, by, measure: what was compared, see `compare`.
        scored: the scores.
        standings, contrasts: by the name of the method; the baseline has no contrast.
        differing: settings that are not the same in all methods.
        sentences: what one may write: of each contrast, or of a single method.
    """

    metric: str
    mode: str
    x: str
    by: str
    measure: str
    scored: Scored
    standings: dict[str, Standing] = field(default_factory=dict)
    contrasts: dict[str, Contrast] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        """The steps, as in "at 400 environment steps"."""
        if self.by == LAST:
            return "at the end of each run"
        steps = f"{self.scored.at:,.10g} {title_of(self.x)}"
        return f"from {self.scored.start:,.10g} to {steps}" if self.by == AREA else f"at {steps}"

    @property
    def tasks(self) -> str:
        """The tasks: "on CartPole-v1", "on 2 environments"; "" if the environment is unknown."""
        tasks = self.scored.tasks
        return "" if tasks == [""] else f"on {tasks[0] if len(tasks) == 1 else counted(len(tasks), 'environment')}"


def compare(
    *directories: str | os.PathLike,
    metric: str | None = None,
    mode: str | None = None,
    x: str = STEPS,
    at: float | None = None,
    by: str = AT_STEPS,
    measure: str = "iqm",
    scales: Mapping[str, tuple[float, float]] | None = None,
) -> Comparison:
    """Compares the runs in the directories: those whose settings differ in the seed only, as one method.

    Args:
        directories, x, at, by, scales: see `score_methods`.
        metric: result key or "a/b" path; None: that of the experiments, or episode_reward_mean.
        mode: whether "max" or "min" of it is better; None: as the experiments have it, or "max".
        measure: "iqm", "mean" or "median" of the scores.

    Raises:
        ValueError: as `score_methods`, and for several environments without a scale for each of them.
    """
    if measure not in AVERAGES:
        raise ValueError(f"measure must be one of {', '.join(AVERAGES)}, but got {measure!r}")
    metric, mode = objective_of(directories, metric, mode)
    scored = score_methods(*directories, metric=metric, x=x, at=at, by=by, scales=scales)
    check_scales(scored, scales or {})
    comparison = Comparison(metric, mode, scored.x, by, measure, scored)
    for method in scored.methods:
        comparison.standings[method.name] = _standing(comparison, method)
    first, *others = scored.methods
    comparison.differing.extend(_differing(scored.methods))
    if not others:
        comparison.sentences.append(_sentence_of_one(comparison, first.name))
    own = [scored.scores[method.name] for method in others]
    base = scored.scores[first.name]
    p_values = [permutation_p_value(scores, base) for scores in own]
    tested = sum(not math.isnan(p_value) for p_value in p_values)
    for method, scores, p_value, together in zip(others, own, p_values, corrected(p_values)):
        count = len(others) if math.isnan(p_value) else tested  # what was not tested is not corrected for
        contrast = _contrast(comparison, first.name, method.name, scores, base, p_value, together, count)
        comparison.contrasts[method.name] = contrast
        comparison.sentences.append(contrast.sentence)
    return comparison


def objective_of(
    directories: Sequence[str | os.PathLike], metric: str | None = None, mode: str | None = None
) -> tuple[str, str]:
    """The metric and the mode that are given, or those of the experiments in the directories; the first of several."""
    if metric is None:
        metric, own_mode = read_objective(*directories)
        if is_several(metric):
            metric, own_mode = metric[0], own_mode[0]
        mode = mode or own_mode
    if mode not in (None, "max", "min"):
        raise ValueError(f"mode must be 'max' or 'min', but got {mode!r}")
    return metric or RETURN, mode or "max"


def check_scales(scored: Scored, scales: Mapping[str, tuple[float, float]]) -> None:
    """Raises a ValueError if the scores of several tasks cannot be averaged for want of a scale."""
    if len(scored.tasks) > 1 and not scales:
        raise ValueError(
            f"returns of {' and '.join(scored.tasks)} are on different scales. Give what counts as 0 and 1 for each, "
            f"as in --scale {scored.tasks[0]}=0:500, or compare by --measure improvement."
        )
    if scales and (without := [task for task in scored.tasks if task not in scales]):
        raise ValueError(f"--scale is missing for {', '.join(without)}")


def heights(scores: Scores, mode: str) -> list[np.ndarray]:
    """The scores, or their negatives where less is better: greater is better."""
    return [-task if mode == "min" else task for task in scores]


def estimate(measure: Callable[..., float], *scores: Scores) -> Estimate:
    """The measure of scores with its interval."""
    low, high = stratified_interval(measure, *scores)
    return Estimate(float(measure(*scores)), float(low), float(high))


def written(value: float) -> str:
    """A number in four digits at least, and in all digits before the point."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.4g}"


def written_p(p_value: float) -> str:
    """A p-value in a sentence: "p = 0.03", "p < 0.001"."""
    return "p < 0.001" if p_value < 1e-3 else f"p = {p_value:.2g}"


def _standing(comparison: Comparison, method: Method) -> Standing:
    runs, scores = method.all_runs, comparison.scored.scores[method.name]
    curves = [curve_of(run, comparison.metric, comparison.x) for run in runs]
    ends = [float(places[-1]) for places, _ in curves]
    better = max if comparison.mode == "max" else min
    times = [value for run in runs if is_number(value := lookup(run.results[-1], "time_total_s"))]
    return Standing(
        estimate(AVERAGES[comparison.measure], scores),
        [len(task) for task in scores],
        _seeds(method, comparison.metric),
        float(better(better(values) for _, values in curves)),
        (min(ends), max(ends)),
        float(np.mean(times)) if times else None,
    )


def _differing(methods: Sequence[Method]) -> list[str]:
    """The settings that differ between methods: first what was chosen, then defaults, then what only some have."""

    def rank(key: str) -> tuple[bool, bool]:
        chosen = any(
            key == ALGORITHM or text_of(method.settings[key]) != text_of(defaults.get(key))
            for method, defaults in zip(methods, known)
            if key in method.settings
        )
        return not chosen, any(key not in method.settings for method in methods)

    known = [defaults_of(str(method.settings.get(ALGORITHM, ""))) or {} for method in methods]
    return sorted(differing([method.settings for method in methods]), key=rank)


def _seeds(method: Method, metric: str) -> list[int | None]:
    """The seeds, each once though it is of several tasks."""
    return list(dict.fromkeys(each.seed for run in method.all_runs for each in runs_of_seeds(run, metric)))


def _contrast(
    comparison: Comparison,
    baseline: str,
    name: str,
    scores: Scores,
    base: Scores,
    p_value: float,
    together: float,
    count: int,
) -> Contrast:
    average = AVERAGES[comparison.measure]
    difference = estimate(lambda own, others: average(own) - average(others), scores, base)
    own, others = (heights(each, comparison.mode) for each in (scores, base))
    improvement = estimate(probability_of_improvement, own, others)
    effect, least = standardised_difference(scores, base), min(1.0, count * least_p_value(scores, base))
    contrast = Contrast(difference, improvement, effect, p_value, together, least, "")
    sentence = _sentence(comparison, contrast, baseline, name, count)
    return Contrast(difference, improvement, effect, p_value, together, least, sentence)


# ---------------------------------------------------------------------- sentences


def _sentence_of_one(comparison: Comparison, name: str) -> str:
    standing = comparison.standings[name]
    runs = sum(standing.runs)
    if runs == 1:
        reached = f"{_called(name)} reached {_reached(comparison, name)} {_scene(comparison)}"
        return f"{reached} in one run, which says nothing of other seeds."
    return f"With {_count(standing)}, {_called(name)} reached {_reached(comparison, name)} {_scene(comparison)}."


def _sentence(comparison: Comparison, contrast: Contrast, baseline: str, name: str, count: int) -> str:
    """What one may write of a method and the baseline."""
    base, own = comparison.standings[baseline], comparison.standings[name]
    one, two = _called(baseline), _called(name)
    each = base.runs == own.runs
    with_seeds = f"{_count(base)} each" if each else f"{_count(base)} of {one} and {_count(own)} of {two}"
    reached = f"{one} reached {_reached(comparison, baseline)}"
    compared = f"{two} {_interval(own)} {_scene(comparison)}"
    if math.isnan(contrast.corrected):
        return (
            f"With {with_seeds}, nothing may be concluded: {reached} and {compared}, and other seeds may reach "
            f"anything else. Train {_needed(count)} seeds or more of each."
        )
    correction = f", corrected for {count} comparisons" if count > 1 else ""
    test = f"{written_p(contrast.corrected)} in a permutation test{correction}"
    size = contrast.difference
    difference = f"the difference is {written(size.value)} ({written(size.low)} to {written(size.high)}; {test})"
    verdict = _verdict(comparison, contrast, one, two, count)
    return f"With {with_seeds}, {reached} and {compared}; {difference}. {verdict}"


def _verdict(comparison: Comparison, contrast: Contrast, baseline: str, name: str, count: int) -> str:
    if contrast.shows_a_difference:
        # The test is of means, whose order may be another one than that of the measure.
        above = contrast.effect > 0
        better = name if above == (comparison.mode == "max") else baseline
        return f"{better} is better on average, at the 5 % level."
    if contrast.least > LEVEL:
        return f"So few seeds cannot show a difference at the 5 % level: train {_needed(count)} or more of each."
    return "This does not show a difference at the 5 % level."


def _called(name: str) -> str:
    """The name in a sentence, whose commas are not those of a name."""
    return f'"{name}"' if ", " in name else name


def _needed(count: int) -> int:
    """The least number of seeds of each method with which a test can show a difference; `count`: of comparisons."""
    number = 2
    while count * 2 / math.comb(2 * number, number) > LEVEL:
        number += 1
    return number


def _count(standing: Standing) -> str:
    """ "5 seeds", "3 or 4 seeds" where tasks have different numbers, "one seed"."""
    low, high = min(standing.runs), max(standing.runs)
    if high == 1:
        return "one seed"
    return f"{low} seeds" if low == high else f"{low} to {high} seeds"


def _reached(comparison: Comparison, name: str) -> str:
    several = len(comparison.scored.tasks) > 1
    metric = "score" if several else title_of(comparison.metric)
    average = (
        f"{_IN_WORDS[comparison.measure]} {metric}"
        if sum(comparison.standings[name].runs) > 1
        else f"{_article(metric)} {metric}"
    )
    mean = ", averaged over the steps," if comparison.by == AREA else ""
    return f"{average}{mean} of {_interval(comparison.standings[name])}"


def _article(noun: str) -> str:
    return "an" if noun[:1] in "aeiou" else "a"


def _interval(standing: Standing) -> str:
    score = standing.score
    if max(standing.runs) == 1:
        return written(score.value)
    return f"{written(score.value)} (95 % interval {written(score.low)} to {written(score.high)})"


def _scene(comparison: Comparison) -> str:
    return " ".join(filter(None, (comparison.tasks, comparison.where)))
