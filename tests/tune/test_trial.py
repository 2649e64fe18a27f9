"""Data of a trial, while it runs and when it has ended."""

import gc
import itertools
import math
import pickle
import tracemalloc

import pytest

from rllib.tune.experiment.trial import MetricAnalysis, Trial

VALUES = (-2.0, 5.0, math.inf, -math.inf, math.nan)


def analysis_of(*values, key="loss"):
    analysis = MetricAnalysis()
    for value in values:
        analysis.add({key: value})
    return analysis


def test_statistics():
    stats = analysis_of(*range(1, 13), math.nan).stats["loss"]
    assert (stats["max"], stats["min"], stats["avg"]) == (12, 1, 6.5) and math.isnan(stats["last"])
    assert (stats["last-5-avg"], stats["last-10-avg"]) == (10, 7.5)


@pytest.mark.parametrize("values", list(itertools.product(VALUES, repeat=4)))
def test_every_average_is_the_sum_of_the_numbers_by_their_count(values):
    stats, numbers = analysis_of(*values).stats["loss"], [value for value in values if not math.isnan(value)]
    mean = sum(numbers) / len(numbers) if numbers else math.nan
    assert [stats["avg"], stats["last-5-avg"]] == pytest.approx([mean] * 2, nan_ok=True)
    if numbers:
        assert (stats["min"], stats["max"]) == (min(numbers), max(numbers))


def test_settling_changes_no_statistic():
    analysis = analysis_of(3, 1, 2.5)
    analysis.add({"never": math.nan, "unbounded": math.inf})
    before = pickle.loads(pickle.dumps(analysis.stats))
    analysis.settle()
    assert repr(analysis.stats) == repr(before) and type(analysis.stats["loss"]["min"]) is int
    analysis.settle()
    assert repr(analysis.stats) == repr(before)


def test_a_finished_trial_takes_little_memory(tmp_path):
    def finished(index):
        params = {"x": index / 7}
        trial = Trial(f"t_{index:05d}", index, "f", dict(params), params, tmp_path)
        result = {f"metric {i}": index + i / 3 for i in range(20)}
        trial.take({**pickle.loads(pickle.dumps(result)), "config": trial.config})
        trial.settle()
        return trial

    kept = [finished(index) for index in range(10)]
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        kept += [finished(index) for index in range(200)]
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / 200
    finally:
        tracemalloc.stop()
    # 20 metrics: 960 bytes of statistics, 1.2 KiB of last result, and the trial itself. Dicts took 11.5 KiB.
    assert each < 5000, f"{each:.0f} bytes a trial of {len(kept)}"
