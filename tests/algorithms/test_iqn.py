"""DQN with an implicit quantile network: what it learns, how it is saved, and what it goes with."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from rllib import ApexDQNConfig, DQNConfig, R2D2Config, load_policy
from tests.algorithms.algorithm_support import train
from tests.envs import ActionReward, DelayedReward, MaskedProbe, SampledEnv

torch.set_num_threads(1)

IQN = {"num_quantiles": 8, "implicit_quantiles": True, "num_cosines": 16}
REPLAY = {"type": "ReplayBuffer", "capacity": 2000}


def config(env, steps=300, **training):
    made = DQNConfig().environment(env).rollouts(num_rollout_workers=0, rollout_fragment_length=4)
    settings = {"lr": 5e-3, "gamma": 0.9, "train_batch_size": 32, "training_intensity": 32, "hiddens": [16]}
    settings |= {"num_steps_sampled_before_learning_starts": 64, "target_network_update_freq": 50}
    settings |= {"replay_buffer_config": REPLAY, "model": {"fcnet_hiddens": [16]}}
    made.training(**{**settings, **IQN, **training})
    made.reporting(min_sample_timesteps_per_iteration=steps, min_time_s_per_iteration=0)
    return made.debugging(seed=3)


@pytest.mark.parametrize("more", [{}, {"dueling": False, "double_q": False}])
def test_values_of_a_delayed_reward(more):
    """The reward of 1 comes a step later: 0.9 before it. All quantiles of what is certain are that number."""
    with config(DelayedReward, **more).build() as algo:
        train(algo, 3)
        values = algo.policy.action_values(np.array([[0.0], [1.0]], np.float32))
        np.testing.assert_allclose(values.q_values().max(1), [0.9, 1.0], atol=0.06)
        assert np.ptp(values.logits, axis=1).max() < 0.3


def test_the_better_action_is_taken_with_munchausens_targets():
    soft = {"munchausen_alpha": 0.9, "munchausen_temperature": 0.03, "double_q": False}
    with config(ActionReward, **soft).build() as algo:
        train(algo, 2)
        q = algo.policy.action_values(np.zeros((1, 1), np.float32)).q_values()[0]
        assert q[1] > q[0] + 0.3


@pytest.mark.parametrize("soft", [{}, {"munchausen_alpha": 0.9, "double_q": False}])
def test_images_are_learned_in_torch(soft):
    """There the loss computes its targets itself, by the torch forms of both networks."""
    space = {"space": Box(0, 255, (8, 8, 1), np.uint8)}
    model = {"conv_filters": [[4, [4, 4], 2]], "post_fcnet_hiddens": [8]}
    made = config(SampledEnv, steps=80, training_intensity=8, **soft, model=model).environment(env_config=space)
    with made.build() as algo:
        before = algo.policy.parameters()["levels.weight"].copy()
        train(algo, 1)
        assert algo.num_updates and np.isfinite(algo.policy.weights).all()
        assert not np.array_equal(algo.policy.parameters()["levels.weight"], before)


# All of BTR (arXiv:2411.03820) but the sizes.
BTR = {
    "munchausen_alpha": 0.9, "double_q": False, "noisy": True, "dueling": True, "n_step": 3, "hiddens": [8],
    "replay_buffer_config": {"type": "PrioritizedReplayBuffer", "capacity": 500, "prioritized_replay_alpha": 0.2},
    "model": {
        "conv_filters": "impala", "impala_pool": 1, "impala_spectral_norm": True, "post_fcnet_hiddens": [],
        "fcnet_hiddens": [],
    },
}  # fmt: skip


@pytest.mark.parametrize("workers", [0, 2])
def test_btr_learns_and_goes_on_from_a_checkpoint(workers, tmp_path):
    """With all its parts, in every process; directions of spectral normalisation are part of the weights."""
    space = {"space": Box(0, 255, (8, 8, 1), np.uint8)}
    made = config(SampledEnv, steps=80, training_intensity=8, **BTR).environment(env_config=space)
    with made.rollouts(num_rollout_workers=workers, num_envs_per_worker=2).build() as algo:
        before = {name: part.copy() for name, part in algo.policy.parameters().items()}
        train(algo, 1)
        assert algo.num_updates and np.isfinite(algo.policy.weights).all()
        after = algo.policy.parameters()
        for name in ("levels.weight", "policy.head.weight_sigma", "shared.hidden_0.weight_sigma"):
            assert not np.array_equal(before[name], after[name]), name
        direction = "features.shared.image_0_conv_1.direction"
        np.testing.assert_allclose(np.linalg.norm(after[direction]), 1, rtol=1e-5)
        assert (before[direction] == 1).all()
        observations = np.random.default_rng(0).integers(0, 255, (3, 8, 8, 1), dtype=np.uint8)
        actions, path = algo.compute_actions(observations, explore=False), algo.save(str(tmp_path))
    np.testing.assert_array_equal(load_policy(path).compute_actions(observations, explore=False), actions)


def test_the_better_action_is_found_by_noise_in_the_weights():
    with config(ActionReward, steps=200, noisy=True).build() as algo:
        train(algo, 2)
        q = algo.policy.action_values(np.zeros((1, 1), np.float32)).q_values()[0]
        assert q[1] > q[0] + 0.3


def test_illegal_actions_are_not_taken():
    with config(MaskedProbe, steps=100).build() as algo:
        train(algo, 2)


def test_a_run_continues_and_its_policy_acts_alike(tmp_path):
    with config("CartPole-v1", steps=100).build() as algo:
        train(algo, 2)
        path = algo.save(str(tmp_path))
        observations = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
        actions = algo.compute_actions(observations, explore=False)
        weights = algo.policy.weights.copy()
    np.testing.assert_array_equal(load_policy(path).compute_actions(observations, explore=False), actions)
    with config("CartPole-v1", steps=100).build() as restored:
        restored.restore(path)
        np.testing.assert_array_equal(restored.policy.weights, weights)
        train(restored, 1)


def test_results_do_not_depend_on_the_number_of_workers():
    found = []
    for workers in (0, 2):
        made = config("CartPole-v1", steps=150).rollouts(num_envs_per_worker=2 if workers == 0 else 1)
        with made.rollouts(num_rollout_workers=workers).build() as algo:
            train(algo, 1)
            found.append(algo.policy.weights.copy())
    np.testing.assert_array_equal(*found)


def test_other_algorithms_of_action_values():
    made = ApexDQNConfig().environment("CartPole-v1").training(**IQN, hiddens=[8], model={"fcnet_hiddens": [8]})
    made.training(num_steps_sampled_before_learning_starts=64, train_batch_size=32)
    with made.rollouts(num_rollout_workers=1).reporting(min_time_s_per_iteration=0).build() as algo:
        algo.train()
    made = R2D2Config().environment("CartPole-v1").training(**IQN, use_h_function=False, model={"use_lstm": True})
    with pytest.raises(ValueError, match="without a memory"):
        made.validate()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_quantiles": 1}, r"there is 1. Use .training\(num_quantiles=32\)"),
        ({"model": {"use_lstm": True}}, "has 'use_lstm'"),
    ],
)
def test_what_does_not_fit_is_refused(settings, message):
    made = DQNConfig().environment("CartPole-v1").training(**{**IQN, **settings})
    with pytest.raises(ValueError, match=message):
        made.validate()
