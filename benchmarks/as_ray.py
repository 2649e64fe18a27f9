"""An unchanged program for Ray, under `python -m rllib.as_ray` and with Ray 2.60 itself.

benchmarks/peers/ray_program.py trains PPO on CartPole-v1; the figure is the environment steps a second that it prints.
Both sides run in processes of their own, in turn.
"""

import argparse

from measure import PEERS, alternate, machine, peer_side, rows, table, unchanged

PROGRAM = PEERS / "ray_program.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each side is measured")
    parser.add_argument("--iterations", type=int, default=5, help="calls of train() that count")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1], help="numbers of processes that sample")
    parser.add_argument("--no-peers", action="store_true", help="leave Ray out")
    options = parser.parse_args()
    print(machine())
    found = []
    for workers in options.workers:
        arguments = ("--workers", workers, "--iterations", options.iterations)
        ray = None if options.no_peers else peer_side("env_steps_per_s", "ray", "ray_program", *arguments)
        rounds = alternate(
            options.rounds, warm_up=0, ours=lambda given=arguments: unchanged("rllib.as_ray", PROGRAM, *given), ray=ray
        )
        found += rows(rounds, f"the same program, {workers} workers", "steps/s", {"ray": ("Ray 2.60", ">= 10 peer")})
    table(found)


if __name__ == "__main__":
    main()
