"""Waiting, parallel work, threads, recursion and forks, with processes."""

import contextlib
import multiprocessing
import os
import random
import re
import threading
import time

import numpy as np
import pytest
from runtime_support import History, note, wait_until

import runtime


@runtime.remote
class Actor:
    def pid(self):
        return os.getpid()

    def call(self, function, *args):
        return function(*args)

    def touch(self, path, value=None):
        path.touch()
        return value

    def nothing(self):
        pass


@runtime.remote
def add(a, b=1):
    return a + b


@runtime.remote
def run(function, *args):
    return function(*args)


@runtime.remote
def after(path, value=None):
    """Returns when there is such a file."""
    while not path.exists():
        time.sleep(0.005)
    return value


def wait_for_file(path):
    while not path.exists():
        time.sleep(0.005)


def call_and_tell(handles, path, called):
    """Calls an actor, says so by a file, and waits."""
    ref = handles[0].call.remote(note, path, "other", 0)
    called.touch()
    runtime.get(ref)


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_timeout_leaves_the_task_running(fresh, tmp_path):
    fresh()
    ref = after.remote(tmp_path / "go", 5)
    for timeout in (0, 0.05, 0.1):
        with pytest.raises(runtime.GetTimeoutError):
            runtime.get(ref, timeout=timeout)
    with pytest.raises(TimeoutError):
        runtime.get([runtime.put(1), ref], timeout=0.05)
    (tmp_path / "go").touch()
    assert runtime.get(ref, timeout=20) == 5


def test_wait_returns_what_is_done_first(fresh, tmp_path):
    fresh()
    slow, fast = after.remote(tmp_path / "go", "slow"), run.remote(lambda: "fast")
    assert runtime.wait([slow, fast], timeout=20) == ([fast], [slow])
    assert runtime.wait([slow, fast], num_returns=2, timeout=0.1) == ([fast], [slow])
    (tmp_path / "go").touch()
    assert runtime.wait([slow, fast], num_returns=2, timeout=20) == ([slow, fast], [])


def test_as_completed_yields_in_the_order_of_completion(fresh, tmp_path):
    fresh()
    slow, fast = after.remote(tmp_path / "go", "slow"), run.remote(lambda: "fast")
    results = runtime.as_completed([slow, fast], timeout=20)
    assert next(results) == fast
    (tmp_path / "go").touch()
    assert next(results) == slow
    with pytest.raises(runtime.GetTimeoutError):
        list(runtime.as_completed([after.remote(tmp_path / "never")], timeout=0.1))
    (tmp_path / "never").touch()


def test_tasks_run_at_the_same_time(fresh, tmp_path):
    def meet(mine, other):
        mine.touch()
        while not other.exists():
            time.sleep(0.005)
        return os.getpid()

    fresh(num_cpus=2)
    a, b = tmp_path / "a", tmp_path / "b"
    pids = runtime.get([run.remote(meet, a, b), run.remote(meet, b, a)], timeout=20)
    assert len({*pids, os.getpid()}) == 3


def test_another_caller_is_not_held_up_by_an_argument_that_is_not_there(fresh, tmp_path):
    @runtime.remote
    def call_from_elsewhere(actor):
        return runtime.get(actor[0].call.remote(len, "abc"), timeout=10)

    fresh(num_cpus=3)
    actor = Actor.remote()
    waiting = actor.call.remote(abs, after.remote(tmp_path / "go", -4))
    assert runtime.get(call_from_elsewhere.remote([actor]), timeout=20) == 3
    (tmp_path / "go").touch()
    assert runtime.get(waiting, timeout=20) == 4


@pytest.mark.parametrize("driver", ["sleeps", "computes", "computes in numpy"])
def test_work_goes_on_while_the_driver_is_busy(fresh, tmp_path, driver):
    fresh()
    actor = Actor.remote()
    runtime.get(actor.pid.remote(), timeout=20)
    first = actor.touch.remote(tmp_path / "first", 1)
    second = run.remote(lambda value, path: path.touch(), first, tmp_path / "second")
    third = actor.touch.remote(tmp_path / "third", second)
    end = time.monotonic() + 20
    while not (tmp_path / "third").exists():
        assert time.monotonic() < end
        if driver == "sleeps":
            time.sleep(0.01)
        elif driver == "computes in numpy":
            np.sort(np.arange(1_000_000)[::-1])
    runtime.get(third, timeout=20)


