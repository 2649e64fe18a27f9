"""Processes that die, in every way they can."""

import atexit
import contextlib
import io
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from runtime_support import marked_processes, process_alive, wait_until

import runtime


@runtime.remote
class Actor:
    """Does what the tests ask for."""

    def __init__(self):
        self.calls = 0

    def pid(self):
        return os.getpid()

    def call(self, function, *args):
        return function(*args)

    def yields(self, function, *args):
        yield function(*args)

    def record(self, path, number):
        with open(path, "a") as file:
            file.write(f"{number}\n")
        return number

    def count(self):
        self.calls += 1
        return self.calls


@runtime.remote
class WithLoop:
    """The same in a class with coroutines."""

    def call(self, function, *args):
        return function(*args)

    async def call_on_loop(self, function, *args):
        return function(*args)

    yields = Actor.yields


@runtime.remote
def add(a, b=1):
    return a + b


@runtime.remote
def run(function, *args):
    return function(*args)


def block(path=None):
    """Never returns; says that it is running by creating a file with its pid."""
    if path is not None:
        Path(path).write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)


def running_pid(path, timeout_s=20):
    """The pid that `block` wrote."""
    return int(wait_until(lambda: path.exists() and path.read_text(), timeout_s))


@pytest.fixture(autouse=True, scope="module")
def another_child():
    """This process has a child that is not the session's, as after tests that have used multiprocessing."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield
        child.communicate()


def session_processes():
    """The supervisor and the process from which workers are forked, which is its first child."""
    agent = psutil.Process(runtime.context.current_engine().node_pid)
    zygote = min(agent.children(), key=lambda child: child.create_time())
    return agent.pid, zygote.pid


def test_a_killed_worker_is_replaced_and_its_task_retried(fresh, tmp_path):
    fresh()
    path = tmp_path / "pids"

    @runtime.remote
    def twice():
        with open(path, "a") as file:
            file.write(f"{os.getpid()}\n")
        if len(path.read_text().split()) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    assert runtime.get(twice.remote(), timeout=20) == "done"
    first, second = path.read_text().split()
    assert first != second


def test_a_task_killed_from_outside_is_retried(fresh, tmp_path):
    fresh()
    path = tmp_path / "pid"

    @runtime.remote
    def once():
        if path.exists():
            return "second"
        block(path)

    ref = once.remote()
    os.kill(running_pid(path), signal.SIGKILL)
    assert runtime.get(ref, timeout=20) == "second"


def test_without_retries_the_signal_is_named(fresh, tmp_path):
    fresh()
    ref = run.options(max_retries=0, name="important work").remote(block, tmp_path / "pid")
    os.kill(running_pid(tmp_path / "pid"), signal.SIGKILL)
    with pytest.raises(runtime.WorkerCrashedError, match=r"important work.*SIGKILL"):
        runtime.get(ref, timeout=5)
    assert runtime.get(add.remote(1), timeout=20) == 2


def test_a_worker_that_is_killed_just_after_its_task_loses_no_result(fresh):
    """The first result for a process goes over a connection that is made for it; the node hears of its end at once."""
    fresh()

    @runtime.remote(max_retries=0)
    def killed_soon(seconds):
        worker, child = os.getpid(), os.fork()
        if child == 0:
            time.sleep(seconds)
            os.kill(worker, signal.SIGKILL)  # not the parent: of a child that has lost its own, that is the node
            os._exit(0)

    for milliseconds in range(1, 13):
        with contextlib.suppress(runtime.WorkerCrashedError):
            runtime.get(killed_soon.remote(milliseconds / 2000), timeout=10)


def test_a_task_that_always_kills_its_worker(fresh, tmp_path):
    fresh()
    path = tmp_path / "runs"

    @runtime.remote(max_retries=2)
    def deadly():
        with open(path, "a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)

    ref = deadly.remote()
    others = [add.remote(i) for i in range(30)]
    with pytest.raises(runtime.WorkerCrashedError, match="deadly"):
        runtime.get(ref, timeout=30)
    assert path.read_text() == "xxx"
    assert runtime.get(others, timeout=30) == list(range(1, 31))


def test_an_actor_killed_between_calls(fresh):
    fresh()
    actor = Actor.remote()
    os.kill(runtime.get(actor.pid.remote(), timeout=20), signal.SIGKILL)
    with pytest.raises(runtime.ActorDiedError, match="SIGKILL"):
        runtime.get(actor.pid.remote(), timeout=5)


def test_an_actor_killed_during_calls_runs_none_twice(fresh, tmp_path):
    fresh()
    path = tmp_path / "history"
    actor = Actor.remote()
    done = [actor.record.remote(path, i) for i in range(20)]
    ref = actor.call.remote(block, tmp_path / "pid")
    queued = [actor.record.remote(path, i) for i in range(20, 40)]
    pid = running_pid(tmp_path / "pid")
    runtime.wait(done, num_returns=20, timeout=20)  # an answer that has not left the process dies with it
    os.kill(pid, signal.SIGKILL)
    for one in [ref, *queued]:
        with pytest.raises(runtime.ActorDiedError):
            runtime.get(one, timeout=20)
    assert runtime.get(done, timeout=20) == list(range(20))
    assert path.read_text().split() == [str(i) for i in range(20)]


def test_a_killed_actor_does_not_disturb_others(fresh, tmp_path):
    fresh()
    actors = [Actor.remote() for _ in range(3)]
    pids = runtime.get([a.pid.remote() for a in actors], timeout=20)
    refs = [a.count.remote() for a in actors for _ in range(50)]
    os.kill(pids[1], signal.SIGKILL)
    assert runtime.get(refs[:50] + refs[100:], timeout=20) == [*range(1, 51)] * 2
    assert runtime.get(Actor.remote().count.remote(), timeout=20) == 1


def test_a_death_is_told_to_every_holder(fresh):
    fresh()
    actor = Actor.remote()
    pid = runtime.get(actor.pid.remote(), timeout=20)

    @runtime.remote
    def use(handles):
        with contextlib.suppress(runtime.ActorDiedError):
            while True:
                runtime.get(handles[0].count.remote(), timeout=10)
        return "noticed"

    refs = [use.remote([actor]) for _ in range(2)]
    wait_until(lambda: runtime.get(actor.count.remote(), timeout=10) > 3)
    os.kill(pid, signal.SIGKILL)
    assert runtime.get(refs, timeout=20) == ["noticed"] * 2


@pytest.mark.parametrize("how, named", [("abort", "SIGABRT"), ("segfault", "SIGSEGV")])
def test_native_crashes_are_named(fresh, how, named):
    def crash():
        import ctypes

        ctypes.string_at(0) if how == "segfault" else os.abort()

    fresh()
    with pytest.raises(runtime.WorkerCrashedError, match=named):
        runtime.get(run.options(max_retries=0).remote(crash), timeout=20)
    actor = Actor.remote()
    with pytest.raises(runtime.ActorDiedError, match=named) as caught:
        runtime.get(actor.call.remote(crash), timeout=20)
    assert "in crash" in str(caught.value)  # the native traceback, from the last lines of stderr
    assert runtime.get(add.remote(1), timeout=20) == 2


def test_exit_codes_and_last_words_are_told(fresh):
    def leave():
        print("disk on fire", file=sys.stderr, flush=True)
        os._exit(7)

    fresh()
    actor = Actor.remote()
    with pytest.raises(runtime.ActorDiedError, match=r"\b7\b") as caught:
        runtime.get(actor.call.remote(leave), timeout=20)
    assert "disk on fire" in str(caught.value)
    with pytest.raises(runtime.WorkerCrashedError, match=r"\b7\b"):
        runtime.get(run.options(max_retries=0).remote(leave), timeout=20)


def test_a_crash_in_the_constructor(fresh):
    @runtime.remote
    class Crashes:
        def __init__(self):
            os._exit(9)

        def ping(self):
            pass

    fresh()
    with pytest.raises(runtime.ActorDiedError, match=r"\b9\b"):
        runtime.get(Crashes.remote().ping.remote(), timeout=20)


@pytest.mark.parametrize("cls", [KeyboardInterrupt, GeneratorExit])
def test_base_exceptions_of_user_code_do_not_stop_anything(fresh, cls):
    def fail():
        raise cls("user")

    fresh()
    actor = Actor.remote()
    pid = runtime.get(actor.pid.remote(), timeout=20)
    for ref in (run.remote(fail), actor.call.remote(fail)):
        with pytest.raises(runtime.TaskError, match=cls.__name__) as caught:
            runtime.get(ref, timeout=20)
        assert not isinstance(caught.value, cls)
    assert runtime.get(actor.pid.remote(), timeout=20) == pid


def test_what_a_signal_ended_is_described_in_a_few_lines(fresh):
    """Where user code was, of the thread that the signal has ended."""
    fresh()
    actor = Actor.options(max_concurrency=3).remote()
    assert runtime.get([actor.count.remote() for _ in range(3)], timeout=20)
    for ref in (run.options(max_retries=0).remote(os.abort), actor.call.remote(os.abort)):
        with pytest.raises(
            runtime.RuntimeFailure, match=r"SIGABRT(.|\n)*Fatal Python error: Aborted(.|\n)* in (call|run)"
        ) as caught:
            runtime.get(ref, timeout=20)
        assert len(str(caught.value).splitlines()) <= 10


def fork_and(end, *args):
    """How a child that ends by `end()` has ended for the parent, which returns first."""
    child = os.fork()
    if child == 0:
        return end(*args)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fail_and_count(path):
    with open(path, "a") as file:
        file.write("x")
    raise ValueError("in the child")


def raise_here():
    raise ValueError("in the child")


@pytest.mark.parametrize(
    "end, code",
    [(lambda: sys.exit(0), 0), (lambda: sys.exit(3), 3), (lambda: "returned", 0), (raise_here, 1), (os.abort, -6)],
    ids=["sys.exit(0)", "sys.exit(3)", "return", "raise", "abort"],
)
def test_a_child_that_user_code_forks_ends_by_itself(fresh, end, code):
    fresh()
    actor = Actor.remote()
    pid = runtime.get(actor.pid.remote(), timeout=20)
    refs = [actor.call.remote(fork_and, end), run.remote(fork_and, end), actor.pid.remote()]
    assert runtime.get(refs, timeout=20) == [code, code, pid]
    threads, loop = Actor.options(max_concurrency=2).remote(), WithLoop.remote()
    refs = [method.remote(fork_and, end) for method in (threads.call, loop.call, loop.call_on_loop)]
    assert runtime.get(refs, timeout=20) == [code] * 3
    refs = [next(actor.yields.remote(fork_and, end)) for actor in (actor, loop)]
    assert runtime.get(refs, timeout=20) == [code] * 2


def test_a_call_with_retries_in_a_thread_is_not_retried_by_a_forked_child(fresh, tmp_path):
    fresh()
    threads, loop = Actor.options(max_concurrency=2).remote(), WithLoop.remote()
    for number, method in enumerate((threads.call, loop.call_on_loop)):
        path = tmp_path / f"runs{number}"
        ref = method.options(max_task_retries=2, retry_exceptions=True).remote(fork_and, fail_and_count, path)
        assert runtime.get(ref, timeout=20) == 1 and path.read_text() == "x"


def test_a_child_that_a_constructor_forks_ends_by_itself(fresh):
    @runtime.remote
    class Forks:
        def __init__(self):
            self.code = fork_and(lambda: sys.exit(5))

        def get(self):
            return self.code

    fresh()
    assert runtime.get(Forks.remote().get.remote(), timeout=20) == 5


def test_a_task_with_retries_is_not_retried_by_a_forked_child(fresh, tmp_path):
    @runtime.remote(max_retries=2, retry_exceptions=True)
    def forks():
        code = fork_and(raise_here)
        with open(tmp_path / "runs", "a") as file:
            file.write("x")
        return code

    fresh()
    assert runtime.get(forks.remote(), timeout=20) == 1
    assert (tmp_path / "runs").read_text() == "x"


def raise_at(number):
    """Has a signal raise from now on."""

    def handler(*_):
        raise ValueError("from the signal handler")

    signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_a_signal_does_not_end_an_idle_actor(fresh, number):
    fresh()
    actor = Actor.remote()
    pid = runtime.get(actor.pid.remote(), timeout=20)
    if number != signal.SIGINT:
        runtime.get(actor.call.remote(raise_at, number), timeout=20)
    for i in range(1, 4):
        os.kill(pid, number)
        time.sleep(0.05)  # the signal is to find the actor waiting
        assert runtime.get([actor.count.remote(), actor.pid.remote()], timeout=20) == [i, pid]


def test_a_signal_handler_raises_into_the_call_that_runs(fresh, tmp_path):
    fresh()
    actor = Actor.remote()
    pid = runtime.get([actor.call.remote(raise_at, signal.SIGUSR1), actor.pid.remote()], timeout=20)[1]
    ref = actor.call.remote(block, tmp_path / "pid")
    running_pid(tmp_path / "pid")
    os.kill(pid, signal.SIGUSR1)
    with pytest.raises(ValueError, match="from the signal handler"):
        runtime.get(ref, timeout=20)
    assert runtime.get(actor.pid.remote(), timeout=20) == pid


def test_signals_at_any_time_lose_no_call(fresh):
    fresh()
    actor, rng, answered = Actor.remote(), random.Random(1), 0
    pid = runtime.get([actor.call.remote(raise_at, signal.SIGUSR1), actor.pid.remote()], timeout=20)[1]
    for _ in range(60):
        refs = [actor.count.remote() for _ in range(100)]
        time.sleep(rng.uniform(0, 0.01))  # at some point of its work
        os.kill(pid, signal.SIGUSR1)
        assert len(runtime.wait(refs, num_returns=100, timeout=20)[0]) == 100
        for ref in refs:
            with contextlib.suppress(runtime.TaskError):
                answered += runtime.get(ref) > 0
    assert answered >= 60 * 99 and runtime.get(actor.pid.remote(), timeout=20) == pid


def test_a_signal_handler_that_exits_ends_an_idle_actor(fresh):
    def exit_at(number):
        signal.signal(number, lambda *_: sys.exit(7))
        return signal.getsignal(number).__name__

    fresh()
    actor = Actor.remote()
    pid, name = runtime.get([actor.pid.remote(), actor.call.remote(exit_at, signal.SIGUSR1)], timeout=20)
    assert name == "<lambda>"
    os.kill(pid, signal.SIGUSR1)
    wait_until(lambda: not process_alive(pid))
    with pytest.raises(runtime.ActorDiedError, match=r"sys.exit\(7\)"):
        runtime.get(actor.pid.remote(), timeout=20)


@pytest.mark.parametrize("where", ["__del__", "atexit"])
def test_an_actor_that_takes_long_to_leave_keeps_no_cpu(fresh, where):
    @runtime.remote(num_cpus=2)
    class Slow:
        def __init__(self):
            if where == "atexit":
                atexit.register(time.sleep, 1000)

        def ready(self):
            pass

        def __del__(self):
            if where == "__del__":
                time.sleep(1000)

    fresh(num_cpus=2)
    actor = Slow.remote()
    runtime.get(actor.ready.remote(), timeout=20)
    del actor
    wait_until(lambda: runtime.available_resources().get("CPU") == 2, 10)


def test_killing_the_supervisor_ends_the_session(fresh, tmp_path):
    fresh()
    actor = Actor.remote()
    runtime.get(actor.pid.remote(), timeout=20)
    ref = run.remote(block, tmp_path / "pid")
    running_pid(tmp_path / "pid")
    agent, _ = session_processes()
    os.kill(agent, signal.SIGKILL)
    with pytest.raises(runtime.NodeDiedError):
        runtime.get(ref, timeout=10)
    with pytest.raises(runtime.RuntimeFailure):
        runtime.get(actor.pid.remote(), timeout=10)
    wait_until(lambda: not fresh.processes(), 5, lambda: f"alive: {fresh.processes()}")
    runtime.shutdown()
    runtime.init("zeromq", num_cpus=1)
    assert runtime.get(add.remote(1), timeout=20) == 2


def test_killing_the_zygote(fresh, tmp_path):
    fresh()
    actor = Actor.remote()
    runtime.get(actor.pid.remote(), timeout=20)
    first = tmp_path / "first"

    @runtime.remote
    def survives():
        if first.exists():
            return "retried"
        block(first)

    ref = survives.remote()
    running_pid(first)
    _, zygote = session_processes()
    os.kill(zygote, signal.SIGKILL)
    assert runtime.get(ref, timeout=30) == "retried"
    with pytest.raises(runtime.ActorDiedError):
        runtime.get(actor.pid.remote(), timeout=10)
    assert runtime.get(Actor.remote().count.remote(), timeout=20) == 1


DRIVER = """
import os, sys, time
import numpy as np
import runtime

