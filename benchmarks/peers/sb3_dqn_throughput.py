"""Stable-Baselines3 DQN on CartPole-v1, sampling and training: environment steps a second.

One environment, one update of 64 rows per 4 steps, a 64x64 ReLU network.
"""

import argparse
import json
import time
from collections.abc import Callable

import torch
from sb3_common import versions
from stable_baselines3 import DQN


def train(algorithm: Callable, description: str | None, found: dict, **settings) -> None:
    """Trains DQN of SB3 or SBX and prints its rate, with `found`, the versions; `settings` are those of one of them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--warm-up", type=int, default=1500, help="steps before those that count")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = algorithm(
        "MlpPolicy", "CartPole-v1", seed=0, device="cpu", verbose=0, policy_kwargs={"net_arch": [64, 64]},
        learning_rate=5e-4, batch_size=64, train_freq=4, gradient_steps=1, buffer_size=50_000, learning_starts=1000,
        target_update_interval=500, **settings,
    )  # fmt: skip
    model.learn(arguments.warm_up)
    started = time.perf_counter()
    model.learn(arguments.steps, reset_num_timesteps=False)
    rate = arguments.steps / (time.perf_counter() - started)
    print(json.dumps({"env_steps_per_s": rate, **found}))


if __name__ == "__main__":
    train(DQN, __doc__, versions(), max_grad_norm=40)
