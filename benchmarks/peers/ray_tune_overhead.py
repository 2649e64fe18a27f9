"""Ray Tune 2.60: milliseconds a trial of an experiment of trivial functions, two at a time (setup ray)."""

import os

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import json
import logging
import sys
import tempfile
import time
import warnings

import ray
from ray import tune


def trivial(config):
    tune.report({"loss": config["x"]})


def experiment(count: int, directory: str) -> None:
    tuner = tune.Tuner(
        trivial,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(num_samples=count, max_concurrent_trials=2),
        run_config=tune.RunConfig(storage_path=directory, verbose=0),
    )
    tuner.fit()


def main(count: int) -> None:
    warnings.filterwarnings("ignore")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    with tempfile.TemporaryDirectory() as directory:
        experiment(2, directory)
        started = time.perf_counter()
        experiment(count, directory)
        taken_s = time.perf_counter() - started
    print(json.dumps({"per_trial_ms": 1e3 * taken_s / count, "ray": ray.__version__}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