@runtime.remote
class Actor:
    def ready(self):
        return runtime.empty(1_000_000)
    def spin(self):
        while True:
            pass

@runtime.remote
def sleep():
    time.sleep(1000)

runtime.init("zeromq", num_cpus=2)
actors = [Actor.remote() for _ in range(3)]
arrays = runtime.get([a.ready.remote() for a in actors])
kept = [runtime.put(np.ones(1_000_000)) for _ in range(3)]
tasks = [sleep.remote() for _ in range(4)]
spinning = actors[0].spin.remote()
child = 0
if "fork" in sys.argv:
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
print("ready", child, flush=True)
"""


@pytest.mark.parametrize("with_child", [False, True], ids=["alone", "with a forked child"])
def test_nothing_remains_of_a_killed_driver(fresh, script, with_child):
    driver = script.start(DRIVER + "runtime.get(tasks)\n", *["fork"] * with_child)
    word, child = driver.stdout.readline().split()
    assert word == "ready", driver.stderr.read()
    assert len(fresh.processes()) >= 5
    driver.kill()
    driver.wait(5)
    try:
        wait_until(lambda: set(fresh.processes()) <= {int(child)}, 5, lambda: f"alive: {fresh.processes()}")
    finally:
        if int(child):
            os.kill(int(child), signal.SIGKILL)
    fresh.leftovers.check(5, own=False)


@pytest.mark.parametrize("blocked_in", ["runtime.get(tasks)", "time.sleep(1000)", "runtime.wait(tasks)"])
def test_sigterm_ends_a_driver_and_its_session(fresh, script, blocked_in):
    driver = script.start(DRIVER + blocked_in + "\n")
    assert driver.stdout.readline().startswith("ready"), driver.stderr.read()
    driver.terminate()
    driver.wait(5)
    fresh.leftovers.check(5, own=False)


@pytest.mark.parametrize("end", ["", "raise ValueError('end')", "sys.exit(3)", "os._exit(4)"])
def test_every_end_of_a_driver_is_clean(fresh, script, end):
    done = script(DRIVER + end + "\n", timeout_s=20)
    expected = {"": 0, "raise ValueError('end')": 1, "sys.exit(3)": 3, "os._exit(4)": 4}[end]
    assert done.returncode == expected, done.stderr
    assert ("ValueError: end" in done.stderr) == ("ValueError" in end)
    if not end:
        assert done.stderr == ""
    fresh.leftovers.check(5, own=False)


def test_a_driver_ends_while_a_thread_waits(fresh, script):
    waiting = "import threading\nthreading.Thread(target=runtime.get, args=(tasks,), daemon=True).start()\n"
    done = script(DRIVER + waiting + "time.sleep(0.2)\n", timeout_s=20)
    assert done.returncode == 0, done.stderr
    fresh.leftovers.check(5, own=False)


def test_the_next_session_sweeps_after_everything_was_killed(fresh, script, session_parent):
    driver = script.start(DRIVER + "runtime.get(tasks)\n")
    assert driver.stdout.readline().startswith("ready"), driver.stderr.read()
    pids = [driver.pid, *marked_processes(fresh.leftovers.marker)]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    driver.wait(5)
    wait_until(lambda: not any(process_alive(pid) for pid in pids), 5)  # one that is ending has no environment
    stale = set(os.listdir(session_parent))
    fresh()
    assert not stale & set(os.listdir(session_parent))
    assert runtime.get(add.remote(1), timeout=20) == 2


def test_grandchildren_end_with_a_killed_worker(fresh):
    def spawn():
        return [
            subprocess.Popen(["sleep", "1000"], start_new_session=detached, stdout=subprocess.DEVNULL).pid
            for detached in (False, True)
        ]

    fresh()
    actor = Actor.remote()
    pid, children = runtime.get([actor.pid.remote(), actor.call.remote(spawn)], timeout=20)
    assert all(process_alive(c) for c in children)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(process_alive(c) for c in children), 5)


def start_background_processes():
    """Pids of a child, of one in a session of its own, and of two whose parents have ended at once."""
    pids = []
    for detached in (False, True):
        shell = ["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"]
        pids.append(subprocess.Popen(["sleep", "1000"], start_new_session=detached).pid)
        pids.append(int(subprocess.run(shell, capture_output=True, start_new_session=detached).stdout))
    return pids


def test_background_processes_of_an_actor_outlive_other_actors(fresh):
    fresh()
    actor, other = Actor.remote(), Actor.remote()
    background = runtime.get(actor.call.remote(start_background_processes), timeout=20)
    pid, other_pid = runtime.get([actor.pid.remote(), other.pid.remote()], timeout=20)
    os.kill(other_pid, signal.SIGKILL)
    with pytest.raises(runtime.ActorDiedError):
        runtime.get(other.pid.remote(), timeout=20)
    assert runtime.get(Actor.remote().count.remote(), timeout=20) == 1
    assert all(map(process_alive, background))
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(process_alive, background)), 5)


def start_and_forget():
    """Pid of a daemon that ends soon; a child that ends soon stays to be waited for."""
    from runtime.engines.zeromq.worker import worker_process as worker

    worker.REAP_S = 0.0
    sys.own_children = [subprocess.Popen(["sh", "-c", "exit 3"], start_new_session=detached) for detached in (0, 1)]
    shell = ["sh", "-c", "sleep 0.1 >/dev/null 2>&1 & echo $!"]
    return int(subprocess.run(shell, capture_output=True, start_new_session=True).stdout)


def test_an_ended_daemon_does_not_stay_a_zombie(fresh):
    fresh()
    actor = Actor.remote()
    daemon = runtime.get(actor.call.remote(start_and_forget), timeout=20)

    def has_gone():
        runtime.get(actor.count.remote(), timeout=20)
        return not Path(f"/proc/{daemon}").exists()

    wait_until(has_gone, 10)
    assert runtime.get(actor.call.remote(lambda: [child.wait() for child in sys.own_children]), timeout=20) == [3, 3]


def test_background_processes_end_with_a_killed_supervisor(fresh):
    fresh()
    actor = Actor.remote()
    background = runtime.get(actor.call.remote(start_background_processes), timeout=20)
    background += runtime.get(run.remote(start_background_processes), timeout=20)
    os.kill(session_processes()[0], signal.SIGKILL)
    wait_until(lambda: not any(map(process_alive, background)), 5)
    wait_until(lambda: not fresh.processes(), 5)


def test_grandchildren_end_with_the_session(fresh):
    fresh()
    background = runtime.get(run.remote(start_background_processes), timeout=20)
    runtime.shutdown()
    assert not any(map(process_alive, background))


def test_actors_beyond_the_limit_of_open_files_fail(fresh, script):
    source = """
