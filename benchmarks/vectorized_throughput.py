"""PPO on CartPole-v1's own vector implementation, sampling and training: environment steps a second.

4 epochs, two 64x64 tanh towers, in two sizes: 64 environments x 128 steps with minibatches of 1,024, and 8 x 128 with
256. Ours in this process alone, with two learners, and with two rollout workers as well. The peers: rejax, whose
environments, acting and updates are one XLA program (without the seconds in which that is compiled), and SBX's PPO.
"""

import functools
import itertools

from measure import alternate, arguments, machine, peer_side, rows, table
from ppo_throughput import training_rate

FRAGMENT = 128
SIZES = {"64 x 128": (64, 1024), "8 x 128": (8, 256)}
SHAPES = {"in one process": (0, 0), "2 learners": (0, 2), "2 workers, 2 learners": (2, 2)}


def build(envs: int, minibatch: int, workers: int, learners: int):
    """The algorithm with its environments over this number of workers."""
    from rllib import PPOConfig

    return (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(
            num_rollout_workers=workers,
            num_envs_per_worker=envs // max(workers, 1),
            rollout_fragment_length=FRAGMENT,
            gym_env_vectorize_mode="vector_entry_point",
        )
        .training(
            train_batch_size=envs * FRAGMENT,
            sgd_minibatch_size=minibatch,
            num_sgd_iter=4,
            model={"fcnet_hiddens": [64, 64]},
        )
        .learners(num_learners=learners)
        .build()
    )


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--steps", type=int, default=1_000_000, help="of each side in each round")
    options = parser.parse_args()
    print(machine())
    made = []
    for size, (envs, minibatch) in SIZES.items():
        iterations = options.steps // (envs * FRAGMENT)
        algos = {name: build(envs, minibatch, *shape) for name, shape in SHAPES.items()}
        sizes = ("--envs", envs, "--fragment", FRAGMENT, "--minibatch", minibatch)
        peers = {}
        if not options.no_peers:
            rejax = peer_side(
                "env_steps_per_s", "rejax", "rejax_ppo_throughput", *sizes, "--iterations", iterations
            )
            sbx = peer_side(
                "env_steps_per_s", "sbx", "sbx_ppo_throughput", *sizes, "--iterations", max(iterations // 20, 5)
            )
            peers = {"rejax": rejax, "sbx": sbx}
        try:
            for algo in algos.values():
                training_rate(algo, 5)
            ours = {name: functools.partial(training_rate, algo, iterations) for name, algo in algos.items()}
            found = alternate(options.rounds, warm_up=0, **ours, **peers)
        finally:
            for algo in algos.values():
                algo.stop()
        labels = {"rejax": ("rejax", ">= 1.05 peer" if size == "64 x 128" else ""), "sbx": ("SBX", "")}
        made += itertools.chain(
            *(rows(found, f"{size}, {name}", "env steps/s", labels, ours=name) for name in SHAPES)
        )
    table(made)


if __name__ == "__main__":
    main()
