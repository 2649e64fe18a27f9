"""Stable-Baselines3 PPO with SuperSuit on simple_spread_v3, sampling and training: steps of agents a second.

8 environments of 3 agents that share a policy x 128 steps, 4 epochs, minibatches of 256, two 64x64 tanh towers.
"""

import argparse
import json
from importlib import metadata

import supersuit
import torch
from mpe2 import simple_spread_v3
from sb3_common import Clock, versions
from stable_baselines3 import PPO


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--fragment", type=int, default=128, help="steps of each environment an iteration")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=2, help="iterations before those that count")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    agents = supersuit.pettingzoo_env_to_vec_env_v1(simple_spread_v3.parallel_env())
    envs = supersuit.concat_vec_envs_v1(agents, arguments.envs, num_cpus=0, base_class="stable_baselines3")
    # A seed is refused: SuperSuit's environments have no method for it.
    model = PPO("MlpPolicy", envs, n_steps=arguments.fragment, batch_size=256, n_epochs=4, device="cpu", verbose=0)
    batch, clock = envs.num_envs * arguments.fragment, Clock()
    # One iteration more than is counted: the last one has no rollout after it to say when it ended.
    model.learn((arguments.warm_up + arguments.iterations + 1) * batch, callback=clock)
    seconds = clock.times[-1] - clock.times[arguments.warm_up]
    iterations = len(clock.times) - 1 - arguments.warm_up
    result = {"agent_steps_per_s": iterations * batch / seconds, "iterations": iterations, **versions()}
    print(json.dumps(result | {"supersuit": metadata.version("supersuit")}))


if __name__ == "__main__":
    main()
