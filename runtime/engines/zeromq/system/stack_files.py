"""Stacks of the threads of a session's processes: written by faulthandler into files of the session's directory.

Each process has a file with its name, `stack-NUMBER-PID`, to which SIGUSR1 has it add the stacks of all its threads: at
once, even in the middle of a call into C that never returns. No process has to answer, not even the node.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import time

PREFIX = "stack-"
SETTLED_S = 0.05  # a file that has not grown for so long is complete
WAIT_S = 2.0
LARGEST_BYTES = 2**20


class StackFile:
    """The stack file of this process; `close` removes it and its handler.

    Args:
        session: the session's directory.
        process: own number.
        name: name of the process, for people.
    """

    def __init__(self, session: str, process: int, name: str):
        self._file = None
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:  # else user code has a use for it
            self._path = os.path.join(session, f"{PREFIX}{process:x}-{os.getpid()}")
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
            os.write(self._file, f"{name}\n".encode())
            faulthandler.register(signal.SIGUSR1, self._file, all_threads=True)

    def close(self) -> None:
        """The signal is the user's again."""
        if self._file is not None:
            faulthandler.unregister(signal.SIGUSR1)
            os.close(self._file)
            self._file = None
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)


def remove(session: str, process: int, pid: int) -> None:
    """Removes the file of a process that has ended."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(session, f"{PREFIX}{process:x}-{pid}"))


def read_stacks(session: str) -> dict[int, tuple[str, str]]:
    """The name of each process of a session and its stacks now, as faulthandler writes them, by pid."""
    files = {}
    for name in os.listdir(session):
        if name.startswith(PREFIX):
            files[int(name.rpartition("-")[2])] = os.path.join(session, name)
    return {pid: text for pid, path in sorted(files.items()) if (text := _dumped(pid, path)) is not None}


def _dumped(pid, path):
    try:
        before = os.path.getsize(path)
        os.kill(pid, signal.SIGUSR1)
        until, size, settled = time.monotonic() + WAIT_S, before, 0.0
        while time.monotonic() < until and (size == before or time.monotonic() < settled):
            time.sleep(SETTLED_S / 5)
            if size != (size := os.path.getsize(path)):
                settled = time.monotonic() + SETTLED_S
        with open(path, "rb") as file:
            name = file.readline(LARGEST_BYTES).decode(errors="replace").strip()
            file.seek(before)
            text = file.read(LARGEST_BYTES).decode(errors="replace").strip()
            return name, text or "no answer: the process is stopped, or waits in the kernel"
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return None
