"""SAC and TD3 as they learn, beside Stable-Baselines3 and SBX: returns of the episodes of training, by steps.

    python benchmarks/control_curves.py                        runs what is missing, a file each, and prints the table
    python benchmarks/control_curves.py --tasks HalfCheetah-v5 --algorithms SAC --seeds 2 --jobs 1
    python benchmarks/control_curves.py --table                prints the table of the files that are there

Pendulum-v1 for 6,000 steps, networks of 64x64, batches of 128, ten seeds; HalfCheetah-v5 for 30,000 steps with the
algorithms' defaults, five seeds. Every run is a process with one thread, so that seconds do not matter and a busy
machine does not change a curve. The area under a curve is the mean return of all episodes. Files are in
benchmarks/results/control_curves; a run that is cut off leaves none. Needs the extra mujoco, and the peers'
environment `benchmarks/peers/setup sbx`, which has both libraries.
"""

import csv
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from measure import PEERS, ROOT, aligned, arguments, machine

STEPS = {"HalfCheetah-v5": 30_000, "Pendulum-v1": 6_000}
SEEDS = {"HalfCheetah-v5": 5, "Pendulum-v1": 10}
ALGORITHMS = ("SAC", "TD3")
SIDES = ("ours", "sb3", "sbx")
LABELS = {"ours": "ours", "sb3": "SB3", "sbx": "SBX"}
FIRST_SEED = 2001
LONGEST_RUN_S = 3600
RESULTS = ROOT / "benchmarks" / "results" / "control_curves"
RESAMPLES = 10_000


def file_of(task: str, algorithm: str, side: str, seed: int) -> Path:
    """The file of a run."""
    return RESULTS / f"{task}_{algorithm}_{side}_{seed}.csv"


def run(task: str, algorithm: str, side: str, seed: int) -> str | None:
    """Trains once in a new process. Returns the error's text, or None."""
    python = sys.executable if side == "ours" else PEERS / "venvs" / "sbx" / "bin" / "python"
    if not Path(python).exists():
        return f"{side}: not set up; benchmarks/peers/setup sbx"
    one_thread = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    environment = os.environ | one_thread | {"JAX_PLATFORMS": "cpu", "PYTHONWARNINGS": "ignore"}
    if side != "ours":
        environment.pop("PYTHONPATH", None)
    given = (side, task, algorithm, seed, STEPS[task], file_of(task, algorithm, side, seed))
    argv = [str(python), str(PEERS / "control_curve.py"), *map(str, given)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=LONGEST_RUN_S)
    return None if done.returncode == 0 else f"{' '.join(map(str, given[:4]))}: {done.stderr[-2000:]}"


def run_missing(tasks: list[str], algorithms: list[str], seeds: int | None, jobs: int) -> None:
    """Runs what has no file: one seed of all sides before the next one."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    wanted = [
        (task, algorithm, side, FIRST_SEED + seed)
        for task in tasks
        for algorithm in algorithms
        for seed in range(seeds or SEEDS[task])
        for side in SIDES
    ]

    def timed(each: tuple[str, str, str, int]) -> None:
        started = time.perf_counter()
        failure = run(*each)
        print(f"# {failure or f'{each}: {(time.perf_counter() - started) / 60:.1f} minutes'}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(timed, [each for each in wanted if not file_of(*each).exists()]))


def returns(path: Path) -> np.ndarray:
    """Return of each episode of a run, [E] float64."""
    with path.open() as file:
        return np.array([float(row["return"]) for row in csv.DictReader(file)])


def areas(task: str, algorithm: str, side: str) -> tuple[np.ndarray, np.ndarray]:
    """For each run that has a file the mean return of all its episodes, and of the last fifth of them."""
    runs = [returns(path) for path in sorted(RESULTS.glob(f"{task}_{algorithm}_{side}_*.csv"))]
    return np.array([each.mean() for each in runs]), np.array([each[-(len(each) // 5) :].mean() for each in runs])


def mean_and_interval(values: np.ndarray) -> str:
    """The mean over runs, and its bootstrap interval of 95 %."""
    drawn = np.random.default_rng(0).choice(values, (RESAMPLES, len(values))).mean(axis=1)
    low, high = np.percentile(drawn, (2.5, 97.5))
    return f"{values.mean():.0f} ({low:.0f} to {high:.0f})"


def print_table() -> None:
    """Prints a line for each task, algorithm and library."""
    lines = [("task", "algorithm", "library", "seeds", "all episodes (95 %)", "last fifth (95 %)")]
    for task in STEPS:
        for algorithm in ALGORITHMS:
            for side in SIDES:
                whole, last = areas(task, algorithm, side)
                if len(whole):
                    numbers = mean_and_interval(whole), mean_and_interval(last)
                    lines.append((task, algorithm, LABELS[side], str(len(whole)), *numbers))
    aligned(lines)


def main() -> None:
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--tasks", nargs="*", choices=STEPS, default=list(STEPS), metavar="TASK")
    parser.add_argument("--algorithms", nargs="*", choices=ALGORITHMS, default=list(ALGORITHMS), metavar="ALGORITHM")
    parser.add_argument("--seeds", type=int, help="of each task, in place of ten and five")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--table", action="store_true", help="train nothing")
    options = parser.parse_args()
    if not options.table:
        print(machine())
        run_missing(options.tasks, options.algorithms, options.seeds, options.jobs)
    print_table()


if __name__ == "__main__":
    main()
