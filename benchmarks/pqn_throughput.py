"""PQN on CartPole-v1's own vector implementation, sampling and training: environment steps a second.

    python benchmarks/pqn_throughput.py --rounds 3

4 epochs, one 64x64 ReLU network with layer normalisation, Adam, in two sizes: 64 environments x 32 steps with
minibatches of 256, and 4 x 128 with 128. Ours in this process alone, and with two rollout workers that sample the next
batch while it learns. The peer is rejax, whose environments, acting and updates are one XLA program, without the
seconds in which that is compiled. Beside them PPO of the same sizes, with two 64x64 tanh towers.
"""

import functools
import itertools

from dqn_throughput import training_rate
from measure import alternate, arguments, machine, peer_side, rows, table

SIZES = {"64 x 32": (64, 32, 256), "4 x 128": (4, 128, 128)}
EPOCHS = 4


def of_size(config, envs: int, fragment: int, minibatch: int, **training):
    """PQN or PPO of this size, on the environment's vector version."""
    return (
        config.environment("CartPole-v1")
        .rollouts(
            num_envs_per_worker=envs // max(config.num_rollout_workers, 1),
            rollout_fragment_length=fragment,
            gym_env_vectorize_mode="vector_entry_point",
        )
        .training(train_batch_size=envs * fragment, sgd_minibatch_size=minibatch, num_sgd_iter=EPOCHS, **training)
        .build()
    )


def build_pqn(workers: int, *size: int):
    """PQN with its environments over this number of workers, which sample ahead."""
    from rllib import PQNConfig

    config = PQNConfig().rollouts(num_rollout_workers=workers, sample_async=workers > 0)
    config.reporting(min_sample_timesteps_per_iteration=0)
    model = {"fcnet_hiddens": [64, 64], "fcnet_activation": "relu", "layer_norm": True}
    return of_size(config, *size, opt_type="adam", model=model)


def build_ppo(*size: int):
    """PPO in this process."""
    from rllib import PPOConfig

    return of_size(PPOConfig().rollouts(num_rollout_workers=0), *size, model={"fcnet_hiddens": [64, 64]})


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--steps", type=int, default=500_000, help="of each side in each round")
    options = parser.parse_args()
    print(machine())
    made = []
    for name, size in SIZES.items():
        envs, fragment, minibatch = size
        iterations = options.steps // (envs * fragment)
        algos = {"one process": build_pqn(0, *size), "2 workers": build_pqn(2, *size), "ppo": build_ppo(*size)}
        peers = {}
        if not options.no_peers:
            sizes = ("--envs", envs, "--fragment", fragment, "--minibatch", minibatch, "--iterations", iterations)
            peers["rejax"] = peer_side("env_steps_per_s", "rejax", "rejax_pqn_throughput", *sizes)
        try:
            for algo in algos.values():
                training_rate(algo, 5)
            ours = {side: functools.partial(training_rate, algo, iterations) for side, algo in algos.items()}
            found = alternate(options.rounds, warm_up=0, **ours, **peers)
        finally:
            for algo in algos.values():
                algo.stop()
        labels = {"rejax": ("rejax", ""), "ppo": ("PPO, one process", "")}
        sides = ("one process", "2 workers")
        made += itertools.chain(*(rows(found, f"{name}, {side}", "env steps/s", labels, ours=side) for side in sides))
    table(made)


if __name__ == "__main__":
    main()
