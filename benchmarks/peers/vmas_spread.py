"""VMAS's simple_spread with random actions, without a library that learns: steps of agents a second (setup benchmarl).

N environments of 3 agents in tensors on the CPU, with discrete actions, episodes of 25 steps, reset at their ends.
"""

import argparse
import json
import time
from importlib import metadata

import torch
from vmas import make_env

EPISODE, AGENTS = 25, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=500, help="of each environment")
    given = parser.parse_args()
    torch.set_num_threads(1)
    env = make_env(
        "simple_spread", num_envs=given.envs, device="cpu", continuous_actions=False, n_agents=AGENTS, seed=0
    )

    def play(steps: int) -> None:
        for step in range(steps):
            if step % EPISODE == 0:
                env.reset()
            env.step([torch.randint(5, (given.envs, 1)) for _ in range(AGENTS)])

    play(EPISODE)
    started = time.perf_counter()
    play(given.steps)
    rate = given.steps * given.envs * AGENTS / (time.perf_counter() - started)
    print(json.dumps({"agent_steps_per_s": rate, **{name: metadata.version(name) for name in ("vmas", "torch")}}))


if __name__ == "__main__":
    main()
