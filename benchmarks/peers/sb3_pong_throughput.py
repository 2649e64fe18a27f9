"""Stable-Baselines3 PPO on Pong, sampling and training: environment steps a second.

Its own Atari preprocessing (84x84, stack of 4) and CnnPolicy, the network of the Nature paper; 128 steps of each
environment, 4 epochs, minibatches of 256, all environments in this process. torch has the number of threads that it
chooses: the convolutions are its work, and it has no other process to share the cores with.
"""

import argparse
import json
import os

# The benchmarks set one thread for processes that share the cores; this one is alone.
os.environ["OMP_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))

import ale_py
import gymnasium
import torch
from sb3_common import pong_ppo, rate, versions
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

gymnasium.register_envs(ale_py)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="ALE/Pong-v5")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--fragment", type=int, default=128, help="steps of each environment an iteration")
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--warm-up", type=int, default=1, help="iterations before those that count")
    arguments = parser.parse_args()
    # Its wrapper skips the frames, so the game must not.
    envs = make_atari_env(arguments.env, n_envs=arguments.envs, seed=0, env_kwargs={"frameskip": 1})
    model = pong_ppo(VecFrameStack(envs, n_stack=4), arguments.fragment)
    found = {"env_steps_per_s": rate(model, arguments.iterations, arguments.warm_up)}
    print(json.dumps({**found, "threads": torch.get_num_threads(), **versions()}))


if __name__ == "__main__":
    main()
