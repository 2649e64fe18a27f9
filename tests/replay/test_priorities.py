"""Prioritised draws: probabilities and importance weights (CORRECTNESS 4.2), and what spoils them is refused."""

import numpy as np
import pytest

from rllib.replay.priorities import Priorities


def make(errors, alpha=1.0, epsilon=0.0, rows=None, stratified=False):
    priorities = Priorities(rows or len(errors), alpha, epsilon, stratified)
    priorities.add(0, len(errors), np.asarray(errors, float))
    return priorities


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize(
    ("alpha", "probabilities", "weights"),
    [
        (1.0, [0.1, 0.2, 0.3, 0.4], [1, 0.757858, 0.644394, 0.574349]),
        (0.6, [0.14823, 0.224674, 0.286555, 0.340542], [1, 0.846745, 0.768229, 0.716978]),
    ],
)
def test_gold(alpha, probabilities, weights, stratified):
    priorities = make([1, 2, 3, 4], alpha, stratified=stratified)
    np.testing.assert_allclose(priorities.tree[:] / priorities.tree.total, probabilities, atol=1e-6)
    rows, found = priorities.sample(100_000, np.random.default_rng(0), beta=0.4)
    np.testing.assert_allclose(np.bincount(rows) / len(rows), probabilities, atol=0.006)
    np.testing.assert_allclose([found[rows == row][0] for row in range(4)], weights, atol=1e-6)


def test_raw_weights_gold():
    """(N P)^-beta themselves: a ratio to the weight of a row whose P is 1 / N."""
    priorities = make([1, 2, 3, 4, 2.5])  # 2.5 is a fifth of the total, 12.5
    rows, found = priorities.sample(10_000, np.random.default_rng(0), beta=0.4)
    weights = np.array([found[rows == row][0] for row in range(5)])
    four = weights[:4] / weights[4]
    # Of four rows alone: N P = 4 p / 10 instead of 5 p / 12.5, which is the same.
    np.testing.assert_allclose(four, [1.4427, 1.093362, 0.929667, 0.828614], atol=1e-6)


@pytest.mark.parametrize("stratified", [False, True])
def test_a_large_table_is_sampled_in_proportion(stratified):
    rng = np.random.default_rng(0)
    errors = rng.exponential(size=5001)
    rows, weights = make(errors, 0.7, 1e-6, stratified=stratified).sample(500_000, rng, beta=0.4)
    expected = (errors + 1e-6) ** 0.7
    expected /= expected.sum()
    counts = np.bincount(rows, minlength=5001)
    assert np.abs(counts / 500_000 - expected).max() < 3e-4
    unscaled = (5001 * expected[rows]) ** -0.4
    np.testing.assert_allclose(weights, unscaled / unscaled.max(), rtol=1e-9)


def test_strata_hold_a_row_each():
    """With equal priorities a stratified draw of N takes every row once."""
    rows, _ = make(np.ones(512), stratified=True).sample(512, np.random.default_rng(0), beta=0.0)
    assert rows.tolist() == list(range(512))


def test_exponent_zero_is_uniform():
    priorities = make(np.random.default_rng(0).random(300), alpha=0.0)
    priorities.update(np.arange(300), priorities.values(np.random.default_rng(1).random(300)))
    rows, weights = priorities.sample(60_000, np.random.default_rng(2), beta=0.4)
    assert (weights == 1).all()
    assert np.array_equal(rows, (np.random.default_rng(2).random(60_000) * 300).astype(int))


def test_new_rows_get_the_largest_so_far():
    priorities = Priorities(10, 1.0, 0.0)
    priorities.add(0, 2)
    assert priorities.tree[:3].tolist() == [1, 1, 0]
    priorities.update(np.array([0, 1]), priorities.values(np.array([8.0, 0.5])))
    priorities.add(9, 2)  # round the end
    assert priorities.tree[:].tolist() == [8, 0.5, 0, 0, 0, 0, 0, 0, 0, 8]


def test_rows_without_error_stay_in_play_by_epsilon():
    rows, _ = make([0, 0], 0.6, 1e-6).sample(100, np.random.default_rng(0), beta=0.4)
    assert set(rows.tolist()) == {0, 1}


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_errors_that_are_no_numbers_are_refused_and_nothing_changes(odd, alpha):
    priorities = make([1, 2, 3], alpha)
    before = priorities.tree[:].tolist(), priorities.largest
    with pytest.raises(ValueError, match="TD errors must be finite, but got"):
        priorities.values(np.array([5.0, odd]))
    assert (priorities.tree[:].tolist(), priorities.largest) == before


def test_weights_correct_the_mean():
    """P11: with beta 1 the weighted mean over prioritised draws is the mean over all rows."""
    rng = np.random.default_rng(0)
    values = rng.normal(3.0, 1.0, 1000)
    rows, weights = make(np.abs(values), 0.6, 1e-6).sample(200_000, rng, beta=1.0)
    assert abs(np.average(values[rows], weights=weights) - values.mean()) < 0.02
    assert abs(values[rows].mean() - values.mean()) > 0.1


@pytest.mark.parametrize("alpha", [0.0, 0.5, 2.0])
def test_dropped_rows_stay_so_with_another_exponent(alpha):
    priorities = Priorities(4, alpha=alpha, epsilon=0.0)
    priorities.load(np.array([4.0, 0, 9]), 16.0, alpha=1.0)
    np.testing.assert_allclose(priorities.tree[:3], [4**alpha, 0, 9**alpha])
    assert priorities.largest == pytest.approx(16**alpha)


@pytest.mark.parametrize("alpha", [0.6, 1.0, 2.0])
@pytest.mark.parametrize("stratified", [True, False])
def test_rows_without_errors_are_drawn_where_there_are_no_others(alpha, stratified):
    """With epsilon 0, as after a perfect fit; also once they were saved and loaded."""
    priorities = Priorities(8, alpha=alpha, epsilon=0.0, stratified=stratified)
    priorities.add(0, 4, np.zeros(4))
    restored = Priorities(8, alpha=0.5, epsilon=0.0, stratified=stratified)
    restored.load(priorities.tree[:4], priorities.largest, alpha=alpha, epsilon=0.0)
    for each in (priorities, restored):
        rows, weights = each.sample(4000, np.random.default_rng(0), beta=0.4)
        assert np.bincount(rows, minlength=4).min() > 900 and rows.max() == 3
        np.testing.assert_array_equal(weights, 1)
        each.update(np.array([2]), np.array([1e-3]))
        assert set(each.sample(4000, np.random.default_rng(0), beta=0.4)[0]) == {2}
