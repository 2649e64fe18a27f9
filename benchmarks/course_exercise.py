"""A course's first exercise: PPO with its defaults on FrozenLake-v1, [32, 32], five times train().

Its page trains with 2 workers x 2 environments, then with 1 x 1, prints both times and expects the first to be shorter.
Every run here is a process of its own, ours and the peers'; the time is that of the five calls, as on the page.
"""

import time

STARTED = time.perf_counter()  # before the imports, which are part of what a student waits for

import argparse  # noqa: E402
import functools  # noqa: E402
import itertools  # noqa: E402
import json  # noqa: E402


def exercise(workers: int, envs: int) -> dict:
    """The page's code, with the time of its parts (seconds)."""
    from rllib.algorithms.ppo import PPOConfig

    times = [STARTED, time.perf_counter()]
    config = (
        PPOConfig()
        .framework("torch")
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=envs)
        .training(model={"fcnet_hiddens": [32, 32]})
    )
    algo = config.build(env="FrozenLake-v1")
    times.append(time.perf_counter())
    for _ in range(5):
        algo.train()
    times.append(time.perf_counter())
    algo.stop()
    import_s, build_s, train_s = (b - a for a, b in itertools.pairwise(times))
    return {"train_s": train_s, "build_s": build_s, "import_s": import_s}


def compare(rounds: int, peers: bool) -> None:
    """Ours and the peers in turn, both sizes."""
    from measure import Row, alternate, machine, ours, peer_side, rows, table

    print(machine())
    print(f"medians of {rounds} rounds")
    found = {}
    for size in (2, 1):
        sizes = ("--workers", size, "--envs", size)
        sides = {
            "ray": peer_side("train_s", "ray", "ray_course_exercise", *sizes),
            "ray29": peer_side("train_s", "ray29", "ray29_course_exercise", *sizes),
        }
        mine = functools.partial(ours, "course_exercise", "--once", *sizes)
        found[size] = alternate(
            rounds, warm_up=0, ours=lambda run=mine: run()["train_s"], **(sides if peers else {})
        )
    labels = {"ray": ("Ray 2.60", "<= 0.125 peer"), "ray29": ("Ray 2.9.3", "<= 0.125 peer")}
    made = [rows(found[size], f"{size} x {size}, 5 x train()", "s", labels) for size in found]
    two, one = (found[size].median("ours") for size in (2, 1))
    beside = Row("2 x 2 beside 1 x 1", "s", two, peer=one, bar="<= 1 peer", peer_name="1 x 1")
    table([*itertools.chain(*made), beside])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each side is measured")
    parser.add_argument("--no-peers", action="store_true", help="leave the other libraries out")
    parser.add_argument("--once", action="store_true", help="run ours alone and print its times as JSON")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--envs", type=int, default=2)
    options = parser.parse_args()
    if options.once:
        import measure  # noqa: F401  (puts the checkout on the path)

        print(json.dumps(exercise(options.workers, options.envs)))
    else:
        compare(options.rounds, not options.no_peers)


if __name__ == "__main__":
    main()
