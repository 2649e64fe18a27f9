"""How long the runs of a benchmark that are left will take."""

import time
from typing import NamedTuple

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.cli.benchmark.entries import Entry
from rllib.runs.drawing import STEPS
from rllib.runs.files import read_results

# Time for which an algorithm is tried, after its first iteration.
_TRIED_S = 2.0


class TimeLeft(NamedTuple):
    """What is left of an entry.

    Attributes:
        steps: environment steps of all its runs.
        time_s: for these steps, with one run after the other.
        is_least: whether it takes longer: in the time measured, no update was due.
    """

    steps: int
    time_s: float
    is_least: bool


def time_left(entry: Entry) -> TimeLeft:
    """Estimates by the runs that are there, or else by training for two seconds; nothing is written."""
    left = sum(max(0, entry.steps - steps) for steps in entry.reached().values())
    if not left:
        return TimeLeft(0, 0.0, False)
    rate, is_least = _recorded_rate(entry), False
    if rate is None:
        rate, is_least = _tried_rate(entry)
    return TimeLeft(left, left / rate, is_least)


def _recorded_rate(entry: Entry) -> float | None:
    """Steps a second of the runs that have results."""
    last = [
        result
        for folder in entry.folders()
        for seed in folder.seeds
        for result in read_results(folder.run(seed))[-1:]
        if result.get(STEPS) and result.get("time_total_s")
    ]
    return sum(each[STEPS] for each in last) / sum(each["time_total_s"] for each in last) if last else None


def _tried_rate(entry: Entry) -> tuple[float, bool]:
    """Steps a second of some iterations, and whether there was no update in them."""
    config = get_algorithm_config(entry.algorithm).environment(entry.task).update_from_dict(entry.spec.config)
    with config.debugging(seed=entry.seeds[0]).build() as algorithm:
        algorithm.train()  # the first iteration warms up
        before, began_at, passed_s = algorithm.timesteps, time.monotonic(), 0.0
        while passed_s <= _TRIED_S:
            algorithm.train()
            passed_s = time.monotonic() - began_at
        return (algorithm.timesteps - before) / passed_s, not algorithm.metrics.counters["num_updates"]
