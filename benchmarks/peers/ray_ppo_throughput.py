"""Ray RLlib PPO on CartPole-v1, sampling and training: environment steps a second.

8 environments (in the driver, or spread over workers) x 128 steps, 4 epochs, minibatches of 256, two 64x64 tanh towers.
"""

import argparse
import json
import time

from ray_common import ppo_config, start, versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--envs", type=int, default=8, help="environments in all")
    parser.add_argument("--fragment", type=int, default=128, help="steps of each environment an iteration")
    parser.add_argument("--minibatch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--warm-up", type=int, default=2, help="iterations before those that count")
    arguments = parser.parse_args()
    batch = arguments.envs * arguments.fragment
    start(num_cpus=arguments.workers + 1)
    algo = (
        ppo_config("CartPole-v1", arguments.workers, arguments.envs // max(arguments.workers, 1), [64, 64])
        .training(
            train_batch_size_per_learner=batch, minibatch_size=arguments.minibatch, num_epochs=arguments.epochs
        )
        .build_algo()
    )
    for _ in range(arguments.warm_up):
        algo.train()
    started = time.perf_counter()
    for _ in range(arguments.iterations):
        algo.train()
    seconds = time.perf_counter() - started
    result = {"env_steps_per_s": arguments.iterations * batch / seconds, "iterations": arguments.iterations}
    print(json.dumps(result | versions()))


if __name__ == "__main__":
    main()
