"""Stable-Baselines3's words: what they become here, and which have no translation."""

import math

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.compat.names.stable_baselines3 import settings_from_sb3

ALGORITHMS = ("PPO", "A2C", "DQN", "SAC", "TQC", "CrossQ", "TD3", "DDPG", "ARS")
BOX = Box(-2.0, 2.0, (1,))


def config_of(algorithm, words, defaults=True):
    config = get_algorithm_config(algorithm).environment("CartPole-v1")
    return config.update_from_dict(settings_from_sb3(algorithm, words, defaults=defaults))


@pytest.mark.parametrize("space", [None, Discrete(2), BOX])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_defaults_make_a_valid_config(algorithm, space):
    config = config_of(algorithm, {"n_timesteps": 10_000, "action_space": space})
    config.validate()
    assert config.num_rollout_workers == 0
    if algorithm in ("PPO", "A2C"):
        assert bool(config.model.get("free_log_std")) is (space is BOX)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_defaults_only_what_is_given_becomes_a_setting(algorithm):
    assert settings_from_sb3(algorithm, {"seed": 3}, defaults=False) == {"seed": 3}
    assert settings_from_sb3(algorithm, {"verbose": 1, "seed": None}, defaults=False) == {}


def test_ppo_is_stable_baselines3s():
    words = {
        "n_envs": 8, "n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8,
        "learning_rate": "lin_0.001", "clip_range": "lin_0.2", "n_timesteps": 100_000,
    }  # fmt: skip
    assert settings_from_sb3("PPO", words, defaults=True) == {
        "num_rollout_workers": 0, "normalize_actions": False, "clip_actions": True, "use_kl_loss": False,
        "kl_coeff": 0.0, "adam_epsilon": 1e-5, "num_envs_per_worker": 8, "train_batch_size": 256,
        "sgd_minibatch_size": 256, "num_sgd_iter": 20, "gamma": 0.98, "lambda_": 0.8, "entropy_coeff": 0.0,
        "lr": {"type": "linear", "initial": 0.001, "final": 0.0, "timesteps": 100_000},
        "clip_param": {"type": "linear", "initial": 0.2, "final": 0.0, "timesteps": 100_000},
        "vf_clip_param": None, "vf_loss_coeff": 0.5, "grad_clip": 0.5, "target_kl": None,
        "standardize_advantages": "minibatch",
        "model": {"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh", "vf_share_layers": False},
    }  # fmt: skip


def test_a_minibatch_is_no_larger_than_the_batch():
    assert settings_from_sb3("PPO", {"n_steps": 8, "batch_size": 256}, defaults=True)["sgd_minibatch_size"] == 8


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"net_arch": [32]}, {"fcnet_hiddens": [32]}),
        ({"net_arch": {"pi": [8], "vf": [16, 4]}}, {"fcnet_hiddens": [8], "vf_hiddens": [16, 4]}),
        ({"net_arch": [{"pi": [8], "vf": [8]}]}, {"fcnet_hiddens": [8]}),
        ({"activation_fn": "nn.ReLU"}, {"fcnet_activation": "relu"}),
        ({"ortho_init": False}, {"fcnet_weights_initializer": "uniform"}),
        ({"log_std_init": -2, "ortho_init": True}, {"log_std_init": -2, "free_log_std": True}),
    ],
)
def test_networks_of_ppo(words, expected):
    model = settings_from_sb3("PPO", {"policy_kwargs": words}, defaults=False)["model"]
    assert model == expected


def test_classes_of_torch_are_known_by_their_names():
    torch = pytest.importorskip("torch")
    words = {"policy_kwargs": {"activation_fn": torch.nn.ELU, "optimizer_class": torch.optim.AdamW}}
    settings = settings_from_sb3("A2C", words, defaults=True)
    assert settings["model"]["fcnet_activation"] == "elu" and settings["opt_type"] == "adamw"