@pytest.mark.parametrize("depth", [20, pytest.param(50, marks=pytest.mark.slow)])
def test_a_deep_recursion_on_one_cpu(fresh, depth):
    @runtime.remote
    def deep(n):
        return 0 if n == 0 else 1 + runtime.get(deep.remote(n - 1))

    fresh(num_cpus=1)
    assert runtime.get(deep.remote(depth), timeout=60) == depth


def test_a_recursion_without_end_is_refused(fresh):
    @runtime.remote(max_retries=0)
    def deep(n):
        return runtime.get(deep.remote(n + 1))

    fresh(num_cpus=1)
    with pytest.raises(runtime.ResourceDeadlockError):
        runtime.get(deep.remote(0), timeout=60)
    assert runtime.get(add.remote(1), timeout=20) == 2


def test_two_actors_that_wait_for_each_other(fresh):
    @runtime.remote
    class Peer:
        def ask(self, other, back):
            return runtime.get(other.answer.remote(back), timeout=0.5)

        def answer(self, back):
            return runtime.get(back.ask.remote(None, None), timeout=5)

    fresh()
    a, b = Peer.remote(), Peer.remote()
    with pytest.raises(runtime.GetTimeoutError):
        runtime.get(a.ask.remote(b, a), timeout=30)
    runtime.kill(a)
    runtime.kill(b)


def test_a_flood_of_calls_leaves_room_for_other_callers(fresh, tmp_path):
    """An actor that does not answer receives a window of calls; the rest waits with the caller, in order."""
    fresh()
    actor, history, count = Actor.remote(), History(tmp_path / "history"), 10_000
    pid = runtime.get(actor.pid.remote(), timeout=20)
    before = resident_bytes(pid)
    first = actor.call.remote(wait_for_file, tmp_path / "go")
    flood = [actor.call.remote(note, history.path, "driver", number) for number in range(count)]
    other = run.remote(call_and_tell, [actor], history.path, tmp_path / "called")
    wait_until((tmp_path / "called").exists, 20)
    assert resident_bytes(pid) < before + 2**24
    (tmp_path / "go").touch()
    runtime.get([first, other], timeout=60)
    runtime.get(flood, timeout=60)
    for number in range(count):
        history.enter("driver", number, True)
    history.enter("other", 0, True)
    assert not history.problems()
    lines = history.path.read_text().splitlines()
    assert [line.split()[0] for line in lines].index("other") < count / 2


