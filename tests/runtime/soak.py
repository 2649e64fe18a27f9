"""Ten minutes of everything at once, while processes are killed, stopped and continued at random.

Several threads of the driver call actors and tasks, share arrays, cancel and drop; another one kills and stops workers
and the process that they are forked from. Every value must be right, every call must end with its value or with an
error that the deaths explain, no call to an actor may be executed twice or out of order, and at the end nothing may be
held or left over. Run it as `make soak`, or:

    python tests/runtime/soak.py --seed 3 --minutes 10

The seed fixes what each thread does and what is killed in which order, though not at which instant. Prints how often
everything was done; exits with 1 and the reasons if anything was lost, doubled or left.
"""

import argparse
import collections
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
import uuid
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # of modules that runtime_support shares with other tests
from runtime_support import MARKER, History, Leftovers, note, unsettled, wait_until

import runtime

LIMIT_S = 120  # a call without an outcome for that long is lost
SETTLE_S = 30
CPUS = 2
EXPLAINED = runtime.ActorDiedError, runtime.OwnerDiedError, runtime.WorkerCrashedError
NOTHING = object()


@runtime.remote
class Worker:
    """Answers with what can be checked."""

    def __init__(self, path):
        self.path, self.calls, self.kept = path, 0, []

    def count(self, caller, number):
        note(self.path, caller, number)
        self.calls += 1
        return self.calls

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


@runtime.remote
def add(*values):
    return sum(values)


@runtime.remote
def tree(depth):
    return 1 if depth == 0 else sum(runtime.get([tree.remote(depth - 1), tree.remote(depth - 1)]))


@runtime.remote
def ask(handles, caller, number):
    return runtime.get(handles[0].count.remote(caller, number))


@runtime.remote
def execute(path, caller, number):
    note(path, caller, number)
    return number


@runtime.remote
def nap(seconds):
    time.sleep(seconds)
    return seconds


