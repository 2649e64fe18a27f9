"""rejax: PQN on gymnax's CartPole-v1, sampling and training in one XLA program: environment steps a second.

4 epochs, 64x64 ReLU with layer normalisation, Adam. Compiling is not counted. Its evaluation is replaced by nothing.
"""

import argparse

from rejax import PQN
from rejax_common import create, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--fragment", type=int, default=32, help="steps of each environment an iteration")
    parser.add_argument("--minibatch", type=int, default=256)
    parser.add_argument("--iterations", type=int, default=100)
    arguments = parser.parse_args()
    batch = arguments.envs * arguments.fragment
    steps = arguments.iterations * batch
    algorithm = create(
        PQN,
        steps,
        num_envs=arguments.envs,
        num_steps=arguments.fragment,
        num_epochs=4,
        num_minibatches=batch // arguments.minibatch,
        max_grad_norm=10.0,
        learning_rate=2.5e-4,
        gamma=0.99,
        td_lambda=0.65,
    )
    report(algorithm, steps)


if __name__ == "__main__":
    main()
