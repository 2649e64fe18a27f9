"""Stable-Baselines3 PPO on CartPole-v1, sampling and training: environment steps a second.

8 environments x 128 steps, 4 epochs, minibatches of 256, two 64x64 tanh towers (its default network).
"""

import argparse
import json

from sb3_common import ppo, rate, versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--fragment", type=int, default=128, help="steps of each environment an iteration")
    parser.add_argument("--minibatch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=2, help="iterations before those that count")
    arguments = parser.parse_args()
    sizes = {"n_steps": arguments.fragment, "batch_size": arguments.minibatch, "n_epochs": arguments.epochs}
    model = ppo(arguments.envs, seed=0, **sizes)
    found = {"env_steps_per_s": rate(model, arguments.iterations, arguments.warm_up)}
    print(json.dumps({**found, "iterations": arguments.iterations, **versions()}))


if __name__ == "__main__":
    main()
