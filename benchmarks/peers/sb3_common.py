"""Stable-Baselines3: what its scripts share. They run in its own environment (benchmarks/peers/setup sb3)."""

import time

import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv


def ppo(num_envs: int, seed: int, **settings) -> PPO:
    """PPO on CartPole-v1, all environments in this process (SubprocVecEnv is slower for an environment this cheap)."""
    torch.set_num_threads(1)
    envs = make_vec_env("CartPole-v1", n_envs=num_envs, seed=seed, vec_env_cls=DummyVecEnv)
    return PPO("MlpPolicy", envs, seed=seed, device="cpu", verbose=0, **settings)


class Clock(BaseCallback):
    """Notes the time at the start of every rollout."""

    def __init__(self):
        super().__init__()
        self.times: list[float] = []

    def _on_rollout_start(self) -> None:
        self.times.append(time.perf_counter())

    def _on_step(self) -> bool:
        return True


def versions() -> dict:
    return {"stable_baselines3": stable_baselines3.__version__, "torch": torch.__version__}
