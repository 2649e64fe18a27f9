"""Environment steps a second that a policy collects on CartPole-v1, training left out.

Ours are samples as PPO gets them: acted by a 64x64 policy, with advantages, delivered to the driver. The limit is the
bare environment (unwrapped, actions drawn beforehand) stepped by as many processes. The peers deliver as much.

Asynchronous fragments are those of IMPALA: the workers have two requests each in flight, and the driver takes in what
comes and throws it away. New weights go out as often as a learner makes them that takes train batches of 512 steps.
"""

import time
from pathlib import Path

from measure import Row, alternate, arguments, machine, peer_side, rows, table, together

ENVS = 8
FRAGMENT = 128


def bare(seconds: float, count: int = ENVS):
    """Steps a second of bare environments in this process; see measure.together."""
    import gymnasium
    import numpy as np

    envs = [gymnasium.make("CartPole-v1").unwrapped for _ in range(count)]
    actions = np.random.default_rng(0).integers(2, size=(1000, count)).tolist()
    for env in envs:
        env.reset()
    yield
    rows, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        for action_row in actions[:100]:
            for env, action in zip(envs, action_row):
                _, _, terminated, _, _ = env.step(action)
                if terminated:
                    env.reset()
        rows += 100
    yield rows * count / elapsed


def build(workers: int):
    """PPO with this number of workers; a fragment of each is one `sample`."""
    from rllib import PPOConfig

    return (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=ENVS, rollout_fragment_length=FRAGMENT)
        .training(train_batch_size=max(workers, 1) * ENVS * FRAGMENT, model={"fcnet_hiddens": [64, 64]})
        .build()
    )


def sampling_rate(algo, seconds: float) -> float:
    """Steps a second that reach the driver."""
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        steps += algo.sample(algo.config.train_batch_size).count
    return steps / elapsed


def build_asynchronous(workers: int, envs: int = ENVS, fragment: int = FRAGMENT // 2, batch: int | None = None):
    """IMPALA with this number of workers and environments in each; its learner does nothing."""
    from rllib import IMPALAConfig

    return (
        IMPALAConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=envs, rollout_fragment_length=fragment)
        .training(train_batch_size=batch or envs * fragment, model={"fcnet_hiddens": [64, 64]})
        .build()
    )


def fragment_rate(algo, seconds: float) -> float:
    """Steps a second of fragments that reach the driver, one train batch after another."""
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        counts = [fragment.env_steps for fragment in algo.trainee.next_fragments()]
        steps += sum(count() if callable(count) else count for count in counts)  # a method, in earlier versions
        algo.metrics.counters["num_updates"] += 1  # the next requests carry new weights
    return steps / elapsed


def private_mib(worker) -> float:
    """Memory that a worker's process shares with no other (USS)."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def measured(workers: int, seconds: float, rounds: int, **peers) -> tuple:
    """Rounds of ours, the limit and the peers; the largest private memory of a worker afterwards, None without."""
    processes = max(workers, 1)
    algo = build(workers)
    fragments = build_asynchronous(workers) if workers else None
    try:
        sampling_rate(algo, 1)
        if fragments:
            fragment_rate(fragments, 1)
        found = alternate(
            rounds,
            warm_up=0,
            ours=lambda: sampling_rate(algo, seconds),
            asynchronous=fragments and (lambda: resting(fragments, fragment_rate(fragments, seconds))),
            limit=lambda: sum(together(bare, processes, seconds)),
            **peers,
        )
        memory = max(algo.workers.foreach_worker(private_mib)) if workers else None
    finally:
        algo.stop()
        if fragments:
            fragments.stop()
    return found, memory


def resting(algo, rate: float) -> float:
    """The rate, when all that was asked for has been answered: the other sides have the cores to themselves."""
    while algo.workers.fleet.num_in_flight:
        algo.workers.fleet.take(10)
    return rate


def sides(options) -> dict:
    """What each of the peers does, by name."""
    sizes = ("--seconds", options.seconds, "--envs", ENVS, "--fragment", FRAGMENT)
    return {
        "ray": peer_side("env_steps_per_s", "ray", "ray_sampling", "--workers", options.workers, *sizes),
        "sb3": peer_side("env_steps_per_s", "sb3", "sb3_sampling", *sizes),
    }


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3, help="of each side in each round")
    options = parser.parse_args()
    print(machine())
    print(f"medians of {options.rounds} rounds of {options.seconds:g} s; {ENVS} environments a worker")
    peers = {} if options.no_peers else sides(options)
    one_process = {name: side for name, side in peers.items() if name == "sb3"}
    found, memory = measured(options.workers, options.seconds, options.rounds, **peers)
    alone, _ = measured(0, options.seconds, options.rounds, **one_process)
    labels = {"ray": ("RLlib", ">= 8 peer"), "sb3": ("SB3, one process", "")}
    what = f"{options.workers} workers"
    made = [Row.of(found, "", f"{what}, a round at a time", "env steps/s", bar=">= 0.65 limit")]
    made += [Row.of(found, "", f"{what}, asynchronous fragments", "env steps/s", "asynchronous", bar=">= 0.6 limit")]
    made += rows(found, what, "env steps/s", labels) if peers else []
    made += rows(alone, "in the driver", "env steps/s", {"sb3": ("SB3", "")})
    table([*made, Row("a worker's private memory", "MiB", memory, bar="<= 40")])


if __name__ == "__main__":
    main()