import runtime
@runtime.remote(num_cpus=0)
class Actor:
    def ping(self):
        return "pong"
@runtime.remote
def task(value):
    return value
runtime.init("zeromq", num_cpus=2)
actors, failed = [Actor.remote() for _ in range(40)], 0
for actor in actors:
    try:
        assert runtime.get(actor.ping.remote(), timeout=20) == "pong"
    except runtime.ActorDiedError as error:
        failed += 1
        text = str(error)
assert runtime.get(task.remote(bytes(1_000_000)), timeout=20) == bytes(1_000_000)
print(40 - failed, text)
"""
    limit = (64, 64)
    done = script(source, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) >= 5 and "ulimit -n" in done.stdout
    fresh.leftovers.check(5, own=False)


def test_a_stopped_actor(fresh):
    fresh()
    stopped, other = Actor.remote(), Actor.remote()
    pid = runtime.get(stopped.pid.remote(), timeout=20)
    os.kill(pid, signal.SIGSTOP)
    refs = [stopped.count.remote() for _ in range(5)]
    with pytest.raises(runtime.GetTimeoutError):
        runtime.get(refs[0], timeout=0.3)
    assert runtime.get(other.count.remote(), timeout=20) == 1
    os.kill(pid, signal.SIGCONT)
    assert runtime.get(refs, timeout=20) == [1, 2, 3, 4, 5]
    os.kill(pid, signal.SIGSTOP)
    runtime.kill(stopped)
    wait_until(lambda: not process_alive(pid), 5)


def test_a_stuck_actor_can_be_killed(fresh):
    def spin():
        while True:
            pass

    fresh(num_cpus=2)
    actor = Actor.options(num_cpus=2).remote()
    pid = runtime.get(actor.pid.remote(), timeout=20)
    ref = actor.call.remote(spin)
    with pytest.raises(runtime.GetTimeoutError):
        runtime.get(ref, timeout=0.2)
    runtime.kill(actor)
    with pytest.raises(runtime.ActorDiedError, match="kill"):
        runtime.get(ref, timeout=5)
    wait_until(lambda: not process_alive(pid), 5)
    wait_until(lambda: runtime.available_resources().get("CPU") == 2, 5)


def test_the_process_of_an_actor_ends_with_its_last_handle(fresh):
    fresh()
    actor = Actor.remote()
    pid = runtime.get(actor.pid.remote(), timeout=20)
    del actor
    wait_until(lambda: not process_alive(pid), 5)


def test_actors_of_a_killed_owner_end_with_it(fresh):
    fresh()
    owner = Actor.remote()
    pid, child = runtime.get([owner.pid.remote(), owner.call.remote(lambda: [Actor.remote()])], timeout=20)
    child_pid = runtime.get(child[0].pid.remote(), timeout=20)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not process_alive(child_pid), 5)
    with pytest.raises(runtime.ActorDiedError):
        runtime.get(child[0].pid.remote(), timeout=5)


def test_the_output_of_workers_is_shown_in_the_driver(fresh, script):
    source = """
