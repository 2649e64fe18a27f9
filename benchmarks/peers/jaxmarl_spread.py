"""JaxMARL's simple_spread with random actions, without a library that learns: steps of agents a second.

N environments of 3 agents in one XLA program, episodes of 25 steps, reset at their ends. Compiling is not counted.
"""

import argparse
import json
import time
from importlib import metadata

import jax
import jaxmarl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5000, help="of each environment")
    given = parser.parse_args()
    env = jaxmarl.make("MPE_simple_spread_v3")

    def step(carry, key):
        state, summed = carry
        to_act, to_step = jax.random.split(key)
        keys = jax.random.split(to_act, env.num_agents)
        actions = {
            agent: jax.random.randint(each, (given.envs,), 0, env.action_space(agent).n)
            for agent, each in zip(env.agents, keys)
        }
        _, state, rewards, _, _ = jax.vmap(env.step)(jax.random.split(to_step, given.envs), state, actions)
        return (state, summed + sum(reward.sum() for reward in rewards.values())), None

    def run(state, keys):
        return jax.lax.scan(step, (state, 0.0), keys)[0]

    key = jax.random.key(0)
    _, state = jax.vmap(env.reset)(jax.random.split(key, given.envs))
    keys = jax.random.split(key, given.steps)
    compiled = jax.jit(run).lower(state, keys).compile()
    started = time.perf_counter()
    jax.block_until_ready(compiled(state, keys))
    rate = given.steps * given.envs * env.num_agents / (time.perf_counter() - started)
    print(json.dumps({"agent_steps_per_s": rate, **{name: metadata.version(name) for name in ("jaxmarl", "jax")}}))


if __name__ == "__main__":
    main()
