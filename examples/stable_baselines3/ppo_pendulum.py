"""PPO in processes of their own, with VecNormalize, Monitor and a features extractor.

python -m rllib.as_sb3 examples/stable_baselines3/ppo_pendulum.py
"""

import argparse
import tempfile
from pathlib import Path

import gymnasium as gym
import torch as th
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor, get_monitor_files
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize
from torch import nn


class Features(BaseFeaturesExtractor):
    def __init__(self, observation_space: gym.spaces.Box, features_dim: int = 32):
        super().__init__(observation_space, features_dim)
        self.layers = nn.Sequential(nn.Linear(observation_space.shape[0], features_dim), nn.ReLU())

    def forward(self, observations: th.Tensor) -> th.Tensor:
        return self.layers(observations)


def make_env(rank: int, directory: str, seed: int = 0):
    def _init():
        env = Monitor(gym.make("Pendulum-v1"), f"{directory}/{rank}")
        env.reset(seed=seed + rank)
        return env

    set_random_seed(seed)
    return _init


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--timesteps", type=int, default=2048)
    total = parser.parse_args().timesteps
    with tempfile.TemporaryDirectory() as directory:
        env = SubprocVecEnv([make_env(rank, directory) for rank in range(2)])
        env = VecNormalize(env, norm_obs=True, norm_reward=True, clip_obs=10.0)
        model = PPO(
            "MlpPolicy",
            env,
            n_steps=256,
            batch_size=64,
            gamma=0.95,
            learning_rate=lambda remaining: 1e-3 * remaining,
            policy_kwargs=dict(
                features_extractor_class=Features,
                features_extractor_kwargs=dict(features_dim=16),
                activation_fn=nn.Tanh,
                net_arch=dict(pi=[32], vf=[32]),
            ),
            verbose=1,
            seed=0,
        )
        model.learn(total)
        model.save(f"{directory}/ppo")
        env.save(f"{directory}/vec_normalize.pkl")
        episodes = sum(len(Path(file).read_text().splitlines()) - 2 for file in get_monitor_files(directory))
        print("episodes in files:", episodes)
        print("counted:", int(env.obs_rms.count), "observations,", env.num_envs, "environments")
        env.close()

        evaluated = DummyVecEnv([make_env(9, directory)])
        evaluated = VecNormalize.load(f"{directory}/vec_normalize.pkl", evaluated)
        evaluated.training = evaluated.norm_reward = False
        model = PPO.load(f"{directory}/ppo", env=evaluated)
        mean, std = evaluate_policy(model, evaluated, n_eval_episodes=2)
        print("evaluated:", mean < 0, std >= 0, model.num_timesteps)
