"""One driver and up to a thousand rollout workers: what each answer costs the driver, in time, memory and messages.

    python benchmarks/scale.py                                      # PPO, IMPALA, Ape-X with 1, 10, 100, 1,000 workers
    python benchmarks/scale.py --algorithms IMPALA --workers 1000 --profile 25

The driver is the library's own, from `training_step` down to the sockets. Two things differ. A worker, which is a
process with a mailbox of its own, samples one fragment, and then answers with copies of it after delays that are drawn
from a log-normal distribution; their mean is such that all workers together give `--rate` answers a second. An update
changes nothing and takes no time, nor do Ape-X's targets, which are computed before it. PPO waits for all workers in
each round, IMPALA takes answers as they come, and Ape-X gives them to replay shards, which it asks for samples.

Processor time of the driver is that of all its threads, and holds on a busy machine, too; seconds do not. Each
measurement has a session of its own, in a process of its own.

    CPU us       processor time of the driver for an answer
    idle         share of the time in which the driver waits
    round ms     time in which as many answers came as there are workers
    sent, got    messages of the driver in such a round, and their bytes without what lies in shared memory
    put          bytes of policies that were put for the workers in such a round, and how often
    lag          updates by which the weights that acted were behind, mean and most
    answer KiB   columns of an answer
    MiB          what the driver grew by for each worker; beside it a worker's own memory
    start ms     processor time of the driver, and of the node's processes, to start a worker
"""

import cProfile
import io
import json
import os
import pstats
import re
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
from measure import Row, above_0, aligned, arguments, at_least_1, machine, ours, table

import runtime
from rllib import ApexDQNConfig, IMPALAConfig, PPOConfig
from rllib.algorithms.families.q_learning import QTrainee
from rllib.evaluation.rollout_worker import RolloutWorker
from rllib.learners.learner import Learner
from rllib.processes import ensure_runtime
from rllib.sample_batch import SampleBatch
from runtime import context

FRAGMENT = 64
SIGMA = 0.5  # of the logarithm of a delay
# Columns of float32 beside the observations take the rest of a row's share.
WIDTHS = {"PPO": 239, "IMPALA": 237, "APEX": 120}
WORKER_MIB, LEFT_MIB = 16, 4096  # memory that a worker may need, and that stays free
SAMPLED_PSS = 20  # workers whose memory is looked at


