"""Runs on a Ray cluster of several nodes on this machine while workers and whole nodes are killed at random.

PPO, IMPALA, APPO, Ape-X and ES train in turn. Every few seconds a rollout worker's process is killed, or a node with
all that runs there, and a node comes in its place. It must hold that

- every iteration ends in time, and its result is whole: its numbers are finite;
- PPO counts its steps exactly: those of all iterations, none lost and none twice; the others' counts never fall;
- when the kills stop, all workers answer again, and there are as many of their processes as there should be;
- nothing is left when the run ends.

    .venv-ray-2.60.0/bin/python tests/cluster/chaos.py --minutes 10 --seed 3

Prints what was done; exits with 1 and the reasons if one of these is violated.
"""

import argparse
import contextlib
import math
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ray_cluster import RayCluster, free_port, processes_of

import runtime
from rllib.algorithms.base.registry import get_algorithm_config

WORKERS, BATCH = 6, 240
LONGEST_ITERATION_S, LONGEST_RECOVERY_S = 180.0, 240.0
BETWEEN_KILLS_S = (4.0, 12.0)
REPLAY = {"num_steps_sampled_before_learning_starts": 200, "train_batch_size": 32}
SETTINGS = {
    "PPO": {"train_batch_size": BATCH, "sgd_minibatch_size": 60, "num_sgd_iter": 1},
    "IMPALA": {"train_batch_size": BATCH, "rollout_fragment_length": 40},
    "APPO": {"train_batch_size": BATCH, "rollout_fragment_length": 40},
    "ApexDQN": {**REPLAY, "num_replay_buffer_shards": 1},
    "ES": {"episodes_per_batch": 12, "train_batch_size": 100},
}


class Killer(threading.Thread):
    """Kills workers and nodes until it is told to stop, and starts a node for each that it has killed."""

    def __init__(self, cluster: RayCluster, node_arguments: tuple[str, ...], rng: random.Random):
        super().__init__(daemon=True)
        self._cluster, self._arguments, self._rng = cluster, node_arguments, rng
        self._ended = threading.Event()
        self.workers = self.nodes = 0
        self.fault: Exception | None = None

    def run(self) -> None:
        try:
            while not self._ended.wait(self._rng.uniform(*BETWEEN_KILLS_S)):
                if self._rng.random() < 0.75:
                    self._kill_a_worker()
                else:
                    self._replace_a_node()
        except Exception as error:  # said at the end
            self.fault = error

    def stop(self) -> None:
        """Returns when nothing more is killed, and each killed node has been replaced."""
        self._ended.set()
        if self.is_alive():
            self.join(600)

    def _kill_a_worker(self) -> None:
        workers = rollout_workers(self._cluster)
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._rng.choice(workers), signal.SIGKILL)
                self.workers += 1

    def _replace_a_node(self) -> None:
        self._cluster.kill(self._rng.choice(self._cluster.nodes[1:]))
        self.nodes += 1
        self._cluster.add_node(*self._arguments)


def rollout_workers(cluster: RayCluster) -> list[int]:
    """Pids of the processes that Ray has named after a rollout worker."""
    found = []
    for pid in (pid for node in list(cluster.nodes) for pid in processes_of(node)):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
            if name.startswith(b"ray::") and b"RolloutActor" in name:
                found.append(pid)
    return found


class Run:
    """One algorithm while things are killed; `reasons` says what was wrong."""

    def __init__(self, name: str, cluster: RayCluster):
        self.name, self._cluster, self.reasons = name, cluster, []
        self.iterations = self.restarts = 0
        self._counted = 0

    def train(self, seconds: float, killer: Killer) -> None:
        """Trains for these seconds under fire, and then until all workers are there again."""
        config = get_algorithm_config(self.name).environment("CartPole-v1")
        config.update_from_dict({**SETTINGS[self.name], "min_time_s_per_iteration": 0})
        config.rollouts(num_rollout_workers=WORKERS, sample_timeout_s=60).debugging(seed=7)
        with config.build() as algo:
            killer.start()
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and killer.fault is None:
                self._iterate(algo)
            killer.stop()
            self._recover(algo)
            self.restarts = algo.workers.num_restarts
        if killer.fault is not None:
            self.reasons.append(f"the cluster could not be kept up: {killer.fault!r}")
        self._wait(lambda: not rollout_workers(self._cluster), 60, "processes of workers are left after stop()")

    def _iterate(self, algo) -> None:
        began = time.monotonic()
        result = algo.train()
        self.iterations += 1
        if (took := time.monotonic() - began) > LONGEST_ITERATION_S:
            self.reasons.append(f"iteration {self.iterations} took {took:.0f} s")
        steps = result["timesteps_total"]
        if self.name == "PPO" and steps != BATCH * self.iterations:
            self.reasons.append(f"{steps} steps after {self.iterations} iterations of {BATCH}")
        if steps < self._counted:
            self.reasons.append(f"{steps} steps after {self._counted}")
        self._counted = steps
        learned = result.get("info", {}).get("learner", {}).get("default_policy", {}).get("learner_stats", {})
        if wrong := [name for name, value in learned.items() if isinstance(value, float) and math.isinf(value)]:
            self.reasons.append(f"not finite: {', '.join(wrong)}")

    def _recover(self, algo) -> None:
        """Trains until all workers answer."""
        deadline = time.monotonic() + LONGEST_RECOVERY_S
        while algo.workers.num_healthy_workers < WORKERS:
            if time.monotonic() > deadline:
                return self.reasons.append(f"{algo.workers.num_healthy_workers} of {WORKERS} workers are back")
            self._iterate(algo)
        self._iterate(algo)

    def _wait(self, condition, seconds: float, reason: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return self.reasons.append(reason)
            time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithms", nargs="*", metavar="ALGORITHM", help=f"of {', '.join(SETTINGS)} [default: all]")
    parser.add_argument("--minutes", type=float, default=10, help="of kills, shared by the algorithms [default: 10]")
    parser.add_argument("--nodes", type=int, default=4, help="[default: 4]")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    names, failed = options.algorithms or list(SETTINGS), False
    if unknown := set(names) - SETTINGS.keys():
        parser.error(f"{', '.join(sorted(unknown))} must be of {', '.join(SETTINGS)}")
    arguments = ("--num-cpus=2", f"--object-store-memory={100 << 20}")
    print(f"{'':8} {'iterations':>10} {'workers killed':>15} {'nodes killed':>13} {'restarts':>9}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as directory:
        cluster = RayCluster(directory, "--include-dashboard=false", f"--dashboard-port={free_port()}", *arguments)
        try:
            for _ in range(options.nodes - 1):
                cluster.add_node(*arguments)
            for number, name in enumerate(names):
                runtime.init("ray", address=cluster.address, log_to_driver=False)
                run = Run(name, cluster)
                killer = Killer(cluster, arguments, random.Random(f"{options.seed} {number}"))
                try:
                    run.train(options.minutes * 60 / len(names), killer)
                finally:
                    killer.stop()
                    runtime.shutdown()  # before the cluster goes
                print(
                    f"{name:8} {run.iterations:>10} {killer.workers:>15} {killer.nodes:>13} {run.restarts:>9}",
                    flush=True,
                )
                for reason in run.reasons:
                    failed = True
                    print(f"{name}: {reason}", flush=True)
        finally:
            cluster.stop()
    sys.exit(failed)


if __name__ == "__main__":
    main()
