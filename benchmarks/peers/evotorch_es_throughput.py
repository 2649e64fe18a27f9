"""EvoTorch: PGPE on CartPole-v1, playing and updating: environment steps a second of perturbed episodes.

50 episodes an update (25 antithetic pairs), 64x64 tanh, centred ranks and Adam, with a deviation that stands still: the
updates of OpenAI-ES. With workers the episodes are played one by one in Ray's actors, without them all in lockstep in
this process (its VecGymNE).
"""

import argparse
import json
import logging
import os
import time
import warnings
from importlib import metadata

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray
import torch
from evotorch.algorithms import PGPE
from evotorch.neuroevolution import GymNE, VecGymNE

NETWORK = "Linear(obs_length, 64) >> Tanh() >> Linear(64, 64) >> Tanh() >> Linear(64, act_length)"
NOISE, STEP_SIZE = 0.02, 1e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--episodes", type=int, default=50, help="per update")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=2, help="iterations before those that count")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    if arguments.workers:
        ray.init(num_cpus=arguments.workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        problem = GymNE("CartPole-v1", NETWORK, observation_normalization=True, num_actors=arguments.workers)
    else:
        problem = VecGymNE("CartPole-v1", NETWORK, observation_normalization=True)
    searcher = PGPE(
        problem, popsize=arguments.episodes, center_learning_rate=STEP_SIZE, stdev_learning_rate=0.0, stdev_init=NOISE,
        optimizer="adam",
    )  # fmt: skip
    searcher.run(arguments.warm_up)
    before, started = searcher.status["total_interaction_count"], time.perf_counter()
    searcher.run(arguments.iterations)
    steps = searcher.status["total_interaction_count"] - before
    result = {"env_steps_per_s": steps / (time.perf_counter() - started), "iterations": arguments.iterations}
    print(json.dumps(result | {name: metadata.version(name) for name in ("evotorch", "ray", "torch")}))


if __name__ == "__main__":
    main()
