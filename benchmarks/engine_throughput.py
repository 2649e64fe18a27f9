"""What `make train` trains, with two workers, on the engines zeromq and ray: environment steps a second.

Each side is a process of its own, since a process has one session; the sides take turns. Ray runs on a cluster of one
node and on one of two nodes of this machine, started for each round and not timed, or on that of --address. `make
engines` runs it with the newest Ray.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import ROOT, alternate, arguments, machine, rows, table

sys.path.insert(0, str(ROOT / "tests"))
from ray_cluster import RayCluster

EXAMPLE = ROOT / "tuned_examples" / "ppo" / "cartpole.yaml"
WARM_UP = 5  # iterations


def rate(engine: str, address: str | None, iterations: int) -> float:
    """Steps a second of one run in this process."""
    import runtime
    from rllib import PPOConfig
    from rllib.cli.values import read_file

    with runtime.init(engine, address=address, log_to_driver=False):
        settings = read_file(EXAMPLE)
        config = PPOConfig().environment(settings["env"]).update_from_dict(settings["config"])
        algorithm = config.rollouts(num_rollout_workers=2, num_envs_per_worker=4).build()
        try:
            for _ in range(WARM_UP):
                algorithm.train()
            started = time.perf_counter()
            for _ in range(iterations):
                algorithm.train()
            return iterations * settings["config"]["train_batch_size"] / (time.perf_counter() - started)
        finally:
            algorithm.stop()


def run(engine: str, address: str | None, iterations: int) -> float:
    """The same in a process of its own."""
    command = [sys.executable, Path(__file__), "--side", engine, "--iterations", str(iterations)]
    given = [] if address is None else ["--address", address]
    done = subprocess.run([*command, *given], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


def run_on_nodes(nodes: int, iterations: int) -> float:
    """The same on a new Ray cluster of this machine, whose CPUs are divided between its nodes."""
    cpus = f"--num-cpus={max(1, len(os.sched_getaffinity(0)) // nodes)}"
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as directory:
        cluster = RayCluster(directory, "--include-dashboard=false", cpus)
        try:
            for _ in range(nodes - 1):
                cluster.add_node(cpus)
            return run("ray", cluster.address, iterations)
        finally:
            cluster.stop()


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--iterations", type=int, default=100, help="of each side in each round")
    parser.add_argument("--address", help="of a Ray cluster; by default clusters are started here")
    parser.add_argument("--side", choices=("zeromq", "ray"), help="run this one alone and print its rate")
    options = parser.parse_args()
    if options.side:
        print(rate(options.side, options.address, options.iterations))
        return
    print(machine())
    if options.address:
        sides = {"given": lambda: run("ray", options.address, options.iterations)}
    else:
        sides = {name: lambda n=n: run_on_nodes(n, options.iterations) for n, name in ((1, "one"), (2, "two"))}
    labels = {"given": ("Ray's cluster", ""), "one": ("Ray, one node", ""), "two": ("Ray, two nodes", "")}
    found = alternate(
        options.rounds, warm_up=0, zeromq=lambda: run("zeromq", None, options.iterations), **sides
    )
    table(rows(found, "make train, two workers", "env steps/s", labels, ours="zeromq"))
    print("#", "; ".join(found.spread(side) for side in found.values))


if __name__ == "__main__":
    main()
