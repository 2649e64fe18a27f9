"""Ray RLlib 2.60: what its scripts share. They run in its own environment (benchmarks/peers/setup ray)."""

import logging
import os
import time
import warnings

# Before Ray is imported: no reports to anybody, no log lines between the figures.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DEDUP_LOGS"] = "0"
warnings.filterwarnings("ignore")

import ray  # noqa: E402
import torch  # noqa: E402
from ray.rllib.algorithms.ppo import PPOConfig  # noqa: E402
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig  # noqa: E402
from ray.rllib.execution.rollout_ops import synchronous_parallel_sample  # noqa: E402


def start(num_cpus: int = 2) -> None:
    """One Ray node on this machine; its processes take what `num_cpus` says there is, not what there is."""
    # The driver is the learner: two threads, as Ray would have it. Workers keep to the one of OMP_NUM_THREADS.
    torch.set_num_threads(2)
    ray.init(num_cpus=num_cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    logging.getLogger("ray").setLevel(logging.ERROR)


def ppo_config(env, workers: int, envs_per_worker: int, hiddens: list[int], **runners) -> PPOConfig:
    """PPO with two tanh towers, as the old stack and the other libraries have them."""
    return (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=workers, num_envs_per_env_runner=envs_per_worker, **runners)
        .rl_module(
            model_config=DefaultModelConfig(fcnet_hiddens=hiddens, fcnet_activation="tanh", vf_share_layers=False)
        )
    )


def sampling_rate(algo, steps_per_round: int, seconds: float) -> float:
    """Environment steps a second that its runners deliver to the driver, asked for as PPO's own training_step does."""

    def round_of_all() -> int:
        episodes = synchronous_parallel_sample(
            worker_set=algo.env_runner_group, max_env_steps=steps_per_round, _uses_new_env_runners=True
        )
        return sum(map(len, episodes))

    round_of_all()
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        steps += round_of_all()
    return steps / elapsed


def versions() -> dict:
    return {"ray": ray.__version__, "torch": torch.__version__}
