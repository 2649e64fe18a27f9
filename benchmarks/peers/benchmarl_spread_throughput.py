"""BenchMARL's IPPO on VMAS's simple_spread, sampling and training: steps of agents a second.

8 environments of 3 agents that share a policy x 128 steps, episodes of 25, discrete actions, 4 epochs, two 64x64 tanh
towers. Its minibatches are counted in steps of environments: 85, of 3 agents each, are the others' 256.
"""

import argparse
import json
import tempfile
import time
from importlib import metadata

import torch
from benchmarl.algorithms import IppoConfig
from benchmarl.environments import VmasTask
from benchmarl.experiment import Callback, Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig

AGENTS = 3


class Clock(Callback):
    """Notes when each batch has been collected."""

    def __init__(self):
        super().__init__()
        self.times: list[float] = []

    def on_batch_collected(self, batch) -> None:
        self.times.append(time.perf_counter())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--fragment", type=int, default=128, help="steps of each environment an iteration")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=2, help="iterations before those that count")
    given = parser.parse_args()
    torch.set_num_threads(1)
    batch, clock = given.envs * given.fragment, Clock()
    config = ExperimentConfig.get_from_yaml()
    config.on_policy_collected_frames_per_batch, config.on_policy_n_envs_per_worker = batch, given.envs
    config.on_policy_n_minibatch_iters, config.on_policy_minibatch_size = 4, 256 // AGENTS
    # One iteration more than is counted: it says when the last one ended.
    config.max_n_iters, config.max_n_frames = given.warm_up + given.iterations + 1, None
    config.share_policy_params, config.prefer_continuous_actions = True, False
    config.evaluation, config.render, config.create_json, config.loggers = False, False, False, []
    task = VmasTask.SIMPLE_SPREAD.get_from_yaml()
    task.config |= {"max_steps": 25, "n_agents": AGENTS}
    model = MlpConfig(num_cells=[64, 64], layer_class=torch.nn.Linear, activation_class=torch.nn.Tanh)
    with tempfile.TemporaryDirectory() as folder:
        config.save_folder = folder
        Experiment(
            task=task, algorithm_config=IppoConfig.get_from_yaml(), model_config=model, critic_model_config=model,
            seed=0, config=config, callbacks=[clock],
        ).run()  # fmt: skip
    seconds = clock.times[-1] - clock.times[given.warm_up]
    iterations = len(clock.times) - 1 - given.warm_up
    result = {"agent_steps_per_s": iterations * batch * AGENTS / seconds, "iterations": iterations}
    print(json.dumps(result | {name: metadata.version(name) for name in ("benchmarl", "vmas", "torchrl", "torch")}))


if __name__ == "__main__":
    main()
