"""Measures over runs: closed forms, exact enumerations, and numbers of rliable 1.2.0."""

import itertools

import numpy as np
import pytest

from rllib.runs.measures import (
    interval,
    iqm,
    iqm_of_scores,
    mean_of_scores,
    median_of_scores,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
)

# Seven and five runs of two algorithms on three tasks.
SEVEN = np.array(
    [[1.063, 0.934, 1.32], [1.052, 0.732, 1.181], [1.652, 1.474, 0.648], [0.367, 0.688, 1.021],
     [-0.163, 0.891, 0.377], [0.634, 0.728, 0.842], [1.206, 1.521, 0.936]]
).T  # fmt: skip
FIVE = np.array(
    [[1.483, 0.467, 0.976], [1.252, 0.847, 0.428], [0.339, 0.571, 0.91], [0.295, 0.695, 0.72], [1.07, 0.907, 0.978]]
).T


def test_iqm_is_the_trimmed_mean():
    values = np.random.default_rng(0).normal(size=(11, 3))
    expected = [sum(sorted(column)[2:9]) / 7 for column in values.T]  # a quarter of 11 is 2, rounded down
    assert iqm(values) == pytest.approx(expected)
    assert iqm(np.array([[1.0], [2.0], [9.0]]))[0] == 4


@pytest.mark.parametrize(
    ("values", "expected", "low", "high"),
    [
        ([100.0, 109.0, 91.8], 100.26666666666667, 91.8, 109.0),
        ([73.3, 86.4, 70.3, 101.8, 140.2], 87.16666666666667, 71.3, 127.4),
        ([85.2, 81.4, 114.7, 110.7, 103.2, 72.1, 99.1, 120.9, 59.7, 86.3], 94.31666666666666, 79.75, 107.967),
    ],
)
def test_iqm_and_interval_are_those_of_rliable(values, expected, low, high):
    """rliable 1.2.0: aggregate_iqm of a column, and get_interval_estimates with 50,000 resamples of it."""
    column = np.array(values)[:, None]
    assert iqm(column)[0] == pytest.approx(expected, abs=1e-12)
    found = interval(column, resamples=50_000)[:, 0]
    # The percentiles are drawn on both sides: within a hundredth of the width.
    assert found == pytest.approx([low, high], abs=0.01 * (high - low))


def test_the_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(1)
    low, high = interval(rng.normal(size=(20, 400)))
    assert 0.87 < np.mean((low < 0) & (high > 0)) < 0.98  # percentile bootstrap of 20 runs is a little narrow


def test_measures_of_two_algorithms_are_those_of_rliable():
    """rliable 1.2.0: aggregate_iqm, aggregate_mean, aggregate_median, probability_of_improvement."""
    assert iqm_of_scores(SEVEN) == pytest.approx(0.9152727272727273, abs=1e-12)
    assert iqm_of_scores(FIVE) == pytest.approx(0.7856666666666666, abs=1e-12)
    assert mean_of_scores(SEVEN) == pytest.approx(0.9097142857142857, abs=1e-12)
    assert median_of_scores(SEVEN) == pytest.approx(0.9035714285714285, abs=1e-12)
    assert probability_of_improvement(SEVEN, FIVE) == pytest.approx(0.6095238095238096, abs=1e-12)


def test_the_probability_of_improvement_counts_pairs_and_halves_ties():
    scores, others = [np.array([1.0, 2.0, 2.0])], [np.array([2.0, 0.0])]
    pairs = [(x > y) + 0.5 * (x == y) for x, y in itertools.product(scores[0], others[0])]
    assert probability_of_improvement(scores, others) == pytest.approx(np.mean(pairs))
    assert probability_of_improvement(scores, others) + probability_of_improvement(others, scores) == pytest.approx(1)
    assert probability_of_improvement(scores, scores) == 0.5


def test_the_probability_of_improvement_needs_the_same_tasks():
    with pytest.raises(ValueError, match="scores of the same tasks, but got 3 and 2"):
        probability_of_improvement(SEVEN, FIVE[:2])


def test_a_performance_profile_weighs_tasks_alike_whatever_their_numbers_of_runs():
    scores = [np.array([0.0, 1.0]), np.array([1.0, 1.0, 2.0, 0.5])]
    found = performance_profile(scores, np.array([-1.0, 0.5, 1.0, 2.0]))
    assert found == pytest.approx([1, (1 / 2 + 3 / 4) / 2, (0 + 1 / 4) / 2, 0])  # strictly above a threshold


def test_the_stratified_interval_draws_within_each_task():
    """The bootstrap distribution of few runs is enumerated: of each task every choice of as many runs."""
    scores = [np.array([0.0, 1.0, 5.0]), np.array([100.0, 103.0])]
    choices = [itertools.product(task, repeat=len(task)) for task in scores]
    exact = [mean_of_scores([np.array(each) for each in drawn]) for drawn in itertools.product(*choices)]
    found = stratified_interval(mean_of_scores, scores, confidence=0.8, resamples=20_000)
    assert found == pytest.approx(np.percentile(exact, [10, 90]), abs=0.2)
    same = [np.full(4, 2.0), np.full(3, 2.0)]
    assert stratified_interval(iqm_of_scores, same) == (2, 2)


def test_intervals_of_profiles_have_a_number_for_each_threshold():
    thresholds = np.linspace(0, 2, 5)
    low, high = stratified_interval(lambda scores: performance_profile(scores, thresholds), SEVEN, resamples=200)
    value = performance_profile(SEVEN, thresholds)
    assert low.shape == high.shape == (5,)
    assert (low <= value).all() and (value <= high).all()


def test_equal_seeds_give_equal_intervals():
    pair = [stratified_interval(probability_of_improvement, SEVEN, FIVE, resamples=200, seed=3) for _ in range(2)]
    assert pair[0] == pair[1]
    low, high = pair[0]
    assert 0 <= low < 0.6095 < high <= 1