def test_pictures_get_the_nature_network():
    settings = settings_from_sb3("PPO", {"policy": "CnnPolicy"}, defaults=True)
    assert settings["model"]["conv_filters"] == "nature" and settings["model"]["vf_share_layers"]
    assert settings_from_sb3("DQN", {"policy": "CnnPolicy"}, defaults=True)["model"]["post_fcnet_hiddens"] == [512]


def test_state_dependent_noise():
    words = {"use_sde": True, "sde_sample_freq": 4, "action_space": BOX}
    model = settings_from_sb3("PPO", words, defaults=True)["model"]
    assert model["use_sde"] and model["sde_sample_freq"] == 4 and "free_log_std" not in model
    assert settings_from_sb3("SAC", {"use_sde": True}, defaults=True)["model"]["log_std_init"] == -3.0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"train_freq": 64, "gradient_steps": 64}, (64, 256)),
        ({"train_freq": 1, "gradient_steps": 1}, (1, None)),
        ({"train_freq": 4, "gradient_steps": -1}, (4, 256)),
        ({"train_freq": 8, "gradient_steps": 10, "n_envs": 2}, (8, 160)),
        ({"train_freq": (1, "episode"), "gradient_steps": -1}, ("auto", 256)),
    ],
)
def test_updates_for_steps(words, expected):
    config = config_of("SAC", words)
    assert (config.rollout_fragment_length, config.training_intensity) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("auto", {"initial_alpha": 1.0}),
        ("auto_0.1", {"initial_alpha": 0.1}),
        (0.1, {"initial_alpha": 0.1, "alpha_lr": 0.0}),
    ],
)
def test_temperature_of_sac(given, expected):
    assert settings_from_sb3("SAC", {"ent_coef": given}, defaults=False) == expected


def test_replay_of_goals_has_room_for_the_further_ones():
    words = {
        "buffer_size": 1000, "replay_buffer_class": "HerReplayBuffer",
        "replay_buffer_kwargs": {"n_sampled_goal": 3, "goal_selection_strategy": "future"},
    }  # fmt: skip
    settings = settings_from_sb3("SAC", words, defaults=False)
    assert settings["replay_buffer_config"] == {
        "type": "HerReplayBuffer", "n_sampled_goal": 3, "goal_selection_strategy": "future", "capacity": 4000
    }  # fmt: skip


def test_noise_of_td3():
    words = {"noise_type": "ornstein-uhlenbeck", "noise_std": 0.5, "learning_starts": 7}
    noise = settings_from_sb3("TD3", words, defaults=True)["exploration_config"]
    assert noise["type"] == "OrnsteinUhlenbeckNoise" and noise["random_timesteps"] == 7
    assert noise["ou_sigma"] == pytest.approx(0.05) and noise["ou_theta"] == pytest.approx(0.0015)
    assert settings_from_sb3("TD3", {}, defaults=True)["exploration_config"]["stddev"] == 0.0


def test_noise_objects_are_read_by_their_numbers():
    class NormalActionNoise:
        _mu, _sigma = np.zeros(2), np.full(2, 0.2)

    noise = settings_from_sb3("DDPG", {"action_noise": NormalActionNoise()}, defaults=True)["exploration_config"]
    assert noise["type"] == "GaussianNoise" and noise["stddev"] == pytest.approx(0.2)
    NormalActionNoise._sigma = np.array([0.1, 0.2])
    with pytest.raises(ValueError, match="equal for all parts"):
        settings_from_sb3("DDPG", {"action_noise": NormalActionNoise()}, defaults=True)


def test_epsilon_falls_within_a_share_of_the_run():
    words = {"exploration_fraction": 0.2, "n_timesteps": 5000}
    assert config_of("DQN", words).exploration_config["epsilon_timesteps"] == 1000


def test_steps_of_ars_are_divided_as_there():
    settings = settings_from_sb3("ARS", {"n_delta": 4, "n_top": 1, "learning_rate": 0.02}, defaults=True)
    assert settings["sgd_stepsize"] == pytest.approx(0.02 / math.sqrt(2))
    assert settings["num_rollouts"] == 4 and settings["rollouts_used"] == 1


