"""Tune with ten thousand trials: seconds and megabytes of each part by the number of trials, and a large dashboard.

    python benchmarks/tune_scale.py --trials 100 1000 10000
    python benchmarks/tune_scale.py --trials 1000 --killed          # killed by kill -9 half way, and resumed
    python benchmarks/tune_scale.py --trials 100 --dashboard 10000  # opens that many runs, and one of ten million steps

Trials are a function that reports three times, asked by random search and compared by ASHA. They run in the driver's
own process (the engine "local"), so that a trial costs what Tune itself costs; `--engine zeromq` gives each two
processes at a time. Each number of trials has a process of its own. Processor time holds on a busy machine, too.

    CPU ms          processor time of the driver for a trial
    late/early      that of the last fifth of the trials, beside that of the second fifth
    MiB             what the driver grew by
    journal, state  MiB of the journal, and of searcher and scheduler
    resume s        processor time to take up the finished experiment
    grid s          likewise, of ResultGrid from the directory, its best result and its data frame
    page s, CPU     first answer of the dashboard to /api/runs: seconds, processor time, size
    curves s        processor time until all rows have their curves and best values
    look s          processor time of a look for changes, which an open page makes each second
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pandas  # noqa: F401  beforehand, since loading it takes longer than a data frame
from measure import Row, aligned, arguments, at_least_1, machine, ours, table

import runtime
from rllib import tune
from rllib.dashboard.index import Index
from rllib.runs.entries import encode
from rllib.runs.files import ResultFiles, read_results, write_params
from rllib.tune.experiment.directory import journal_file, read_journal
from rllib.tune.schedulers import AsyncHyperBandScheduler

REPORTS = 3
STEPS, STEPS_OF_A_RESULT = 10_000_000, 1000  # of the large run


def trivial(config):
    for number in range(REPORTS):
        tune.report(loss=config["x"] / (1 + number))


class Clock(tune.Callback):
    """Processor time of the driver at the end of each trial."""

    def __init__(self):
        self.at: list[float] = []

    def on_trial_complete(self, **info) -> None:
        self.at.append(time.process_time())

    def of_fifth(self, fifth: int) -> float:
        """Seconds that a fifth of the trials took."""
        size = len(self.at) // 5
        return self.at[(fifth + 1) * size - 1] - self.at[fifth * size]


def experiment(count: int, directory: str, **more):
    """Runs this number of trials, or takes them up."""
    return tune.run(
        trivial,
        config={"x": tune.uniform(0, 1)},
        num_samples=count,
        storage_path=directory,
        name="many",
        metric="loss",
        mode="min",
        scheduler=AsyncHyperBandScheduler(),
        max_concurrent_trials=2,
        reuse_actors=True,
        verbose=0,
        **more,
    )


def measured(count: int, directory: str) -> dict:
    """Figures of an experiment with this number of trials."""
    path, clock, memory = Path(directory) / "many", Clock(), resident_mib()
    began, spent = time.perf_counter(), time.process_time()
    experiment(count, directory, callbacks=[clock])
    found = {"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - spent}
    found |= {"mib": resident_mib() - memory, "late": clock.of_fifth(4) / clock.of_fifth(1)}
    found["journal_mib"] = journal_file(path).stat().st_size / 2**20
    found["state_mib"] = (path / "search_state.json").stat().st_size / 2**20
    found["resume_s"] = seconds(lambda: experiment(count, directory, resume=True))
    found["grid_s"] = seconds(lambda: grid(path, count))
    return found | page(path, count)


def grid(path: Path, count: int) -> None:
    """What a user asks of a finished experiment."""
    results = tune.ResultGrid(tune.ExperimentAnalysis(path))
    assert len(list(results)) == count
    results.get_best_result()
    results.get_dataframe()


def page(root: Path, runs: int) -> dict[str, float]:
    """What the dashboard takes for its first answer, for all curves, and for each further look."""
    began, spent, index = time.perf_counter(), time.process_time(), Index(root)
    index.refresh()
    answer = encode(index.changes())
    found = {"page_s": time.perf_counter() - began, "page_cpu_s": time.process_time() - spent}
    found["page_mib"] = len(answer) / 2**20
    while index.is_behind:
        index.refresh(older_than_s=1.0)  # as for an open page
    found["curves_s"] = time.process_time() - spent
    assert len(index.runs) >= runs
    return found | {"look_s": seconds(index.refresh)}


def killed(count: int, directory: str, engine: str) -> dict:
    """Ends an experiment by SIGKILL half way, and resumes it; every trial has ended once, with all of its results."""
    argv = [sys.executable, __file__, "--run", str(count), "--directory", directory, "--engine", engine]
    process, path = subprocess.Popen(argv, start_new_session=True), Path(directory) / "many"
    while process.poll() is None and ended(path) < count // 2:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = ended(path)
    clock, began = Clock(), time.perf_counter()
    experiment(count, directory, resume=True, callbacks=[clock])
    resumed_s = time.perf_counter() - began
    _, trials = read_journal(journal_file(path))
    assert [trial.index for trial in trials] == list(range(count))
    assert Counter(trial.status for trial in trials) == {"TERMINATED": count}
    for trial in trials:
        numbers = [result["training_iteration"] for result in read_results(Path(trial.logdir))]
        assert numbers == list(range(1, len(numbers) + 1)) and numbers, (trial, numbers)
    return {"ended_before": before, "ended_after": len(clock.at), "resumed_s": resumed_s}


def ended(path: Path) -> int:
    """Number of trials that have ended, by the journal."""
    try:
        return journal_file(path).read_bytes().count(b'"TERMINATED"')
    except ValueError:  # there is none yet
        return 0


def dashboard(runs: int, directory: str) -> dict:
    """The dashboard with this number of runs, and with one run of ten million steps."""
    many = Path(directory) / "runs"
    for number in range(runs):
        write_run(many / f"PPO_{number:05}", 3, 4000)
    found = page(many, runs)
    long = Path(directory) / "long"
    write_run(long / "PPO", STEPS // STEPS_OF_A_RESULT, STEPS_OF_A_RESULT)
    found["long_mib"] = (long / "PPO" / "result.json").stat().st_size / 2**20
    return found | {f"long_{name}": value for name, value in page(long, 1).items()}


def write_run(path: Path, results: int, steps: int) -> None:
    """A run as `reporting(log_dir=...)` leaves it."""
    path.mkdir(parents=True)
    write_params(path, {"algorithm": "PPO", "env": "CartPole-v1", "lr": 5e-5, "seed": 3, "log_dir": str(path)})
    files = ResultFiles(path)
    for number in range(1, results + 1):
        stats = {name: 0.01 * number for name in ("kl", "entropy", "policy_loss", "vf_loss", "total_loss", "cur_lr")}
        files.on_result(
            {
                "episode_reward_mean": float(number),
                "training_iteration": number,
                "timesteps_total": steps * number,
                "time_total_s": 0.5 * number,
                "info": {"learner": {"default_policy": {"learner_stats": stats}}},
            }
        )
    files.close()


def resident_mib() -> float:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def seconds(work) -> float:
    """Processor time of some work."""
    began = time.process_time()
    work()
    return time.process_time() - began


HEAD = (
    "trials", "", "CPU ms", "wall ms", "late/early", "MiB", "journal", "state", "resume s", "grid s", "page s",
    "page CPU", "page MiB", "curves s", "look s",
)  # fmt: skip


def line(count: int, found: dict) -> tuple[str, ...]:
    """A line of the table."""
    each = (1e3 * found["cpu_s"] / count, 1e3 * found["wall_s"] / count, found["late"], found["mib"])
    each += tuple(found[name] for name in ("journal_mib", "state_mib", "resume_s", "grid_s"))
    each += tuple(found[name] for name in ("page_s", "page_cpu_s", "page_mib", "curves_s", "look_s"))
    return (f"{count:,}", "", *(f"{figure:.3g}" for figure in each))


def main() -> None:
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--trials", type=at_least_1, nargs="+", default=[100, 1000], help="how many, one line each")
    parser.add_argument("--engine", default="local", choices=["local", "zeromq"])
    parser.add_argument("--killed", action="store_true", help="kill the experiment half way, and resume it")
    parser.add_argument("--dashboard", type=int, default=0, metavar="RUNS", help="also open this number of runs")
    parser.add_argument("--directory", help="for the files, which are kept; by default a temporary one")
    for name in ("--one", "--run"):  # of processes that this one starts
        parser.add_argument(name, type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    runtime.init(options.engine, num_cpus=2)
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.directory or temporary
        if options.one:
            print(json.dumps(measured(options.one, directory)))
        elif options.run:
            experiment(options.run, directory)
        else:
            compare(options, directory)


def compare(options, directory: str) -> None:
    """Prints the tables."""
    print(machine())
    lines, rows = [HEAD], []
    for count in options.trials:
        place = f"{directory}/{count}"
        if options.killed:
            found = killed(count, place, options.engine)
            print(f"{count:,} trials, killed: {found}")
            continue
        found = ours("tune_scale", "--one", count, "--engine", options.engine, "--directory", place, timeout_s=3000)
        lines.append(line(count, found))
        print("# " + "  ".join(lines[-1]), file=sys.stderr, flush=True)
        rows.append(Row(f"{count:,} trials: last fifth beside the second", "CPU s", found["late"], bar="<= 1.2"))
    if options.dashboard:
        found = dashboard(options.dashboard, directory)
        rows.append(Row(f"dashboard of {options.dashboard:,} runs opens", "s", found["page_s"], bar="<= 2"))
        what = f"dashboard of a run of {STEPS:,} steps ({found['long_mib']:.0f} MiB) opens"
        rows.append(Row(what, "s", found["long_page_s"], bar="<= 2"))
        print({name: round(value, 3) for name, value in found.items()})
    if len(lines) > 1:
        aligned(lines)
    if rows:
        table(rows)


if __name__ == "__main__":
    main()
