"""What surrounds a session: clocks, directories, memory limits, forks of libraries, interactive shells."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runtime_support import process_alive, wait_until

import runtime
from runtime.host import machine

CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

static long jump(void) { static int calls; return calls++ % 2 ? 30000000 : -30000000; }

int clock_gettime(clockid_t clock, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, t);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) t->tv_sec += jump();
    return failed;
}

int gettimeofday(struct timeval *t, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec; t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
"""

CLOCK_DRIVER = """
import time, runtime
runtime.init("zeromq", num_cpus=2)

@runtime.remote
class Actor:
    def jumps(self):
        return abs(time.time() - time.time()) > 1e7
    def nap(self, seconds):
        time.sleep(seconds)

@runtime.remote
def jumps():
    return abs(time.time() - time.time()) > 1e7

actor = Actor.remote()
assert runtime.get([jumps.remote(), actor.jumps.remote()], timeout=20) == [True, True]
start, nap = time.monotonic(), actor.nap.remote(1.0)
try:
    runtime.get(nap, timeout=0.2)
except runtime.GetTimeoutError:
    assert 0.2 <= time.monotonic() - start < 0.9
assert runtime.wait([nap], timeout=0.1) == ([], [nap])
assert runtime.wait([nap], timeout=20) == ([nap], []) and time.monotonic() - start > 0.9
assert all(runtime.get([jumps.remote() for _ in range(20)], timeout=20))
runtime.shutdown()
print("fine", time.monotonic() - start)
"""


def test_jumps_of_the_clock_have_no_effect(fresh, script, tmp_path, monkeypatch):
    """The time of day jumps by a year, to and fro, at every look at it, in all processes."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    done = script(CLOCK_DRIVER, timeout_s=60)
    assert done.returncode == 0 and done.stdout.startswith("fine"), done.stderr
    fresh.leftovers.check(5, own=False)


PLACE_DRIVER = """
import os, runtime
runtime.init("zeromq", num_cpus=1)
session = runtime.context.current_engine().session
@runtime.remote
class Actor:
    def where(self, value):
        return os.getcwd(), len(value)
assert runtime.get(Actor.remote().where.remote(bytes(1_000_000)), timeout=20) == (os.getcwd(), 1_000_000)
runtime.shutdown()
print(session, os.path.exists(session))
"""


@pytest.mark.parametrize("place", ["a long TMPDIR", "another alphabet", "a long one in another alphabet", "no home"])
def test_odd_places(fresh, script, session_parent, tmp_path, monkeypatch, place):
    """A place that is too long for a socket is passed over; all others serve."""
    directory, home = session_parent / "files", os.environ.get("HOME", "/")
    if place == "a long TMPDIR":
        directory = tmp_path / ("long" * 50)
    elif place == "another alphabet":
        directory = tmp_path.parent / "größe 大"
    elif place == "a long one in another alphabet":  # few characters, but too many bytes
        directory = session_parent / ("大" * 25)
    else:
        directory, home = tmp_path, "/proc"  # where not even root may write
    directory.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    try:
        done = script(PLACE_DRIVER, cwd=directory)
    finally:
        if directory.parent == session_parent:
            shutil.rmtree(directory)
    session, left = done.stdout.rsplit(maxsplit=1) if done.returncode == 0 else (done.stderr, "")
    assert left == "False", session
    assert session.startswith(str(directory)) == ("long" not in place)


def test_a_place_without_executables(fresh, tmp_path):
    mount = "mount -t tmpfs -o noexec tmpfs /mnt && mkdir -m 700 /mnt/sessions"
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "sh", "-c", mount]).returncode:
        pytest.skip("mount namespaces are not available here")
    (tmp_path / "driver.py").write_text(PLACE_DRIVER)
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f"{mount} && exec {sys.executable} {tmp_path / 'driver.py'}"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.getcwd(), "XDG_RUNTIME_DIR": "/mnt/sessions"},
        check=False,
    )
    assert done.stdout.startswith("/mnt/sessions") and done.stdout.split()[1] == "False", done.stderr


@runtime.remote
class Actor:
    def pid(self):
        return os.getpid()

    def call(self, function, *args):
        return function(*args)


def take_memory():
    """Asks for more than this process may have from now on."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return len(bytearray(2**30))


def test_a_process_without_memory_harms_no_other(fresh):
    fresh()
    actor, other = Actor.remote(), Actor.remote()
    pids = runtime.get([actor.pid.remote(), other.pid.remote()], timeout=20)
    with pytest.raises(MemoryError) as caught:
        runtime.get(actor.call.remote(take_memory), timeout=20)
    assert isinstance(caught.value, runtime.TaskError)
    assert runtime.get([actor.pid.remote(), other.pid.remote()], timeout=20) == pids


MEMORY_DRIVER = """
import sys, time, numpy as np, runtime
runtime.init("zeromq", num_cpus=2, log_to_driver=False, memory_usage_threshold=float(sys.argv[1]))

def take(megabytes, seconds=0.0):
    kept = []
    for _ in range(megabytes // 4):
        kept.append(np.ones(2**19))
        time.sleep(0.03)  # 130 MB/s: the node looks several times between its threshold and the kernel's limit
    time.sleep(seconds)
    return len(kept)

@runtime.remote
class Keeper:
    def take(self, megabytes):
        return take(megabytes)

task, keeper, other = runtime.remote(take), Keeper.remote(), Keeper.remote()
assert runtime.get([keeper.take.remote(0), other.take.remote(0)], timeout=20) == [0, 0]
for ref in (task.options(max_retries=0).remote(1000), keeper.take.remote(1000)):
    try:
        runtime.get(ref, timeout=20)
    except runtime.OutOfMemoryError as error:
        print(type(error).__name__, error)
assert runtime.get(other.take.remote(4), timeout=20) == 1
if sys.argv[1] != "1":  # both at once do not fit, so one of them runs again, after the other
    print(runtime.get([task.remote(108, 0.5) for _ in range(2)], timeout=40))
runtime.shutdown()
"""


