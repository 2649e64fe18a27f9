"""Ray RLlib's environment runners with an environment that sleeps through every step: environment steps a second."""

import argparse
import json
import time

from ray_common import ppo_config, sampling_rate, start, versions
from sleeping_env import SleepingEnv


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--sleep-ms", type=float, default=5)
    parser.add_argument("--fragment", type=int, default=100, help="steps of each environment a request")
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    start(num_cpus=arguments.workers + 1)
    started = time.perf_counter()
    batch = arguments.workers * arguments.fragment
    algo = (
        ppo_config(SleepingEnv, arguments.workers, 1, [64, 64], rollout_fragment_length=arguments.fragment)
        .environment(env_config={"sleep_ms": arguments.sleep_ms})
        .training(train_batch_size_per_learner=batch)
        .build_algo()
    )
    build_s = time.perf_counter() - started
    rate = sampling_rate(algo, batch, arguments.seconds)
    print(json.dumps({"env_steps_per_s": rate, "build_s": build_s, **versions()}))


if __name__ == "__main__":
    main()
