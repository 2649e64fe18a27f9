"""RLlib's functions of advantages, against sums written out."""

import numpy as np
import pytest
from rllib.evaluation.postprocessing import Postprocessing, compute_gae_for_sample_batch

from rllib import PPOConfig, SampleBatch, compute_advantages

REWARDS, VALUES = np.array([1.0, 2.0, 3.0], np.float32), np.array([0.5, 0.25, 0.125], np.float32)


def batch_of(**more):
    return SampleBatch({"rewards": REWARDS, **more})


def expected_gae(last_r, gamma, lambda_):
    following = [*VALUES[1:], last_r]
    deltas = [r + gamma * after - v for r, after, v in zip(REWARDS, following, VALUES)]
    return [sum((gamma * lambda_) ** k * delta for k, delta in enumerate(deltas[t:])) for t in range(3)]


@pytest.mark.parametrize(("gamma", "lambda_", "last_r"), [(0.1, 1.0, 0.0), (0.9, 0.5, 4.0), (0.9, 0.0, 4.0)])
def test_generalized_advantages(gamma, lambda_, last_r):
    batch = compute_advantages(batch_of(vf_preds=VALUES), last_r, gamma, lambda_)
    advantages = expected_gae(last_r, gamma, lambda_)
    np.testing.assert_allclose(batch[Postprocessing.ADVANTAGES], advantages, rtol=1e-6)
    np.testing.assert_allclose(batch[Postprocessing.VALUE_TARGETS], advantages + VALUES, rtol=1e-6)
    assert batch["advantages"].dtype == np.float32


def test_returns_without_gae():
    returns = np.array([1.2340, 2.34, 3.4], np.float32)  # gamma 0.1, and 4 afterwards
    batch = compute_advantages(batch_of(vf_preds=VALUES), 4.0, gamma=0.1, use_gae=False)
    np.testing.assert_allclose(batch["advantages"], returns - VALUES, rtol=1e-6)
    np.testing.assert_allclose(batch["value_targets"], returns, rtol=1e-6)
    batch = compute_advantages(batch_of(), 4.0, gamma=0.1, use_gae=False, use_critic=False)
    np.testing.assert_allclose(batch["advantages"], returns, rtol=1e-6)
    assert not batch["value_targets"].any()


def test_a_missing_column_is_said():
    with pytest.raises(KeyError, match="this batch has no column 'vf_preds'"):
        compute_advantages(batch_of(), 0.0)


def test_advantages_by_a_policy_and_its_config():
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).training(gamma=0.5, lambda_=0.5)
    with config.build() as algo:
        policy, obs = algo.get_policy(), np.arange(12, dtype=np.float32).reshape(3, 4) / 12
        ended = np.array([False, False, True])
        batch = compute_gae_for_sample_batch(policy, batch_of(obs=obs, terminateds=ended), {}, None)
        again = compute_advantages(batch_of(vf_preds=batch["vf_preds"]), 0.0, 0.5, 0.5)
        np.testing.assert_allclose(batch["advantages"], again["advantages"], rtol=1e-5)
