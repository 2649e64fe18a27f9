"""Coefficients of directions: gold vectors, exact gradients, invariances."""

import numpy as np
import pytest

from rllib.losses.evolution import ars_coefficients, centred_ranks, es_coefficients


def test_centred_ranks_of_the_gold_vector():
    np.testing.assert_allclose(centred_ranks(np.array([3.0, 1, 2, 10])), [0.166667, -0.5, -0.166667, 0.5], atol=5e-7)


def test_ranks_are_among_all_values_of_a_table():
    ranks = centred_ranks(np.array([[3.0, 1.0], [2.0, 10.0]]))
    np.testing.assert_allclose(ranks, [[1 / 6, -0.5], [-1 / 6, 0.5]])


def test_equal_values_get_the_mean_of_their_ranks():
    np.testing.assert_allclose(centred_ranks(np.array([5.0, 5.0, 1.0])), [0.25, 0.25, -0.5])
    np.testing.assert_array_equal(centred_ranks(np.full((3, 2), 7.0)), np.zeros((3, 2)))


@pytest.mark.parametrize("transform", [lambda x: 3 * x - 7, np.exp, lambda x: x**3, np.arctan])
def test_ranks_do_not_change_under_monotone_transforms(transform):
    values = np.random.default_rng(0).normal(size=(20, 2)).round(1)
    np.testing.assert_array_equal(centred_ranks(transform(values)), centred_ranks(values))
    assert abs(centred_ranks(values).sum()) < 1e-12


@pytest.mark.parametrize("values", [np.array([1.0]), np.array([1.0, np.nan]), np.array([1.0, np.inf])])
def test_ranks_of_what_has_none_are_refused(values):
    with pytest.raises(ValueError, match="two finite numbers"):
        centred_ranks(values)


@pytest.mark.parametrize("noise_stdev", [0.02, 1.0])
def test_the_gradient_of_a_linear_function_is_exact(noise_stdev):
    """Directions sqrt(d) times an orthonormal basis, n = d."""
    rng = np.random.default_rng(1)
    dimension = 6
    slope, theta = rng.normal(size=dimension), rng.normal(size=dimension)
    directions = np.sqrt(dimension) * np.linalg.qr(rng.normal(size=(dimension, dimension)))[0]
    returns = np.stack([(theta + s * noise_stdev * directions) @ slope for s in (1, -1)], axis=1)
    np.testing.assert_allclose(es_coefficients(returns, noise_stdev) @ directions, slope, rtol=1e-9)


def test_the_gradient_of_a_quadratic_is_exact_too():
    """Antithetic pairs cancel even orders: that of -|theta - c|^2 is -2 (theta - c)."""
    rng = np.random.default_rng(2)
    theta, centre = rng.normal(size=4), rng.normal(size=4)
    directions = np.sqrt(4) * np.eye(4)
    returns = np.stack([-np.square(theta + s * 0.3 * directions - centre).sum(1) for s in (1, -1)], axis=1)
    np.testing.assert_allclose(es_coefficients(returns, 0.3) @ directions, -2 * (theta - centre), rtol=1e-9)


def test_ars_by_hand():
    returns = np.array([[1.0, 2.0], [8.0, 0.0], [4.0, 6.0]])
    spread = np.std([8.0, 0.0, 4.0, 6.0])  # the used ones alone
    np.testing.assert_allclose(ars_coefficients(returns, 2), [0, 8 / (2 * spread), -2 / (2 * spread)])
    everything = ars_coefficients(returns, 3)
    np.testing.assert_allclose(everything, np.array([-1.0, 8.0, -2.0]) / (3 * returns.std()))


def test_ars_does_not_depend_on_scale_and_offset_of_rewards():
    returns = np.random.default_rng(3).normal(size=(8, 2))
    np.testing.assert_allclose(ars_coefficients(100 * returns - 7, 4), ars_coefficients(returns, 4))


def test_equal_returns_move_nothing():
    np.testing.assert_array_equal(ars_coefficients(np.full((3, 2), 9.0), 2), np.zeros(3))


def test_shapes_and_numbers_are_checked():
    with pytest.raises(ValueError, match=r"\[n, 2\]"):
        es_coefficients(np.zeros(4), 0.1)
    with pytest.raises(ValueError, match="1 to 3"):
        ars_coefficients(np.zeros((3, 2)), 4)
