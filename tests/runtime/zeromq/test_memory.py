"""The memory of the machine: what the node reads of it, which process it ends, and when an ended task runs again."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_state import CPU, Driven, failure, frames, text

from runtime.engines.zeromq.node.entities import Kill, Spawn
from runtime.engines.zeromq.node.memory_watch import LONGEST_PAUSE_S, SHORTEST_PAUSE_S, MemoryWatch, private_bytes
from runtime.engines.zeromq.transport import wire
from runtime.host import machine
from runtime.host.linux import be_ended_first
from runtime.scheduling import Placement

MB = 2**20


class Pressed(Driven):
    """A state with many CPUs, short of memory when told."""

    def __init__(self):
        super().__init__(CPU=8)

    def start(self, **task):
        """The process of a task that runs."""
        self.submit(**task)
        [spawn] = self.take(Spawn)
        self.state.ready(spawn.process)
        self.take()
        return spawn.process

    def short(self, private, driver=10 * MB):
        """The processes that are killed."""
        private = {wire.DRIVER: driver, **private}
        self.state.memory_pressure.short("the memory", 970 * MB, 1000 * MB, 50 * MB, private)
        return [kill.process for kill in self.take(Kill)]


def test_the_newest_task_that_may_be_retried_is_ended_first():
    d = Pressed()
    old, new, last = d.start(), d.start(), d.start(max_retries=0)
    _, actor = d.start_actor(max_restarts=1)
    assert d.short({old: 300 * MB, new: 100 * MB, last: 100 * MB, actor: 400 * MB}) == [new]


def test_then_the_largest_actor_with_restarts_left():
    d = Pressed()
    task = d.start(max_retries=0)
    actors = [d.start_actor(max_restarts=restarts)[1] for restarts in (1, -1, 0)]
    sizes = (100 * MB, 200 * MB, 400 * MB)
    assert d.short({task: 300 * MB, **dict(zip(actors, sizes))}) == [actors[1]]


@pytest.mark.parametrize("driver_mb", [10, 500])
def test_then_the_largest_process_unless_a_driver_is_larger(driver_mb):
    d = Pressed()
    task = d.start(max_retries=0)
    _, actor = d.start_actor()
    killed = d.short({task: 300 * MB, actor: 100 * MB}, driver_mb * MB)
    assert killed == ([task] if driver_mb == 10 else [])


def test_nothing_is_ended_when_others_have_the_memory():
    d = Pressed()
    task = d.start()
    d.state.memory_pressure.short("the memory", 970 * MB, 1000 * MB, 50 * MB, {wire.DRIVER: 20 * MB, task: 40 * MB})
    d.state.memory_pressure.short("the memory", 970 * MB, 1000 * MB, 50 * MB, {wire.DRIVER: 20 * MB, task: 40 * MB})
    [notice] = frames(d.take(), wire.DRIVER)
    assert wire.header(notice)[2] == logging.WARNING
    assert "970 MB of 1000 MB of the memory" in text(notice) and f"task f() (process {task:x}) 40 MB" in text(notice)
    assert not d.state.memory_pressure.is_relieved


def test_what_ends_already_is_not_chosen():
    d = Pressed()
    leaving, cancelled, idle, left = d.start(), d.start(), d.start(), d.start()
    d.state.leaving(leaving, "ended")
    d.state.cancel(1, d.serial - 2, 1, wire.FORCE)
    d.state.done(idle, d.serial - 1, 1)
    _, actor = d.start_actor(max_restarts=1)
    d.state.kill(wire.key(d.serial, 1))
    d.take()
    assert d.short({p: 100 * MB for p in (leaving, cancelled, idle, left, actor)}) == [left]
    assert d.state.memory_pressure.is_relieved
    d.state.exited(left, "signal SIGKILL")
    assert not d.state.memory_pressure.is_relieved


def test_an_ended_task_waits_until_there_is_room_for_it():
    d = Pressed()
    first, second = d.start(), d.start()
    assert d.short({first: 300 * MB, second: 200 * MB}) == [second]
    d.state.exited(second, "signal SIGKILL")
    assert d.take(Spawn) == [] and d.state.needs_ticks
    assert d.free == {"CPU": 7}
    for room in (-1, 100 * MB, 199 * MB):
        d.state.memory_room = room
        d.state.tick()
        assert d.take(Spawn) == []
    d.state.memory_room = 200 * MB
    d.state.tick()
    assert len(d.take(Spawn)) == 1 and not d.state.needs_ticks


def test_one_task_a_second_starts_again_when_nothing_else_runs():
    d = Pressed()
    processes = [d.start() for _ in range(3)]
    for process in reversed(processes):
        assert d.short(dict.fromkeys(processes, 300 * MB)) == [process]
        d.state.exited(process, "signal SIGKILL")
        processes = processes[:-1]
    d.state.memory_room = -1
    d.state.tick()
    assert len(d.take(Spawn)) == 1
    d.state.tick()
    assert d.take(Spawn) == []  # another one runs, and may give some back
    d.state.memory_room = 10**9
    for _ in range(2):
        d.state.tick()
        assert len(d.take(Spawn)) == 1


def test_a_task_that_is_ended_too_often_fails_with_who_had_what():
    d = Pressed()
    process = d.start(max_retries=1)
    _, actor = d.start_actor(name="Keeper")
    d.short({process: 300 * MB, actor: 100 * MB})
    d.state.exited(process, "signal SIGKILL")
    d.state.tick()
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    d.take()
    assert d.short({spawn.process: 300 * MB, actor: 100 * MB}) == [spawn.process]
    d.state.exited(spawn.process, "signal SIGKILL")
    [frame] = frames(d.take(), wire.DRIVER)
    told = failure(frame)
    assert told.error == "OutOfMemoryError" and "attempt 2" in told.text
    assert f"task f() (process {spawn.process:x}) 300 MB, actor Keeper (process {actor:x}) 100 MB" in told.text
    assert "970 MB of 1000 MB" in told.text and "memory_usage_threshold" in told.text


def test_a_task_that_waits_for_memory_can_be_cancelled():
    d = Pressed()
    process = d.start()
    d.short({process: 300 * MB})
    d.state.exited(process, "signal SIGKILL")
    d.state.cancel(1, d.serial, 1, 0)
    [frame] = frames(d.take(), wire.DRIVER)
    assert failure(frame).error == "TaskCancelledError"
    d.state.tick()
    assert d.take(Spawn) == [] and not d.state.needs_ticks and not d.state.refcounts.items


def test_a_task_that_waits_for_memory_ends_with_its_group():
    d = Pressed()
    group = d.new_group({"CPU": 1})
    process = d.start(placement=Placement(group, 0, False))
    d.short({process: 300 * MB})
    d.state.exited(process, "signal SIGKILL")
    d.state.remove_group(group)
    d.take()
    d.state.tick()
    [frame] = frames(d.take(), wire.DRIVER)
    assert failure(frame).error == "TaskPlacementGroupRemoved" and d.free == {"CPU": 8}


def test_an_ended_actor_says_so_and_starts_again_if_it_may():
    d = Pressed()
    _, process = d.start_actor(max_restarts=1)
    for state in (wire.ACTOR_RESTARTING, wire.ACTOR_STARVED):
        assert d.short({process: 300 * MB}) == [process]
        d.state.exited(process, "signal SIGKILL")
        taken = d.take()
        [frame] = [frame for frame in frames(taken, wire.DRIVER) if wire.header(frame)[1] == wire.ACTOR_STATE]
        assert wire.header(frame)[2] == state and "memory ran short" in text(frame)
        if state == wire.ACTOR_RESTARTING:
            [process] = [i.process for i in taken if type(i) is Spawn]
            d.state.ready(process)
            d.state.alive(process)
            d.take()


def test_the_kernel_may_have_ended_a_process():
    d = Pressed()
    process, cancelled = d.start(max_retries=0), d.start(max_retries=0)
    d.state.cancel(1, d.serial, 1, wire.FORCE)
    d.take()
    for p in (process, cancelled, 99):
        d.state.memory_pressure.ended_by_kernel(p)
        d.state.exited(p, "signal SIGKILL")
    [frame] = frames(d.take(), wire.DRIVER)
    assert failure(frame).error == "OutOfMemoryError" and "by the kernel" in failure(frame).text


def test_a_worker_about_to_be_killed_gets_no_further_task():
    """A kill that comes after the task's end must not hit the next one."""
    d = Pressed()
    process = d.start(request=CPU)
    assert d.short({process: 300 * MB}) == [process]
    d.state.done(process, d.serial, 1)
    d.submit(request=CPU)
    assert len(d.take(Spawn)) == 1 and d.free == {"CPU": 7}


