"""Stable-Baselines3 collecting with a 64x64 policy on CartPole-v1, without training: environment steps a second."""

import argparse
import json
import time

from sb3_common import ppo, versions
from stable_baselines3.common.callbacks import CallbackList


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--fragment", type=int, default=128, help="steps of each environment a rollout")
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    model = ppo(arguments.envs, seed=0, n_steps=arguments.fragment, batch_size=256)
    _, callback = model._setup_learn(10**9, CallbackList([]))

    def collect() -> None:
        model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=arguments.fragment)

    collect()
    rollouts, started = 0, time.perf_counter()
    while time.perf_counter() - started < arguments.seconds:
        collect()
        rollouts += 1
    seconds = time.perf_counter() - started
    steps_per_s = rollouts * arguments.fragment * arguments.envs / seconds
    print(json.dumps({"env_steps_per_s": steps_per_s, "seconds": seconds, **versions()}))


if __name__ == "__main__":
    main()
