"""What the algorithms of a benchmark have reached: scores, interquartile means, and aggregates over the tasks.

Measures and their intervals are those of Agarwal et al., arXiv:2108.13264 (runs/measures.py).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rllib.benchmark.plan import Plan, runs_of
from rllib.benchmark.suite import Published, Suite, Task, label
from rllib.did_you_mean import did_you_mean
from rllib.runs.drawing import STEPS, Curve
from rllib.runs.entries import flatten
from rllib.runs.measures import Scores, iqm_of_scores, mean_of_scores, median_of_scores, probability_of_improvement
from rllib.storage.local_path import local_path
from rllib.tune.reporting.comparison import Estimate, estimate
from rllib.tune.reporting.plots import curve_of_group
from rllib.tune.reporting.runs import Run, read_runs
from rllib.tune.reporting.scores import curve_of

# Measures of all tasks together, of normalised scores.
_AGGREGATES = {"iqm": iqm_of_scores, "median": median_of_scores, "mean": mean_of_scores}


@dataclass(frozen=True)
class Standing:
    """What an algorithm has reached on a task.

    Attributes:
        scores: seed -> the metric at the task's steps.
        score: interquartile mean of the scores; None without scores.
        curve: of all runs that have results; None if none has the metric.
    """

    scores: dict[int, float]
    score: Estimate | None
    curve: Curve | None

    @property
    def values(self) -> np.ndarray:
        """[N] float64: the scores."""
        return np.array(list(self.scores.values()))


@dataclass(frozen=True)
class Standings:
    """What the algorithms of a benchmark have reached.

    Attributes:
        plan: what is compared.
        suite: its tasks and published scores.
        standings: algorithm -> task -> standing.
        aggregates: algorithm -> "iqm", "median" and "mean" of the normalised scores of all tasks; empty if a task has
            no scores or no scale.
        improvements: algorithm -> probability that one of its runs is better than one of the first algorithm's,
            averaged over tasks; without the first one, and empty if a task has no scores.
        notes: sentences about runs that are left out.
    """

    plan: Plan
    suite: Suite
    standings: dict[str, dict[str, Standing]]
    aggregates: dict[str, dict[str, Estimate]]
    improvements: dict[str, Estimate]
    notes: list[str]

    @property
    def tasks(self) -> list[str]:
        """The environments."""
        return list(self.plan.steps)

    @property
    def has_curves(self) -> bool:
        """Whether a run has a result with the metric."""
        return any(standing.curve for of_tasks in self.standings.values() for standing in of_tasks.values())

    @property
    def published(self) -> list[Published]:
        """Published scores of these algorithms on these tasks; none if the scores are no returns."""
        return [
            each
            for each in self.suite.published
            if self.plan.is_of_returns
            and each.algorithm in self.plan.algorithms
            and not each.scores.keys().isdisjoint(self.tasks)
        ]


def read_standings(directory: str | os.PathLike, plan: Plan | None = None) -> Standings:
    """Reads the directory of a benchmark, finished or not.

    Args:
        directory: directory of the benchmark.
        plan: what is compared; None: what the latest command has compared there.

    Raises:
        ValueError: if it is none, or its plan or the record of its runs is damaged.
    """
    directory = local_path(directory)
    plan = plan or Plan.read(directory)
    suite, notes = plan.read_suite(), []
    standings = {
        algorithm: {task: _standing(directory, plan, algorithm, task, notes) for task in plan.steps}
        for algorithm in plan.algorithms
    }
    scores = {name: [standing.values for standing in of_tasks.values()] for name, of_tasks in standings.items()}
    complete = {name: own for name, own in scores.items() if all(map(len, own))}
    aggregates, improvements = {}, {}
    tasks = [suite.tasks[task] for task in plan.steps]
    if plan.is_of_returns and all(task.low is not None and task.high is not None for task in tasks):
        for name, own in complete.items():
            normalised = [_normalised(values, task) for values, task in zip(own, tasks)]
            aggregates[name] = {key: estimate(measure, normalised) for key, measure in _AGGREGATES.items()}
    first, *others = plan.algorithms
    for name in others:
        if name in complete and first in complete:
            improvements[name] = estimate(probability_of_improvement, complete[name], complete[first])
    return Standings(plan, suite, standings, aggregates, improvements, notes)


def _normalised(values: np.ndarray, task: Task) -> np.ndarray:
    return (values - task.low) / (task.high - task.low)


def _standing(directory: Path, plan: Plan, algorithm: str, task: str, notes: list[str]) -> Standing:
    """What an algorithm has reached on a task; adds to the notes which runs have no score."""
    places = runs_of(directory, algorithm, task, plan.seeds)
    runs = dict(zip(places, read_runs(*places.values()))) if places else {}
    scores: dict[int, float] = {}
    for seed, run in runs.items():
        found = _score(run, plan.metric, plan.steps[task])
        if isinstance(found, str):
            notes.append(f"{algorithm} on {label(task)}, seed {seed}, {found} and is left out")
        else:
            scores[seed] = found
    if missing := [seed for seed in plan.seeds if seed not in runs]:
        what = "seed" if len(missing) == 1 else "seeds"
        notes.append(f"{algorithm} on {label(task)}, {what} {_listed(missing)}, has no result yet")
    values: Scores = [np.array(list(scores.values()))]
    return Standing(
        scores,
        estimate(iqm_of_scores, values) if scores else None,
        curve_of_group(algorithm, list(runs.values()), plan.metric, STEPS),
    )


def _score(run: Run, metric: str, steps: int) -> float | str:
    """The metric at the steps, on the line between the results around them; or why there is none."""
    reached = max((result.get(STEPS, 0) for result in run.results), default=0)
    if reached < steps:
        return f"has {reached:,} of {steps:,} steps"
    try:
        places, values = curve_of(run, metric, STEPS)
    except ValueError:
        hint = did_you_mean(
            metric, (key for key, _ in flatten(run.results[-1]) if key != metric), otherwise="Give another --metric."
        )
        return f"has no {metric} ({hint.strip()} --table trains nothing again)"
    return float(np.interp(steps, places, values))


def _listed(seeds: Sequence[int]) -> str:
    """ "0 to 4" of consecutive seeds, or all of them."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))
