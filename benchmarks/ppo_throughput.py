"""PPO on CartPole-v1, sampling and training: environment steps a second.

Eight environments x 128 steps an iteration, 4 epochs over them in minibatches of 256, two 64x64 tanh towers; the
environments in the driver, in one worker or spread over two. The peers do the same with the same numbers; SB3 does it
once more with EnvPool's CartPole, which steps all environments at once in its threads.
"""

import itertools
import time

from measure import alternate, arguments, machine, peer_side, rows, table

ENVS = 8
FRAGMENT = 128
BATCH = ENVS * FRAGMENT


def build(workers: int, learners: int = 0):
    """The algorithm with its eight environments over this number of workers, and this number of learners."""
    from rllib import PPOConfig

    envs = ENVS // max(workers, 1)
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=envs, rollout_fragment_length=FRAGMENT)
        .training(train_batch_size=BATCH, sgd_minibatch_size=256, num_sgd_iter=4, model={"fcnet_hiddens": [64, 64]})
        .learners(num_learners=learners)
        .build()
    )


def training_rate(algo, iterations: int) -> float:
    """Steps a second, sampled and trained on."""
    started = time.perf_counter()
    for _ in range(iterations):
        algo.train()
    return iterations * algo.config.train_batch_size / (time.perf_counter() - started)


def sides(iterations: int, peers: bool) -> dict:
    """What each of the peers does, by name."""
    if not peers:
        return {}

    def side(name: str, *more, script: str = "{}_ppo_throughput"):
        return peer_side("env_steps_per_s", name, script.format(name), "--iterations", iterations, *more)

    return {
        "sb3": side("sb3"),
        "envpool": side("envpool", script="envpool_sb3_ppo_throughput"),
        "ray": side("ray"),
        "ray_workers": side("ray", "--workers", 2),
        "sample_factory": side("sample_factory"),
    }


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2], help="how many, one row each")
    parser.add_argument("--learners", type=int, nargs="+", default=[0, 2], help="processes that learn; 0: this one")
    parser.add_argument("--iterations", type=int, default=20, help="of each side in each round; ours ten times as many")
    options = parser.parse_args()
    print(machine())
    print(f"medians of {options.rounds} rounds of {options.iterations} iterations")
    shapes = itertools.product(options.workers, options.learners)
    algos = {
        f"workers_{workers}" + (f"_learners_{learners}" if learners else ""): build(workers, learners)
        for workers, learners in shapes
    }
    try:
        for algo in algos.values():
            training_rate(algo, 5)
        ours = {
            name: lambda algo=algo: training_rate(algo, 10 * options.iterations) for name, algo in algos.items()
        }
        found = alternate(options.rounds, warm_up=0, **ours, **sides(options.iterations, not options.no_peers))
    finally:
        for algo in algos.values():
            algo.stop()
    labels = {
        "sb3": ("SB3", ">= 5 peer"),
        "envpool": ("SB3 + EnvPool", ""),
        "ray": ("RLlib", ""),
        "ray_workers": ("RLlib 2 x 4", ""),
        "sample_factory": ("Sample Factory", ""),
    }
    of_two = {**labels, "sb3": ("SB3", ">= 7 peer")}
    made = [
        rows(found, name.replace("_", " "), "env steps/s", of_two if name.endswith("learners_2") else labels, ours=name)
        for name in algos
    ]
    table(list(itertools.chain(*made)))


if __name__ == "__main__":
    main()
