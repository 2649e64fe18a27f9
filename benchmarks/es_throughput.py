"""ES on CartPole-v1, playing and updating: environment steps a second.

    python benchmarks/es_throughput.py --rounds 3

50 episodes an update (25 antithetic pairs), 64x64 tanh, centred ranks and Adam, observations normalised; the episodes
in the driver, in one worker or in two, each with 16 environments in lockstep. Only steps of perturbed episodes count,
on all sides. Weights stand almost still (a tiny step size), so that episodes are of one length throughout, and on all
sides alike.

EvoTorch's PGPE with a fixed deviation makes the same updates, with its episodes in two of Ray's actors and, as another
row, in lockstep in its process. evosax's environments, acting and updates are one XLA program, without the seconds in
which that is compiled. It steps every environment 500 times, also after a pole has fallen, so there are two figures:
the steps that counted, and all of them, which would count if no pole fell. Ray's last release that has ES, 2.6.3, takes
part where it is set up.
"""

import functools
import itertools
import time

from measure import alternate, arguments, machine, peer, peer_side, rows, table

EPISODES = 50


def build(workers: int, envs: int):
    """The algorithm with so many workers and environments in each."""
    from rllib import ESConfig

    return (
        ESConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=envs)
        .training(
            episodes_per_batch=EPISODES,
            train_batch_size=EPISODES,
            stepsize=1e-6,
            noise_size=2_500_000,
            model={"fcnet_hiddens": [64, 64]},
        )
        .build()
    )


def training_rate(algo, iterations: int) -> float:
    """Steps of perturbed episodes a second."""
    before, started = algo.metrics.counters["num_env_steps_trained"], time.perf_counter()
    for _ in range(iterations):
        algo.train()
    return (algo.metrics.counters["num_env_steps_trained"] - before) / (time.perf_counter() - started)


def sides(options) -> dict:
    """What each of the peers does, by name."""
    found = {}

    def evosax(key: str) -> float | None:
        if key == "env_steps_per_s":
            script = "evosax", "evosax_es_throughput"
            found.update(peer(*script, "--iterations", 10 * options.iterations) or {})
        return found.get(key)

    def of_ten(name: str, *more):
        script = "env_steps_per_s", name, f"{name}_es_throughput"
        return peer_side(*script, "--iterations", options.iterations, *more)

    return {
        "evosax": functools.partial(evosax, "env_steps_per_s"),
        "evosax_all": functools.partial(evosax, "all_steps_per_s"),  # of the run just made
        "evotorch": of_ten("evotorch"),
        "evotorch_lockstep": of_ten("evotorch", "--workers", 0),
        "ray26": of_ten("ray26"),
    }


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2], help="how many, one row each")
    parser.add_argument("--envs", type=int, default=16, help="environments of each worker")
    parser.add_argument("--iterations", type=int, default=10, help="of each side in each round; ours ten times as many")
    options = parser.parse_args()
    print(machine())
    print(f"medians of {options.rounds} rounds of {options.iterations} iterations")
    algos = {f"workers_{workers}": build(workers, options.envs) for workers in options.workers}
    peers = {} if options.no_peers else sides(options)
    try:
        for algo in algos.values():
            training_rate(algo, 5)
        ours = {name: lambda algo=algo: training_rate(algo, 10 * options.iterations) for name, algo in algos.items()}
        found = alternate(options.rounds, warm_up=0, **ours, **peers)
    finally:
        for algo in algos.values():
            algo.stop()
    labels = {
        "evosax": ("evosax", ""),
        "evosax_all": ("evosax, all steps", ""),
        "evotorch": ("EvoTorch, 2 actors", ""),
        "evotorch_lockstep": ("EvoTorch, lockstep", ""),
        "ray26": ("RLlib 2.6.3", ">= 8 peer"),
    }
    made = [rows(found, name.replace("_", " "), "env steps/s", labels, ours=name) for name in algos]
    table(list(itertools.chain(*made)))


if __name__ == "__main__":
    main()