import sys, runtime
runtime.init("zeromq", num_cpus=1, log_to_driver=sys.argv[1] == "yes")
@runtime.remote
def speak():
    print("hello from a task")
    print("and its stderr", file=sys.stderr)
runtime.get(speak.remote())
runtime.shutdown()
"""
    shown, hidden = script(source, "yes"), script(source, "no")
    assert "hello from a task" in shown.stdout and "and its stderr" in shown.stderr
    assert "hello" not in shown.stderr and "stderr" not in shown.stdout
    assert "hello" not in hidden.stdout + hidden.stderr


def test_the_output_of_workers_goes_through_the_streams_of_the_driver(fresh):
    @runtime.remote
    def speak():
        print("a line", "that has no end yet", end=" ")
        print("a warning", end=" ", file=sys.stderr)

    fresh(num_cpus=1, log_to_driver=True)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        runtime.get(speak.remote(), timeout=20)
        wait_until(lambda: "no end yet" in out.getvalue() and "a warning" in err.getvalue(), 5)


@pytest.mark.parametrize("dedup", ["1", "0"])
def test_lines_that_workers_print_alike_are_shown_once(fresh, script, monkeypatch, dedup):
    source = """
import sys, runtime
runtime.init("zeromq", num_cpus=1)
@runtime.remote
class Speaker:
    def speak(self, number):
        print("the same line, by", number)
