"""PPO on six MuJoCo tasks of gymnasium, version 5: curves of ten seeds, as CSV files, a table and a picture of them.

    python benchmarks/mujoco_v5.py                             runs what is missing, a file each, and prints the table
    python benchmarks/mujoco_v5.py --tasks Hopper-v5 --seeds 3
    python benchmarks/mujoco_v5.py --table                     prints the table of the files that are there
    python benchmarks/mujoco_v5.py --picture curves.svg        draws them

All tasks have the settings of tuned_examples/ppo/halfcheetah.yaml, a million steps. A line of a file is an evaluation
of the policy, deterministic, every 50,000 steps: steps, mean return of 10 new episodes. Files are in
benchmarks/results/ppo_v5; a run that is cut off leaves none, so that a long table may take several sittings. Needs the
extra mujoco; the picture needs the extra plot.
"""

import csv
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from measure import ROOT, aligned, arguments, machine

from rllib.runs.measures import interval, iqm
from rllib.runs.safe_files import write_whole

TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Swimmer-v5", "Humanoid-v5")
EXAMPLE = "ppo/halfcheetah"
RESULTS = ROOT / "benchmarks" / "results" / "ppo_v5"
FIRST_SEED, SEEDS = 3000, 10
INTERVAL, EPISODES = 50_000, 10


def file_of(task: str, seed: int) -> Path:
    """The file of a run."""
    return RESULTS / f"{task}_{seed}.csv"


def run(task: str, seed: int) -> float:
    """Trains once, writes the file, and returns the minutes that it took."""
    from rllib.algorithms.base.registry import get_algorithm_config
    from rllib.cli.spec import find_file, load_spec, make_spec

    spec = make_spec(load_spec(find_file(EXAMPLE)), {}, EXAMPLE)
    config = get_algorithm_config(spec.algorithm).environment(task).update_from_dict(spec.config)
    started, lines = time.perf_counter(), ["steps,return"]
    with config.debugging(seed=seed).build() as algorithm:
        while algorithm.timesteps < spec.stop["timesteps_total"]:
            algorithm.train()
            if algorithm.timesteps >= INTERVAL * len(lines):
                value = algorithm.evaluate(EPISODES)["episode_reward_mean"]
                lines.append(f"{algorithm.timesteps},{value:.2f}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_whole(file_of(task, seed), "\n".join(lines).encode() + b"\n")
    return (time.perf_counter() - started) / 60


def run_missing(tasks: Sequence[str], seeds: Sequence[int], jobs: int) -> None:
    """Runs what has no file, a seed of all tasks before the next one."""
    missing = [(task, seed) for seed in seeds for task in tasks if not file_of(task, seed).exists()]
    with ProcessPoolExecutor(jobs) as pool:
        started = {pool.submit(run, *each): each for each in missing}
        for done in as_completed(started):
            task, seed = started[done]
            print(f"# {task} {seed}: {done.result():.1f} minutes", flush=True)


def curves(task: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps [P] and returns [N, P] of the N runs of a task that have a file."""
    steps, returns = np.empty(0), []
    for path in sorted(RESULTS.glob(f"{task}_*.csv")):
        with path.open() as file:
            rows = list(csv.DictReader(file))
        steps = np.array([float(row["steps"]) for row in rows])
        returns.append([float(row["return"]) for row in rows])
    return steps, np.array(returns)


def print_table() -> None:
    """Prints the returns at the end: over seeds, at the last evaluation."""
    lines = [("task", "seeds", "mean", "IQM", "95 % of the IQM", "worst", "best")]
    for task in TASKS:
        _, returns = curves(task)
        if len(returns):
            last = returns[:, -1]
            low, high = interval(last[:, None])[:, 0]
            numbers = f"{last.mean():.0f}", f"{iqm(last):.0f}", f"{low:.0f} to {high:.0f}"
            lines.append((task, str(len(last)), *numbers, f"{last.min():.0f}", f"{last.max():.0f}"))
    aligned(lines)


def draw(path: Path) -> None:
    """Draws all runs of each task, their mean, and the IQM with its interval."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(2, 3, figsize=(10, 5.4), sharex=True)
    for task, axes in zip(TASKS, grid.flat):
        steps, returns = curves(task)
        axes.set_title(f"{task}, {len(returns)} seeds", fontsize=9)
        if not len(returns):
            continue
        axes.plot(steps, returns.T, color="#4a90d9", alpha=0.25, linewidth=0.7)
        axes.fill_between(steps, *interval(returns), color="#4a90d9", alpha=0.3, linewidth=0)
        axes.plot(steps, iqm(returns), color="#4a90d9", label="interquartile mean")
        axes.plot(steps, returns.mean(axis=0), color="#808080", linestyle="--", label="mean")
    if handles := grid[0, 0].get_legend_handles_labels()[0]:
        grid[0, 0].legend(handles=handles, fontsize=7)
    figure.supxlabel("environment steps", fontsize=9)
    figure.supylabel("return", fontsize=9)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--table", action="store_true", help="train nothing")
    parser.add_argument("--picture", type=Path, help="draw the files into this one, and train nothing")
    options = parser.parse_args()
    if options.picture:
        draw(options.picture)
    elif not options.table:
        print(machine())
        run_missing(options.tasks, range(FIRST_SEED, FIRST_SEED + options.seeds), options.jobs)
    print_table()


if __name__ == "__main__":
    main()
