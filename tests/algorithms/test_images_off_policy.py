"""Actor-critics with a replay on images: SAC, TQC, TD3, DDPG and CrossQ."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from rllib.algorithms.apex import ApexDDPGConfig
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.crossq import CrossQConfig
from rllib.algorithms.sac import SACConfig, TQCConfig
from rllib.algorithms.td3 import DDPGConfig, TD3Config
from rllib.env.multi_agent.copies import make_multi_agent
from rllib.policy import Policy
from tests.algorithms.algorithm_support import learner_stats, train
from tests.envs import MatchPicture, PointAtPixel, SampledEnv
from tests.gpu import DEVICES

torch.set_num_threads(1)

CONVOLUTIONS = {"conv_filters": [[8, 4, 2, "valid"], [16, 3, 1, "valid"]]}
MODEL = {**CONVOLUTIONS, "fcnet_hiddens": [32]}
ALL = [SACConfig, TQCConfig, TD3Config, DDPGConfig, CrossQConfig]


def config(kind, env=PointAtPixel, env_config=None, workers=0, **training):
    own = {"batch_norm_actor": False, "q_model_config": {"fcnet_hiddens": [32]}} if kind is CrossQConfig else {}
    replay = {"type": "ReplayBuffer", "capacity": 2000}
    training = {"model": MODEL, "replay_buffer_config": replay, "train_batch_size": 16, **own, **training}
    return (
        kind()
        .environment(env, env_config=env_config or {})
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=4)
        .exploration(exploration_config={"random_timesteps": 8})
        .training(num_steps_sampled_before_learning_starts=16, **training)
        .reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=24)
        .debugging(seed=7)
    )


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("kind", ALL)
def test_bytes_stay_bytes_and_the_encoder_learns(kind, shares):
    with config(kind, share_encoder=shares, image_shift=2).build() as algo:
        before = algo.policy.weights.copy()
        critics = algo.learners["default_policy"].vector.named_parameters("critics")
        encoder = {name: view.copy() for name, view in critics.items() if "image_" in name}
        train(algo, 2)
        assert algo.replay.sample(8, np.random.default_rng(0), 0.4)["obs"].dtype == np.uint8
        assert not np.array_equal(algo.policy.weights, before)
        critics = algo.learners["default_policy"].vector.named_parameters("critics")
        assert encoder
        for name, value in encoder.items():
            assert not np.array_equal(critics[name], value)
        own = algo.policy.parameters()["shared.image_0_conv_0.weight"]
        assert np.shares_memory(own, critics["encoder.image_0_conv_0.weight"]) is shares


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("env_config", [{"wrap": 3}, {"channels_first": True}], ids=["a Dict", "channels first"])
def test_other_forms_of_images(env_config, shares):
    with config(SACConfig, env_config=env_config, share_encoder=shares, image_shift=1).build() as algo:
        assert bool(algo.policy.spec.torso.others) is ("wrap" in env_config)
        train(algo, 2)
        assert np.isfinite(algo.policy.weights).all()


@pytest.mark.parametrize("shares", [True, False])
def test_discrete_actions(shares):
    with config(SACConfig, MatchPicture, share_encoder=shares, image_shift=1).build() as algo:
        result = train(algo, 2)
        assert np.isfinite(learner_stats(result)["critic_loss"])


def test_actor_and_critics_have_layers_behind_the_convolutions():
    with config(SACConfig, q_model_config={"fcnet_hiddens": [24, 12]}).build() as algo:
        assert algo.policy.spec.hiddens == (32,)
        critics = algo.learners["default_policy"].vector.named_parameters("critics")
        features = algo.policy.spec.torso.num_features
        assert critics["0.hidden_0.weight"].shape == (24, features + 2)
        assert critics["1.hidden_1.weight"].shape == (12, 24)


def test_nature_brings_no_layer_of_its_own():
    space = Box(0, 255, (40, 40, 1), np.uint8)
    settings = {"env": SampledEnv, "env_config": {"space": space, "action_space": Box(-1, 1, (1,))}}
    for model, hiddens in (({}, (32,)), ({"post_fcnet_hiddens": [16]}, (32, 16))):
        model = {"conv_filters": "nature", "fcnet_hiddens": [32], **model}
        with config(SACConfig, **settings, model=model).build() as algo:
            assert algo.policy.spec.hiddens == hiddens


def test_separate_encoders_may_differ():
    own = {"conv_filters": [[6, 10, 1, "valid"]], "conv_activation": "tanh", "fcnet_hiddens": [8]}
    with config(SACConfig, share_encoder=False, q_model_config=own).build() as algo:
        critics = algo.learners["default_policy"].vector.named_parameters("critics")
        assert critics["encoder.image_0_conv_0.weight"].shape == (6, 1, 10, 10)
        assert critics["0.hidden_0.weight"].shape == (8, 6 + 2)
        train(algo, 1)


def test_workers_and_learner_choose_the_same_actions():
    with config(SACConfig).build() as algo:
        train(algo, 1)
        rows = np.random.default_rng(0).integers(0, 256, (5, 10, 10, 1), np.uint8)
        learned = algo.learners["default_policy"].backend.policy_module(torch.from_numpy(rows))[0]
        np.testing.assert_allclose(algo.policy.dist_inputs(rows), learned.detach(), atol=1e-5)


@pytest.mark.parametrize("shift", [0, 2])
def test_shifts_are_the_runs_own(shift):
    """A seed gives the same run again, and shifts are drawn by it."""
    weights = []
    for _ in range(2):
        with config(TD3Config, image_shift=shift).build() as algo:
            train(algo, 2)
            weights.append(algo.policy.weights.copy())
    np.testing.assert_array_equal(*weights)


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("kind", [SACConfig, TD3Config])
def test_a_run_continues_from_its_checkpoint(kind, shares, tmp_path):
    settings = {"share_encoder": shares, "image_shift": 1, "store_buffer_in_checkpoints": True}
    # Episodes of one step: at the checkpoint all have ended.
    with config(kind, **settings).build() as algo:
        train(algo, 2)
        algo.save(tmp_path / "checkpoint")
        state = algo.learners["default_policy"].get_state()
        vector = algo.learners["default_policy"].vector.flat.copy()
    with Algorithm.from_checkpoint(tmp_path / "checkpoint") as again:
        np.testing.assert_array_equal(again.learners["default_policy"].vector.flat, vector)
        for name, array in again.learners["default_policy"].get_state().items():
            np.testing.assert_array_equal(array, state[name], err_msg=name)
        train(again, 1)


def test_exported_policies_act_alone(tmp_path):
    picture = np.zeros((10, 10, 1), np.uint8)
    picture[2, 7] = 255
    with config(SACConfig).build() as algo:
        train(algo, 1)
        action = algo.compute_single_action(picture, explore=False)
        algo.export_policy_model(tmp_path / "policy")
    alone = Policy.from_checkpoint(tmp_path / "policy")
    np.testing.assert_allclose(np.tanh(alone.choose(picture[None], explore=False)[0]), action, atol=1e-6)


def test_workers_and_evaluation():
    run = config(SACConfig, workers=1).evaluation(evaluation_interval=1, evaluation_duration=2)
    with run.build() as algo:
        assert np.isfinite(train(algo, 2)["evaluation"]["episode_reward_mean"])


def test_policies_of_several_agents_have_encoders_of_their_own():
    run = config(SACConfig, make_multi_agent(PointAtPixel), image_shift=1).multi_agent(
        policies={"left", "right"}, policy_mapping_fn=lambda agent, *_, **__: ("left", "right")[int(agent)]
    )
    with run.environment(env_config={"num_agents": 2}).build() as algo:
        train(algo, 2)
        left, right = (algo.policies[name].weights for name in ("left", "right"))
        assert left.shape == right.shape and not np.array_equal(left, right)
        for policy in ("left", "right"):
            assert algo.learners[policy].vector.shares_torso


@pytest.mark.slow
def test_several_learners_equal_one():
    """Processes of learners start, hence slow."""
    weights = []
    for learners in (0, 2):
        with config(TD3Config, image_shift=1, lr=1e-3).learners(num_learners=learners).build() as algo:
            train(algo, 2)
            weights.append(algo.policy.weights.copy())
    np.testing.assert_allclose(*weights, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_learners_on_every_device(device):
    run = config(SACConfig, image_shift=2).resources(num_gpus=int(device == "cuda"))
    with run.build() as algo:
        train(algo, 3)
        assert algo.learners["default_policy"].device.startswith(device)
        assert np.isfinite(algo.policy.weights).all()


# ---------------------------------------------------------------------- learning

SEES = {
    "lr": 3e-3, "gamma": 0.0, "train_batch_size": 64, "model": {**CONVOLUTIONS, "fcnet_hiddens": [64]},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "shares", "own"),
    [
        (SACConfig, True, {"initial_alpha": 0.03, "alpha_lr": 0.0}),
        (SACConfig, False, {"initial_alpha": 0.03, "alpha_lr": 0.0}),
        (TD3Config, True, {"policy_delay": 1}),
    ],
)
def test_the_policy_learns_to_see(kind, shares, own):
    """A policy that does not see cannot exceed -0.41 (PointAtPixel). Some seconds of updates, hence slow."""
    run = config(kind, share_encoder=shares, **SEES, **own)
    run.reporting(min_sample_timesteps_per_iteration=1600).exploration(exploration_config={"random_timesteps": 200})
    run.evaluation(evaluation_duration=100)
    with run.build() as algo:
        train(algo, 1)
        assert algo.evaluate()["episode_reward_mean"] > -0.15


# ---------------------------------------------------------------------- refusals


class Masked(SampledEnv):
    """Pictures with a mask of the actions."""

    def __init__(self, config=None):
        picture = Box(0, 255, (10, 10, 1), np.uint8)
        space = Dict(action_mask=Box(0, 1, (3,), np.int8), image=picture)
        super().__init__({"space": space, "action_space": Discrete(3)})


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (ApexDDPGConfig, {}, "ApexDDPG's critics read vectors, but .* has images"),
        (CrossQConfig, {"batch_norm_actor": True}, "CrossQ's actor has batch renorm.*batch_norm_actor=False"),
        (SACConfig, {"env": Masked}, "SAC's critics read images without action masks"),
        (SACConfig, {"env": "Pendulum-v1", "model": {}, "image_shift": 4}, "image_shift=4 shifts images .* no conv"),
        (SACConfig, {"image_shift": -1}, "image_shift=-1 must be"),
        (SACConfig, {"learner": "numpy"}, "a network with convolutions. Use learner='torch'"),
        (
            SACConfig,
            {"q_model_config": {"conv_filters": [[4, 10, 1]]}},
            r"share_encoder=True .* conv_filters of policy_model_config is .*\.training\(share_encoder=False\)",
        ),
        (
            SACConfig,
            {"share_encoder": False, "q_model_config": {"conv_filters": []}},
            "one of actor and critics reads images .*Give both some",
        ),
        (
            SACConfig,
            {"share_encoder": False, "policy_model_config": {"conv_filters": []}},
            "one of actor and critics reads images .*Give both some",
        ),
    ],
)
def test_what_does_not_fit_is_refused(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        config(kind, **settings).build()
