"""PQN: what it learns from, what it refuses, that runs repeat and go on, and probe environments."""

import numpy as np
import pytest
import torch

from rllib import Algorithm, PQNConfig
from rllib import sample_batch as sb
from rllib.algorithms.base.registry import get_algorithm_class
from tests.algorithms.algorithm_support import learner_stats, q_values, train
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
from tests.losses.test_q_lambda import slow_targets

# The networks here are so small that a second thread only waits.
torch.set_num_threads(1)


def build(env="CartPole-v1", num_workers=0, num_envs=4, env_config=None, epsilon_timesteps=1000, **training):
    sample_async = training.pop("sample_async", False)
    settings = {"train_batch_size": 128, "sgd_minibatch_size": 32, "lr": 3e-3, "gamma": 0.9, **training}
    return (
        PQNConfig()
        .environment(env, env_config=env_config or {})
        .rollouts(num_rollout_workers=num_workers, num_envs_per_worker=num_envs, sample_async=sample_async)
        .training(**{"model": {"fcnet_hiddens": [32]}, **settings})
        .exploration(exploration_config={"final_epsilon": 0.1, "epsilon_timesteps": epsilon_timesteps})
        .reporting(min_sample_timesteps_per_iteration=0)
        .debugging(seed=5)
        .build()
    )


# Where every observation is zero, normalised layers tell nothing but zeros to the head, whose bias learns alone.
FAST = {"lr": 0.02, "epsilon_timesteps": 10_000}


def test_p1_value_of_a_constant():
    with build(ConstantReward, **FAST) as algo:
        train(algo, 30)
        np.testing.assert_allclose(q_values(algo, 0.0), 1.0, atol=0.01)


def test_p2_value_depends_on_the_observation():
    with build(ObservedReward) as algo:
        train(algo, 20)
        np.testing.assert_allclose(q_values(algo, -1.0, 1.0).mean(1), [-1.0, 1.0], atol=0.05)


def test_p3_discounting():
    with build(DelayedReward) as algo:
        train(algo, 20)
        np.testing.assert_allclose(q_values(algo, 0.0, 1.0).max(1), [0.9, 1.0], atol=0.05)


def test_p4_the_better_action_is_taken():
    with build(ActionReward, **FAST) as algo:
        train(algo, 30)
        np.testing.assert_allclose(q_values(algo, 0.0), [[-1.0, 1.0]], atol=0.05)
        assert algo.compute_single_action(np.zeros(1, np.float32), explore=False) == 1


def test_p5_actions_belong_to_their_observations():
    with build(MatchObservation) as algo:
        train(algo, 20)
        np.testing.assert_allclose(q_values(algo, 0.0, 1.0), [[1, 0], [0, 1]], atol=0.05)


def test_p6_truncation_is_no_end():
    """max Q = 1 / (1 - gamma) = 10, with three truncations in each fragment of 32 steps."""
    with build(InfiniteHorizon, env_config={"length": 10}, **FAST) as algo:
        train(algo, 150)
        np.testing.assert_allclose(q_values(algo, 0.0).max(1), 10.0, rtol=0.03)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_p7_targets_are_those_of_the_weights_that_acted(num_workers):
    """Worked out one row after the other, from batches that are made of all workers' fragments."""
    with build(CountingEnv, num_workers=num_workers, num_envs=2, lambda_=0.65) as algo:
        train(algo, 3)
        batch = algo.sample(128)

        def in_time(name):
            return batch[name].reshape(-1, 2 * max(num_workers, 1), *batch[name].shape[1:])

        observations = in_time(sb.OBS)
        following = observations + 1
        values = algo.policy.action_values(following.reshape(-1, 1)).q_values().max(-1).reshape(following.shape[:2])
        expected = slow_targets(
            *(in_time(sb.REWARDS), values, in_time(sb.TERMINATEDS), in_time(sb.TRUNCATEDS)), 0.9, 0.65
        )
        np.testing.assert_allclose(in_time(sb.TD_TARGETS), expected, rtol=1e-4, atol=1e-4)