speakers = [Speaker.remote() for _ in range(4)]
runtime.get([speaker.__ray_ready__.remote() for speaker in speakers])  # lines are alike for 5 s
for number, speaker in enumerate(speakers):
    runtime.get(speaker.speak.remote(number))
runtime.shutdown()
"""
    monkeypatch.setenv("RUNTIME_DEDUP_LOGS", dedup)
    lines = [line for line in script(source).stdout.splitlines() if "same line" in line]
    assert all(re.match(r"\(Speaker pid=\d+\) the same line, by \d", line) for line in lines)
    if dedup == "0":
        assert len(lines) == 4
    else:
        assert len(lines) == 2 and "[repeated 3x by 4 processes; RUNTIME_DEDUP_LOGS=0 shows all]" in lines[1]


@pytest.mark.parametrize("library", ["tqdm", "rich"])
def test_progress_bars_of_the_driver_survive_the_lines(fresh, script, library):
    """No line is written into a bar: it stands at the beginning of a line of its own."""
    pytest.importorskip(library)
    source = """
import sys, time, runtime
runtime.init("zeromq", num_cpus=1)
@runtime.remote
def speak(number):
    print(f"line {number * 'x'} of a worker", file=sys.stderr)
if sys.argv[1] == "tqdm":
    from tqdm import tqdm
    track = tqdm(range(3), file=sys.stderr)
