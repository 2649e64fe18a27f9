"""Algorithms on images, with convolutions."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict

from rllib.algorithms.a2c import A2CConfig
from rllib.algorithms.appo import APPOConfig
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.es import ESConfig
from rllib.algorithms.impala import IMPALAConfig
from rllib.algorithms.ppo import PPOConfig
from tests.envs import MatchPicture, SampledEnv

torch.set_num_threads(1)

SMALL = {"conv_filters": [[8, 5, 2], [8, 3, 2]], "post_fcnet_hiddens": [16]}


def build(config_class, workers=0, env=MatchPicture, env_config=None, model=SMALL, **training):
    return (
        config_class()
        .environment(env, env_config=env_config or {})
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=8, rollout_fragment_length=16)
        .training(model=model, **training)
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
        .debugging(seed=7)
        .build()
    )


@pytest.mark.parametrize("share", [True, False])
def test_ppo_learns_to_see(share):
    model = {**SMALL, "vf_share_layers": share}
    with build(
        PPOConfig, model=model, lr=3e-3, train_batch_size=256, sgd_minibatch_size=64, num_sgd_iter=6, kl_coeff=0.0
    ) as algo:
        assert algo.sample(128)["obs"].dtype == np.uint8
        for _ in range(15):
            result = algo.train()
        assert result["episode_reward_mean"] > 0.9


@pytest.mark.parametrize("config_class", [A2CConfig, IMPALAConfig, APPOConfig])
@pytest.mark.parametrize("workers", [0, 1])
def test_actor_critics_train_on_images(config_class, workers):
    with build(config_class, workers, env_config={"truncated": True}, train_batch_size=128) as algo:
        before = algo.policy.weights.copy()
        for _ in range(2):
            algo.train()
        assert not np.array_equal(algo.policy.weights, before)


def test_dqn_trains_on_images():
    with build(DQNConfig, hiddens=[16], num_steps_sampled_before_learning_starts=64) as algo:
        for _ in range(3):
            algo.train()
        assert algo.replay.sample(8, np.random.default_rng(0), 0.4)["obs"].dtype == np.uint8


def test_workers_and_learner_choose_the_same_actions():
    """What workers act with and what learns are two programs for one network."""
    with build(PPOConfig, train_batch_size=128) as algo:
        batch = algo.sample(128)
        rows = torch.from_numpy(batch["obs"])
        policy = algo.policy
        learned, _ = policy.spec.torch(policy.layout, torch.from_numpy(policy.weights), policy.network)(rows)
        np.testing.assert_allclose(batch["action_dist_inputs"], learned.detach(), atol=1e-5)


def test_checkpoints_of_networks_with_convolutions(tmp_path):
    picture = np.full((10, 10, 1), 7, np.uint8)
    with build(PPOConfig, train_batch_size=128) as algo:
        algo.train()
        algo.save(tmp_path / "checkpoint")
        action = algo.compute_single_action(picture, explore=False)
        weights = algo.policy.weights.copy()
    with Algorithm.from_checkpoint(tmp_path / "checkpoint") as again:
        np.testing.assert_array_equal(again.policy.weights, weights)
        assert again.compute_single_action(picture, explore=False) == action
        again.train()


def test_images_beside_other_observations():
    space = Dict(image=Box(0, 255, (10, 10, 3), np.uint8), speed=Box(-1, 1, (2,)))
    with build(PPOConfig, env=SampledEnv, env_config={"space": space}, train_batch_size=128, model={}) as algo:
        assert algo.policy.spec.torso.others
        algo.train()


def test_the_numpy_learner_is_refused():
    with pytest.raises(ValueError, match=r"convolutions\. Use learner='torch'"):
        build(PPOConfig, learner="numpy")


def test_evolution_strategies_are_refused():
    with pytest.raises(ValueError, match="perturbs fully connected networks"):
        ESConfig().environment(MatchPicture).rollouts(num_rollout_workers=0).training(noise_size=10**6).build()


def test_noisy_layers_behind_convolutions():
    model = {**SMALL, "layer_norm": True}
    with build(DQNConfig, model=model, hiddens=[16], noisy=True, num_steps_sampled_before_learning_starts=64) as algo:
        names = algo.policy.parameters().keys()
        assert {"shared.image_0_conv_0.weight", "policy.head.weight_sigma"} <= names
        before = algo.policy.weights.copy()
        for _ in range(3):
            algo.train()
        assert not np.array_equal(algo.policy.weights, before)
