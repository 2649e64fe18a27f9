"""What an experiment costs beside its trials: 32 functions that report once, two at a time, beside Ray Tune and Optuna.

    python benchmarks/tune_overhead.py --rounds 3

Functions that do nothing but report, and functions that keep a core busy for some 0.1 s with a loop in Python. Trials
are drawn at random on all sides. Ours and Ray's are processes, and what they report is written to disk. Optuna's own
`study.optimize(n_jobs=2)` has threads, which share Python's lock, and a study in memory; beside it stand two processes
of Optuna, which share a study in a journal on disk, and which are there before the clock starts. The limit of the busy
ones are two bare processes.
"""

import tempfile
import time

from measure import Row, alternate, arguments, machine, peer_side, rows, table, together

import runtime
from rllib import tune

OPTUNA = {"optuna": ("Optuna, 2 threads", ""), "optuna_processes": ("Optuna, 2 processes", "")}


def trivial(config):
    tune.report(loss=config["x"])


def busy(config):
    passes(config["loops"])
    tune.report(loss=config["x"])


def passes(loops: int) -> None:
    """A loop that does nothing, in Python, as Optuna's side has it."""
    for _ in range(loops):
        pass


def taken_s(count: int, function=trivial, config: dict | None = None) -> float:
    """Seconds of an experiment with this number of trials."""
    space = {"x": tune.uniform(0, 1), **(config or {})}
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        tune.run(function, config=space, num_samples=count, storage_path=directory, verbose=0, max_concurrent_trials=2)
        return time.perf_counter() - started


def bare_s(count: int, loops: int) -> float:
    """Seconds of a bare process for its half of the trials."""
    started = time.perf_counter()
    for _ in range(-(-count // 2)):
        passes(loops)
    return time.perf_counter() - started


def of_trivial(options) -> list[Row]:
    """Rows of trials that only report."""
    count, peers = options.trials, {}
    if not options.no_peers:
        peers["ray"] = peer_side("per_trial_ms", "ray", "ray_tune_overhead", count)
        peers |= optuna_sides("per_trial_ms", count)
    found = alternate(options.rounds, ours=lambda: 1e3 * taken_s(count) / count, **peers)
    labels = {"ray": ("Ray Tune", "<= 0.05 peer"), **OPTUNA}
    own = Row.of(found, "", "overhead of a trial", "ms", bar="<= 60")
    return [own, *(rows(found, "  beside it", "ms", labels) if len(found.values) > 1 else [])]


def of_busy(options) -> list[Row]:
    """Rows of trials that keep a core busy."""
    count, loops = options.trials, options.loops
    peers = {} if options.no_peers else optuna_sides("trials_per_s", count, "--loops", loops)
    found = alternate(
        options.rounds,
        ours=lambda: count / taken_s(count, busy, {"loops": loops}),
        limit=lambda: count / max(together(bare_s, 2, count, loops)),
        **peers,
    )
    return rows(found, f"trials of {loops:,} passes", "trials/s", OPTUNA)


def optuna_sides(key: str, *given) -> dict:
    """Optuna's two ways of running two trials at a time."""
    script = key, "optuna", "optuna_tune_overhead", *given
    return {"optuna": peer_side(*script), "optuna_processes": peer_side(*script, "--processes", 2)}


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--loops", type=int, default=3_000_000, help="passes of a busy trial's loop")
    options = parser.parse_args()
    print(machine())
    taken_s(2)  # starts the session, as Tune does for its users
    table(of_trivial(options) + of_busy(options))
    runtime.shutdown()


if __name__ == "__main__":
    main()
