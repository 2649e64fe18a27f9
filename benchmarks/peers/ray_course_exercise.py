"""The course's exercise on Ray RLlib 2.60: PPO with its defaults on FrozenLake-v1, [32, 32], five times train().

The network has two towers, as in the version that the page was written for (this one would share the first layers).
"""

import time

STARTED = time.perf_counter()  # before the imports, which are part of what a student waits for

import argparse  # noqa: E402
import json  # noqa: E402

from ray.rllib.connectors.env_to_module import FlattenObservations  # noqa: E402
from ray_common import ppo_config, start, versions  # noqa: E402


def one_hot(env=None, spaces=None, device=None) -> FlattenObservations:
    """Discrete observations have to be made one-hot by hand in this version."""
    return FlattenObservations()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--envs", type=int, default=2, help="environments of each worker")
    parser.add_argument("--iterations", type=int, default=5)
    arguments = parser.parse_args()
    times = [time.perf_counter()]
    start(num_cpus=arguments.workers + 1)
    times.append(time.perf_counter())
    algo = ppo_config(
        "FrozenLake-v1", arguments.workers, arguments.envs, [32, 32], env_to_module_connector=one_hot
    ).build_algo()
    times.append(time.perf_counter())
    for _ in range(arguments.iterations):
        algo.train()
    times.append(time.perf_counter())
    import_s, init_s, build_s, train_s = (b - a for a, b in zip([STARTED, *times], times))
    seconds = {"train_s": train_s, "build_s": build_s, "init_s": init_s, "import_s": import_s}
    print(json.dumps(seconds | versions()))


if __name__ == "__main__":
    main()
