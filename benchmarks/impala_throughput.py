"""IMPALA and APPO on CartPole-v1 with two workers, sampling and training at once: environment steps a second.

Fragments of 50 steps, train batches of 500, one gradient step on each, two 64x64 tanh towers: RLlib's settings for both
algorithms. `--envs` environments a worker, the same for all. Sample Factory's APPO makes a batch of one rollout of each
environment, so its rollouts are as long as that takes.
"""

import itertools
import time

from measure import alternate, arguments, machine, peer_side, rows, table

WORKERS = 2
FRAGMENT = 50
BATCH = 500


def build(name: str, envs: int):
    """IMPALA or APPO with so many environments a worker."""
    from rllib.algorithms.base.registry import get_algorithm_config

    return (
        get_algorithm_config(name)
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=WORKERS, num_envs_per_worker=envs, rollout_fragment_length=FRAGMENT)
        .training(train_batch_size=BATCH, model={"fcnet_hiddens": [64, 64], "vf_share_layers": False})
        .reporting(min_time_s_per_iteration=0.5)
        .build()
    )


def training_rate(algo, seconds: float) -> float:
    """Steps a second that were sampled and trained on."""
    trained = algo.metrics.counters["num_env_steps_trained"]
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        result = algo.train()
    return (result["num_env_steps_trained"] - trained) / elapsed


def sides(options) -> dict:
    """What each of the peers does, by name."""
    if options.no_peers:
        return {}
    envs = WORKERS * options.envs
    rollout = BATCH // envs
    return {
        **{
            f"ray_{name.lower()}": peer_side(
                "env_steps_per_s",
                "ray",
                "ray_impala_throughput",
                *("--algorithm", name, "--workers", WORKERS, "--envs", envs, "--fragment", FRAGMENT),
                *("--batch", BATCH, "--seconds", options.peer_seconds),
            )
            for name in ("IMPALA", "APPO")
        },
        "sample_factory": peer_side(
            "env_steps_per_s",
            "sample_factory",
            "sample_factory_ppo_throughput",
            *("--workers", WORKERS, "--envs", envs, "--fragment", rollout, "--minibatch", rollout * envs),
            *("--epochs", 1, "--asynchronous", "--iterations", options.iterations),
        ),
    }


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--envs", type=int, default=1, help="environments of each worker")
    parser.add_argument("--seconds", type=float, default=10, help="of each of ours in each round")
    parser.add_argument("--peer-seconds", type=float, default=20, help="of each of RLlib's in each round")
    parser.add_argument("--iterations", type=int, default=200, help="of Sample Factory in each round")
    options = parser.parse_args()
    print(machine())
    print(f"medians of {options.rounds} rounds; {WORKERS} workers x {options.envs} environments")

    def ours(name: str):
        def measure() -> float:
            # One after the other, each alone on the machine: two that sample at once would share its cores.
            with build(name, options.envs) as algo:
                training_rate(algo, 1)
                return training_rate(algo, options.seconds)

        return measure

    made = {"impala": ours("IMPALA"), "appo": ours("APPO")}
    found = alternate(options.rounds, warm_up=0, **made, **sides(options))
    labels = {
        "ray_impala": ("RLlib IMPALA", ">= 8 peer"),
        "ray_appo": ("RLlib APPO", ""),
        "sample_factory": ("Sample Factory APPO", ">= 5 peer"),
    }
    table(list(itertools.chain(*(rows(found, name.upper(), "env steps/s", labels, ours=name) for name in made))))


if __name__ == "__main__":
    main()
