"""Stable-Baselines3 PPO on a MuJoCo task: environment steps a second (benchmarks/peers/setup mujoco_ppo)."""

from collections.abc import Callable

import mujoco_ppo_common as task
import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize


class Clock(BaseCallback):
    """Notes the start of every rollout."""

    def __init__(self, iterations: task.Iterations):
        super().__init__()
        self._iterations = iterations

    def _on_rollout_start(self) -> None:
        self._iterations.note()

    def _on_step(self) -> bool:
        return True


def train(algorithm: Callable, description: str | None, **versions: str) -> None:
    """Trains PPO of SB3 or SBX, whose arguments are the same, and prints the rate."""
    iterations = task.Iterations(description)
    torch.set_num_threads(1)
    envs = VecNormalize(make_vec_env(task.ENV, n_envs=task.ENVS, seed=0, vec_env_cls=DummyVecEnv), gamma=task.GAMMA)
    model = algorithm(
        "MlpPolicy",
        envs,
        n_steps=task.STEPS,
        batch_size=task.MINIBATCH,
        n_epochs=task.EPOCHS,
        learning_rate=task.LR,
        gamma=task.GAMMA,
        gae_lambda=task.LAMBDA,
        clip_range=task.CLIP,
        max_grad_norm=task.GRAD_CLIP,
        vf_coef=task.VALUE_SHARE,
        seed=0,
        device="cpu",
        policy_kwargs={"net_arch": task.HIDDENS},
    )
    model.learn(iterations.count * task.BATCH, callback=Clock(iterations))
    iterations.report(**versions)


if __name__ == "__main__":
    train(PPO, __doc__, stable_baselines3=stable_baselines3.__version__, torch=torch.__version__)