class Load:
    """One thread's share: actions drawn by a generator of its own, each of which checks what it gets.

    Args:
        name: of the thread; with a number for each call, it names the calls in the histories.
        rng: random.Random.
        once, again: histories of calls that run at most once, and of those that are retried.
        counts: how often each action was done and each error came; shared.
    """

    def __init__(self, name, rng, once, again, counts):
        self.name, self.rng, self.once, self.again, self.counts = name, rng, once, again, counts
        self.numbers = itertools.count()
        self.workers = [self.worker() for _ in range(3)]

    def run(self, end):
        actions = self.calls, self.batches, self.weights, self.keeps, self.tasks, self.cancels, self.handles, self.churn
        while time.monotonic() < end:
            action = self.rng.choice(actions)
            action()
            self.counts[action.__name__] += 1
        self.workers.clear()

    def worker(self):
        return Worker.remote(str(self.once.path))

    def chosen(self):
        """Index of a worker, and the worker."""
        index = self.rng.randrange(len(self.workers))
        return index, self.workers[index]

    def outcome(self, ref, *more):
        """The value of a reference, or NOTHING if a death or one of `more` explains that there is none."""
        try:
            return runtime.get(ref, timeout=LIMIT_S)
        except (*EXPLAINED, *more) as error:
            self.counts[type(error).__name__] += 1
            return NOTHING

    def calls(self):
        index, worker = self.chosen()
        numbers = list(itertools.islice(self.numbers, self.rng.randrange(1, 300)))
        refs = [worker.count.remote(self.name, number) for number in numbers]
        if self.rng.random() < 0.1:
            runtime.kill(worker)
        values = [self.outcome(ref) for ref in refs]
        for number, value in zip(numbers, values):
            self.once.enter(self.name, number, value is not NOTHING)
        answered = [value for value in values if value is not NOTHING]
        assert answered == list(range(answered[0], answered[0] + len(answered))) if answered else True, answered
        self.replace_dead(index, values)

    def replace_dead(self, index, values):
        if any(value is NOTHING for value in values):
            self.workers[index] = self.worker()

    def batches(self):
        index, worker = self.chosen()
        size, value = self.rng.choice([1, 100, 5000, 50_000]), self.rng.randrange(100)
        batch = self.outcome(worker.batch.remote(size, value))
        self.replace_dead(index, [batch])
        if batch is not NOTHING:
            assert batch["obs"].shape == (size, 8)
            assert (batch["obs"] == value).all() and (batch["actions"] == value).all()

    def weights(self):
        value, size = self.rng.randrange(10), self.rng.choice([10, 100_000, 1_000_000])
        ref, more = runtime.put(np.full(size, value)), [runtime.put(0.5)]
        pending = {worker.total.remote(ref, more): i for i, worker in enumerate(self.workers)}
        del ref
        while pending:
            done, _ = runtime.wait(list(pending), timeout=LIMIT_S)
            assert done, f"{len(pending)} calls without an outcome within {LIMIT_S} s"
            result = self.outcome(done[0])
            assert result is NOTHING or result == size * value + 0.5
            self.replace_dead(pending.pop(done[0]), [result])

    def keeps(self):
        index, worker = self.chosen()
        value = self.rng.randrange(10)
        for _ in range(4):
            worker.keep.remote([runtime.put(np.full(50_000, value))])
        result = self.outcome(worker.kept_total.remote())
        assert result is NOTHING or result == 4 * 50_000 * value
        self.replace_dead(index, [result])

    def tasks(self):
        history, retries = self.rng.choice([(self.once, 0), (self.again, 3)])
        numbers = list(itertools.islice(self.numbers, self.rng.randrange(1, 40)))
        task = execute.options(max_retries=retries)
        refs = [task.remote(str(history.path), self.name, number) for number in numbers]
        sums = [add.remote(ref, 1) for ref in refs]
        leaves = tree.remote(2)
        for number, ref, total in zip(numbers, refs, sums):
            value, result = self.outcome(ref), self.outcome(total)
            history.enter(self.name, number, value is not NOTHING)
            assert (value is NOTHING or value == number) and (result is NOTHING or result == number + 1)
        assert self.outcome(leaves) in (4, NOTHING)

    def cancels(self):
        seconds = [self.rng.uniform(0, 0.3) for _ in range(6)]
        refs = [nap.remote(s) for s in seconds]
        cancelled = self.rng.sample(range(6), 3)
        for i in cancelled:
            runtime.cancel(refs[i], force=self.rng.random() < 0.3)
        for i, ref in enumerate(refs):
            value = self.outcome(ref, *[runtime.TaskCancelledError] * (i in cancelled))
            assert value in (seconds[i], NOTHING)

    def handles(self):
        index, worker = self.chosen()
        callers = [f"{self.name} through task {next(self.numbers)}" for _ in range(3)]
        task = ask.options(max_retries=0)
        values = [self.outcome(ref) for ref in [task.remote([worker], caller, 0) for caller in callers]]
        for caller, value in zip(callers, values):
            self.once.enter(caller, 0, value is not NOTHING)
        self.replace_dead(index, values)

    def churn(self):
        index, worker = self.chosen()
        number = next(self.numbers)
        ref = worker.count.remote(self.name, number)
        del worker
        self.workers[index] = self.worker()  # the call is on its way: its actor lives until it is done
        self.once.enter(self.name, number, self.outcome(ref) is not NOTHING)


