"""Environment steps a second where each step sleeps 5 ms, with many more workers than cores.

The limit is as many bare processes that step the same environment and do nothing else: a runtime that loses time to
switching, messages or stragglers falls behind them. Ray RLlib is measured once, not in every round: it takes a minute
and more to start that many workers.
"""

import time

from measure import PEERS, Row, alternate, arguments, machine, peer, table, together

import sys  # isort: skip

sys.path.insert(0, str(PEERS))  # the workers import the environment by name, as Ray's do


def bare(seconds: float, sleep_ms: float):
    """Steps a second of one environment in this process; see measure.together."""
    from sleeping_env import SleepingEnv

    env = SleepingEnv({"sleep_ms": sleep_ms})
    env.reset()
    yield
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        _, _, terminated, _, _ = env.step(0)
        if terminated:
            env.reset()
        steps += 1
    yield steps / elapsed


def build(workers: int, fragment: int, sleep_ms: float):
    """PPO whose workers have one such environment each."""
    from sleeping_env import SleepingEnv

    from rllib import PPOConfig

    return (
        PPOConfig()
        .environment(SleepingEnv, env_config={"sleep_ms": sleep_ms})
        .rollouts(num_rollout_workers=workers, rollout_fragment_length=fragment)
        .training(train_batch_size=workers * fragment, model={"fcnet_hiddens": [64, 64]})
        .build()
    )


def sampling_rate(algo, seconds: float) -> float:
    """Steps a second that reach the driver."""
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        steps += algo.sample(algo.config.train_batch_size).count
    return steps / elapsed


def row(workers: int, options) -> Row:
    """Ours and the bare processes in turn, Ray once."""
    started = time.perf_counter()
    algo = build(workers, options.fragment, options.sleep_ms)
    build_s = time.perf_counter() - started
    try:
        sampling_rate(algo, 1)
        found = alternate(
            options.rounds,
            warm_up=0,
            ours=lambda: sampling_rate(algo, options.seconds),
            limit=lambda: sum(together(bare, workers, options.seconds, options.sleep_ms)),
        )
    finally:
        algo.stop()
    print(f"# {workers} workers: ours built in {build_s:.2f} s", flush=True)
    made = Row.of(found, "ray", f"{workers} workers", "env steps/s", bar=">= 0.95 limit")
    if not options.no_peers:
        sizes = ("--workers", workers, "--fragment", options.fragment, "--sleep-ms", options.sleep_ms)
        result = peer("ray", "ray_sleeping_envs", *sizes, "--seconds", options.seconds)
        if result:
            print(f"# {workers} workers: RLlib built in {result['build_s']:.1f} s", flush=True)
            made.peer, made.peer_name = result["env_steps_per_s"], "RLlib"
            made.peer_ratio = made.ours / made.peer
    return made


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[16, 32], help="how many, one row each")
    parser.add_argument("--fragment", type=int, default=200, help="steps of each environment a request")
    parser.add_argument("--sleep-ms", type=float, default=5, help="of each step")
    parser.add_argument("--seconds", type=float, default=5, help="of each side in each round")
    options = parser.parse_args()
    print(machine())
    print(f"medians of {options.rounds} rounds of {options.seconds:g} s; fragments of {options.fragment} steps")
    table([row(workers, options) for workers in options.workers])


if __name__ == "__main__":
    main()
