"""IMPALA and APPO on CartPole-v1 with two workers, sampling and training at once: environment steps a second.

    python benchmarks/impala_throughput.py --rounds 3

Fragments of 50 steps, train batches of 500, one gradient step on each, two 64x64 tanh towers: RLlib's settings for both
algorithms. `--envs` environments a worker, the same for all. The limit is sampling alone: the same workers deliver the
same fragments, which are thrown away. Beside it PPO, which does the same work in turns: each round of its workers is a
batch of 500, on which it makes one gradient step; and bare environments in as many processes. Sample Factory's APPO
makes a batch of one rollout of each environment, so its rollouts are as long as that takes.
"""

import itertools
import time

from measure import Row, alternate, arguments, machine, peer_side, rows, table, together
from sampling import bare, build_asynchronous, fragment_rate, resting

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


def build_ppo(envs: int):
    """PPO with this number of environments a worker and one gradient step on each batch."""
    from rllib import PPOConfig

    return (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(
            num_rollout_workers=WORKERS, num_envs_per_worker=envs, rollout_fragment_length=BATCH // WORKERS // envs
        )
        .training(
            train_batch_size=BATCH,
            sgd_minibatch_size=BATCH,
            num_sgd_iter=1,
            model={"fcnet_hiddens": [64, 64], "vf_share_layers": False},
        )
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
    script = "env_steps_per_s", "sample_factory", "sample_factory_ppo_throughput"
    sizes = ("--workers", WORKERS, "--envs", envs, "--fragment", rollout, "--minibatch", rollout * envs)
    return {
        "sample_factory": peer_side(
            *script, *sizes, "--epochs", 1, "--asynchronous", "--iterations", options.iterations
        )
    }


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--envs", type=int, default=1, help="environments of each worker")
    parser.add_argument("--seconds", type=float, default=10, help="of each of ours in each round")
    parser.add_argument("--iterations", type=int, default=200, help="of Sample Factory in each round")
    options = parser.parse_args()
    print(machine())
    print(f"medians of {options.rounds} rounds; {WORKERS} workers x {options.envs} environments")

    # One after the other, each alone on the machine: two that sample at once would share its cores.
    def trained(build, *given) -> float:
        with build(*given, options.envs) as algo:
            training_rate(algo, 1)
            return training_rate(algo, options.seconds)

    def sampled() -> float:
        with build_asynchronous(WORKERS, options.envs, FRAGMENT, BATCH) as algo:
            fragment_rate(algo, 1)
            return resting(algo, fragment_rate(algo, options.seconds))

    made = {
        "impala": lambda: trained(build, "IMPALA"),
        "appo": lambda: trained(build, "APPO"),
        "ppo": lambda: trained(build_ppo),
    }
    bare_environments = lambda: sum(together(bare, WORKERS, options.seconds, options.envs))  # noqa: E731
    found = alternate(options.rounds, warm_up=0, **made, limit=sampled, bare=bare_environments, **sides(options))
    labels = {
        "ppo": ("PPO", ""),
        "bare": ("bare environments", ""),
        "sample_factory": ("Sample Factory APPO", ">= 5 peer"),
    }
    asynchronous = [rows(found, name.upper(), "env steps/s", labels, ours=name) for name in ("impala", "appo")]
    table([*itertools.chain(*asynchronous), Row.of(found, "bare", "PPO", "env steps/s", "ppo", peer_name="bare")])


if __name__ == "__main__":
    main()