class Canned(gymnasium.Env):
    """Observations of noise, and episodes of 20 steps in the mean."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config):
        self.observation_space = gymnasium.spaces.Box(-1, 1, (config["width"],), np.float32)

    def _observation(self):
        return self.np_random.random(self.observation_space.shape, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action):
        return self._observation(), 1.0, self.np_random.random() < 0.05, False, {}


class StandIn(RolloutWorker):
    """A worker that samples once, and sends copies of that fragment after delays with this mean (seconds)."""

    def __init__(self, settings, worker_index, incarnation, allocate, mean_s):
        super().__init__(settings, worker_index, incarnation, allocate)
        self._mean_s = float(mean_s[0])
        self._sent, self._delays = None, np.random.default_rng(worker_index)

    def sample(self):
        if self._sent is None:
            self._sent = super().sample()
            return self._sent
        time.sleep(self._mean_s * self._delays.lognormal(-(SIGMA**2) / 2, SIGMA))
        batch, report = self._sent
        # One block for all columns, as a fragment has it.
        block = self.lane._allocate((sum(-(-column.nbytes // 64) * 64 for column in batch.values()),), np.uint8)
        columns, start = {}, 0
        for name, column in batch.items():
            columns[name] = np.ndarray(column.shape, column.dtype, block, start)
            columns[name][:] = column
            start += -(-column.nbytes // 64) * 64
        return SampleBatch(columns, policy_version=self.policy_version, num_steps=batch.num_steps), report


def without_update(learner: Learner, batch: SampleBatch, **settings) -> dict:
    """Replaces Learner.update."""
    return {"kl": 0.01, "td_error": np.ones(len(batch), np.float32)}


def without_targets(trainee: QTrainee, batch: SampleBatch) -> None:
    """Replaces QTrainee.add_targets, since the other algorithms compute their targets within the update."""


def config_of(algorithm: str, workers: int, options):
    """The settings of a measurement."""
    classes = {"PPO": PPOConfig, "IMPALA": IMPALAConfig, "APEX": ApexDQNConfig}
    config = (
        classes[algorithm]()
        .environment(Canned, env_config={"width": options.width or WIDTHS[algorithm]})
        .rollouts(
            num_rollout_workers=workers,
            rollout_fragment_length=FRAGMENT,
            observation_filter="MeanStdFilter" if algorithm != "APEX" else "NoFilter",
        )
        .resources(num_cpus_per_worker=0)
        .training(model={"fcnet_hiddens": [64, 64]})
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
        .debugging(seed=0)
    )
    if algorithm == "PPO":
        return config.training(train_batch_size=workers * FRAGMENT, sgd_minibatch_size=FRAGMENT)
    if algorithm == "IMPALA":
        batch = 10 * FRAGMENT
        return config.training(train_batch_size=batch, learner_queue_size=max(16, 2 * workers // 10 + 1))
    return config.training(
        train_batch_size=512,
        num_steps_sampled_before_learning_starts=4 * 512,
        replay_buffer_config={"capacity": 20_000},
        max_weight_sync_delay=400,
    )


class Counts:
    """Messages of the driver and their bytes, and what it puts, from now on until `stop`.

    Attributes:
        numbers: by name.
    """

    def __init__(self):
        names = ("sent", "sent_bytes", "received", "received_bytes", "put", "put_bytes")
        self.numbers = dict.fromkeys(names, 0)
        self._mailbox = mailbox = context.current_engine().mailbox
        self._sends, self._receive, self._put = dict(mailbox.sends), mailbox._receive, runtime.put
        mailbox.sends |= {process: self._counting(send) for process, send in self._sends.items()}
        mailbox._receive, runtime.put = self._counted_receive, self._counted_put

    def stop(self) -> None:
        """Counts no more."""
        self._mailbox.sends |= self._sends
        self._mailbox._receive, runtime.put = self._receive, self._put

    def _count(self, name: str, size: int) -> None:
        self.numbers[name] += 1
        self.numbers[f"{name}_bytes"] += size

    def _counting(self, send):
        def counted(frame, *flags):
            self._count("sent", len(frame))
            return send(frame, *flags)

        return counted

    def _counted_receive(self, *flags):
        frame = self._receive(*flags)
        self._count("received", len(frame))
        return frame

    def _counted_put(self, value):
        self._count("put", sum(snapshot.weights.nbytes for snapshot in value.values()))
        return self._put(value)


def seconds_of(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children_of(pid: int) -> list[int]:
    """Its child processes."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def resident_mib(pid: int | str = "self") -> float:
    """Memory of a process, with what it shares."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def own_mib(pids: list[int]) -> float:
    """Memory of a process, with its share of what several have; the mean of some."""
    sizes = []
    for pid in pids[:: max(1, len(pids) // SAMPLED_PSS)]:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        sizes.append(sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024)
    return sum(sizes) / max(len(sizes), 1)


def fitting(counts: list[int]) -> list[int]:
    """The numbers of workers whose memory is there; a line says which are left out."""
    free = int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) / 1024
    most = max(int((free - LEFT_MIB) / WORKER_MIB), 0)
    if too_many := [count for count in counts if count > most]:
        print(
            f"# without {too_many} workers: they may need {WORKER_MIB} MiB each, and {free:,.0f} MiB are free",
            flush=True,
        )
    return [count for count in counts if count <= most]


class Spent:
    """Processor seconds of the driver and of the node's processes, wall seconds, and the driver's memory, since."""

    def __init__(self, node: int):
        self._node = node
        self._before = self._now()

    def _now(self) -> np.ndarray:
        of_node = seconds_of(self._node) + sum(map(seconds_of, children_of(self._node)))
        return np.array([time.process_time(), of_node, time.perf_counter(), resident_mib()])

    def since(self) -> dict[str, float]:
        """What they have used since this object was made."""
        return dict(zip(("cpu_s", "node_s", "wall_s", "mib"), self._now() - self._before))


def with_stand_ins(algorithm: type, mean_s: float, found: dict) -> type:
    """The algorithm with such workers; what it takes to start them, and the size of an answer, are added to `found`."""

    class DriverAlone(algorithm):
        def make_workers(self):
            spent = Spent(context.current_engine().node_pid)
            workers = super().make_workers(worker_class=StandIn, shared=[np.array([mean_s])])
            found["start"] = spent.since()
            return workers

        def _take_in(self, report, batch=None):
            if "answer_kib" not in found:
                found["answer_kib"] = sum(column.nbytes for column in batch.values()) / 1024
            super()._take_in(report, batch)

    return DriverAlone


def measured(algorithm: str, workers: int, options) -> dict:
    """Figures of a driver with this number of workers."""
    ensure_runtime()
    node, found = context.current_engine().node_pid, {}
    config = config_of(algorithm, workers, options)
    algo = with_stand_ins(config.algo_class, workers / options.rate, found)(config)
    try:
        while algo.timesteps < 2 * workers * FRAGMENT:  # all have sampled, and sleep
            algo.training_step()
        profile = cProfile.Profile(time.thread_time) if options.profile else None
        fragments = max(options.answers, 3 * workers)
        found["run"] = run_of(algo, fragments, profile, node)
        found["rounds"] = found["run"]["answers"] / workers
        counts = Counts()
        counted = run_of(algo, workers, None, node)["answers"]
        counts.stop()
        found["counts"] = {name: value * workers / counted for name, value in counts.numbers.items()}
        found["worker_mib"] = own_mib(children_of(children_of(node)[0]))
    finally:
        algo.stop()
    said = io.StringIO()
    if profile is not None:
        pstats.Stats(profile, stream=said).sort_stats("tottime").print_stats(options.profile)
    return found | {"profile": said.getvalue()}


def run_of(algo, answers: int, profile: cProfile.Profile | None, node: int) -> dict:
    """Takes at least this number of answers."""
    spent, before, lags, most = Spent(node), algo.timesteps, [], 0.0
    if profile:
        profile.enable()
    while (taken := (algo.timesteps - before) / FRAGMENT) < answers:
        stats = algo.training_step()["default_policy"]
        if "policy_lag_mean" in stats:
            lags.append(stats["policy_lag_mean"])
            most = max(most, stats["policy_lag_max"])
        else:
            lags.append(np.mean(getattr(algo.trainees["default_policy"], "lags", [0])))
            most = max(most, *getattr(algo.trainees["default_policy"], "lags", [0]), 0)
    if profile:
        profile.disable()
    return spent.since() | {"answers": taken, "lag": float(np.mean(lags)), "lag_max": float(most)}


HEAD = (
    "algorithm", "workers", "CPU us", "idle", "round ms", "sent", "got", "sent KiB", "got KiB", "put", "put KiB", "lag",
    "lag max", "answer KiB", "driver MiB", "worker MiB", "start ms", "node ms",
)  # fmt: skip


def line(algorithm: str, workers: int, found: dict) -> tuple[str, ...]:
    """A line of the table."""
    run, start, counts = found["run"], found["start"], found["counts"]
    grown = start["mib"] + run["mib"]
    figures = (
        run["cpu_s"] / run["answers"] * 1e6,
        1 - run["cpu_s"] / run["wall_s"],
        run["wall_s"] / found["rounds"] * 1e3,
        counts["sent"],
        counts["received"],
        counts["sent_bytes"] / 1024,
        counts["received_bytes"] / 1024,
        counts["put"],
        counts["put_bytes"] / 1024,
        run["lag"],
        run["lag_max"],
        found["answer_kib"],
        grown / workers,
        found["worker_mib"],
        start["cpu_s"] / workers * 1e3,
        start["node_s"] / workers * 1e3,
    )
    return (algorithm, f"{workers:,}", *(f"{each:,.0f}" if abs(each) >= 100 else f"{each:.3g}" for each in figures))


def main() -> None:
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--algorithms", nargs="+", default=list(WIDTHS), choices=list(WIDTHS))
    parser.add_argument(
        "--workers", type=at_least_1, nargs="+", default=[1, 10, 100, 1000], help="how many, one line each"
    )
    parser.add_argument(
        "--answers", type=at_least_1, default=1000, help="of each measurement; at least three of each worker"
    )
    parser.add_argument("--rate", type=above_0, default=250.0, help="answers a second of all workers together")
    parser.add_argument("--width", type=at_least_1, help="of an observation; by default a fragment has 64 KiB")
    parser.add_argument("--profile", type=int, default=0, metavar="N", help="print the N costliest functions")
    parser.add_argument("--one", action="store_true", help="measure in this process, and print JSON")
    options = parser.parse_args()
    if options.one:
        Learner.update, QTrainee.add_targets = without_update, without_targets
        print(json.dumps(measured(options.algorithms[0], options.workers[0], options)))
        return
    print(machine())
    given = ["--answers", options.answers, "--rate", options.rate, "--profile", options.profile]
    given += ["--width", options.width] if options.width else []
    lines, rows = [HEAD], []
    for algorithm in options.algorithms:
        for workers in fitting(options.workers):
            found = ours("scale", "--one", "--algorithms", algorithm, "--workers", workers, *given)
            print(found.pop("profile"), end="", file=sys.stderr)
            lines.append(line(algorithm, workers, found))
            print("# " + "  ".join(lines[-1]), file=sys.stderr, flush=True)
            rows += rows_of(f"{algorithm}, {workers:,}", workers, found)
    aligned(lines)
    table(rows)


def rows_of(name: str, workers: int, found: dict) -> list[Row]:
    """The figures that have a bar."""
    run, start = found["run"], found["start"]
    rows = [Row(f"{name}: driver for an answer", "ms", run["cpu_s"] / run["answers"] * 1e3, bar="<= 1")]
    if workers >= 100:  # else it is what the libraries need
        grown = (start["mib"] + run["mib"]) / workers
        rows.append(Row(f"{name}: driver's memory for a worker", "MiB", grown, bar="<= 2"))
        rows.append(Row(f"{name}: driver to start a worker", "ms", start["cpu_s"] / workers * 1e3, bar="<= 60"))
    return rows


if __name__ == "__main__":
    main()
