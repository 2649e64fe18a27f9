"""What Linux offers for processes to notice one another's end: death signals, subreapers, pidfds."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import select
import signal

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """Kills this process when the thread that forked it ends.

    Args:
        parent: pid of the parent. If it has died before this call, this process ends at once.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Takes `die_with_parent` back."""
    _libc.prctl(PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Makes this process the parent of its descendants whose own parents die."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def kill_children(but: int = 0) -> None:
    """Kills and reaps the children of this process, then those that it adopts from them, until there are none.

    Args:
        but: pid of a child that is spared.
    """
    while pids := [pid for pid in _children() if pid != but]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children():
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:  # a kernel without this file
        return []


def readable(descriptor: int, seconds: float) -> bool:
    """Waits until a file is readable, or the process behind a pidfd has ended; False if the time is over before.

    Unlike `select.select`, it takes descriptors above 1023.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0, math.ceil(seconds * 1000))))


def allow_many_files() -> int:
    """Raises the soft limit of open files to the hard one, which is returned: every peer takes two or three."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def describe_exit(status: int) -> str:
    """A wait status in words: "exit code 3", "signal SIGKILL"."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