@pytest.fixture(params=[2, 1])
def groups(request, tmp_path, monkeypatch):
    """Function that sets limit, use and page cache of the group around the one of this process; version 1 or 2."""
    root = tmp_path if request.param == 2 else tmp_path / "memory"
    outer = root / "outer"
    (outer / "inner").mkdir(parents=True)
    (tmp_path / "cgroup").write_text(f"{'0:' if request.param == 2 else '7:cpu,memory'}:/outer/inner\n1:other:/\n")
    limit, usage, prefix = (
        ("max", "current", "") if request.param == 2 else ("limit_in_bytes", "usage_in_bytes", "total_")
    )
    (outer / "inner" / f"memory.{limit}").write_text("max\n" if request.param == 2 else f"{2**63 - 4096}\n")
    read = machine._read
    files = {"/proc/self/cgroup": str(tmp_path / "cgroup")}
    monkeypatch.setattr(machine, "_read", lambda path: read(files.get(path, path)))
    monkeypatch.setattr(machine, "CGROUPS", str(tmp_path))

    def write(limit_mb, used_mb, cached_mb):
        (outer / f"memory.{limit}").write_text(f"{limit_mb * MB}\n")
        (outer / f"memory.{usage}").write_text(f"{used_mb * MB}\n")
        stat = f"inactive_file 7\n{prefix}anon 5\n{prefix}inactive_file {cached_mb * MB - 9}\n{prefix}active_file 9\n"
        (outer / "memory.stat").write_text(stat[0 if prefix else stat.index("\n") + 1 :])

    return write


