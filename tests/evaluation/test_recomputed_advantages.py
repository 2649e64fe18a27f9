"""Advantages that are computed anew for each epoch: by the gold vectors of GAE, and as workers compute them."""

import numpy as np
import pytest

from rllib import PPOConfig
from rllib import sample_batch as sb
from rllib.evaluation.postprocess.advantages import RecomputedAdvantages
from rllib.sample_batch import SampleBatch
from tests.envs import CountingEnv


class ObservedValues:
    """A policy whose value of an observation is the observation, times `factor`."""

    factor = 1.0

    def values(self, observations):
        return self.factor * observations[:, 0]


def sequences() -> SampleBatch:
    """Six steps, truncated after the second and terminated after the fourth, and the rows to bootstrap from."""
    values = [0.5, 1, 10, 1.5, 2, 2.5, 3, 7]
    is_step = np.array([True, True, False, True, True, True, True, False])
    rewards, ends = np.zeros(8, np.float32), np.zeros((2, 8), bool)
    rewards[is_step] = np.arange(1, 7)
    ends[0, 4] = ends[1, 1] = True
    columns = {sb.REWARDS: rewards, sb.TERMINATEDS: ends[0], sb.TRUNCATEDS: ends[1], sb.LOSS_MASK: is_step}
    return SampleBatch({sb.OBS: np.array(values, np.float32)[:, None], **columns})


def test_gold_vector_with_both_ends():
    found = RecomputedAdvantages(sequences(), ObservedValues(), 0.9, 0.8, standardize=False).steps
    np.testing.assert_allclose(found[sb.ADVANTAGES], [8.6, 10, 4.74, 2, 11.896, 9.3], rtol=1e-6)
    np.testing.assert_allclose(found[sb.VALUE_TARGETS] - found[sb.ADVANTAGES], [0.5, 1, 1.5, 2, 2.5, 3], rtol=1e-5)


def test_other_values_give_other_advantages():
    policy = ObservedValues()
    recomputed = RecomputedAdvantages(sequences(), policy, 0.9, 0.8, standardize=False)
    policy.factor = 0.0
    # Without values they are the discounted rewards of each part, with lambda in the discount.
    np.testing.assert_allclose(recomputed()[sb.ADVANTAGES], [2.44, 2, 5.88, 4, 9.32, 6], rtol=1e-6)
    recomputed = RecomputedAdvantages(sequences(), policy, 0.9, 0.8, standardize=True)
    assert recomputed()[sb.ADVANTAGES].mean() == pytest.approx(0, abs=1e-6)


def config(**training) -> PPOConfig:
    return (
        PPOConfig()
        .environment(CountingEnv)
        .rollouts(num_rollout_workers=0, num_envs_per_worker=3)
        .training(train_batch_size=120, sgd_minibatch_size=120, model={"fcnet_hiddens": [8]}, lr=1e-3, **training)
        .debugging(seed=5)
    )


def test_the_first_epoch_is_that_of_the_workers():
    """And the second is not: the values have moved."""
    weights = {}
    for recompute in (False, True):
        for epochs in (1, 4):
            how = {"num_sgd_iter": epochs, "shuffle_sequences": False, "opt_type": "sgd"}
            with config(recompute_advantages=recompute, **how).build() as algo:
                result = algo.train()
                weights[recompute, epochs] = algo.policy.weights.copy()
                assert result["num_env_steps_trained"] == 120
                assert algo.num_updates == 1
    np.testing.assert_allclose(weights[True, 1], weights[False, 1], atol=1e-6)
    assert abs(weights[True, 4] - weights[False, 4]).max() > 1e-5


@pytest.mark.parametrize("learner", ["numpy", "torch"])
def test_both_learners_take_the_new_advantages(learner):
    with config(recompute_advantages=True, learner=learner, num_sgd_iter=3, shuffle_sequences=False).build() as algo:
        for _ in range(2):
            algo.train()
        weights = algo.policy.weights.copy()
    with config(recompute_advantages=True, learner="numpy", num_sgd_iter=3, shuffle_sequences=False).build() as algo:
        for _ in range(2):
            algo.train()
        np.testing.assert_allclose(weights, algo.policy.weights, atol=1e-5)


def test_what_it_does_not_go_with():
    with pytest.raises(ValueError, match="needs use_critic"):
        config(recompute_advantages=True, use_gae=False, use_critic=False).build()
    with pytest.raises(ValueError, match="does not go with a policy that has a memory"):
        config(recompute_advantages=True).training(model={"use_lstm": True}).build()
