"""Cancelling what runs: the right task ends, and nothing else does."""

import asyncio
import contextlib
import signal
import time

import pytest
from runtime_support import process_alive, wait_until

import runtime


@runtime.remote
def work(directory, how="sleep", seconds=30):
    """Says in files that it has begun, and whether it was interrupted; its result says that it was not."""
    import os

    (directory / "begun").write_text(str(os.getpid()))
    until = time.monotonic() + seconds
    try:
        if how == "sleep":
            time.sleep(seconds)
        elif how == "compute":
            while time.monotonic() < until:
                sum(range(1000))
        elif how == "get":
            runtime.get(wait_for.remote(directory / "never"))
        elif how == "wait":
            runtime.wait([wait_for.remote(directory / "never")])
        elif how == "asyncio":
            import asyncio

            asyncio.run(asyncio.sleep(seconds))
    except BaseException as error:
        (directory / type(error).__name__).touch()
        raise
    return "not interrupted"


@runtime.remote
def wait_for(path, seconds=30):
    until = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.01)
    return path.exists()


@runtime.remote
def stubborn(directory):
    """Cannot be interrupted."""
    import os
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    (directory / "begun").write_text(str(os.getpid()))
    time.sleep(60)


@runtime.remote
def identity(value):
    return value


def begun(directory):
    wait_until((directory / "begun").exists)
    return int(wait_until((directory / "begun").read_text))


@pytest.mark.parametrize("how", ["sleep", "compute", "get", "wait", "asyncio"])
def test_a_running_task_is_interrupted(fresh, tmp_path, how):
    fresh(num_cpus=1)
    ref = work.remote(tmp_path, how)
    pid = begun(tmp_path)
    runtime.cancel(ref)
    with pytest.raises(runtime.TaskCancelledError, match=r"work\(\) was cancelled"):
        runtime.get(ref, timeout=10)
    assert (tmp_path / "KeyboardInterrupt").exists() or how in ("get", "wait")
    assert process_alive(pid)
    assert runtime.get(identity.remote(1), timeout=10) == 1


def test_a_task_that_catches_the_interrupt_returns_its_value(fresh, tmp_path):
    @runtime.remote
    def careful():
        begun = 0
        try:
            (tmp_path / "begun").write_text("1")
            time.sleep(30)
        except KeyboardInterrupt:
            begun += 1
        time.sleep(0.2)  # repeated cancels change nothing
        return begun

    fresh(num_cpus=1)
    ref = careful.remote()
    begun(tmp_path)
    for _ in range(20):
        runtime.cancel(ref)
        time.sleep(0.005)
    assert runtime.get(ref, timeout=10) == 1


def test_a_cancelled_task_is_not_retried(fresh, tmp_path):
    @runtime.remote(max_retries=3, retry_exceptions=[BaseException])
    def counted():
        with open(tmp_path / "runs", "a") as file:
            file.write("x")
        (tmp_path / "begun").write_text("1")
        try:
            time.sleep(30)
        finally:
            raise ValueError("while it was interrupted")

    fresh(num_cpus=1)
    ref = counted.remote()
    begun(tmp_path)
    runtime.cancel(ref)
    with pytest.raises(ValueError, match="while it was interrupted"):
        runtime.get(ref, timeout=10)
    assert (tmp_path / "runs").read_text() == "x"


def test_cancel_at_the_boundary_never_hits_the_next_task(fresh):
    @runtime.remote(max_retries=0)
    def quick(index):
        for _ in range(index % 50):
            pass
        return index

    fresh(num_cpus=1)
    for index in range(1000):
        first, second = quick.remote(index), quick.remote(index + 1)
        if index % 3:
            runtime.wait([first], timeout=0.0001 * (index % 7))
        runtime.cancel(first)
        assert runtime.get(second, timeout=20) == index + 1
        with contextlib.suppress(runtime.TaskCancelledError):
            assert runtime.get(first, timeout=20) == index


LATE_CANCEL = """
import time
from runtime.engines.zeromq.system.interrupts import TaskInterrupts, confine_handlers_to_user_code
confine_handlers_to_user_code()
running = ("task", 2, 1)
interrupts = TaskInterrupts(lambda: running)
for serial in range(2, 60):
    running = ("task", serial, 1)
    interrupts.interrupt((serial - 1, 1))  # of a task that has just ended: it is tried again for a while
    try:
        interrupts.interrupt((serial, 1))
        time.sleep(1)
    except KeyboardInterrupt:
        print(serial, end=" ")
    time.sleep(0.01)
print("fine")
"""


def test_a_cancel_that_came_late_interrupts_nothing_after_the_next_one(script):
    done = script(LATE_CANCEL)
    assert done.stdout.split() == [*map(str, range(2, 60)), "fine"], done.stderr