class Chaos:
    """Kills, stops and continues processes of the session at random.

    Args:
        rng: random.Random.
        node: pid of the node agent.

    Attributes:
        events: (seconds since the start, what was done), in order.
    """

    def __init__(self, rng, node):
        self.rng, self.node, self.events, self.over = rng, psutil.Process(node), [], threading.Event()
        self.start = time.monotonic()

    def run(self):
        # To kill the zygote is to kill all workers, and a new one starts in about a second.
        acts = {self.kill_worker: 8, self.stop_worker: 8, self.stop_node: 2, self.stop_zygote: 2, self.kill_zygote: 0.5}
        while not self.over.wait(self.rng.uniform(0.1, 1.5)):
            [act] = self.rng.choices(list(acts), list(acts.values()))
            try:
                act()
            except (psutil.NoSuchProcess, ProcessLookupError):  # it was quicker
                continue
            self.events.append((time.monotonic() - self.start, act.__name__))

    def zygote(self):
        children = self.node.children()
        if not children:
            raise psutil.NoSuchProcess(self.node.pid)
        return min(children, key=lambda child: child.create_time())

    def a_worker(self):
        workers = sorted(child.pid for child in self.zygote().children())
        if not workers:
            raise psutil.NoSuchProcess(0)
        return psutil.Process(self.rng.choice(workers))

    def kill_worker(self):
        self.a_worker().send_signal(signal.SIGKILL)

    def kill_zygote(self):
        self.zygote().send_signal(signal.SIGKILL)

    def stop_worker(self):
        self.pause(self.a_worker())

    def stop_node(self):
        self.pause(self.node)

    def stop_zygote(self):
        self.pause(self.zygote())

    def pause(self, process):
        process.send_signal(signal.SIGSTOP)
        try:
            self.over.wait(self.rng.uniform(0.02, 0.4))
        finally:
            process.send_signal(signal.SIGCONT)


def soak(seed: int, seconds: float, directory: Path, threads: int = 3) -> tuple[collections.Counter, list[str]]:
    """Runs the mixture in the session of this process.

    Args:
        directory: for the histories.

    Returns:
        How often everything was done; a line for each thing that was lost or doubled.
    """
    once, again = History(directory / "once"), History(directory / "again")
    counts, problems, end = collections.Counter(), [], time.monotonic() + seconds
    chaos = Chaos(random.Random(f"{seed} chaos"), runtime.context.current_engine().node_pid)

    def run(name):
        try:
            Load(name, random.Random(f"{seed} {name}"), once, again, counts).run(end)
        except BaseException as error:
            where = "".join(traceback.format_exception(error)[-6:])
            problems.append(f"{name} after {time.monotonic() - chaos.start:.1f} s: {error!r}: {error}\n{where}"[:6000])

    loads = [threading.Thread(target=run, args=(f"thread{n}",), daemon=True) for n in range(threads)]
    killer = threading.Thread(target=chaos.run, daemon=True)
    for thread in [*loads, killer]:
        thread.start()
    for thread in loads:
        thread.join(max(0.0, end - time.monotonic()) + 2 * LIMIT_S)
    chaos.over.set()
    killer.join(10)
    problems += [f"{thread.name} hangs" for thread in [*loads, killer] if thread.is_alive()]
    if not problems:  # a thread that has failed has calls without an outcome
        problems += once.problems() + again.problems(retried=True)
    counts.update(name for _, name in chaos.events)
    counts["calls with an outcome"] = len(once.outcomes) + len(again.outcomes)
    if problems:
        problems.append("last events: " + ", ".join(f"{name} at {at:.2f} s" for at, name in chaos.events[-20:]))
    return counts, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--minutes", type=float, default=10.0)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}, {arguments.minutes:g} minutes", flush=True)
    marker = os.environ[MARKER] = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="rt", dir="/tmp", ignore_cleanup_errors=True) as directory:
        sessions, histories = Path(directory, "sessions"), Path(directory, "histories")
        sessions.mkdir(mode=0o700)
        histories.mkdir()
        os.environ["XDG_RUNTIME_DIR"] = str(sessions)
        runtime.init("zeromq", num_cpus=1)  # what libraries keep open belongs to the baseline
        runtime.shutdown()
        leftovers = Leftovers(marker, sessions)
        runtime.init("zeromq", num_cpus=CPUS, object_store_memory=2**29, log_to_driver=False)
        counts, problems = soak(arguments.seed, 60 * arguments.minutes, histories)
        try:
            wait_until(lambda: not unsettled(), SETTLE_S, lambda: f"left: {unsettled()}\nnot back")
            runtime.shutdown()
            leftovers.check(10)
        except AssertionError as error:
            problems.append(str(error))
    for name, count in sorted(counts.items()):
        print(f"{count:9,d}  {name}")
    print("\n".join(problems) or "nothing lost, doubled or left", flush=True)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
