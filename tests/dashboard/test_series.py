"""Curves in few points that still show every peak."""

import json

import numpy as np
import pytest

from rllib.dashboard.series import SeriesReader, Sparkline, curve
from rllib.tune.reporting.runs import Run, points_of


def test_short_curves_are_as_they_are_with_gaps():
    x, y = np.arange(5.0), np.array([np.nan, 1.0, np.inf, 3.0, np.nan])
    drawn = curve(x, y)
    assert drawn["x"] == [1.0, 2.0, 3.0] and drawn["count"] == 2
    assert drawn["y"][0] == 1.0 and np.isnan(drawn["y"][1]) and drawn["y"][2] == 3.0
    assert curve(x, np.full(5, np.nan)) == {"x": [], "y": [], "count": 0}


@pytest.mark.parametrize("points", [2, 10, 333])
def test_long_curves_keep_every_peak(points):
    rng = np.random.default_rng(0)
    x, y = np.sort(rng.random(10_007)), rng.normal(size=10_007)
    y[rng.integers(10_007, size=500)] = np.nan
    y[4321], y[17] = 99.0, -99.0
    drawn = curve(x, y, points)
    assert 2 * len(drawn["x"]) <= points and all(len(drawn[key]) == len(drawn["x"]) for key in ("y", "low", "high"))
    assert max(drawn["high"]) == 99.0 and min(drawn["low"]) == -99.0
    starts = np.linspace(0, len(y), points // 2, endpoint=False).astype(int)
    for place, low, high, mean, part, where in zip(
        drawn["x"], drawn["low"], drawn["high"], drawn["y"], np.split(y, starts[1:]), np.split(x, starts[1:])
    ):
        np.testing.assert_allclose([place, low, high, mean],
                                   [where.mean(), np.nanmin(part), np.nanmax(part), np.nanmean(part)])  # fmt: skip


def test_a_constant_stays_constant():
    drawn = curve(np.arange(9999.0), np.full(9999, 22.24), 100)
    assert set(drawn["y"]) == {22.24}


def test_a_gap_of_many_bins_is_a_gap():
    y = np.ones(1000)
    y[200:800] = np.nan
    drawn = curve(np.arange(1000.0), y, 20)
    assert np.isnan(drawn["y"][5]) and np.isnan(drawn["low"][5]) and drawn["y"][0] == drawn["y"][9] == 1.0


def test_sparklines_stay_short_and_are_means():
    line = Sparkline(10)
    for piece in np.array_split(np.arange(50_000.0), 777):
        line.add(piece)
    points = line.points()
    assert len(points) <= 10
    assert np.all(np.diff(points) > 0) and points[0] < 6000 and points[-1] > 44_000
    empty = Sparkline()
    empty.add(np.full(3, np.nan))
    assert empty.points() == []


def test_the_reader_follows_a_file_and_takes_further_keys(tmp_path):
    path, reader = tmp_path / "result.json", SeriesReader()
    path.write_text(json.dumps({"a": 1, "training_iteration": 4}) + "\n")
    assert [each["x"] for each in reader.read(path, ["a"], "timesteps_total")] == [[4.0]]
    with open(path, "a") as file:
        file.write(json.dumps({"a": 2, "b": 8, "timesteps_total": 90}) + "\n")
    a, b = reader.read(path, ["a", "b"], "timesteps_total")
    assert (a["x"], a["y"]) == ([4.0, 90.0], [1.0, 2.0]) and (b["x"], b["y"]) == ([90.0], [8.0])
    assert reader.read(path, ["a"], "none")[0]["x"] == [2.0, 4.0]  # the iteration, else the number of the result


@pytest.mark.parametrize("seed", range(20))
def test_curves_are_those_of_rllib_plot(tmp_path, seed):
    """Of results in which entries come and go: evaluations, policies that learn now and then, later names, null."""
    rng = np.random.default_rng(seed)
    results = []
    for number in range(1, 40):
        nested = {"learner": {"p": {"learner_stats": {"kl": float(number)}}} if rng.random() < 0.4 else {}}
        value = None if rng.random() < 0.2 else float(rng.normal())
        evaluation = {"evaluation": {"episode_reward_mean": value}} if rng.random() < 0.2 else {}
        given = {"episode_reward_mean": value} if rng.random() < 0.7 else {}
        results.append({"timesteps_total": 10 * number, "info": nested, **evaluation, **given})
    path = tmp_path / "result.json"
    path.write_text("".join(json.dumps(result) + "\n" for result in results))
    stored = ["episode_reward_mean", "evaluation/episode_reward_mean", "info/learner/p/learner_stats/kl"]
    later = ["env_runners/episode_return_mean", "evaluation/env_runners/episode_return_mean", "learners/p/kl"]
    keys = stored + later
    for key, drawn in zip(keys, SeriesReader().read(path, keys, "timesteps_total")):
        x, y = points_of(Run("run", results), key, "timesteps_total")
        np.testing.assert_array_equal(drawn["x"], x, key)
        np.testing.assert_array_equal(drawn["y"], y, key)
        having = sum("evaluation" in result for result in results)
        assert "evaluation" not in key or len(x) <= having


def test_results_that_were_taken_out_disappear(tmp_path):
    path, reader = tmp_path / "result.json", SeriesReader()
    path.write_text("".join(json.dumps({"a": n}) + "\n" for n in range(9)))
    reader.read(path, ["a"], "x")
    path.write_text("".join(json.dumps({"a": n}) + "\n" for n in range(4)))
    assert reader.read(path, ["a"], "x")[0]["y"] == [0.0, 1.0, 2.0, 3.0]
