"""Ray with 1, 4 and 8 nodes on this machine: seconds until all workers are ready, MB a worker, and steps a second.

    .venv-ray-2.60.0/bin/python benchmarks/ray_nodes.py --workers 48

The environments sleep, so that the cores are not the limit: it is the number of workers divided by the time of a step.
Each node is a raylet with separate processes (tests/ray_cluster.py), with an equal share of the workers. PPO alone,
with evaluation workers, and with two learners; IMPALA, APPO, Ape-X, ES; and a search of eight trials. A worker's memory
is its process's own share (Pss): of pages that several processes map, each has a part.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from pathlib import Path

from measure import PEERS, ROOT, above_0, at_least_1, machine

sys.path[:0] = [str(PEERS), str(ROOT / "tests")]  # the workers import the environment by name

FRAGMENT = 20
RUNS = {
    "PPO": ("PPO", {"sgd_minibatch_size": 128, "num_sgd_iter": 1}),
    "PPO, 4 evaluation workers": (
        "PPO",
        {
            "sgd_minibatch_size": 128, "num_sgd_iter": 1, "evaluation_num_workers": 4, "evaluation_interval": 1,
            "evaluation_parallel_to_training": True, "evaluation_duration": 64, "evaluation_duration_unit": "timesteps",
        },
    ),
    "PPO, 2 learners": ("PPO", {"sgd_minibatch_size": 128, "num_sgd_iter": 1, "num_learners": 2}),
    "IMPALA": ("IMPALA", {}),
    "APPO": ("APPO", {}),
    "Ape-X": ("ApexDQN", {"train_batch_size": 64, "num_steps_sampled_before_learning_starts": 1000}),
    "ES": ("ES", {"episodes_per_batch": 96, "train_batch_size": 1000}),
}  # fmt: skip


def trained(run: str, workers: int, sleep_ms: float, seconds: float, cluster) -> dict[str, float]:
    """Seconds to ready, steps a second, and MB of a worker's process."""
    from sleeping_env import SleepingEnv

    from rllib.algorithms.base.registry import get_algorithm_config

    name, settings = RUNS[run]
    config = get_algorithm_config(name).environment(SleepingEnv, env_config={"sleep_ms": sleep_ms})
    fragment = {} if name == "ES" else {"rollout_fragment_length": FRAGMENT}
    batch = {} if name in ("ES", "ApexDQN") else {"train_batch_size": workers * FRAGMENT}
    config.update_from_dict({**fragment, **batch, **settings, "min_time_s_per_iteration": 0})
    started = time.perf_counter()
    with config.rollouts(num_rollout_workers=workers).training(model={"fcnet_hiddens": [64, 64]}).build() as algo:
        ready_s = time.perf_counter() - started
        algo.train()
        before, started = algo.timesteps, time.perf_counter()
        while time.perf_counter() - started < seconds:
            algo.train()
        rate = (algo.timesteps - before) / (time.perf_counter() - started)
        places = len({*algo.workers.foreach_worker(_node)})
        return {"ready_s": ready_s, "rate": rate, "nodes": places, "mb": worker_mb(cluster)}


def _node(worker) -> str:
    import runtime

    return runtime.get_runtime_context().get_node_id()


def worker_mb(cluster) -> float:
    """Mean share of memory of the processes that Ray has named after a rollout worker (MB)."""
    from ray_cluster import processes_of

    shares = []
    for pid in (pid for node in cluster.nodes for pid in processes_of(node)):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
            if name.startswith(b"ray::") and b"RolloutActor" in name:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                shares += [int(line.split()[1]) / 1e3 for line in lines if line.startswith("Pss:")]
    return sum(shares) / len(shares) if shares else float("nan")


def searched(trials: int) -> float:
    """Seconds of a search of so many trials of two iterations, with one worker each."""
    from rllib import tune

    config = {"env": "CartPole-v1", "num_rollout_workers": 1, "train_batch_size": 256, "sgd_minibatch_size": 128}
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        analysis = tune.run(
            "PPO", config={**config, "seed": tune.grid_search(list(range(trials)))}, stop={"training_iteration": 2},
            local_dir=folder, verbose=0,
        )  # fmt: skip
    assert all(trial.last_result["timesteps_total"] == 512 for trial in analysis.trials)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=at_least_1, default=48)
    parser.add_argument("--nodes", type=at_least_1, nargs="*", default=[1, 4, 8])
    parser.add_argument("--runs", nargs="*", default=list(RUNS), choices=RUNS)
    parser.add_argument("--sleep-ms", type=above_0, default=50)
    parser.add_argument("--seconds", type=above_0, default=10)
    options = parser.parse_args()
    from ray_cluster import RayCluster, free_port

    import runtime

    limit = options.workers * 1000 / options.sleep_ms
    print(f"{machine()}; {options.workers} workers, limit {limit:,.0f} steps/s\n")
    print("| nodes | run | ready, s | MB a worker | nodes with workers | steps/s | of the limit |")
    print("|---" * 7 + "|")
    for count in options.nodes:
        with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as directory:
            share = (f"--num-cpus={-(-options.workers // count) + 4}", f"--object-store-memory={200 << 20}")
            cluster = RayCluster(directory, "--include-dashboard=false", f"--dashboard-port={free_port()}", *share)
            try:
                for _ in range(count - 1):
                    cluster.add_node(*share)
                for run in options.runs:
                    runtime.init("ray", address=cluster.address, log_to_driver=False)
                    try:
                        found = trained(run, options.workers, options.sleep_ms, options.seconds, cluster)
                    finally:
                        runtime.shutdown()  # before the cluster goes
                    cells = f"{found['ready_s']:.0f} | {found['mb']:.0f} | {found['nodes']} | {found['rate']:,.0f}"
                    print(f"| {count} | {run} | {cells} | {found['rate'] / limit:.2f} |", flush=True)
                runtime.init("ray", address=cluster.address, log_to_driver=False)
                print(f"| {count} | a search of 8 trials | {searched(8):.0f} in all | | | | |", flush=True)
                runtime.shutdown()
            finally:
                cluster.stop()


if __name__ == "__main__":
    main()
