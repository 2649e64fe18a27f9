"""Stable-Baselines3: what its scripts share. They run in its own environment (benchmarks/peers/setup sb3)."""

import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv


def ppo(num_envs: int, seed: int, **settings) -> PPO:
    """PPO on CartPole-v1, all environments in this process (SubprocVecEnv is slower for an environment this cheap)."""
    torch.set_num_threads(1)
    envs = make_vec_env("CartPole-v1", n_envs=num_envs, seed=seed, vec_env_cls=DummyVecEnv)
    return PPO("MlpPolicy", envs, seed=seed, device="cpu", verbose=0, **settings)


def versions() -> dict:
    return {"stable_baselines3": stable_baselines3.__version__, "torch": torch.__version__}
