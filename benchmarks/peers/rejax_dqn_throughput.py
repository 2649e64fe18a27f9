"""rejax: DQN on gymnax's CartPole-v1, sampling and training in one XLA program: environment steps a second.

Four environments in lockstep and one update of 64 rows after each step of all four, since it has no other way of an
update every 4 steps; a 64x64 ReLU network, a replay of 50,000 rows drawn uniformly. Compiling is not counted. Its
evaluation is replaced by nothing.
"""

import argparse

from rejax import DQN
from rejax_common import create, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    arguments = parser.parse_args()
    algorithm = create(
        DQN,
        arguments.steps,
        agent_kwargs={"activation": "relu"},
        num_envs=4,
        num_epochs=1,
        batch_size=64,
        buffer_size=50_000,
        fill_buffer=1000,
        target_update_freq=500,
        polyak=0.0,
        max_grad_norm=40.0,
        learning_rate=5e-4,
        ddqn=False,
    )
    report(algorithm, arguments.steps)


if __name__ == "__main__":
    main()
