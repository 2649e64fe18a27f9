"""Probe environments (see test_ppo_probes.py) for PG, A2C and A3C: what they must learn is known in closed form."""

import numpy as np
import pytest

from rllib import A2CConfig, A3CConfig, PGConfig
from tests.algorithms.algorithm_support import values
from tests.envs import (
    ActionReward,
    BoundedAction,
    ConstantReward,
    CountingEnv,
    DelayedReward,
    InfiniteHorizon,
    MatchObservation,
    ObservedReward,
)

CRITICS = [A2CConfig, A3CConfig]
ALL = [PGConfig, *CRITICS]


def trained(kind, env, iterations, fragment=4, env_config=None, **training):
    """The algorithm after so many updates of 8 * fragment steps."""
    rollouts = {} if kind is PGConfig else {"rollout_fragment_length": fragment}
    size = {} if kind is A3CConfig else {"train_batch_size": 8 * fragment}
    algo = (
        kind()
        .environment(env, env_config=env_config or {})
        .rollouts(num_rollout_workers=0, num_envs_per_worker=8, **rollouts)
        .training(**{"lr": 1e-2, "gamma": 0.9, "model": {"fcnet_hiddens": [32]}, **size, **training})
        .reporting(min_time_s_per_iteration=None)
        .debugging(seed=5)
        .build()
    )
    for _ in range(iterations):
        algo.train()
    return algo


@pytest.mark.parametrize("kind", CRITICS)
def test_p1_value_of_a_constant(kind):
    with trained(kind, ConstantReward, 120, fragment=1) as algo:  # 960 steps
        np.testing.assert_allclose(values(algo, 0.0), 1.0, atol=0.01)


@pytest.mark.parametrize("kind", CRITICS)
def test_p2_value_depends_on_the_observation(kind):
    with trained(kind, ObservedReward, 200) as algo:
        np.testing.assert_allclose(values(algo, -1.0, 1.0), [-1.0, 1.0], atol=0.05)


@pytest.mark.parametrize("kind", CRITICS)
def test_p3_discounting(kind):
    with trained(kind, DelayedReward, 200) as algo:
        np.testing.assert_allclose(values(algo, 0.0, 1.0), [0.9, 1.0], atol=0.05)


@pytest.mark.parametrize("kind", ALL)
def test_p4_the_better_action_is_taken(kind):
    with trained(kind, ActionReward, 200, entropy_coeff=0.0) as algo:
        logits = algo.policy.network.forward_policy(algo.policy.encode(np.zeros((1, 1), np.float32)))[0]
        assert 1 / (1 + np.exp(logits[0] - logits[1])) > 0.99


@pytest.mark.parametrize("kind", ALL)
def test_p5_actions_belong_to_their_observations(kind):
    with trained(kind, MatchObservation, 300, entropy_coeff=0.0) as algo:
        assert algo.train()["episode_reward_mean"] > 0.95


@pytest.mark.parametrize("kind", CRITICS)
def test_p6_truncation_is_no_end(kind):
    with trained(kind, InfiniteHorizon, 800, env_config={"length": 10}, vf_loss_coeff=1.0) as algo:
        np.testing.assert_allclose(values(algo, 0.0), 10.0, rtol=0.03)


@pytest.mark.parametrize("kind", ALL)
def test_p7_every_transition_counts_up(kind):
    with trained(kind, CountingEnv, 0) as algo:
        batch = algo.sample(500)
        np.testing.assert_array_equal(batch["rewards"], batch["obs"][:, 0] + 1)


@pytest.mark.parametrize("kind", ALL)
def test_p12_actions_are_scaled_to_their_bounds(kind):
    settings = {"standardize_advantages": True} if kind is PGConfig else {}
    with trained(kind, BoundedAction, 400, fragment=16, lr=5e-3, entropy_coeff=0.0, **settings) as algo:
        action = algo.compute_single_action(np.zeros(1, np.float32), explore=False)
        assert abs(float(action[0]) - 7.0) < 0.2