def test_results():
    with build() as algo:
        told = learner_stats(algo.train())
        names = {"total_loss", "mean_q", "min_q", "max_q", "mean_td_error", "grad_gnorm", "cur_lr", "cur_epsilon"}
        assert names <= set(told)
        assert told["cur_epsilon"] == 1.0
        # From 1 to 0.1 in 1000 steps; a train batch of 128 is explored with the epsilon of its first step.
        told = learner_stats(train(algo, 3))
        assert told["cur_epsilon"] == pytest.approx(1 - 0.9 * 3 * 128 / 1000)
        result = train(algo, 10)
        assert learner_stats(result)["cur_epsilon"] == pytest.approx(0.1)
        assert result["num_env_steps_trained"] == result["num_env_steps_sampled"] == 14 * 128


def test_the_share_of_random_actions_is_epsilon():
    with build(ActionReward, num_envs=64, train_batch_size=6400, epsilon_timesteps=0) as algo:
        train(algo, 5)
        actions = algo.sample(6400)[sb.ACTIONS]
        # Half of the explored ones are the greedy action; three standard errors of 6400 draws.
        assert abs((actions == 0).mean() - 0.05) < 0.01


@pytest.mark.parametrize("num_workers", [0, 2])
def test_equal_seeds_give_equal_bits(num_workers):
    weights = []
    for _ in range(2):
        with build(num_workers=num_workers, num_envs=2) as algo:
            train(algo, 4)
            weights.append(algo.policy.weights.copy())
    np.testing.assert_array_equal(*weights)


def test_workers_sample_what_one_process_samples():
    """Two workers of two environments are one of four, but for the order of the rows, which shuffling sees."""
    batches = []
    for num_workers, num_envs in ((0, 4), (2, 2)):
        with build(CountingEnv, num_workers=num_workers, num_envs=num_envs) as algo:
            batch = algo.sample(128)
            columns = [batch[name].reshape(128, -1) for name in (sb.OBS, sb.ACTIONS, sb.REWARDS, sb.TD_TARGETS)]
            rows = np.concatenate(columns, axis=1)
            batches.append(rows[np.lexsort(rows.T)])
    np.testing.assert_allclose(*batches, atol=1e-6)


def test_numpy_and_torch_learners_stay_together():
    weights = []
    for learner in ("numpy", "torch"):
        with build(learner=learner, lr=1e-3) as algo:
            train(algo, 5)
            weights.append(algo.policy.weights.copy())
    np.testing.assert_allclose(*weights, atol=1e-4)


def test_a_checkpoint_goes_on_as_if_nothing_had_been(tmp_path):
    with build(ConstantReward) as algo:
        train(algo, 3)
        path = algo.save(tmp_path / "saved")
        with Algorithm.from_checkpoint(path) as restored:
            train(restored, 3)
            train(algo, 3)
            np.testing.assert_array_equal(restored.policy.weights, algo.policy.weights)


def test_defaults():
    config = PQNConfig()
    assert get_algorithm_class("pqn").__name__ == "PQN"
    assert (config.opt_type, config.lambda_, config.train_batch_size, config.sgd_minibatch_size) == (
        "radam", 0.65, 512, 128,
    )  # fmt: skip
    assert config.model["layer_norm"]
    assert config.training(model={"fcnet_hiddens": [64]}).model["layer_norm"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (PQNConfig().training(lambda_=1.5), "lambda_=1.5"),
        (PQNConfig().training(sgd_minibatch_size=1024), "sgd_minibatch_size=1024 must be at most train_batch_size=512"),
        (PQNConfig().rollouts(rollout_fragment_length=200), "train_batch_size=512 must be a multiple"),
        (PQNConfig().training(model={"layer_nrm": True}), "layer_nrm"),
        (PQNConfig().exploration(exploration_config={"type": "StochasticSampling"}), "explores by EpsilonGreedy"),
        (PQNConfig().exploration(exploration_config={"epsilon_timesteps": float("inf")}), "must be an integer"),
    ],
)
def test_what_does_not_fit_is_refused(config, message):
    with pytest.raises(ValueError, match=message):
        config.environment("CartPole-v1").build()


def test_continuous_actions_are_refused():
    with pytest.raises(ValueError, match="PQN learns the value of each action"):
        build(BoundedAction)


def test_workers_may_sample_while_the_learner_is_at_the_batch_before():
    with build(ObservedReward, num_workers=2, sample_async=True) as algo:
        lags = [learner_stats(result)["policy_lag_updates"] for result in (algo.train() for _ in range(20))]
        np.testing.assert_allclose(q_values(algo, -1.0, 1.0).mean(1), [-1.0, 1.0], atol=0.05)
    assert lags == [0.0] + [1.0] * 19
