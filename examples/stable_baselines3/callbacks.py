"""Callbacks, evaluations, checkpoints and TensorBoard.

python -m rllib.as_sb3 examples/stable_baselines3/callbacks.py
"""

import argparse
import os
import tempfile

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    EvalCallback,
    EveryNTimesteps,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.env_util import make_vec_env


class CountEpisodes(BaseCallback):
    def __init__(self, verbose: int = 0):
        super().__init__(verbose)
        self.episodes = self.steps = 0

    def _on_training_start(self) -> None:
        print("begins at", self.num_timesteps, "with", self.training_env.num_envs, "environments")

    def _on_step(self) -> bool:
        self.steps += len(self.locals["rewards"])
        for info in self.locals["infos"]:
            self.episodes += "episode" in info
        self.logger.record("mine/steps", self.steps)
        return True

    def _on_training_end(self) -> None:
        print("counted", self.steps, "steps in", self.n_calls, "calls, episodes:", self.episodes > 0)


class Say(BaseCallback):
    def _on_step(self) -> bool:
        print("every 256 steps:", self.num_timesteps)
        return True


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--timesteps", type=int, default=1024)
    total = parser.parse_args().timesteps
    with tempfile.TemporaryDirectory() as directory:
        env = make_vec_env("CartPole-v1", n_envs=2, seed=0, monitor_dir=f"{directory}/monitor")
        evaluation = EvalCallback(
            make_vec_env("CartPole-v1", seed=1),
            callback_on_new_best=StopTrainingOnRewardThreshold(reward_threshold=501),
            best_model_save_path=f"{directory}/best",
            log_path=f"{directory}/log",
            eval_freq=128,
            n_eval_episodes=2,
            verbose=0,
        )
        callbacks = CallbackList(
            [
                CountEpisodes(),
                evaluation,
                CheckpointCallback(save_freq=256, save_path=f"{directory}/saved", name_prefix="ppo"),
                EveryNTimesteps(256, Say()),
            ]
        )
        model = PPO("MlpPolicy", env, n_steps=128, verbose=1, tensorboard_log=f"{directory}/tensorboard", seed=0)
        model.learn(total, callback=callbacks, tb_log_name="mine")
        print("best:", sorted(os.listdir(f"{directory}/best")), "log:", os.listdir(f"{directory}/log"))
        print("saved:", sorted(os.listdir(f"{directory}/saved")))
        print("tensorboard:", os.listdir(f"{directory}/tensorboard"))
        print("monitor:", sorted(os.listdir(f"{directory}/monitor")))
        print("newest returns:", len(model.ep_info_buffer) > 0, evaluation.best_mean_reward > 0)