def test_the_limit_of_a_control_group_is_found_and_its_cache_is_free(groups):
    groups(100, 70, 30)
    whole, group = machine.memory_limits()
    assert whole.size_bytes > group.size_bytes == 100 * MB and "outer" in group.name
    assert group.free_bytes() == 60 * MB and 0 < whole.free_bytes() < whole.size_bytes


def test_the_watch_looks_where_least_is_left(groups):
    groups(100, 70, 0)
    watch = MemoryWatch(0.75)
    room, used, limit = watch.look()
    assert (room, used, limit.size_bytes) == (5 * MB, 70 * MB, 100 * MB) and watch.reserve(limit) == 25 * MB
    groups(100, 80, 0)
    assert watch.look()[0] == -5 * MB
    assert MemoryWatch(1).limits == []


def test_a_group_that_has_gone_limits_nothing(groups, tmp_path):
    groups(100, 95, 0)
    watch = MemoryWatch(0.9)
    for path in tmp_path.rglob("memory.*"):
        path.unlink()
    assert watch.look()[0] > 0


def test_the_next_look_comes_before_memory_can_be_filled():
    watch = MemoryWatch(0.95)
    assert watch.pause_s(-1) == SHORTEST_PAUSE_S and watch.pause_s(2**50) == LONGEST_PAUSE_S
    assert SHORTEST_PAUSE_S < watch.pause_s(2**30 * os.cpu_count()) < LONGEST_PAUSE_S


# Of a process that does nothing else: the tests' own memory grows and shrinks as other tests' threads and forks end.
FILL = f"""
import mmap, sys
print("started", flush=True)
sys.stdin.readline()
block = mmap.mmap(-1, {64 * MB}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block.write(b"x" * len(block))
print("full", flush=True)
sys.stdin.readline()
"""


def test_private_memory_of_a_process():
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", FILL], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout.readline() == "started\n"
        before = private_bytes(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "full\n"
        assert 63 * MB <= private_bytes(process.pid) - before < 80 * MB
    assert private_bytes(2**22 + 1) == 0


def test_the_kernel_ends_workers_first():
    pid = os.fork()
    if pid == 0:
        be_ended_first()
        os._exit(Path("/proc/self/oom_score_adj").read_text() != "500\n")
    assert os.waitpid(pid, 0)[1] == 0
