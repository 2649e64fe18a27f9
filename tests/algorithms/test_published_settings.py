"""Settings that others have published for policy gradients: each of them can be written down as a config.

RL Baselines3 Zoo's unless it is said otherwise; `lin(x)` goes from x to 0 over the run.
"""

import pytest

from rllib.algorithms.registry import get_algorithm_config

# Separate networks of 64 and 64 tanh units, orthogonal weights: what Stable-Baselines3 and CleanRL begin with.
SB3 = {"fcnet_hiddens": [64, 64], "vf_share_layers": False}
CONTINUOUS = {**SB3, "free_log_std": True}
PPO = {
    "algorithm": "PPO",
    "num_rollout_workers": 0,
    "standardize_advantages": "minibatch",
    "kl_coeff": 0.0,
    "use_kl_loss": False,
    "vf_clip_param": None,
    "vf_loss_coeff": 0.5,
    "grad_clip": 0.5,
    "adam_epsilon": 1e-5,
    "gamma": 0.99,
    "lambda_": 0.95,
    "clip_param": 0.2,
    "lr": 3e-4,
    "num_sgd_iter": 10,
    "sgd_minibatch_size": 64,
    "model": SB3,
}
A2C = {
    "algorithm": "A2C",
    "num_rollout_workers": 0,
    "opt_type": "rmsprop",
    "rmsprop_epsilon": 1e-5,
    "vf_loss_coeff": 0.5,
    "grad_clip": 0.5,
    "standardize_advantages": False,
    "model": SB3,
}
NORMALISED = {
    "observation_filter": "MeanStdFilter",
    "observation_clip": 10.0,
    "normalize_returns": True,
    "normalized_reward_clip": 10.0,
}
MINIGRID = {
    **PPO,
    **NORMALISED,
    "env": "rllib.env.minigrid:FlatMiniGrid",
    "lr": 2.5e-4,
    "num_envs_per_worker": 8,
    "train_batch_size": 1024,
}
# Of Tianshou, with its 8 x 256 steps.
TIANSHOU = {
    **PPO,
    **NORMALISED,
    "num_envs_per_worker": 8,
    "train_batch_size": 2048,
    "vf_loss_coeff": 0.25,
    "recompute_advantages": True,
    "standardize_advantages": False,
    "model": {**CONTINUOUS, "log_std_init": -0.5, "orthogonal_gains": {"policy": 0.01}},
}


def lin(start: float, timesteps: int) -> dict:
    return {"type": "linear", "initial": start, "final": 0.0, "timesteps": timesteps}


def mujoco(env: str, **settings) -> dict:
    return {**PPO, **NORMALISED, "env": env, "train_batch_size": 512, **settings}


