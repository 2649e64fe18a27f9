"""Eight hours of a run on a clock that is set forward: nothing that a run holds may grow with its age.

`rllib train` runs in this process with short iterations, after each of which the clock jumps, so that all that happens
by the clock happens as often as in that time: checkpoints, lines of the log, points of the curve. After each quarter it
is measured what the quarter has cost: milliseconds of processor time an iteration, and bytes that an iteration adds to
the files; and what the run holds: memory of its process and of the one beside it, descriptors, threads, files. The last
quarter is held against the second one, since caches fill at the beginning.

    python tests/runs/long_run.py                            PPO and DQN, 4,000 iterations in eight hours
    python tests/runs/long_run.py --iterations 1200 PPO      longer iterations of the same hours

Prints a table; exits with 1 and the reasons if something grows. The clock is that of this process: workers have their
own, so the runs have none.
"""

import jumping_clock  # isort: skip

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import psutil

from rllib import DefaultCallbacks
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.cli import main as command

HERE = Path(__file__).parent
HOURS = 8
COMMON = ["--seed", "0", "--quiet", "--results-dir", "results"]
SETTINGS = {
    "PPO": {
        "train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 1, "rollout_fragment_length": 16,
        "num_envs_per_worker": 2, "observation_filter": "MeanStdFilter", "evaluation_interval": 50,
        "evaluation_duration": 2,
    },
    "DQN": {
        "min_sample_timesteps_per_iteration": 16, "num_steps_sampled_before_learning_starts": 100,
        "replay_buffer_config": {"type": "PrioritizedReplayBuffer", "capacity": 5000},
    },
}  # fmt: skip


class Quarter(NamedTuple):
    """What an iteration of a quarter has cost, and what the run held at its end."""

    cpu_ms: float
    kib: float
    mib: float
    mib_beside: float
    descriptors: int
    threads: int
    files: int


class Hours(DefaultCallbacks):
    """Sets the clock forward after each iteration, and measures at the end of each quarter."""

    def __init__(self):
        self._process, self._last = psutil.Process(), (0.0, 0)
        self.iterations = int(os.environ["ITERATIONS"])

    def on_train_result(self, *, result, **kwargs):
        jumping_clock.jump(HOURS * 3600 / self.iterations)
        every, is_first = self.iterations // 4, result["training_iteration"] == 1
        if is_first or result["training_iteration"] % every == 0:
            cpu_s, size = self._now()
            if not is_first:
                print(*self._quarter((cpu_s - self._last[0]) / every, (size - self._last[1]) / every), flush=True)
            self._last = cpu_s, size

    def _now(self) -> tuple[float, int]:
        """Seconds of processor time, and bytes of the run's files without its checkpoints."""
        sizes = [path.stat().st_size for path in Path("results").glob("*/*") if path.is_file()]
        return sum(self._process.cpu_times()[:2]), sum(sizes)

    def _quarter(self, cpu_s: float, size: float) -> Quarter:
        own, beside = self._process, self._process.children()
        files = sum(len(files) for _, _, files in os.walk("results"))
        memory = [sum(each.memory_info().rss for each in group) / 2**20 for group in ([own], beside)]
        return Quarter(cpu_s * 1e3, size / 2**10, *memory, own.num_fds(), own.num_threads(), files)


def quarters_of(algorithm: str, iterations: int) -> list[Quarter]:
    """Runs it in a separate process."""
    words = ["-f", "run.py", *COMMON, "--stop", f"iterations={iterations}"]
    program = f"import long_run; long_run.run({words!r})"
    paths = os.pathsep.join([str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "ITERATIONS": str(iterations), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "run.py").write_text(f"import long_run\n\nconfig = long_run.config_of({algorithm!r})\n")
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    rows = [line.split() for line in done.stdout.splitlines() if len(line.split()) == len(Quarter._fields)]
    return [Quarter(*map(float, row)) for row in rows]


def config_of(algorithm: str):
    """The settings that a run's file has."""
    config = get_algorithm_config(algorithm).environment("CartPole-v1").callbacks(Hours)
    return config.update_from_dict(SETTINGS[algorithm] | {"num_rollout_workers": 0, "min_time_s_per_iteration": 0})


def run(words: list[str]) -> None:
    """`rllib train` with these words, in this process."""
    sys.argv = ["rllib", "train", *words]
    command()


def growth(quarters: list[Quarter]) -> list[str]:
    """What the last quarter has more of than the second one."""
    before, after = quarters[1], quarters[-1]
    most = Quarter(before.cpu_ms * 1.25, before.kib * 1.1, before.mib + 4, before.mib_beside + 16, *before[4:])
    return [
        f"{name}: {value:.1f} after {earlier:.1f}"
        for name, value, earlier, limit in zip(Quarter._fields, after, before, most, strict=True)
        if value > limit
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "algorithms", nargs="*", choices=[*SETTINGS, []], help=f"of {', '.join(SETTINGS)} [default: all]"
    )
    parser.add_argument("--iterations", type=int, default=4000, help="[default: 4,000]")
    options = parser.parse_args()
    if options.iterations < 4:
        parser.error(f"--iterations {options.iterations} must be at least 4, one for each quarter")
    failed = False
    print(f"{'':6}{'quarter':>8}" + "".join(f"{name:>12}" for name in Quarter._fields))
    for algorithm in options.algorithms or SETTINGS:
        quarters = quarters_of(algorithm, options.iterations)
        for number, quarter in enumerate(quarters, 1):
            print(f"{algorithm:6}{number:>8}" + "".join(f"{value:12.1f}" for value in quarter), flush=True)
        for reason in growth(quarters):
            failed = True
            print(f"{algorithm} grows: {reason}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
