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


def rate(model, iterations: int, warm_up: int) -> float:
    """Environment steps a second of PPO's iterations after those of the warm-up."""
    clock, batch = Clock(), model.n_envs * model.n_steps
    # One iteration more than is counted: the last one has no rollout after it to say when it ended.
    model.learn((warm_up + iterations + 1) * batch, callback=clock)
    return (len(clock.times) - 1 - warm_up) * batch / (clock.times[-1] - clock.times[warm_up])


def pong_ppo(envs, fragment: int) -> PPO:
    """PPO with the network of the Nature paper and the settings for Atari."""
    return PPO(
        "CnnPolicy", envs, seed=0, device="cpu", verbose=0, n_steps=fragment,
        batch_size=256, n_epochs=4, learning_rate=2.5e-4, clip_range=0.1, ent_coef=0.01,
    )  # fmt: skip


def versions() -> dict:
    return {"stable_baselines3": stable_baselines3.__version__, "torch": torch.__version__}
