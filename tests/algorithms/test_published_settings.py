"""Settings that others have published: each of them can be written down as a config.

RL Baselines3 Zoo's unless it is said otherwise; `lin(x)` goes from x to 0 over the run. Those of TD3 and DDPG follow
our tuned examples where the Zoo has no file for the task (DDPG on HalfCheetah).

What cannot be said of those of SAC, TQC, CrossQ, TD3 and DDPG:
- train_freq=(1, "episode") with gradient_steps=-1 (DDPG): as many updates, but one after each step and not all of them
  when the episode has ended.
- use_expln of gSDE (CrossQ, MountainCarContinuous): standard deviations are exponentials.
- gSDE beside an actor with batch normalisation (CrossQ, MountainCarContinuous): it needs batch_norm_actor=False.
- The wrapper that adds the time to observations (TD3, HalfCheetah in older versions of the Zoo) is left out.
"""

import pytest

from rllib.algorithms.base.registry import get_algorithm_config

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
    "env": "rllib.env.tasks.minigrid_tasks:FlatMiniGrid",
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


def off_policy(algorithm: str, env: str, learning_starts: int = 100, capacity: int = 1_000_000, **settings) -> dict:
    """With the defaults of Stable-Baselines3: 256 rows an update, uniform actions until it learns."""
    exploration = {"random_timesteps": learning_starts, **settings.pop("exploration_config", {})}
    return {
        "algorithm": algorithm,
        "env": env,
        "num_rollout_workers": 0,
        "train_batch_size": 256,
        "lr": 1e-3,
        "num_steps_sampled_before_learning_starts": learning_starts,
        "replay_buffer_config": {"type": "ReplayBuffer", "capacity": capacity},
        "exploration_config": exploration,
        **settings,
    }


def every(steps: int, rows: int = 256) -> dict:
    """train_freq=steps, gradient_steps=steps."""
    return {"rollout_fragment_length": steps, "training_intensity": rows}


def sde(hiddens: list[int], log_std_init: float) -> dict:
    return {"model": {"fcnet_hiddens": hiddens, "use_sde": True, "log_std_init": log_std_init}}


# Noise of a standard deviation of 0.1; and of 0.5 in steps of 0.01 of an Ornstein-Uhlenbeck process.
NORMAL = {"type": "GaussianNoise", "stddev": 0.1, "initial_scale": 1.0, "final_scale": 1.0}
DRIFTING = {
    "type": "OrnsteinUhlenbeckNoise",
    "ou_base_scale": 1.0,
    "ou_theta": 0.0015,
    "ou_sigma": 0.05,
    "initial_scale": 1.0,
    "final_scale": 1.0,
}
# Of SAC and TQC.
SWINGING = {**sde([64, 64], -3.67), **every(32, 512), "train_batch_size": 512, "initial_alpha": 0.1, "alpha_lr": 0.0}
LANDING = {"lr": lin(7.3e-4, 500_000), "tau": 0.01, "model": {"fcnet_hiddens": [400, 300]}}
WALKING = {**sde([400, 300], -3.0), **every(64), "lr": 7.3e-4, "gamma": 0.98, "tau": 0.02}
# Of TD3 and DDPG, with Stable-Baselines3's learning_rate and networks of [400, 300], which are the defaults.
NOISY = {"exploration_config": NORMAL, "tau": 0.005, "l2_reg": 0.0}


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
    **{
        f"{name}, {env}": off_policy(name, env, *starts, **settings)
        for name in ("SAC", "TQC")
        for env, starts, settings in (
            ("MountainCarContinuous-v0", (0, 50_000), {**SWINGING, "lr": 3e-4, "gamma": 0.9999, "tau": 0.01}),
            ("Pendulum-v1", (), {}),
            ("LunarLanderContinuous-v3", (10_000,), LANDING),
            ("BipedalWalker-v3", (10_000, 300_000), WALKING),
            ("HalfCheetah-v5", (10_000,), {"lr": 3e-4}),
        )
    },
    "TQC, Pendulum, gSDE": off_policy("TQC", "Pendulum-v1", **sde([64, 64], -2.0), **every(64)),
    **{
        f"{name}, {env}": off_policy(name, env, *starts, **{**NOISY, "gamma": gamma, **settings})
        for name in ("TD3", "DDPG")
        for env, starts, gamma, settings in (
            ("MountainCarContinuous-v0", (), 0.99, {"exploration_config": DRIFTING}),
            ("Pendulum-v1", (10_000, 200_000), 0.98, {}),
            ("LunarLanderContinuous-v3", (10_000, 200_000), 0.98, {}),
            ("BipedalWalker-v3", (10_000, 200_000), 0.98, {}),
            ("HalfCheetah-v5", (10_000,), 0.99, {}),
        )
    },
    "CrossQ, MountainCarContinuous": off_policy(
        "CrossQ",
        "MountainCarContinuous-v0",
        capacity=50_000,
        lr=7e-4,
        gamma=0.9999,
        policy_delay=2,
        batch_norm_actor=False,
        q_model_config={"fcnet_hiddens": [64, 64]},
        **sde([64, 64], -1.0),
        **every(32),
    ),
    "CrossQ, Pendulum": off_policy(
        "CrossQ", "Pendulum-v1", policy_delay=2, q_model_config={"fcnet_hiddens": [256, 256]}
    ),
    "CrossQ, LunarLanderContinuous": off_policy("CrossQ", "LunarLanderContinuous-v3", 10_000),
    "CrossQ, BipedalWalker": off_policy("CrossQ", "BipedalWalker-v3", 10_000, 300_000, gamma=0.98),
    "CrossQ, HalfCheetah": off_policy(
        "CrossQ", "HalfCheetah-v5", 5_000, q_model_config={"fcnet_hiddens": [2048, 2048]}
    ),
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
