"""Sample Factory's synchronous PPO (or its APPO) on CartPole-v1: environment steps a second that went into training.

8 environments x 128 steps, 4 epochs, minibatches of 256, two 64x64 tanh towers, on the CPU.
"""

import argparse
import json
import logging
import tempfile
import time
from importlib.metadata import version

import gymnasium
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner


class Clock(AlgoObserver):
    """Notes the time after every training step."""

    def __init__(self):
        self.times: list[float] = []

    def on_training_step(self, runner, training_iteration_since_resume: int) -> None:
        self.times.append(time.perf_counter())


def make_env(name: str, cfg=None, env_config=None, render_mode=None):
    return gymnasium.make(name, render_mode=render_mode)


def settings(arguments: argparse.Namespace, folder: str) -> list[str]:
    batch = arguments.envs * arguments.fragment
    values = {
        "env": "CartPole-v1",
        "train_dir": folder,
        "experiment": "throughput",
        "device": "cpu",
        "async_rl": arguments.asynchronous,
        "num_workers": arguments.workers,
        "num_envs_per_worker": arguments.envs // arguments.workers,
        "worker_num_splits": 1,
        "rollout": arguments.fragment,
        "batch_size": arguments.minibatch,
        "num_batches_per_epoch": batch // arguments.minibatch,
        "num_epochs": arguments.epochs,
        "use_rnn": False,
        "recurrence": 1,
        "nonlinearity": "tanh",
        "actor_critic_share_weights": False,
        "normalize_input": False,
        "normalize_returns": False,
        "decorrelate_experience_max_seconds": 0,
        "train_for_env_steps": (arguments.warm_up + arguments.iterations) * batch,
    }
    given = [f"--{name}={value}" for name, value in values.items()]
    return [*given, "--encoder_mlp_layers", "64", "64"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--envs", type=int, default=8, help="environments in all")
    parser.add_argument("--fragment", type=int, default=128, help="steps of each environment an iteration")
    parser.add_argument("--minibatch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--warm-up", type=int, default=4, help="iterations before those that count")
    parser.add_argument("--asynchronous", action="store_true", help="sample while training (APPO)")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    register_env("CartPole-v1", make_env)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        argv = settings(arguments, folder)
        sf_parser, _ = parse_sf_args(argv=argv)
        _, runner = make_runner(parse_full_cfg(sf_parser, argv))
        runner.register_observer(clock)
        runner.init()
        runner.run()
    iterations = len(clock.times) - 1 - arguments.warm_up
    seconds = clock.times[-1] - clock.times[arguments.warm_up]
    result = {"env_steps_per_s": iterations * arguments.envs * arguments.fragment / seconds, "iterations": iterations}
    print(json.dumps(result | {name: version(name) for name in ("sample-factory", "torch")}))


if __name__ == "__main__":
    main()
