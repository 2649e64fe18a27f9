"""rejax: what its scripts share. They run in its own environment (benchmarks/peers/setup rejax)."""

import json
import time
from importlib import metadata

import jax


def create(algorithm, steps: int, **settings):
    """An algorithm on gymnax's CartPole-v1 whose evaluation is replaced by nothing."""
    made = algorithm.create(
        env="CartPole-v1", total_timesteps=steps, eval_freq=steps, skip_initial_evaluation=True, **settings
    )
    return made.replace(eval_callback=lambda algorithm, state, rng: ())


def report(algorithm, steps: int) -> None:
    """Trains once and prints the rate as a JSON line; compiling is not counted."""
    started = time.perf_counter()
    train = jax.jit(algorithm.train).lower(jax.random.PRNGKey(0)).compile()
    compiled = time.perf_counter()
    jax.block_until_ready(train(jax.random.PRNGKey(0)))
    rate = steps / (time.perf_counter() - compiled)
    versions = {name: metadata.version(name) for name in ("rejax", "gymnax", "jax")}
    print(json.dumps({"env_steps_per_s": rate, "compiling_s": compiled - started, **versions}))
