"""evosax: OpenAI-ES on gymnax's CartPole-v1, playing and updating in one XLA program: environment steps a second.

50 episodes an update (25 antithetic pairs), 64x64 tanh. Each member of a population is stepped 500 times, whether its
pole has fallen or not: `env_steps_per_s` counts the steps before the fall, `all_steps_per_s` every one. Compiling is
not counted.
"""

import argparse
import json
import time
from functools import partial
from importlib import metadata

import jax
import jax.numpy as jnp
import optax
from evosax.algorithms import Open_ES
from evosax.problems.networks import MLP
from evosax.problems.rl.gymnax import GymnaxProblem

NOISE, STEP_SIZE = 0.02, 1e-6


def most_probable(logits: jax.Array, key: jax.Array | None = None) -> jax.Array:
    return jnp.argmax(logits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=50, help="per update")
    parser.add_argument("--iterations", type=int, default=100)
    arguments = parser.parse_args()
    problem = GymnaxProblem("CartPole-v1", MLP((64, 64, 2), output_fn=most_probable))
    key = jax.random.key(0)
    solution = problem.sample(key)
    strategy = Open_ES(
        arguments.episodes, solution, optimizer=optax.adam(STEP_SIZE), std_schedule=optax.constant_schedule(NOISE)
    )
    params = strategy.default_params

    def update(carry, key):
        state, problem_state = carry
        to_ask, to_play, to_tell = jax.random.split(key, 3)
        population, state = strategy.ask(to_ask, state, params)
        returns, problem_state, _ = problem.eval(to_play, population, problem_state)
        state, _ = strategy.tell(to_tell, population, -returns, state, params)  # it minimises
        return (state, problem_state), returns.sum()

    run = partial(jax.lax.scan, update)
    carry = strategy.init(key, solution, params), problem.init(key)
    keys = jax.random.split(key, arguments.iterations)
    compiled = jax.jit(run).lower(carry, keys).compile()
    started = time.perf_counter()
    _, returns = jax.block_until_ready(compiled(carry, keys))
    seconds = time.perf_counter() - started
    every_step = arguments.iterations * arguments.episodes * problem.episode_length
    rates = {"env_steps_per_s": float(returns.sum()) / seconds, "all_steps_per_s": every_step / seconds}
    print(json.dumps({**rates, **{name: metadata.version(name) for name in ("evosax", "gymnax", "jax")}}))


if __name__ == "__main__":
    main()
