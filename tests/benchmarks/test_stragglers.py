"""Simulated rounds, and workers whose fragments are by earlier weights."""

import math

import numpy as np
import pytest
from stragglers import LAWS, Cluster, aged, simulate

from rllib import PPOConfig


@pytest.fixture
def constant(monkeypatch):
    monkeypatch.setitem(LAWS, "constant", lambda rng: 1.0)


def test_workers_that_are_alike_reach_the_ideal(constant):
    cluster = Cluster(4, "constant", life_s=math.inf)
    outcome = simulate(cluster, 1.0, 10, seed=0)
    assert outcome.fragments / outcome.seconds == pytest.approx(cluster.ideal)
    assert (outcome.rounds, outcome.late) == (10, 0)


@pytest.mark.parametrize("law", LAWS)
def test_all_are_waited_for_as_long_as_the_slowest_takes(law):
    cluster = Cluster(8, law, mean_s=1.0, update_s=0.0, life_s=math.inf)
    outcome = simulate(cluster, 1.0, 2000, seed=0)
    rng = np.random.default_rng(1)
    slowest = [max(LAWS[law](rng) for _ in range(8)) for _ in range(2000)]
    # The mean of a Pareto law's largest converges slowly, its median does not.
    assert outcome.seconds / 2000 == pytest.approx(np.mean(slowest), rel=0.05 if law == "log-normal 0.5" else 0.3)
    assert (outcome.late, outcome.fragments) == (0, 16_000)


def test_a_quorum_is_faster_and_loses_nothing():
    cluster = Cluster(8, "log-normal 1.5", life_s=math.inf)
    all_, most = (simulate(cluster, quorum, 500, seed=0) for quorum in (1.0, 0.75))
    assert most.fragments / most.seconds > 1.5 * all_.fragments / all_.seconds
    assert 0 < most.late < 0.25 * most.fragments and min(most.lags) >= 1
    assert 6 * 500 <= most.fragments <= 8 * 500


def test_the_dead_take_their_successors_time(constant):
    cluster = Cluster(4, "constant", mean_s=5.0, life_s=20.0)
    outcome = simulate(cluster, 1.0, 300, seed=0)
    assert outcome.fragments / outcome.seconds < 0.7 * cluster.ideal


def test_aged_workers_sample_by_earlier_weights():
    config = PPOConfig(algo_class=aged("PPO", 2, lambda rng: 1)).environment("CartPole-v1").debugging(seed=0)
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=8)
    config.training(train_batch_size=16, sgd_minibatch_size=8, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
    with config.build() as algo:
        lags = [algo.train()["info/learner/default_policy/learner_stats"]["policy_lag_updates"] for _ in range(4)]
    assert lags == [0, 1, 1, 1] and algo.timesteps == 64
