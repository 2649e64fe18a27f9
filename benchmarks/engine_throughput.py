"""The configuration of `make train` on the engines zeromq and ray: environment steps a second, sampled and trained on.

Each side is a process of its own, since a process has one session; the sides take turns. Without --address Ray starts a
cluster of this machine for each round; with it the program joins one, e.g. of two nodes. Needs the extra `ray`.
"""

import subprocess
import sys
import time
from pathlib import Path

from measure import ROOT, alternate, arguments, machine, rows, table

EXAMPLE = ROOT / "tuned_examples" / "ppo" / "cartpole.yaml"
WARM_UP = 5  # iterations


def rate(engine: str, address: str | None, iterations: int) -> float:
    """Steps a second of one run in this process."""
    import runtime
    from rllib import PPOConfig
    from rllib.cli.values import read_file

    with runtime.init(engine, address=address, log_to_driver=False):
        settings = read_file(EXAMPLE)
        algorithm = PPOConfig().environment(settings["env"]).update_from_dict(settings["config"]).build()
        try:
            for _ in range(WARM_UP):
                algorithm.train()
            started = time.perf_counter()
            for _ in range(iterations):
                algorithm.train()
            return iterations * settings["config"]["train_batch_size"] / (time.perf_counter() - started)
        finally:
            algorithm.stop()


def side(engine: str, address: str | None, iterations: int):
    """The same in a process of its own."""
    command = [sys.executable, Path(__file__), "--side", engine, "--iterations", str(iterations)]

    def run() -> float:
        given = [] if address is None else ["--address", address]
        done = subprocess.run([*command, *given], capture_output=True, text=True, check=True)
        return float(done.stdout.split()[-1])

    return run


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--iterations", type=int, default=100, help="of each side in each round")
    parser.add_argument("--address", help="of the Ray cluster; by default one is started here")
    parser.add_argument("--side", choices=("zeromq", "ray"), help="run this one alone and print its rate")
    options = parser.parse_args()
    if options.side:
        print(rate(options.side, options.address, options.iterations))
        return
    print(machine())
    found = alternate(
        options.rounds,
        warm_up=0,
        zeromq=side("zeromq", None, options.iterations),
        ray=side("ray", options.address or "local", options.iterations),
    )
    table(rows(found, "make train's configuration", "env steps/s", {"ray": ("engine ray", "")}, ours="zeromq"))


if __name__ == "__main__":
    main()