def test_threads_share_the_driver(fresh):
    fresh()
    actors = [Actor.remote() for _ in range(2)]
    failures = []

    def work(number):
        try:
            rng = random.Random(number)
            for i in range(40):
                refs = [actors[number % 2].call.remote(lambda x: x, (number, i, j)) for j in range(4)]
                if rng.random() < 0.3:
                    done, rest = runtime.wait(refs, num_returns=2, timeout=20)
                    assert len(done) == 2 and set(done) | set(rest) == set(refs)
                assert runtime.get(refs, timeout=20) == [(number, i, j) for j in range(4)]
                if i % 10 == 0:
                    assert runtime.get(add.remote(i), timeout=20) == i + 1
                    assert runtime.get(runtime.put(number), timeout=20) == number
        except BaseException as error:
            failures.append((number, repr(error)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures and not any(t.is_alive() for t in threads)


def test_threads_in_an_actor(fresh):
    def work():
        results = {}

        def one(n):
            results[n] = runtime.get(add.remote(n), timeout=20)

        threads = [threading.Thread(target=one, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        return results

    fresh()
    assert runtime.get(Actor.remote().call.remote(work), timeout=30) == {n: n + 1 for n in range(4)}


def test_a_forked_child_of_the_driver_is_told(fresh):
    session = fresh()
    ref, actor = runtime.put(1), Actor.remote()
    runtime.get(actor.pid.remote(), timeout=20)
    verbs = [
        lambda: runtime.get(ref),
        lambda: runtime.put(2),
        lambda: add.remote(1),
        lambda: actor.pid.remote(),
        lambda: runtime.wait([ref]),
    ]
    child = os.fork()
    if child == 0:  # pragma: no cover
        refused = 0
        for verb in verbs:
            try:
                verb()
            except runtime.ForkedProcessError as error:
                refused += "runtime.shutdown(), and then runtime.init()" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(verbs)
    child = os.fork()
    if child == 0:  # pragma: no cover
        runtime.shutdown()
        runtime.init(address=session.session_dir)  # as the message advises
        os._exit(runtime.get(add.remote(2), timeout=20))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert runtime.get([ref, add.remote(1)], timeout=20) == [1, 2]
    assert runtime.get(actor.pid.remote(), timeout=20)


def test_multiprocessing_in_the_driver(fresh):
    fresh()
    actor = Actor.remote()
    runtime.get(actor.pid.remote(), timeout=20)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]
    assert runtime.get(actor.call.remote(abs, -3), timeout=20) == 3


def test_multiprocessing_in_an_actor(fresh):
    def work():
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(abs, [-1, -2])

    fresh()
    actor = Actor.remote()
    assert runtime.get(actor.call.remote(work), timeout=30) == [1, 2]
    assert runtime.get(run.remote(work), timeout=30) == [1, 2]
    assert runtime.get(actor.call.remote(abs, -3), timeout=20) == 3


def test_a_forked_child_that_exits_normally_leaves_the_session_alone(fresh, script):
    done = script("""
import os, sys, runtime
runtime.init("zeromq", num_cpus=1)
@runtime.remote
class Actor:
    def ping(self):
        return "pong"
actor = Actor.remote()
runtime.get(actor.ping.remote())
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert runtime.get(actor.ping.remote()) == "pong"
print("fine")
""")
    assert done.stdout.strip() == "fine" and done.returncode == 0, done.stderr


def test_workers_draw_different_random_numbers(fresh):
    def draw():
        return random.random(), float(np.random.rand()), os.getpid()

    fresh(preload=["numpy"])
    actors = [Actor.remote() for _ in range(6)]
    draws = runtime.get([a.call.remote(draw) for a in actors], timeout=30)
    assert len({d[0] for d in draws}) == 6 and len({d[1] for d in draws}) == 6


def test_the_process_of_a_task_is_reused(fresh):
    fresh(num_cpus=1)
    runtime.get(run.remote(os.getpid), timeout=20)
    pids = {runtime.get(run.remote(os.getpid), timeout=20) for _ in range(5)}
    assert len(pids) == 1


def test_gpus_are_set_in_the_environment(fresh, monkeypatch):
    def visible():
        return os.environ.get("CUDA_VISIBLE_DEVICES")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    fresh(num_cpus=2)
    actors = [Actor.options(num_gpus=1).remote() for _ in range(2)]
    assert sorted(runtime.get([a.call.remote(visible) for a in actors], timeout=20)) == ["5", "7"]
    without = Actor.remote()
    assert runtime.get(without.call.remote(visible), timeout=20) == ""
    assert runtime.get(run.remote(visible), timeout=20) == ""
    del actors
    assert runtime.get(run.options(num_gpus=2).remote(visible), timeout=20) in ("5,7", "7,5")
    assert runtime.get(run.remote(visible), timeout=20) == ""


def test_a_hundred_actors(fresh):
    fresh()
    actors = [Actor.remote() for _ in range(100)]
    pids = runtime.get([a.pid.remote() for a in actors], timeout=60)
    assert len(set(pids)) == 100
    for actor in actors[:50]:
        runtime.kill(actor)
    del actors
    wait_until(lambda: len(fresh.processes()) <= 8, 20, lambda: f"{len(fresh.processes())} processes")
    assert runtime.get(add.remote(1), timeout=20) == 2


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_thousand_actors_with_few_descriptors(fresh, script):
    done = script(
        """
import resource, runtime
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
runtime.init("zeromq", num_cpus=2)
@runtime.remote
class Actor:
    def ping(self):
        return 1
actors = [Actor.remote() for _ in range(1000)]
print(sum(runtime.get([a.ping.remote() for a in actors], timeout=200)))
""",
        timeout_s=280,
    )
    assert done.stdout.strip() == "1000", done.stderr[-3000:]


def test_no_network_socket_is_opened(fresh):
    fresh()
    actor = Actor.remote()
    runtime.get([actor.pid.remote(), add.remote(1)], timeout=20)
    inodes = set()
    for pid in [*fresh.processes(), os.getpid()]:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                link = os.readlink(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
    assert inodes
    for table in ("tcp", "tcp6", "udp", "udp6"):
        with open(f"/proc/net/{table}") as file:
            listed = {line.split()[9] for line in file.readlines()[1:]}
        assert not listed & inodes


def test_the_session_directory_is_private(fresh, session_parent):
    fresh()
    [name] = (each for each in os.listdir(session_parent) if each.startswith("rts-"))
    status = os.stat(os.path.join(session_parent, name))
    assert status.st_mode & 0o777 == 0o700 and status.st_uid == os.getuid()


def test_two_sessions_of_one_user(fresh, script):
    source = """
import time, runtime
runtime.init("zeromq", num_cpus=1)
@runtime.remote
class Counter:
    value = 0
    def add(self):
        self.value += 1
        return self.value
counter = Counter.remote()
print("ready", flush=True)
time.sleep(0.5)
print(sum(runtime.get([counter.add.remote() for _ in range(100)], timeout=20)), flush=True)
"""
    first, second = script.start(source), script.start(source)
    for driver in (first, second):
        assert driver.stdout.readline().strip() == "ready", driver.stderr.read()
    for driver in (first, second):
        out, err = driver.communicate(timeout=20)
        assert out.strip() == "5050", err


def test_a_class_of_main_creates_actors_of_its_own(fresh, script):
    source = """
import runtime

@runtime.remote
class Node:
    LIMIT = 2

    def __init__(self, depth, label="node"):
        self.depth, self.label = depth, label

    def grow(self):
        below = runtime.get(Node.remote(self.depth + 1).grow.remote()) if self.depth < Node.LIMIT else []
        return [f"{self.label} {self.depth}", *below]

runtime.init(num_cpus=2)
print(runtime.get(Node.remote(0).grow.remote()))
"""
    done = script(source)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['node 0', 'node 1', 'node 2']"


def test_actors_that_wait_for_one_another_are_named(fresh, caplog):
    @runtime.remote(num_cpus=0)
    class Asker:
        def __init__(self):
            self.others = []

        def know(self, *others):
            self.others = others

        def ask(self):
            return runtime.get([other.answer.remote() for other in self.others])

        def ask_by_task(self):
            return runtime.get(ask_for.remote(self.others))

        def answer(self):
            return self.ask()

        def sleep(self):
            time.sleep(7)

        def wait_for_sleep(self):
            runtime.get(self.others[0].sleep.remote())

        def wait_with_timeout(self):
            with contextlib.suppress(runtime.GetTimeoutError):
                runtime.get(self.others[0].answer.remote(), timeout=7)

    @runtime.remote
    def ask_for(others):
        return runtime.get(others[0].answer.remote())

    fresh.settles = False  # they wait for ever
    fresh(num_cpus=2)
    alone, one, two, tasked, patient, sleeper, timed = [
        Asker.options(name=name).remote() for name in ("alone", "one", "two", "tasked", "patient", "sleeper", "timed")
    ]
    known = {alone: [alone], one: [two], two: [one], tasked: [tasked], patient: [sleeper], timed: [timed]}
    runtime.get([actor.know.remote(*others) for actor, others in known.items()], timeout=20)
    stuck = [actor.ask.remote() for actor in (alone, one, two)] + [tasked.ask_by_task.remote()]
    ending = [patient.wait_for_sleep.remote(), timed.wait_with_timeout.remote()]
    assert len(runtime.wait(ending, num_returns=2, timeout=30)[0]) == 2
    assert runtime.wait(stuck, timeout=0)[0] == []
    told = [record.getMessage() for record in caplog.records if "deadlock" in record.getMessage()]
    assert len(told) == 3, told
    # Actors one and two each begin their own call or answer the other's first: either order is a deadlock.
    for cycle in (
        r"alone\.ask\(\), which waits for alone\.ask\(\)\.",
        r"one\.(ask|answer)\(\), which waits for two\.(ask|answer)\(\)|two\.(ask|answer)\(\), which waits for one\.",
        r"ask_for\(\), which waits for tasked\.ask_by_task\(\)|tasked\.ask_by_task\(\), which waits for ask_for\(\)",
    ):
        assert any(re.search(cycle, message) for message in told), (cycle, told)
