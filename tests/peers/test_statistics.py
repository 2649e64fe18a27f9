"""Statistics of observations, returns, runs and episodes, beside Stable-Baselines3, Ray, rliable and scipy."""

import numpy as np
import pytest

from rllib.evaluation.estimators.formulas import importance_sampling, weighted_importance_sampling
from rllib.evaluation.postprocess.return_scale import EPSILON, ReturnScale
from rllib.models.observations.filters import MeanStdFilter
from rllib.runs import measures

GAMMA = 0.9


def test_filter_beside_ray(ray):
    rows = np.random.default_rng(0).normal(3, 5, (200, 4))
    ours = MeanStdFilter((4,), clip=None)
    for row in rows:
        ours(row[None], update=True)
    ours.merge(ours.pop_delta())
    theirs = ray.call("from_ray.filtered", batches=rows)
    # It divides the sum of squares by one observation less.
    deviation = theirs["std"] * np.sqrt(199 / 200)
    probe = np.random.default_rng(1).normal(3, 5, (10, 4))
    np.testing.assert_allclose(ours(probe), (probe - theirs["mean"]) / deviation, rtol=1e-4, atol=1e-5)


def test_returns_and_observations_beside_sb3(sb3):
    rng = np.random.default_rng(0)
    steps, envs = 500, 3
    rewards = rng.normal(2, 3, (steps, envs)).astype(np.float32)
    dones = rng.random((steps, envs)) < 0.1
    observations = rng.normal(3, 5, (steps, envs, 4)).astype(np.float32)
    theirs = sb3.call("from_sb3.normalized", {"gamma": GAMMA}, observations=observations, rewards=rewards, dones=dones)
    scale = ReturnScale(GAMMA, clip=None, num_envs=envs)
    scaled = rewards.copy()
    scale.apply(scaled, dones)
    scale.merge(scale.pop_delta())
    # Its variance begins with a pseudo-count of 1e-4 at 1.
    assert scale.variance == pytest.approx(float(theirs["variance"]), rel=1e-4)
    np.testing.assert_allclose(scale._running, theirs["returns"], atol=1e-4)
    again = rewards[-1:].copy()
    scale.apply(again, dones[-1:])
    np.testing.assert_allclose(again, rewards[-1:] / np.sqrt(theirs["variance"] + EPSILON), rtol=1e-4)

    ours = MeanStdFilter((4,), clip=None)
    for row in np.concatenate([np.zeros((1, envs, 4)), observations]):  # it counts those of reset(), zeros here
        ours(row, update=True)
    ours.merge(ours.pop_delta())
    probe = rng.normal(3, 5, (10, 4))
    np.testing.assert_allclose(ours(probe), (probe - theirs["mean"]) / theirs["deviation"], rtol=1e-3, atol=1e-3)


@pytest.fixture
def scores():
    """Of two algorithms, [runs, tasks] each, with ties."""
    rng = np.random.default_rng(0)
    return np.round(rng.normal(1, 2, (11, 3)), 1), np.round(rng.normal(0.5, 2, (9, 3)), 1)


def test_measures_beside_rliable(scores, rlax):
    ours, others = ([*each.T] for each in scores)
    thresholds = np.linspace(-4, 5, 31)
    theirs = rlax.call("from_rliable.measures", scores=scores[0], others=scores[1], thresholds=thresholds)
    assert measures.iqm_of_scores(ours) == pytest.approx(float(theirs["iqm"]))
    assert measures.mean_of_scores(ours) == pytest.approx(float(theirs["mean"]))
    assert measures.median_of_scores(ours) == pytest.approx(float(theirs["median"]))
    assert measures.probability_of_improvement(ours, others) == pytest.approx(float(theirs["improvement"]))
    np.testing.assert_allclose(measures.performance_profile(ours, thresholds), theirs["profile"])


def test_interval_beside_rliable(scores, rlax):
    ours = [*scores[0].T]
    low, high = measures.stratified_interval(measures.iqm_of_scores, ours, resamples=4000)
    theirs = rlax.call("from_rliable.interval", {"resamples": 4000}, scores=scores[0])["interval"][:, 0]
    # Two bootstraps of 4000 resamples.
    np.testing.assert_allclose([low, high], theirs, atol=0.1)


def test_interquartile_mean_beside_scipy():
    from scipy import stats  # here alone: it takes a second, in each process that collects the tests

    for count in range(1, 40):
        values = np.random.default_rng(count).normal(size=count)
        assert measures.iqm(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_importance_sampling_beside_ray(ray):
    rng = np.random.default_rng(0)
    starts = np.array([0, 3, 4, 11, 17])
    rewards, log_ratios = rng.normal(size=(2, starts[-1]))
    theirs = ray.call(
        "from_ray.importance_estimates", {"gamma": GAMMA}, rewards=rewards, ratios=np.exp(log_ratios), starts=starts
    )
    np.testing.assert_allclose(importance_sampling(rewards, log_ratios, starts, GAMMA), theirs["plain"])
    values, _ = weighted_importance_sampling(rewards, log_ratios, starts, GAMMA)
    np.testing.assert_allclose(values, theirs["weighted"])
