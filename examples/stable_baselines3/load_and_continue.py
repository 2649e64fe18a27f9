"""Load, continue, evaluate: models, replays and parameters in files.

python -m rllib.as_sb3 examples/stable_baselines3/load_and_continue.py
"""

import argparse
import os
import tempfile

import gymnasium as gym
import numpy as np
from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--timesteps", type=int, default=600)
    total = parser.parse_args().timesteps
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "dqn_cartpole")
        model = DQN("MlpPolicy", "CartPole-v1", learning_starts=100, buffer_size=5_000, verbose=1, seed=0)
        model.learn(total, log_interval=10)
        model.save(path)
        model.save_replay_buffer(f"{path}_replay.pkl")
        print("rows:", model.replay_buffer.size(), "rate:", model.learning_rate, "gamma:", model.gamma)
        observations = np.random.default_rng(0).normal(scale=0.1, size=(5, 4)).astype(np.float32)
        before, _ = model.predict(observations, deterministic=True)
        del model

        env = Monitor(gym.make("CartPole-v1"))
        model = DQN.load(path, env=env)
        after, _ = model.predict(observations, deterministic=True)
        print("equal actions:", (before == after).all(), "at step", model.num_timesteps)
        model.load_replay_buffer(f"{path}_replay.pkl")
        model.set_logger(configure(os.path.join(directory, "logs"), ["stdout", "csv"]))
        model.learn(total, reset_num_timesteps=False, log_interval=10)
        print("steps:", model.num_timesteps, "rows:", model.replay_buffer.size())
        with open(os.path.join(directory, "logs", "progress.csv")) as file:
            print("columns:", sorted(file.readline().strip().split(",")))
        returns, lengths = evaluate_policy(model, env, n_eval_episodes=3, return_episode_rewards=True)
        print("evaluated:", len(returns), returns == lengths)
        vec_env = model.get_env()
        observation = vec_env.reset()
        for _ in range(3):
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, done, info = vec_env.step(action)
        print("stepped:", observation.shape, reward.shape, done.dtype, len(info))
