"""A program for Stable-Baselines3 as its users write them; benchmarks/as_sb3.py runs it unchanged with both.

It prints the environment steps a second of a `learn`, after a shorter one that is not counted.
"""

import argparse
import json
import time

import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", choices=["ppo", "dqn", "sac"], default="ppo")
parser.add_argument("--timesteps", type=int, default=20_000)

if __name__ == "__main__":
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.model == "ppo":
        env = make_vec_env("CartPole-v1", n_envs=8, seed=0)
        model = PPO("MlpPolicy", env, n_steps=256, batch_size=256, seed=0, device="cpu")
    elif args.model == "dqn":
        model = DQN("MlpPolicy", "CartPole-v1", learning_starts=1_000, seed=0, device="cpu")
    else:
        model = SAC("MlpPolicy", "Pendulum-v1", learning_starts=100, seed=0, device="cpu")
    model.learn(args.timesteps // 4)
    first = model.num_timesteps
    began = time.perf_counter()
    model.learn(args.timesteps, reset_num_timesteps=False)
    seconds = time.perf_counter() - began
    mean = sum(episode["r"] for episode in model.ep_info_buffer) / max(len(model.ep_info_buffer), 1)
    print(json.dumps({"env_steps_per_s": (model.num_timesteps - first) / seconds, "return": float(mean)}))