else:
    from rich.console import Console
    from rich.progress import track as tracked
    track = tracked(range(3), console=Console(file=sys.stderr, force_terminal=True, width=60))
for number in track:
    runtime.get(speak.remote(number))
    time.sleep(0.2)
runtime.shutdown()
"""
    result = script(source, library)
    assert result.returncode == 0, result.stderr
    shown = [re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", line) for line in re.split("[\r\n]", result.stderr)]
    lines = [line.rstrip() for line in shown if "of a worker" in line]
    assert len(lines) == 3 and all(line.startswith("(speak pid=") and line.endswith("worker") for line in lines)


def test_a_worker_ends_after_max_calls(fresh):
    """Only calls of that function count, and none of them is lost."""
    fresh(num_cpus=1)

    @runtime.remote(max_calls=2)
    def limited():
        return os.getpid()

    @runtime.remote
    def unlimited():
        return os.getpid()

    pids = [runtime.get(f.remote(), timeout=20) for f in (limited, unlimited, unlimited, limited, limited)]
    assert pids[0] == pids[1] == pids[2] == pids[3] != pids[4]
    pids = runtime.get([limited.remote() for _ in range(10)], timeout=60)
    assert all(pids.count(pid) <= 2 for pid in pids)


@pytest.mark.parametrize("options", [{"max_calls": 1}, {"num_gpus": 1}])
def test_a_worker_ends_after_what_it_has_started(fresh, options):
    """Tasks, also those whose arguments wait, actors whose handles it has returned, calls of one that starts."""
    fresh(num_cpus=2, num_gpus=1)

    @runtime.remote(num_cpus=0)
    def late(*args):
        time.sleep(0.5)
        return 1

    @runtime.remote(num_cpus=0)
    class Counter:
        def __init__(self, count):
            time.sleep(0.5)
            self.count = 0

        def add(self):
            self.count += 1
            return self.count

    @runtime.remote(num_cpus=0, **options)
    def start(counter):
        for _ in range(3):
            counter.add.remote()
        tasks = [late.remote(), late.remote(late.remote()), late.remote(counter.add.remote())]
        return tasks, Counter.remote(late.remote()), os.getpid()

    counter = Counter.remote(0)
    tasks, its, pid = runtime.get(start.remote(counter), timeout=20)
    assert runtime.get([*tasks, its.add.remote()], timeout=20) == [1, 1, 1, 1]
    wait_until(lambda: runtime.get(counter.add.remote()) > 3)
    del its
    wait_until(lambda: not process_alive(pid))