def test_functions_of_the_remaining_share():
    line = settings_from_sb3("PPO", {"learning_rate": lambda p: 1e-3 * p, "n_timesteps": 1000}, defaults=True)["lr"]
    assert line == {"type": "linear", "initial": 1e-3, "final": 0.0, "timesteps": 1000}
    curve = settings_from_sb3("PPO", {"learning_rate": lambda p: p * p, "n_timesteps": 1000}, defaults=True)["lr"]
    assert curve(0) == 1.0 and curve(500) == 0.25 and curve(2000) == 0.0


@pytest.mark.parametrize(
    ("normalize", "expected"),
    [
        (True, {"observation_filter": "MeanStdFilter", "observation_clip": 10.0, "normalize_returns": True,
                "normalized_reward_clip": 10.0}),
        ({"norm_reward": False, "clip_obs": 5.0}, {"observation_filter": "MeanStdFilter", "observation_clip": 5.0,
                                                   "normalize_returns": False}),
        (False, {"observation_filter": "NoFilter", "normalize_returns": False}),
    ],
)  # fmt: skip
def test_normalisation(normalize, expected):
    assert settings_from_sb3("PPO", {"normalize": normalize}, defaults=False) == expected


@pytest.mark.parametrize(
    ("algorithm", "words", "message"),
    [
        ("IMPALA", {}, "no words of Stable-Baselines3 are known for 'IMPALA'"),
        ("PPO", {"n_step": 5}, "PPO has no 'n_step' in Stable-Baselines3. Did you mean n_steps"),
        ("PPO", {"learning_rate": "lin_1e-3"}, "the length of the run is not known. Give n_timesteps"),
        ("PPO", {"learning_rate": "exp_1e-3"}, "must be a number, or lin_NUMBER"),
        ("PPO", {"policy": "my.module.MyPolicy"}, "policy='MyPolicy' is none of MlpPolicy"),
        ("PPO", {"policy_kwargs": {"net_arch": [8, {"pi": [8]}]}}, "net_arch=.* must be a list of widths"),
        ("PPO", {"policy_kwargs": {"use_expln": True}}, "use_expln=True cannot be used: deviations"),
        ("PPO", {"policy_kwargs": {"nets": 1}}, "policy_kwargs has no 'nets'"),
        ("PPO", {"policy_kwargs": {"activation_fn": "Softplus"}}, "activation_fn='Softplus' is not available"),
        ("PPO", {"policy_kwargs": {"features_extractor_class": "Mine"}}, "features_extractor_class='Mine' cannot"),
        ("PPO", {"rollout_buffer_class": "X"}, "rollout_buffer_class='X' cannot be used"),
        ("SAC", {"ent_coef": 0.0}, "ent_coef=0.0 must be above 0"),
        ("SAC", {"target_update_interval": 5}, "target_update_interval=5 cannot be used"),
        ("SAC", {"policy": "CnnPolicy"}, "a layer that all critics share"),
        ("SAC", {"train_freq": (1, "episode"), "gradient_steps": 64}, "a number of updates for each episode"),
        ("SAC", {"replay_buffer_class": "Mine"}, "replay_buffer_class='Mine' is not available"),
        ("TD3", {"noise_type": "pink", "noise_std": 0.1}, "noise of the type 'pink'"),
        ("ARS", {"policy": "LinearPolicy", "zero_policy": False}, "zero_policy=False cannot be used"),
        ("PPO", {"normalize": {"clip": 1}}, "normalize has no 'clip'"),
    ],
)
def test_what_cannot_be_said_is_refused(algorithm, words, message):
    with pytest.raises(ValueError, match=message):
        settings_from_sb3(algorithm, {"learning_starts": 0, **words} if algorithm in ("SAC", "TD3") else words,
                          defaults=True)  # fmt: skip
