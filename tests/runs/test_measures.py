"""Measures over runs: closed forms, exact enumerations, and numbers of rliable 1.2.0."""

import itertools
import math

import numpy as np
import pytest

from rllib.runs.measures import (
    corrected,
    interval,
    iqm,
    iqm_of_scores,
    least_p_value,
    mean_of_scores,
    median_of_scores,
    performance_profile,
    permutation_p_value,
    probability_of_improvement,
    standardised_difference,
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


ONE, OTHER = np.array([431.0, 402, 455, 440, 427]), np.array([388.0, 360, 410, 450, 395])


def test_the_permutation_test_is_that_of_scipy():
    """scipy.stats, of x and y: found = permutation_test((x, y), lambda x, y, axis: ttest_ind(x, y, equal_var=False,
    axis=axis).statistic, n_resamples=np.inf); np.mean(abs(found.null_distribution) >= abs(found.statistic) - 1e-12).
    """
    assert permutation_p_value([ONE], [OTHER]) == pytest.approx(0.12698412698412698)
    assert permutation_p_value([ONE[:2]], [OTHER[:2]]) == pytest.approx(1 / 3)
    assert permutation_p_value([np.full(5, 500.0)], [OTHER]) == pytest.approx(0.007936507936507936)
    assert permutation_p_value([ONE[:3]], [OTHER]) == pytest.approx(0.25)
    assert permutation_p_value([1000 + 1e-3 * ONE], [1000 + 1e-3 * OTHER]) == permutation_p_value([ONE], [OTHER])


def test_the_permutation_test_of_special_cases():
    assert permutation_p_value([np.ones(3)], [np.ones(4)]) == 1.0
    assert permutation_p_value([np.zeros(4)], [np.ones(4)]) == least_p_value([np.zeros(4)], [np.ones(4)]) == 2 / 70
    assert least_p_value([ONE[:3]], [OTHER]) == 1 / 56 and least_p_value([ONE[:1]], [OTHER[:1]]) == 1.0
    assert math.isnan(permutation_p_value([ONE[:1]], [OTHER])), "one run has no spread"
    # Of two tasks with the same scores, on any scale.
    both = permutation_p_value([ONE, ONE], [OTHER, OTHER])
    assert both < permutation_p_value([ONE], [OTHER])
    assert both == permutation_p_value([ONE, 1e6 * ONE], [OTHER, 1e6 * OTHER])


def test_drawn_divisions_are_near_all_of_them():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=11), rng.normal(0.8, size=11)  # 705,432 divisions
    # scipy.stats.ttest_ind(one, other, equal_var=False).pvalue; the draws have a standard error of 0.003.
    assert permutation_p_value([one], [other]) == pytest.approx(0.1792, abs=0.012)


def test_the_test_keeps_its_level():
    """Of equal algorithms with two modes, where Welch's t-test does not, at most a twentieth differs."""
    rng = np.random.default_rng(0)
    scores = np.where(rng.random((400, 10)) < 0.3, 20.0, 490.0) + rng.normal(size=(400, 10))
    p_values = np.array([permutation_p_value([each[:5]], [each[5:]]) for each in scores])
    assert (p_values <= 0.05).mean() < 0.05 + 2 * math.sqrt(0.05 * 0.95 / 400)


def test_the_standardised_difference():
    """Cohen's d with Hedges' factor for eight degrees of freedom."""
    spread = math.sqrt((ONE.var(ddof=1) + OTHER.var(ddof=1)) / 2)
    assert standardised_difference([ONE], [OTHER]) == pytest.approx((431 - 400.6) / spread * (1 - 3 / 31))
    assert standardised_difference([OTHER], [ONE]) == -standardised_difference([ONE], [OTHER])
    assert standardised_difference([np.zeros(3)], [np.ones(3)]) == -math.inf
    assert standardised_difference([np.ones(3)], [np.ones(3)]) == 0
    assert math.isnan(standardised_difference([np.ones(1)], [np.ones(1)]))


def test_holms_correction():
    """statsmodels: multipletests([0.01, 0.04, 0.03], method="holm")[1] is [0.03, 0.06, 0.06]."""
    assert corrected([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert corrected([0.5, 0.9]) == [1.0, 1.0] and corrected([]) == []
    assert math.isnan(corrected([math.nan, 0.01])[0]) and corrected([math.nan, 0.01])[1] == 0.01
