"""Ray RLlib's IMPALA or APPO on CartPole-v1, asynchronous: environment steps a second that went into training."""

import argparse
import json
import time

from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray_common import start, versions

CONFIGS = {"IMPALA": IMPALAConfig, "APPO": APPOConfig}


def build(arguments: argparse.Namespace):
    return (
        CONFIGS[arguments.algorithm]()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=arguments.workers,
            num_envs_per_env_runner=arguments.envs // arguments.workers,
            rollout_fragment_length=arguments.fragment,
        )
        .learners(num_learners=0, num_aggregator_actors_per_learner=0)
        .training(train_batch_size_per_learner=arguments.batch)
        .rl_module(
            model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False)
        )
        .reporting(min_time_s_per_iteration=1)
        .build_algo()
    )


def trained_steps(result: dict) -> float:
    """Steps that the learner has had, over the whole run."""
    return result["learners"]["__all_modules__"]["num_env_steps_trained_lifetime"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithm", choices=CONFIGS, default="IMPALA")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--envs", type=int, default=2, help="environments in all")
    parser.add_argument("--fragment", type=int, default=50, help="steps of each environment per sample")
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--warm-up", type=float, default=5, help="seconds before those that count")
    arguments = parser.parse_args()
    start(num_cpus=arguments.workers + 1)
    algo = build(arguments)
    began = time.perf_counter()
    while True:
        result = algo.train()
        if time.perf_counter() - began >= arguments.warm_up and "__all_modules__" in result.get("learners", {}):
            break
    before, started = trained_steps(result), time.perf_counter()
    while (elapsed := time.perf_counter() - started) < arguments.seconds:
        result = algo.train()
    steps = trained_steps(result) - before
    print(json.dumps({"env_steps_per_s": steps / elapsed, "steps": steps} | versions()))


if __name__ == "__main__":
    main()
