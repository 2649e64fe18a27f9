"""What an experiment costs beside its trials: 32 functions that report once, two at a time, beside Ray Tune 2.60.

With --many N also N of them: memory of the driver, the last trials beside the first, how soon the finished experiment
is taken up again.
"""

import gc
import statistics
import tempfile
import time
from pathlib import Path

from measure import Row, alternate, arguments, machine, peer_side, table

import runtime
from rllib import tune


def trivial(config):
    tune.report(loss=config["x"])


class Clock(tune.Callback):
    """When trials have ended, and what the driver's memory was then."""

    def __init__(self):
        self.ended: list[float] = []
        self.mib: list[float] = []

    def on_trial_complete(self, **info) -> None:
        self.ended.append(time.perf_counter())
        if len(self.ended) % 100 == 0:
            gc.collect()
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.mib.append(pages * 4096 / 2**20)


def experiment(count: int, directory: str, **more):
    """Runs so many trials."""
    space = {"x": tune.uniform(0, 1)}
    return tune.run(
        trivial, config=space, num_samples=count, storage_path=directory, verbose=0, max_concurrent_trials=2, **more
    )


def per_trial_ms(count: int) -> float:
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        experiment(count, directory)
        return 1e3 * (time.perf_counter() - started) / count


def many(count: int) -> list[Row]:
    """Rows about a large experiment."""
    with tempfile.TemporaryDirectory() as directory:
        clock = Clock()
        experiment(count, directory, name="many", callbacks=[clock])
        started = time.perf_counter()
        analysis = experiment(count, directory, name="many", resume=True)
        resume_s = time.perf_counter() - started
        assert len(analysis.trials) == count
    gaps = [b - a for a, b in zip(clock.ended, clock.ended[1:])]
    tenth = count // 10
    first, last = statistics.median(gaps[tenth : 2 * tenth]), statistics.median(gaps[-tenth:])
    return [
        Row("a trial, at the end of many", "ms", 1e3 * last, 1e3 * first, bar="<= 1.2 limit"),
        Row("memory gained by 100 trials", "MiB", (clock.mib[-1] - clock.mib[0]) / (len(clock.mib) - 1), bar="<= 0.5"),
        Row(f"resume of {count} finished trials", "s", resume_s, bar="<= 2"),
    ]


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--many", type=int, default=0, metavar="N", help="also run N trials, at least 200, e.g. 1000")
    options = parser.parse_args()
    if 0 != options.many < 200:
        parser.error(f"--many {options.many} must be at least 200: memory is compared from 100 trials to the next")
    print(machine())
    per_trial_ms(2)  # starts the session, as Tune does for its users
    ray = None if options.no_peers else peer_side("per_trial_ms", "ray", "ray_tune_overhead", options.trials)
    found = alternate(options.rounds, ours=lambda: per_trial_ms(options.trials), peer=ray)
    rows = [
        Row("overhead of a trial", "ms", found.median("ours"), peer=found.median("peer"),
            bar="<= 60" if ray is None else "<= 0.05 peer", peer_name="Ray Tune")
    ]  # fmt: skip
    table(rows + (many(options.many) if options.many else []))
    runtime.shutdown()


if __name__ == "__main__":
    main()