SIGNAL_RIGHT_BEFORE_A_SLEEP = """
import _thread, signal, threading, time
from runtime.engines.zeromq.system.interrupts import POKE_SIGNAL, TaskInterrupts, confine_handlers_to_user_code
signal.signal(POKE_SIGNAL, lambda *_: None)
confine_handlers_to_user_code()
kill = signal.pthread_kill
# Python gets to know of the signal, and the system call goes on.
signal.pthread_kill = lambda thread, n: _thread.interrupt_main(n) if n == signal.SIGINT else kill(thread, n)
interrupts = TaskInterrupts(lambda: ("task", 1, 1))
threading.Timer(0.2, interrupts.interrupt, [(1, 1)]).start()
begun = time.monotonic()
try:
    time.sleep(20)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begun < 10)
"""


def test_a_cancel_right_before_a_system_call_ends_it(script):
    done = script(SIGNAL_RIGHT_BEFORE_A_SLEEP)
    assert done.stdout.split() == ["interrupted", "True"], done.stderr


def test_a_worker_that_did_not_notice_a_cancel_is_told_again(fresh, tmp_path):
    @runtime.remote
    def busy():
        pokes, notice = [], signal.getsignal(signal.SIGURG)

        def notice_the_second(number, frame):
            pokes.append(number)
            if len(pokes) > 1:
                notice(number, frame)

        signal.signal(signal.SIGURG, notice_the_second)
        (tmp_path / "begun").write_text("1")
        time.sleep(30)

    fresh(num_cpus=1)
    ref = busy.remote()
    begun(tmp_path)
    runtime.cancel(ref)
    with pytest.raises(runtime.TaskCancelledError):
        runtime.get(ref, timeout=10)


def test_a_task_that_ignores_cancel_is_ended_by_force(fresh, tmp_path):
    fresh(num_cpus=1)
    ref = stubborn.remote(tmp_path)
    pid = begun(tmp_path)
    runtime.cancel(ref)
    with pytest.raises(runtime.GetTimeoutError):
        runtime.get(ref, timeout=0.3)
    runtime.cancel(ref, force=True)
    with pytest.raises(runtime.TaskKilledError, match=r"stubborn\(\) was ended by cancel") as caught:
        runtime.get(ref, timeout=10)
    assert isinstance(caught.value, runtime.WorkerCrashedError)
    assert runtime.get(identity.remote(1), timeout=10) == 1  # it has the CPU
    wait_until(lambda: not process_alive(pid))


@pytest.mark.parametrize("recursive", [True, False])
def test_what_a_cancelled_task_has_called(fresh, tmp_path, recursive):
    @runtime.remote
    class Slow:
        def wait(self, path):
            path.with_name("waits").touch()
            return runtime.get(wait_for.options(num_cpus=0).remote(path))

        def touch(self, path):
            path.touch()

    @runtime.remote
    class Keeper:
        def keep(self, refs):
            self.refs = refs

        def kept(self):
            return self.refs

    @runtime.remote
    def parent(actor, keeper):
        running = wait_for.remote(tmp_path / "go")
        waiting = work.options(num_cpus=4).remote(tmp_path, "sleep", 0.1)
        kept = [running, waiting, identity.remote(running), actor.touch.remote(tmp_path / "touched")]
        runtime.get(keeper.keep.remote(kept[-1:]))
        (tmp_path / "refs").mkdir()
        (tmp_path / "begun").write_text("1")
        time.sleep(30)
        return kept

    fresh(num_cpus=4)
    actor, keeper = Slow.options(num_cpus=0).remote(), Keeper.options(num_cpus=0).remote()
    held = actor.wait.remote(tmp_path / "go")
    wait_until((tmp_path / "waits").exists)
    ref = parent.remote(actor, keeper)
    begun(tmp_path)
    (tmp_path / "begun").unlink()
    runtime.cancel(ref, recursive=recursive)
    with pytest.raises(runtime.TaskCancelledError):
        runtime.get(ref, timeout=10)
    if recursive:
        wait_until(lambda: runtime.available_resources()["CPU"] >= 3)  # the running child has ended, too
        (touching,) = runtime.get(keeper.kept.remote(), timeout=10)
        with pytest.raises(runtime.TaskCancelledError):  # before the actor is free for it
            runtime.get(touching, timeout=10)
    (tmp_path / "go").touch()
    assert runtime.get(held, timeout=10)
    if recursive:
        runtime.get(actor.touch.remote(tmp_path / "last"), timeout=10)
        assert not (tmp_path / "touched").exists() and not (tmp_path / "begun").exists()
    else:
        wait_until(lambda: (tmp_path / "touched").exists() and (tmp_path / "begun").exists())


def test_calls_that_wait_for_an_actor_are_dropped(fresh, tmp_path):
    @runtime.remote
    class Recorder:
        def __init__(self):
            self.calls = []

        def record(self, index, path=None):
            self.calls.append(index)
            (tmp_path / "begun").write_text("1")
            while path is not None and not path.exists():
                time.sleep(0.01)
            return index

        def recorded(self):
            return self.calls

    fresh()
    recorder = Recorder.remote()
    running = recorder.record.remote(0, tmp_path / "go")
    begun(tmp_path)
    calls = [recorder.record.remote(index) for index in range(1, 40)]  # some are sent, the others wait here
    with pytest.raises(ValueError, match="end the actor"):
        runtime.cancel(calls[0], force=True)
    for call in [running, *calls[::2]]:
        runtime.cancel(call)
    for call in calls[::2]:
        with pytest.raises(runtime.TaskCancelledError):
            runtime.get(call, timeout=10)
    (tmp_path / "go").touch()
    assert runtime.get(running, timeout=10) == 0
    assert runtime.get(recorder.recorded.remote(), timeout=10) == [0, *range(2, 40, 2)]
    assert runtime.get(calls[1::2]) == [*range(2, 40, 2)]


