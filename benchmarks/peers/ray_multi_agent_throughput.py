"""Ray RLlib PPO on MultiAgentCartPole, sampling and training: steps of agents a second.

8 environments of 2 agents with own policies x 128 steps, 4 epochs, minibatches of 256, two 64x64 tanh towers.
"""

import argparse
import json
import time

from ray.rllib.examples.envs.classes.multi_agent import MultiAgentCartPole
from ray_common import ppo_config, start, versions


def agent_steps(result: dict) -> int:
    """Steps of all agents that an iteration has sampled."""
    return sum(result["env_runners"]["num_agent_steps_sampled"].values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--fragment", type=int, default=128, help="steps of each environment an iteration")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=2, help="iterations before those that count")
    arguments = parser.parse_args()
    start(num_cpus=1)
    algo = (
        ppo_config(MultiAgentCartPole, 0, arguments.envs, [64, 64])
        .environment(env_config={"num_agents": 2})
        .multi_agent(policies={"0", "1"}, policy_mapping_fn=lambda agent, *_, **__: str(agent))
        .training(train_batch_size_per_learner=arguments.envs * arguments.fragment, minibatch_size=256, num_epochs=4)
        .build_algo()
    )
    for _ in range(arguments.warm_up):
        algo.train()
    started = time.perf_counter()
    count = sum(agent_steps(algo.train()) for _ in range(arguments.iterations))
    result = {"agent_steps_per_s": count / (time.perf_counter() - started), "iterations": arguments.iterations}
    print(json.dumps(result | versions()))


if __name__ == "__main__":
    main()
