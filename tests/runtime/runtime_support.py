"""What the tests of the runtime share: waiting, finding processes, and the checker of what must hold after each.

Whatever a test does, afterwards its session has all resources again, nobody holds a value or an actor, and no message
was malformed (`unsettled`); and when the session has ended, nothing is left: no process, no session directory, no file
in /dev/shm, no descriptor, no thread (`Leftovers`). Processes are recognised by an environment variable that each test
sets anew, so they are also found when they have left the process tree. `History` checks that no call is lost or
executed twice.
"""

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

import pytest
from ray_cluster import needs_ray

import runtime
from runtime.engines.zeromq.session.launch import PREFIX

ENGINES = ["local", "zeromq", pytest.param("ray", marks=needs_ray)]
# Tests that do not hold on Ray, and why; docs/scale/runtime.md has the same table.
RAY_DIFFERENCES = {
    "test_a_dropped_generator_is_closed": "a generator that nobody reads any more runs to its end",
    "test_init_in_a_thread_that_ends": "a cluster that Ray starts in a thread ends with the thread",
    "test_the_visible_gpus_are_respected": "Ray counts the GPUs that the driver of the machine reports",
    "test_get_if_exists": "a handle with get_if_exists does not keep the actor",
}
# (test, version of Ray): the fault of Ray by which a node ends there; docs/scale/runtime.md names it.
RAY_FAULTS = {
    ("test_a_removed_group_ends_what_is_in_it", "2.40.0"): "Ray's issue 51124: the node ends",
}
MARKER = "RUNTIME_TEST_MARKER"
# What other programs on the machine, and drawn runs (tests/generated), put into /dev/shm meanwhile.
NOT_OURS = ("torch_", "sem.", "psm_", "draws_")


def wait_until(condition, timeout_s=10.0, message="the condition did not come true"):
    """Returns the first true value of `condition()`, asked every few milliseconds."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{message() if callable(message) else message} within {timeout_s} s"
        time.sleep(0.01)
    return value


def process_alive(pid: int) -> bool:
    """Whether any thread of the process runs; the first one may be dead before the others let go of their files."""
    try:
        return any(_thread_alive(thread) for thread in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False


def _thread_alive(directory):
    try:
        return (directory / "stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def marked_processes(marker: str) -> list[int]:
    """Pids of the living processes whose environment at their start had the marker."""
    found = []
    wanted = f"{MARKER}={marker}".encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                environment = Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue
            if wanted in environment.split(b"\0") and process_alive(int(entry)):
                found.append(int(entry))
    return found


def command_line(pid: int) -> str:
    """For messages."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        return "gone"


def _descriptors():
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:  # the descriptor of this listing
            continue
    return sorted(links)


def shared_memory_files() -> set[str]:
    """Names in /dev/shm, but for those of other programs."""
    return (
        {name for name in os.listdir("/dev/shm") if not name.startswith(NOT_OURS)}
        if os.path.isdir("/dev/shm")
        else set()
    )


def unsettled(malformed: int | None = 0) -> list[str]:
    """A line for each thing that the session of this process has not got back; none when there is no session.

    Args:
        malformed: number of messages that the node was to drop; None for any.
    """
    gc.collect()
    lines = []
    try:
        free, total = runtime.available_resources(), runtime.cluster_resources()
        if free != total:
            lines.append(f"free resources: {free} of {total}")
        held = getattr(runtime.context.current_engine(), "held", None)  # an engine without processes has none
        if held is not None:
            answer = held()
            if answer.items:
                lines.append(f"{answer.items} values or actors that somebody holds")
            if malformed is not None and answer.malformed != malformed:
                lines.append(f"{answer.malformed} malformed messages")
    except runtime.RuntimeFailure:  # the session has ended
        return []
    return lines