PUBLISHED = {
    "PPO, CartPole": {
        **PPO,
        "env": "CartPole-v1",
        "num_envs_per_worker": 8,
        "train_batch_size": 256,
        "sgd_minibatch_size": 256,
        "num_sgd_iter": 20,
        "gamma": 0.98,
        "lambda_": 0.8,
        "lr": lin(1e-3, 100_000),
        "clip_param": lin(0.2, 100_000),
    },
    "PPO, CartPole, CleanRL": {
        **PPO,
        "env": "CartPole-v1",
        "num_envs_per_worker": 4,
        "train_batch_size": 512,
        "sgd_minibatch_size": 128,
        "num_sgd_iter": 4,
        "lr": lin(2.5e-4, 500_000),
        "entropy_coeff": 0.01,
        "vf_clip_param": 0.2,
        "target_kl": 0.02,
    },
    "A2C, CartPole": {**A2C, "env": "CartPole-v1", "num_envs_per_worker": 8, "train_batch_size": 40, "lr": 7e-4},
    "PPO, Acrobot": {
        **PPO,
        **NORMALISED,
        "env": "Acrobot-v1",
        "num_envs_per_worker": 16,
        "train_batch_size": 4096,
        "lambda_": 0.94,
        "num_sgd_iter": 4,
    },
    "PPO, MountainCar": {
        **PPO,
        **NORMALISED,
        "env": "MountainCar-v0",
        "num_envs_per_worker": 16,
        "train_batch_size": 256,
        "lambda_": 0.98,
        "num_sgd_iter": 4,
    },
    "PPO, LunarLander": {
        **PPO,
        "env": "LunarLander-v3",
        "num_envs_per_worker": 16,
        "train_batch_size": 16384,
        "gamma": 0.999,
        "lambda_": 0.98,
        "num_sgd_iter": 4,
        "entropy_coeff": 0.01,
    },
    "PPO, DoorKey": {**MINIGRID, "env_config": {"id": "MiniGrid-DoorKey-5x5-v0"}},
    "PPO, Empty-Random": {**MINIGRID, "env_config": {"id": "MiniGrid-Empty-Random-5x5-v0"}},
    "PPO, KeyCorridor": {**MINIGRID, "env_config": {"id": "MiniGrid-KeyCorridorS3R1-v0"}},
    "PPO, Pendulum": {
        **PPO,
        "env": "Pendulum-v1",
        "num_envs_per_worker": 4,
        "train_batch_size": 4096,
        "gamma": 0.9,
        "lr": 1e-3,
        "model": {**SB3, "use_sde": True, "sde_sample_freq": 4},
    },
    "PPO, Pendulum, normalised": {
        **PPO,
        "env": "Pendulum-v1",
        "num_envs_per_worker": 4,
        "train_batch_size": 4096,
        "gamma": 0.9,
        "lr": 1e-3,
        "observation_filter": "MeanStdFilter",
        "model": CONTINUOUS,
    },
    "A2C, Pendulum": {
        **A2C,
        **NORMALISED,
        "env": "Pendulum-v1",
        "num_envs_per_worker": 8,
        "train_batch_size": 64,
        "gamma": 0.9,
        "lambda_": 0.9,
        "lr": lin(7e-4, 1_000_000),
        "model": {**SB3, "use_sde": True, "log_std_init": -2.0},
    },
    "PPO, HalfCheetah": mujoco(
        "HalfCheetah-v5",
        gamma=0.98,
        lr=2.06e-5,
        entropy_coeff=4e-4,
        clip_param=0.1,
        num_sgd_iter=20,
        lambda_=0.92,
        grad_clip=0.8,
        vf_loss_coeff=0.58,
        model={**CONTINUOUS, "log_std_init": -2.0, "fcnet_activation": "relu", "fcnet_hiddens": [256, 256]},
    ),
    "PPO, HalfCheetah, Tianshou": {**TIANSHOU, "env": "HalfCheetah-v5", "lr": lin(3e-4, 1_000_000)},
    "PPO, Hopper": mujoco(
        "Hopper-v5",
        gamma=0.999,
        lr=9.8e-5,
        entropy_coeff=0.0023,
        num_sgd_iter=5,
        lambda_=0.99,
        sgd_minibatch_size=32,
        vf_loss_coeff=0.84,
        model={**CONTINUOUS, "log_std_init": -2.0, "fcnet_activation": "relu", "fcnet_hiddens": [256, 256]},
    ),
    "PPO, Walker2d": mujoco(
        "Walker2d-v5",
        lr=5.05e-5,
        clip_param=0.1,
        num_sgd_iter=20,
        sgd_minibatch_size=32,
        vf_loss_coeff=0.87,
        model=CONTINUOUS,
    ),
    "PPO, InvertedDoublePendulum, Tianshou": {**TIANSHOU, "env": "InvertedDoublePendulum-v5"},
    "PPO, actor and critic of different sizes": {
        **PPO,
        "env": "BipedalWalker-v3",
        "train_batch_size": 2048,
        "model": {**CONTINUOUS, "vf_hiddens": [256, 256], "squash_actions": True},
    },
    "ARS, Swimmer": {
        "algorithm": "ARS",
        "env": "Swimmer-v5",
        "num_rollout_workers": 0,
        "num_rollouts": 1,
        "rollouts_used": 1,
        "sgd_stepsize": lin(0.02, 2_000_000),
        "noise_stdev": 0.01,
        "observation_filter": "NoFilter",
    },
    "ES, CartPole": {
        "algorithm": "ES",
        "env": "CartPole-v1",
        "num_rollout_workers": 0,
        "episodes_per_batch": 50,
        "stepsize": {"type": "exponential", "initial": 0.05, "decay_rate": 0.1, "timesteps": 500_000},
    },
    "DQN, CartPole, Polyak's target": {
        "algorithm": "DQN",
        "env": "CartPole-v1",
        "num_rollout_workers": 0,
        "tau": 0.005,
        "target_network_update_freq": 1,
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_settings_make_a_valid_config(name):
    settings = dict(PUBLISHED[name])
    config = get_algorithm_config(settings.pop("algorithm")).update_from_dict(settings)
    config.validate()
    assert config["env"] == settings["env"]