@pytest.fixture
def small_group():
    """Function that puts the process that calls it into a control group with 300 MB."""
    parent = machine.group_directories()[0]
    group = Path(parent) / f"runtime-test-{os.getpid()}"
    try:
        group.mkdir()
        limit = next(path for name in ("max", "limit_in_bytes") if (path := group / f"memory.{name}").exists())
        limit.write_text(str(300 * 2**20))
    except (OSError, StopIteration):
        group.exists() and group.rmdir()
        pytest.skip("this process may make no control group for memory")
    yield lambda: (group / "cgroup.procs").write_text("0")
    wait_until(lambda: not (group / "cgroup.procs").read_text(), 10)
    group.rmdir()


@pytest.mark.parametrize("threshold", ["0.7", "1"])
def test_the_memory_of_the_machine_runs_short(fresh, script, small_group, threshold):
    """Only the process that took the memory is ended, by the node or by the kernel; others live, tasks run again."""
    done = script(MEMORY_DRIVER, threshold, preexec_fn=small_group, timeout_s=90)
    assert done.returncode == 0, done.stderr
    task, actor, *rest = done.stdout.splitlines()
    assert task.startswith("OutOfMemoryError task take()") and actor.startswith("ActorOutOfMemoryError actor Keeper")
    if threshold == "1":
        assert "by the kernel" in task and "by the kernel" in actor
    else:
        assert re.search(r" of 300 MB of .* Private memory: task take\(\) \(process \w+\) \d+ MB", task)
        assert "memory ran short" in actor and rest == ["[27, 27]"]
    fresh.leftovers.check(5, own=False)


TORCH_DRIVER = """
import os, torch, runtime
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(2)
matrix = torch.ones(400, 400)

def multiply():
    torch.set_num_threads(2)
    return float((matrix @ matrix)[0, 0])

def load():
    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=2, multiprocessing_context="fork")
    return [float(batch.sum()) for [batch] in loader]

@runtime.remote
class Actor:
    def call(self, function):
        return function()

assert multiply() == 400
runtime.init("zeromq", num_cpus=2)
actor = Actor.remote()
assert multiply() == 400
assert runtime.get(actor.call.remote(multiply), timeout=300) == 400
assert load() == [6, 22] and runtime.get(actor.call.remote(load), timeout=300) == [6, 22]
assert runtime.get(Actor.remote().call.remote(multiply), timeout=300) == multiply() == 400
print("fine")
"""


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_threads_and_forks_of_torch(fresh, script):
    """Parallel kernels before and after the forks of the runtime, and processes of a DataLoader on both sides."""
    pytest.importorskip("torch")
    done = script(TORCH_DRIVER, timeout_s=400)
    assert done.stdout.strip() == "fine" and done.returncode == 0, done.stderr
    fresh.leftovers.check(5, own=False)


class Shell:
    """An IPython shell, as a notebook's kernel is one: cells go in, what they print comes out."""

    def __init__(self, pexpect, directory):
        command = ["-m", "IPython", "--simple-prompt", "--no-banner", "--no-confirm-exit", "--quick"]
        environment = {**os.environ, "PYTHONPATH": os.getcwd(), "IPYTHONDIR": str(directory), "TERM": "dumb"}
        self.process = pexpect.spawn(sys.executable, command, env=environment, encoding="utf-8", timeout=60, echo=False)

    def cell(self, source):
        """Sends source; several lines as one cell."""
        self.process.sendline(f"exec({source!r}, globals())")

    def expect(self, text):
        self.process.expect(re.escape(text))


@pytest.mark.slow
def test_an_interactive_shell(fresh, tmp_path):
    """A class is defined anew, a wait is interrupted, the kernel is killed: as a notebook does."""
    pexpect = pytest.importorskip("pexpect")
    pytest.importorskip("IPython")
    shell = Shell(pexpect, tmp_path)
    define = "@runtime.remote\nclass Actor:\n    def version(self):\n        return {}\n    def nap(self):\n        {}"
    shell.cell("import runtime, time; runtime.init('zeromq', num_cpus=2)")
    for version in (1, 2):
        shell.cell(define.format(version, "time.sleep(1000)"))
        shell.cell("actor = Actor.remote(); print('version', 10 * runtime.get(actor.version.remote()))")
        shell.expect(f"version {10 * version}")
    shell.cell("pending = actor.nap.remote(); print('be' + 'gun'); runtime.get(pending)")
    shell.expect("begun")
    shell.process.sendintr()
    shell.expect("KeyboardInterrupt")
    shell.cell("print('again', 10 * runtime.get(Actor.remote().version.remote()))")
    shell.expect("again 20")
    pids = fresh.processes()
    assert len(pids) >= 4
    os.kill(shell.process.pid, signal.SIGKILL)
    shell.process.close(force=True)
    wait_until(lambda: not any(map(process_alive, pids)), 5)
    fresh.leftovers.check(5, own=False)