class History:
    """What calls have executed and what came of them, to check that none is lost, doubled or overtaken.

    Executions are lines of a file, which calls append by `note`; outcomes are entered by the callers.

    Args:
        path: of the file.
    """

    def __init__(self, path):
        self.path, self.outcomes = Path(path), {}
        self.path.touch()

    def enter(self, caller: str, number: int, succeeded: bool) -> None:
        """The outcome of a call: its value came, or an error."""
        assert (caller, number) not in self.outcomes, f"two outcomes of call {number} of {caller}"
        self.outcomes[caller, number] = succeeded

    def problems(self, retried: bool = False) -> list[str]:
        """A line for each violation.

        Args:
            retried: a call may be executed several times, and its order is not kept.
        """
        executions, last, lines = Counter(), {}, []
        for line in self.path.read_text().splitlines():
            caller, number, pid = line.rsplit(" ", 2)
            call = caller, int(number)
            executions[call] += 1
            if not retried and last.get((caller, pid), -1) >= call[1]:
                lines.append(f"call {number} of {caller} was executed after call {last[caller, pid]} in process {pid}")
            last[caller, pid] = call[1]
        lines += [f"call {call} has no outcome" for call in executions if call not in self.outcomes]
        for call, succeeded in self.outcomes.items():
            if succeeded and not executions[call]:
                lines.append(f"call {call} succeeded and was not executed")
            if executions[call] > 1 and not retried:
                lines.append(f"call {call} was executed {executions[call]} times")
        return lines


def note(path, caller: str, number: int) -> None:
    """Appends an execution to the file of a `History`; whole lines, though several processes write."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, f"{caller} {number} {os.getpid()}\n".encode())
    finally:
        os.close(file)


class Leftovers:
    """What there was before a test; `check()` says what has been added."""

    def __init__(self, marker, session_parent):
        self.marker, self.session_parent = marker, Path(session_parent)
        self.descriptors, self.threads, self.shared = _descriptors(), set(threading.enumerate()), shared_memory_files()

    def found(self, own: bool = True) -> list[str]:
        """A line for each thing that is there now and was not before; `own`: in this process, too.

        Ray's dashboard agent is left out: that of 2.40 has outlived its raylet by more than a minute.
        """
        processes = {pid: command_line(pid) for pid in marked_processes(self.marker)}
        lines = [f"process {pid}: {line}" for pid, line in processes.items() if "/ray/dashboard/agent.py" not in line]
        # A browser of other tests keeps files of its own in XDG_RUNTIME_DIR, where sessions are.
        lines += [f"session directory {path}" for path in self.session_parent.glob(f"{PREFIX}*")]
        lines += [f"/dev/shm/{name}" for name in shared_memory_files() - self.shared]
        if not own:
            return lines
        lines += [f"thread {t.name}" for t in threading.enumerate() if t not in self.threads]
        descriptors = _descriptors()
        if len(descriptors) > len(self.descriptors):
            before = list(self.descriptors)
            new = [link for link in descriptors if link not in before or before.remove(link)]
            lines += [f"descriptor {link}" for link in new]
        return lines

    def check(self, timeout_s=5.0, own=True):
        """Asserts that nothing is left, at the latest after `timeout_s`."""
        wait_until(lambda: not self.found(own), timeout_s, lambda: f"left over: {self.found(own)}\nnot gone")


AT_START = {
    "PYTHONHASHSEED": "3",
    "PYTHONWARNINGS": "error::BytesWarning",
    "PYTHONIOENCODING": "latin1",
    "TZ": "XYZ-9",
    "PYTHONPATH": "/of/this/test",
}


def read_at_start():
    """What Python and libc have read from the environment when they started."""
    return {
        "hash": hash("abc"),
        "warnings": "error" in [action for action, *_ in warnings.filters],
        "encoding": sys.stdin.encoding.replace("-", "").lower(),  # Ray 2.60 opens the output anew
        "zone": time.tzname[0],
        "path": "/of/this/test" in sys.path,
    }


def effect_at_start() -> dict:
    """What `read_at_start` gives in a process that was started with the variables AT_START."""
    command = [sys.executable, "-c", "print(hash('abc'))"]
    number = int(subprocess.check_output(command, env={**os.environ, **AT_START}))
    return {"hash": number, "warnings": True, "encoding": "iso88591", "zone": "XYZ", "path": True}


def skip_where_nothing_starts(engine: str) -> None:
    """Skips a test of an engine without processes."""
    if engine == "local":
        pytest.skip("with the engine local tasks and actors run in this process, which has started")
