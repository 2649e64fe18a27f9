"""RLlib 2.6.3's PolicyServerInput and one PolicyClient with remote inference (setup ray26): its steps a second.

Constant observations of four numbers, a 64x64 policy, PPO without learning; the client asks for an action and reports
its reward, in two requests, as its examples do.
"""

import os

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import argparse
import json
import logging
import subprocess
import sys
import time
import warnings

import gymnasium
import numpy as np
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.policy_client import PolicyClient
from ray.rllib.env.policy_server_input import PolicyServerInput

LENGTH = 200


def play(address: str) -> None:
    """Loops until it is killed; the steps so far, a line an episode."""
    client, seen, steps = PolicyClient(address, inference_mode="remote"), np.zeros(4, np.float32), 0
    while True:
        episode = client.start_episode()
        for _ in range(LENGTH):
            client.get_action(episode, seen)
            client.log_returns(episode, 1.0)
        client.end_episode(episode, seen)
        steps += LENGTH
        print(steps, time.perf_counter(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=5, help="that count, after the first")
    parser.add_argument("--port", type=int, default=9917)
    parser.add_argument("--play", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.play:
        play(arguments.play)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    spaces = gymnasium.spaces.Box(-1, 1, (4,)), gymnasium.spaces.Discrete(2)
    config = (
        PPOConfig()
        .framework("torch")
        .environment(None, observation_space=spaces[0], action_space=spaces[1])
        .offline_data(input_=lambda context: PolicyServerInput(context, "127.0.0.1", arguments.port))
        .rollouts(num_rollout_workers=0, enable_connectors=False)
        .rl_module(_enable_rl_module_api=False)  # it asks for connectors, which the server's samples do not pass
        .training(train_batch_size=2000, model={"fcnet_hiddens": [64, 64]}, _enable_learner_api=False)
    )
    config.evaluation(off_policy_estimation_methods={})
    config.build()  # its server answers in threads of its own
    client = subprocess.Popen(
        [sys.executable, __file__, "--play", f"http://127.0.0.1:{arguments.port}"], stdout=subprocess.PIPE, text=True
    )
    lines = [client.stdout.readline().split() for _ in range(arguments.episodes + 1)]
    client.kill()
    (before, started), (after, ended) = lines[0], lines[-1]
    rate = (int(after) - int(before)) / (float(ended) - float(started))
    print(json.dumps({"steps_per_s": rate, "ray": ray.__version__, "torch": torch.__version__}), flush=True)
    os._exit(0)  # the server's threads have no end


if __name__ == "__main__":
    main()
