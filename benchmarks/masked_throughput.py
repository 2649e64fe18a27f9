"""PPO with action masks on CartPole-v1, sampling and training, beside MaskablePPO: environment steps a second.

Eight environments x 128 steps an iteration in the driver, 4 epochs over them in minibatches of 256, two 64x64 tanh
towers. At every step one of each pair of actions is illegal, at random (rllib/env/tasks/masked.py).
"""

from measure import alternate, arguments, machine, peer_side, rows, table
from ppo_throughput import BATCH, ENVS, FRAGMENT, training_rate


def build():
    """The algorithm with its eight environments."""
    from rllib import PPOConfig

    return (
        PPOConfig()
        .environment("rllib.env.tasks.masked:MaskedCartPole")
        .rollouts(num_rollout_workers=0, num_envs_per_worker=ENVS, rollout_fragment_length=FRAGMENT)
        .training(train_batch_size=BATCH, sgd_minibatch_size=256, num_sgd_iter=4, model={"fcnet_hiddens": [64, 64]})
        .build()
    )


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--iterations", type=int, default=10, help="of each side a round; ours five times as many")
    options = parser.parse_args()
    print(machine())
    print(f"medians of {options.rounds} rounds of {options.iterations} iterations")
    more = ["--iterations", options.iterations]
    peer = None if options.no_peers else peer_side("env_steps_per_s", "sb3", "sb3_masked_throughput", *more)
    with build() as algo:
        training_rate(algo, 5)
        found = alternate(
            options.rounds, warm_up=0, ours=lambda: training_rate(algo, 5 * options.iterations), peer=peer
        )
    table(rows(found, "PPO with masks", "env steps/s", {"peer": ("MaskablePPO", ">= 3 peer")}))


if __name__ == "__main__":
    main()
