"""What the tests of the runtime share: waiting, finding processes, and the checker of what a session left behind.

Whatever a test does, afterwards nothing may be left: no process, no session directory, no file in /dev/shm, no
descriptor, no thread. Processes are recognised by an environment variable that each test sets anew, so they are also
found when they have left the process tree.
"""

import os
import threading
import time
from pathlib import Path

import pytest
from ray_cluster import needs_ray

ENGINES = ["local", "zeromq", pytest.param("ray", marks=needs_ray)]
# Tests that do not hold on Ray, and why; docs/runtime.md has the same table.
RAY_DIFFERENCES = {
    "test_actors_may_exceed_the_cpus_when_asked": "actors with oversubscribe=True ask for no CPU",
    "test_an_error_whose_reference_is_dropped_unseen_is_logged_once": "an error that nobody has seen",
    "test_an_error_that_somebody_has_seen_is_not_logged": "an error that nobody has seen",
}
MARKER = "RUNTIME_TEST_MARKER"
NOT_OURS = ("torch_", "sem.", "psm_")  # what other programs on the machine put into /dev/shm meanwhile


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


def _shared_memory_files():
    return (
        {name for name in os.listdir("/dev/shm") if not name.startswith(NOT_OURS)}
        if os.path.isdir("/dev/shm")
        else set()
    )


class Leftovers:
    """What there was before a test; `check()` says what has been added."""

    def __init__(self, marker, session_parent):
        self.marker, self.session_parent = marker, Path(session_parent)
        self.descriptors, self.threads, self.shared = _descriptors(), set(threading.enumerate()), _shared_memory_files()

    def found(self, own: bool = True) -> list[str]:
        """A line for each thing that is there now and was not before; `own`: in this process, too."""
        lines = [f"process {pid}: {command_line(pid)}" for pid in marked_processes(self.marker)]
        lines += [f"session directory {path}" for path in self.session_parent.iterdir()]
        lines += [f"/dev/shm/{name}" for name in _shared_memory_files() - self.shared]
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
