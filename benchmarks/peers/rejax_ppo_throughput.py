"""rejax: PPO on gymnax's CartPole-v1, sampling and training in one XLA program: environment steps a second.

4 epochs, two 64x64 tanh towers. Compiling is not counted. Its evaluation is replaced by nothing.
"""

import argparse
import json
import time
from importlib import metadata

import jax
from rejax import PPO


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--fragment", type=int, default=128, help="steps of each environment an iteration")
    parser.add_argument("--minibatch", type=int, default=256)
    parser.add_argument("--iterations", type=int, default=100)
    arguments = parser.parse_args()
    batch = arguments.envs * arguments.fragment
    steps = arguments.iterations * batch
    algorithm = PPO.create(
        env="CartPole-v1",
        agent_kwargs={"activation": "tanh"},
        num_envs=arguments.envs,
        num_steps=arguments.fragment,
        num_epochs=4,
        num_minibatches=batch // arguments.minibatch,
        max_grad_norm=0.5,
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
    ).replace(eval_callback=lambda algorithm, state, rng: ())
    started = time.perf_counter()
    train = jax.jit(algorithm.train).lower(jax.random.PRNGKey(0)).compile()
    compiled = time.perf_counter()
    jax.block_until_ready(train(jax.random.PRNGKey(0)))
    rate = steps / (time.perf_counter() - compiled)
    versions = {name: metadata.version(name) for name in ("rejax", "gymnax", "jax")}
    print(json.dumps({"env_steps_per_s": rate, "compiling_s": compiled - started, **versions}))


if __name__ == "__main__":
    main()
