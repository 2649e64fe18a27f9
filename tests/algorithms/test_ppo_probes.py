"""Probe environments (after Andy Jones): what PPO must make of them is known in closed form. Seconds each."""

import numpy as np
import pytest

from rllib.algorithms.ppo import PPO, PPOConfig
from tests.algorithms.algorithm_support import train, values
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


def build(env, env_config=None, **training) -> PPO:
    settings = {
        "train_batch_size": 256,
        "sgd_minibatch_size": 64,
        "num_sgd_iter": 8,
        "lr": 3e-3,
        "gamma": 0.9,
        "lambda_": 0.95,
        "clip_param": 0.2,
        "kl_coeff": 0.0,
        "model": {"fcnet_hiddens": [32, 32]},
        **training,
    }
    return (
        PPOConfig()
        .environment(env, env_config=env_config or {})
        .rollouts(num_rollout_workers=0, num_envs_per_worker=8)
        .training(**settings)
        .debugging(seed=5)
        .build()
    )


def test_p1_value_of_a_constant():
    with build(ConstantReward) as algo:
        train(algo, 4)  # 1024 steps
        np.testing.assert_allclose(values(algo, 0.0), 1.0, atol=0.01)


def test_p2_value_depends_on_the_observation():
    with build(ObservedReward) as algo:
        train(algo, 10)
        np.testing.assert_allclose(values(algo, -1.0, 1.0), [-1.0, 1.0], atol=0.05)


def test_p3_discounting():
    with build(DelayedReward) as algo:
        train(algo, 20)
        np.testing.assert_allclose(values(algo, 0.0, 1.0), [0.9, 1.0], atol=0.05)


def test_p4_the_better_action_is_taken():
    with build(ActionReward) as algo:
        train(algo, 20)
        logits = algo.policy.network.forward_policy(algo.policy.encode(np.zeros((1, 1), np.float32)))[0]
        assert 1 / (1 + np.exp(logits[0] - logits[1])) > 0.99


def test_p5_actions_belong_to_their_observations():
    with build(MatchObservation) as algo:
        assert train(algo, 20)["episode_reward_mean"] > 0.95


@pytest.mark.parametrize("vf_clip_param", [10.0, None])
def test_p6_truncation_is_no_end(vf_clip_param):
    """V = 1 / (1 - gamma) = 10; taking the time limit for an end gives 1 / (1 - gamma) only far from it."""
    with build(InfiniteHorizon, {"length": 10}, vf_clip_param=vf_clip_param) as algo:
        train(algo, 60)
        np.testing.assert_allclose(values(algo, 0.0), 10.0, rtol=0.03)


def test_p6_infinite_horizon_at_gamma_099():
    """Reward 1 for ever is worth 100; with truncation taken for termination it would be about 37."""
    with build(InfiniteHorizon, gamma=0.99, lambda_=1.0, train_batch_size=1600, lr=0.01, vf_clip_param=None) as algo:
        train(algo, 40)
        np.testing.assert_allclose(values(algo, 0.0), 100.0, rtol=0.05)


def test_p7_every_transition_counts_up():
    with build(CountingEnv) as algo:
        batch = algo.sample(2000)
        observations = batch["obs"].reshape(-1, 8)
        ended = (batch["terminateds"] | batch["truncateds"]).reshape(-1, 8)
        np.testing.assert_array_equal(batch["rewards"].reshape(-1, 8), observations + 1)
        follows = np.where(ended[:-1], 0, observations[:-1] + 1)
        np.testing.assert_array_equal(observations[1:], follows)


def test_p12_actions_are_scaled_to_their_bounds():
    with build(BoundedAction, kl_coeff=0.2) as algo:
        train(algo, 60)
        action = algo.compute_single_action(np.zeros(1, np.float32), explore=False)
        assert abs(float(action[0]) - 7.0) < 0.2
