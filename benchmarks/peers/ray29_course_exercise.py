"""The course's exercise as it is printed, on the API it was written for: Ray RLlib 2.9.3 (setup ray29)."""

import time

STARTED = time.perf_counter()  # before the imports, which are part of what a student waits for

import os  # noqa: E402

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import argparse  # noqa: E402
import json  # noqa: E402
import logging  # noqa: E402
import warnings  # noqa: E402

import ray  # noqa: E402
import torch  # noqa: E402
from ray.rllib.algorithms.ppo import PPOConfig  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--envs", type=int, default=2, help="environments of each worker")
    parser.add_argument("--iterations", type=int, default=5)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(2)
    times = [time.perf_counter()]
    ray.init(
        num_cpus=arguments.workers + 1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
    )
    times.append(time.perf_counter())
    config = (
        PPOConfig()
        .framework("torch")
        .rollouts(num_rollout_workers=arguments.workers, num_envs_per_worker=arguments.envs)
        .training(model={"fcnet_hiddens": [32, 32]})
    )
    algo = config.build(env="FrozenLake-v1")
    times.append(time.perf_counter())
    for _ in range(arguments.iterations):
        algo.train()
    times.append(time.perf_counter())
    import_s, init_s, build_s, train_s = (b - a for a, b in zip([STARTED, *times], times))
    result = {"train_s": train_s, "build_s": build_s, "init_s": init_s, "import_s": import_s}
    print(json.dumps(result | {"ray": ray.__version__, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
