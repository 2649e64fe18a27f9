"""ES on CartPole-v1 in Ray RLlib 2.6.3, the last release that has it (setup ray26): environment steps a second.

50 episodes an update, 64x64 tanh, two workers; steps of perturbed episodes alone.
"""

import os

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import argparse
import json
import logging
import time
import warnings

import ray
import torch
from ray.rllib.algorithms.es import ESConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--episodes", type=int, default=50, help="per update")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=2, help="iterations before those that count")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    ray.init(num_cpus=arguments.workers + 1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    algo = (
        ESConfig()
        .framework("torch")
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=arguments.workers)
        .training(
            episodes_per_batch=arguments.episodes,
            train_batch_size=arguments.episodes,
            stepsize=1e-6,
            noise_size=2_500_000,
            model={"fcnet_hiddens": [64, 64]},
        )
        .build()
    )
    for _ in range(arguments.warm_up):
        algo.train()
    steps, started = 0, time.perf_counter()
    for _ in range(arguments.iterations):
        steps += algo.train()["timesteps_this_iter"]
    result = {"env_steps_per_s": steps / (time.perf_counter() - started), "iterations": arguments.iterations}
    print(json.dumps(result | {"ray": ray.__version__, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
