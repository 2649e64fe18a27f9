"""SBX, which is Stable-Baselines3 in JAX: PPO on CartPole-v1, sampling and training: environment steps a second."""

import argparse
import json
from importlib import metadata

from sb3_common import Clock
from sbx import PPO
from stable_baselines3.common.env_util import make_vec_env


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--fragment", type=int, default=128, help="steps of each environment an iteration")
    parser.add_argument("--minibatch", type=int, default=256)
    parser.add_argument("--iterations", type=int, default=20)
    arguments = parser.parse_args()
    batch = arguments.envs * arguments.fragment
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", arguments.envs, seed=0),
        n_steps=arguments.fragment,
        batch_size=arguments.minibatch,
        n_epochs=4,
        seed=0,
    )
    clock = Clock()
    # Two iterations in which it compiles; the last one has no rollout after it to say when it ended.
    model.learn((arguments.iterations + 3) * batch, callback=clock)
    rate = (len(clock.times) - 3) * batch / (clock.times[-1] - clock.times[2])
    print(json.dumps({"env_steps_per_s": rate, "sbx": metadata.version("sbx-rl"), "jax": metadata.version("jax")}))


if __name__ == "__main__":
    main()
