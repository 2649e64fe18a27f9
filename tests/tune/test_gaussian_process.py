"""The time-varying Gaussian process against closed forms and a direct float64 reference."""

import math

import numpy as np
import pytest

from rllib.tune.schedulers.gaussian_process import GaussianProcess, Kernel, distances, fitted_kernel, log_likelihoods


def test_kernel_values():
    kernel = Kernel((0.5, 2.0), forgetting=0.19, noise=0.25)
    one, other = np.array([[0.1, 0.3]]), np.array([[0.6, 0.3], [0.1, 0.3], [0.6, 0.8]])
    values = kernel(one, np.array([4.0]), other, np.array([4.0, 2.0, 5.0]))
    # 1 length apart; two units of time apart, (1 - 0.19)^1; both.
    expected = [math.exp(-0.5), 0.81, math.exp(-(1.0 + 0.0625) / 2) * 0.9]
    np.testing.assert_allclose(values, [expected], rtol=1e-12)
    observed = kernel.of_observations(*distances(other, np.zeros(3), other, np.zeros(3)))
    np.testing.assert_allclose(np.diag(observed), 1.0)
    assert observed[0, 1] == pytest.approx(0.75 * math.exp(-0.5))


def test_posterior_after_one_observation():
    kernel, place = Kernel((0.5,), forgetting=0.19, noise=0.25), np.array([[0.2]])
    process = GaussianProcess(kernel, place, np.array([1.0]), np.array([2.0]))
    mean, deviation = process.predict(np.array([[0.2], [0.7]]), time=3.0)
    covariance = 0.75 * 0.81 * np.array([1.0, math.exp(-0.5)])
    np.testing.assert_allclose(mean, covariance * 2.0, rtol=1e-12)
    np.testing.assert_allclose(deviation, np.sqrt(0.75 - covariance**2), rtol=1e-12)


def test_posterior_without_observations_is_the_prior():
    process = GaussianProcess(Kernel((0.5,), 0.0, 0.25), np.empty((0, 1)), np.empty(0), np.empty(0))
    mean, deviation = process.predict(np.array([[0.3]]), time=7.0)
    assert mean == [0.0] and deviation == [pytest.approx(math.sqrt(0.75))]


def test_likelihoods_are_those_of_a_normal_distribution():
    rng = np.random.default_rng(0)
    points, times, values = rng.uniform(size=(7, 2)), np.arange(7.0), rng.normal(size=7)
    kernels = [Kernel((0.3, 0.9), 0.1, 0.2), Kernel((0.1, 0.1), 0.0, 0.6)]
    for kernel, likelihood in zip(kernels, log_likelihoods(kernels, points, times, values)):
        covariance = kernel.of_observations(*distances(points, times, points, times))
        direct = -0.5 * values @ np.linalg.inv(covariance) @ values - 0.5 * np.linalg.slogdet(covariance)[1]
        assert likelihood == pytest.approx(direct, rel=1e-9)


def test_the_fit_finds_what_changes_and_what_matters():
    rng = np.random.default_rng(1)
    points, times = rng.uniform(size=(60, 2)), np.repeat(np.arange(15.0), 4)
    still = np.sin(8 * points[:, 0])
    drifting = np.sin(8 * points[:, 0] + times)
    kernel = fitted_kernel(points, times, still / still.std())
    assert kernel.forgetting == 0.0 and kernel.lengths[0] < kernel.lengths[1]
    assert fitted_kernel(points, times, drifting / drifting.std()).forgetting > 0.0
