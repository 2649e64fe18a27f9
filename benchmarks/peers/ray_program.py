"""A program for Ray 2.60 as its users write them: PPO on CartPole-v1. benchmarks/as_ray.py runs it unchanged with both.

It prints the environment steps a second of its training, whole iterations, after one that is not counted.
"""

import argparse
import json
import time

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, EPISODE_RETURN_MEAN

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--iterations", type=int, default=5)

if __name__ == "__main__":
    args = parser.parse_args()
    ray.init(num_cpus=args.workers + 1, include_dashboard=False, log_to_driver=False)
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=args.workers, num_envs_per_env_runner=4)
        .training(lr=3e-4, train_batch_size_per_learner=4000, minibatch_size=128, num_epochs=10)
        .rl_module(model_config={"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh"})
    )
    algo = config.build_algo()
    algo.train()
    began = time.perf_counter()
    for _ in range(args.iterations):
        result = algo.train()
    seconds = time.perf_counter() - began
    steps_per_s = args.iterations * 4000 / seconds
    print(json.dumps({"env_steps_per_s": steps_per_s, "return": result[ENV_RUNNER_RESULTS][EPISODE_RETURN_MEAN]}))
    algo.stop()
    ray.shutdown()
