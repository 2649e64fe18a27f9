"""A seeded mixture of everything, with processes killed at random: every result is right, or an error that may be."""

import contextlib
import os
import random
import signal
import threading
import time

import numpy as np
import pytest
from runtime_support import wait_until

import runtime

SECONDS = float(os.environ.get("RUNTIME_SOAK_SECONDS", "60"))


@runtime.remote
class Worker:
    """Answers with what can be checked."""

    def __init__(self, number):
        self.number, self.calls, self.kept = number, 0, []

    def count(self):
        self.calls += 1
        return self.number, self.calls

    def batch(self, size, value):
        columns = {"obs": runtime.empty((size, 8)), "actions": np.full(size, value)}
        columns["obs"][:] = value
        return columns

    def total(self, weights, more):
        return float(weights.sum()) + runtime.get(more[0])

    def keep(self, value):
        self.kept = [*self.kept[-3:], value]

    def kept_total(self):
        return float(sum(runtime.get(refs[0]).sum() for refs in self.kept))

    def pid(self):
        return os.getpid()


@runtime.remote
def add(*values):
    return sum(values)


@runtime.remote
def tree(depth):
    return 1 if depth == 0 else sum(runtime.get([tree.remote(depth - 1), tree.remote(depth - 1)]))


@runtime.remote
def ask(handles):
    return runtime.get(handles[0].count.remote())


class Load:
    """One thread's share: actions drawn by a generator of its own, each of which checks what it gets."""

    def __init__(self, seed, end):
        self.rng, self.end = random.Random(seed), end
        self.workers = [Worker.remote(i) for i in range(3)]
        self.history = {}  # actor -> last count seen: must rise
        self.done = {}

    def run(self):
        actions = [self.calls, self.batches, self.weights, self.keeps, self.tasks, self.handles, self.kills, self.churn]
        while time.monotonic() < self.end:
            action = self.rng.choice(actions)
            with contextlib.suppress(runtime.ActorDiedError, runtime.OwnerDiedError, runtime.WorkerCrashedError):
                action()
            self.done[action.__name__] = self.done.get(action.__name__, 0) + 1

    def worker(self):
        index = self.rng.randrange(len(self.workers))
        return self.workers[index]

    def replace(self, worker):
        self.workers[self.workers.index(worker)] = Worker.remote(self.rng.randrange(1000))

    def calls(self):
        worker = self.worker()
        counts = [
            n for _, n in runtime.get([worker.count.remote() for _ in range(self.rng.randrange(1, 300))], timeout=60)
        ]
        assert counts == list(range(counts[0], counts[0] + len(counts)))
        assert counts[0] > self.history.get(worker, 0)
        self.history[worker] = counts[-1]

    def batches(self):
        size, value = self.rng.choice([1, 100, 5000, 50_000]), self.rng.randrange(100)
        batches = runtime.get([worker.batch.remote(size, value) for worker in self.workers], timeout=60)
        for batch in batches:
            assert (
                batch["obs"].shape == (size, 8) and (batch["obs"] == value).all() and (batch["actions"] == value).all()
            )

    def weights(self):
        value = self.rng.randrange(10)
        ref = runtime.put(np.full(self.rng.choice([10, 100_000, 1_000_000]), value))
        more = [runtime.put(0.5)]
        size = len(runtime.get(ref))
        pending = [worker.total.remote(ref, more) for worker in self.workers]
        del ref
        while pending:
            done, pending = runtime.wait(pending, timeout=60)
            assert done and runtime.get(done[0]) == size * value + 0.5
            del done

    def keeps(self):
        worker, value = self.worker(), self.rng.randrange(10)
        for _ in range(4):
            worker.keep.remote([runtime.put(np.full(50_000, value))])
        assert runtime.get(worker.kept_total.remote(), timeout=60) == 4 * 50_000 * value

    def tasks(self):
        n = self.rng.randrange(1, 60)
        refs = [add.remote(i, add.remote(1)) for i in range(n)]
        assert runtime.get(refs, timeout=60) == [i + 1 for i in range(n)]
        assert runtime.get(tree.remote(2), timeout=60) == 4

    def handles(self):
        worker = self.worker()
        for _, count in runtime.get([ask.remote([worker]) for _ in range(3)], timeout=60):
            assert count > self.history.get(worker, 0)

    def kills(self):
        worker = self.worker()
        pending = [worker.count.remote() for _ in range(20)]
        if self.rng.random() < 0.5:
            runtime.kill(worker)
        else:
            pid = runtime.get(worker.pid.remote(), timeout=60)
            os.kill(pid, signal.SIGKILL)
        self.replace(worker)
        for ref in pending:
            with contextlib.suppress(runtime.ActorDiedError):
                runtime.get(ref, timeout=60)

    def churn(self):
        worker = self.worker()
        self.replace(worker)
        self.history.pop(worker, None)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 240)
@pytest.mark.parametrize("seed", [0, 1])
def test_soak(fresh, seed):
    fresh(num_cpus=2, object_store_memory=2**29)
    end = time.monotonic() + SECONDS / 2
    failures = []

    def one(number):
        try:
            load = Load(1000 * seed + number, end)
            load.run()
            print(number, load.done)
        except BaseException as error:
            failures.append(f"seed {seed}, thread {number}: {error!r}")
            raise

    threads = [threading.Thread(target=one, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 200)
    assert not any(thread.is_alive() for thread in threads), f"seed {seed}: hangs"
    assert not failures
    total = runtime.cluster_resources()
    wait_until(lambda: runtime.available_resources() == total, 20, runtime.available_resources)
