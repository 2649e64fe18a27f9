"""rejax: PPO on gymnax's CartPole-v1, sampling and training in one XLA program: environment steps a second.

4 epochs, two 64x64 tanh towers. Compiling is not counted. Its evaluation is replaced by nothing.
"""

import argparse

from rejax import PPO
from rejax_common import create, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--fragment", type=int, default=128, help="steps of each environment an iteration")
    parser.add_argument("--minibatch", type=int, default=256)
    parser.add_argument("--iterations", type=int, default=100)
    arguments = parser.parse_args()
    batch = arguments.envs * arguments.fragment
    steps = arguments.iterations * batch
    algorithm = create(
        PPO,
        steps,
        agent_kwargs={"activation": "tanh"},
        num_envs=arguments.envs,
        num_steps=arguments.fragment,
        num_epochs=4,
        num_minibatches=batch // arguments.minibatch,
        max_grad_norm=0.5,
    )
    report(algorithm, steps)


if __name__ == "__main__":
    main()
