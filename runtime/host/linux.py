"""Means of Linux by which processes notice one another's end: death signals, subreapers, pidfds."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import select
import signal
import sys
from time import monotonic
from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
KILL_S = 5.0
ENDED_FIRST = 500  # of at most 1000; other processes have 0

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


def be_ended_first() -> None:
    """Has the kernel prefer this process and its children when memory runs out, to the driver and the node."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "r+") as file:
        if int(file.read()) < ENDED_FIRST:
            file.seek(0)
            file.write(str(ENDED_FIRST))


def adopt_orphans() -> None:
    """Makes this process the parent of its descendants whose own parents die."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def kill_children(but: int = 0) -> None:
    """Kills and reaps the children of this process, then the ones that it adopts from them, until there are none.

    Skips processes that it may not kill (a program with set-uid) and, after KILL_S, ones that have not ended: a process
    in the middle of a system call may take any time.

    Args:
        but: pid of a child that is spared.
    """
    spared, until = {but}, monotonic() + KILL_S
    while pids := _children() - spared:
        refused = {pid for pid in pids if not _killed(pid)}
        spared |= {pid for pid in pids if not _reaped(pid, 0 if pid in refused else until)}


def reap_adopted() -> None:
    """Reaps daemons that this process has adopted and that have ended.

    They are recognised by their session. A child that this process has started itself, for which user code may wait, is
    in the session of this process or leads its own; a daemon (of a double fork) is in the session of its dead parent.
    """
    own = os.getsid(0)
    for pid in _children():
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/stat") as file:
                state, _, _, session = file.read().rpartition(")")[2].split()[:4]
            if state == "Z" and int(session) not in (own, pid):
                os.waitpid(pid, os.WNOHANG)


def _killed(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True


def _reaped(pid, until):
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ended = readable(pidfd, until - monotonic())
    finally:
        os.close(pidfd)
    if ended:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    return ended


def _children():
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return {int(pid) for pid in file.read().split()}
    except OSError:  # a kernel without this file
        return set()


def readable(descriptor: int, seconds: float) -> bool:
    """Waits until a file is readable, or the process behind a pidfd has ended; False if the time is over before.

    Unlike `select.select`, it takes descriptors above 1023.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0, math.ceil(seconds * 1000))))


def end_process(code: int) -> NoReturn:
    """Ends this process at once: threads of user code must not keep it. Its output is flushed."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


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