@pytest.mark.parametrize("force", [False, True])
def test_a_task_that_runs_in_the_process_that_called_it_is_cancelled(fresh, tmp_path, force):
    """With one CPU, what a task leaves behind runs in the same worker."""
    fresh(num_cpus=1)

    @runtime.remote(max_retries=0)
    def leave_behind():
        import os

        return os.getpid(), [work.remote(tmp_path)]

    pid, [inner] = runtime.get(leave_behind.remote())
    wait_until((tmp_path / "begun").exists)
    assert int(wait_until((tmp_path / "begun").read_text)) == pid
    runtime.cancel(inner, force=force)
    with pytest.raises(runtime.OwnerDiedError if force else runtime.TaskCancelledError):
        runtime.get(inner, timeout=20)


def test_a_process_that_got_the_reference_cancels(fresh, tmp_path):
    @runtime.remote
    def cancel(refs):
        runtime.cancel(refs[0])

    fresh(num_cpus=2)
    ref = work.remote(tmp_path)
    begun(tmp_path)
    runtime.get(cancel.remote([ref]), timeout=10)
    with pytest.raises(runtime.TaskCancelledError):
        runtime.get(ref, timeout=10)


@runtime.remote(num_cpus=0)
class Waits:
    def __init__(self, path):
        self.path = path

    async def sleep(self, name):
        (self.path / name).touch()
        try:
            await asyncio.sleep(60)
        finally:
            (self.path / f"{name} ended").touch()

    async def refuses(self):
        (self.path / "refuses").touch()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "refused"

    async def attempt(self):
        (self.path / "attempt").touch()
        raise OSError

    async def tick(self):
        return "tick"


@runtime.remote(num_cpus=0)
class Threads:
    def __init__(self, path):
        self.path = path

    def wait_for(self, name):
        (self.path / f"{name} began").touch()
        while not (self.path / name).exists():
            time.sleep(0.01)
        return name


def assert_cancelled(ref, match):
    with pytest.raises(runtime.TaskCancelledError, match=match):
        runtime.get(ref, timeout=10)


def test_a_coroutine_that_runs_is_cancelled(fresh, tmp_path):
    fresh()
    actor = Waits.remote(tmp_path)
    ref = actor.sleep.remote("sleep")
    wait_until((tmp_path / "sleep").exists)
    with pytest.raises(ValueError, match="force"):
        runtime.cancel(ref, force=True)
    runtime.cancel(ref)
    assert_cancelled(ref, r"Waits\.sleep\(\) was cancelled")
    wait_until((tmp_path / "sleep ended").exists)
    refused = actor.refuses.remote()
    wait_until((tmp_path / "refuses").exists)
    runtime.cancel(refused)
    assert runtime.get([refused, actor.tick.remote()], timeout=10) == ["refused", "tick"]
    endless = actor.attempt.options(max_task_retries=-1, retry_exceptions=True).remote()
    wait_until((tmp_path / "attempt").exists)
    runtime.cancel(endless)
    assert_cancelled(endless, "attempt")


def test_a_coroutine_is_cancelled_before_it_begins(fresh, tmp_path):
    fresh()
    actor = Waits.options(max_concurrency=1).remote(tmp_path)
    runtime.get(actor.tick.remote(), timeout=10)
    refs = [actor.sleep.remote("first"), actor.sleep.remote("second")]
    wait_until((tmp_path / "first").exists)
    for ref in reversed(refs):
        runtime.cancel(ref)
        assert_cancelled(ref, "sleep")
    at_once = [actor.sleep.remote(f"at once {i}") for i in range(8)]
    for ref in at_once:
        runtime.cancel(ref)
        assert_cancelled(ref, "cancelled")
    assert runtime.get(actor.tick.remote(), timeout=10) == "tick"
    assert not (tmp_path / "second").exists()


def test_a_call_that_waits_for_a_thread_is_cancelled(fresh, tmp_path):
    fresh()
    actor = Threads.options(max_concurrency=2).remote(tmp_path)
    running = [actor.wait_for.remote(name) for name in "ab"]
    wait_until(lambda: all((tmp_path / f"{name} began").exists() for name in "ab"))
    waiting, last = actor.wait_for.remote("c"), actor.wait_for.remote("a")
    runtime.cancel(waiting)
    runtime.cancel(running[0])  # no thread is interrupted
    assert_cancelled(waiting, r"Threads\.wait_for\(\) was cancelled|the call of an actor")
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    assert runtime.get([*running, last], timeout=10) == ["a", "b", "a"]
    assert not (tmp_path / "c began").exists()
