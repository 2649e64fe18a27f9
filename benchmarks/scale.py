"""One driver and ever more rollout workers: microseconds of the driver's processor time for each fragment.

IMPALA as it is, but for two things: a worker samples once and then sends copies of that fragment (50 steps of
CartPole-v1), so that a thousand of them fit on a few cores; and the update does nothing, so that the time is that of
asking, receiving, counting and joining. Every worker is a process with a mailbox of its own. The bar is that a fragment
costs no more with the most workers than 1.5 times what it costs with the fewest.
"""

import resource
import time

import numpy as np
from measure import Row, arguments, machine, table

from rllib import IMPALAConfig
from rllib.algorithms.impala import IMPALA
from rllib.evaluation.rollout_worker import RolloutWorker
from rllib.learners.learner import Learner
from rllib.sample_batch import SampleBatch

FRAGMENT = 50
BATCH = 500


class StandIn(RolloutWorker):
    """A worker that samples once, and sends that fragment again and again."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._sent = None

    def sample(self):
        if self._sent is None:
            self._sent = super().sample()
        batch, report = self._sent
        columns = {}
        for name, column in batch.items():
            columns[name] = self.lane._allocate(column.shape, column.dtype)
            np.copyto(columns[name], column)
        return SampleBatch(columns, policy_version=self.policy_version), report


class DriverAlone(IMPALA):
    """IMPALA with such workers, and without updates."""

    def make_workers(self):
        return super().make_workers(worker_class=StandIn)


def without_updates(learner: Learner, batch: SampleBatch, **settings) -> dict:
    """In the place of Learner.update."""
    return {}


def driver_us(workers: int, fragments: int) -> tuple[float, float]:
    """Processor time of the driver for a fragment (us), and fragments a second."""
    config = (
        IMPALAConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=workers, rollout_fragment_length=FRAGMENT)
        .training(train_batch_size=BATCH, learner_queue_size=max(16, 2 * workers * FRAGMENT // BATCH + 1))
        .resources(num_cpus_per_worker=0)
        .reporting(min_time_s_per_iteration=0)
    )
    algo = DriverAlone(config)
    try:
        for _ in range(max(2 * workers * FRAGMENT // BATCH, 20)):  # all have sampled
            algo.training_step()
        steps = fragments * FRAGMENT // BATCH
        began, spent = time.perf_counter(), time.process_time()
        for _ in range(steps):
            algo.training_step()
        spent, took = time.process_time() - spent, time.perf_counter() - began
    finally:
        algo.stop()
    return spent / fragments * 1e6, fragments / took


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 100, 1000], help="how many, one row each")
    parser.add_argument("--fragments", type=int, default=20_000, help="of each measurement")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    Learner.update = without_updates
    print(machine())
    found = {workers: [] for workers in options.workers}
    for _ in range(options.rounds):
        for workers in options.workers:
            found[workers].append(driver_us(workers, options.fragments))
    made = []
    for workers, rounds in found.items():
        us = float(np.median([each[0] for each in rounds]))
        made.append(
            Row(
                f"{workers} workers",
                "us",
                us,
                limit=float(np.median([each[0] for each in found[options.workers[0]]])),
                bar="<= 1.5 limit" if workers != options.workers[0] else "",
            )
        )
        rate = float(np.median([each[1] for each in rounds]))
        print(f"{workers} workers: {rate:,.0f} fragments/s here, {rate * FRAGMENT:,.0f} env steps/s")
    table(made)


if __name__ == "__main__":
    main()
