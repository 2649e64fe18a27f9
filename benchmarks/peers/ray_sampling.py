"""Ray RLlib's environment runners collecting with a 64x64 policy on CartPole-v1: environment steps a second."""

import argparse
import json

from ray_common import ppo_config, sampling_rate, start, versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--envs", type=int, default=8, help="environments of each worker")
    parser.add_argument("--fragment", type=int, default=128, help="steps of each environment a request")
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    start(num_cpus=arguments.workers + 1)
    batch = arguments.workers * arguments.envs * arguments.fragment
    workers, envs, fragment = arguments.workers, arguments.envs, arguments.fragment
    config = ppo_config("CartPole-v1", workers, envs, [64, 64], rollout_fragment_length=fragment)
    algo = config.training(train_batch_size_per_learner=batch).build_algo()
    rate = sampling_rate(algo, batch, arguments.seconds)
    print(json.dumps({"env_steps_per_s": rate, **versions()}))


if __name__ == "__main__":
    main()
