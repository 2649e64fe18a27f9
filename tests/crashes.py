"""A process that is killed at its k-th change of a directory, for each k, and what it leaves.

`crash_at` runs a function in a forked process, in which files of a directory are opened, written, synchronised, renamed
and removed through wrappers that count. The k-th of these calls does not happen: the process ends there as by SIGKILL,
with half of the bytes of a write in the file. So what a directory holds afterwards is what a kill after the call before
would have left. Files that C libraries write themselves are not counted, but their renames and removals are.
"""

import builtins
import contextlib
import io
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Exit statuses of the forked process: killed at the call, at its end without that, and after an exception.
_KILLED, _ENDED, _FAILED = 77, 0, 1


class Crashes:
    """Counts the changes of a directory, and ends the process at the k-th.

    Args:
        below: the directory.
        at: number of the call that does not happen, from 1 on; 0: all happen.
        log: descriptor of a file that gets a line a call.
    """

    def __init__(self, below: Path, at: int, log: int):
        self._below, self._at, self._log, self.count = os.path.realpath(below), at, log, 0

    def concerns(self, path: Any) -> bool:
        """Whether a path lies in the directory."""
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return os.path.realpath(os.fsdecode(path)).startswith(self._below)

    def call(self, what: str, path: Any, torn: Callable[[], object] = lambda: None) -> None:
        """Notes a call that is about to happen, or ends the process.

        Args:
            what: its name.
            path: that it changes.
            torn: does a part of it.
        """
        if not self.concerns(path):
            return
        self.count += 1
        os.write(self._log, f"{what} {os.path.relpath(os.fsdecode(path), self._below)}\n".encode())
        if self.count == self._at:
            torn()
            os._exit(_KILLED)

    def install(self) -> None:
        """Wraps the calls of this process, for its life."""
        opened, crashes = io.open, self

        class Counted(io.FileIO):
            """A file whose writes count."""

            def write(self, data):
                half = bytes(data)[: len(data) // 2]
                crashes.call("write", self.name, lambda: io.FileIO.write(self, half))
                return super().write(data)

            def truncate(self, size=None):
                crashes.call("truncate", self.name)
                return super().truncate(size)

        def open_file(file, mode="r", buffering=-1, *text, closefd=True, opener=None, **named_text):
            if not set(mode) & set("wax+") or not crashes.concerns(file):
                return opened(file, mode, buffering, *text, closefd=closefd, opener=opener, **named_text)
            crashes.call("open", file)
            raw = Counted(os.fspath(file), mode.replace("b", "").replace("t", ""), closefd, opener)
            if buffering == 0:
                return raw
            buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, *text, **named_text)

        builtins.open = io.open = open_file
        for name in ("rename", "replace", "unlink", "remove", "rmdir", "mkdir", "truncate"):
            setattr(os, name, self._wrapped(name, getattr(os, name), lambda path: path))
        for name in ("fsync", "fdatasync", "ftruncate"):
            setattr(os, name, self._wrapped(name, getattr(os, name), self._path_of))

    def _wrapped(self, name: str, function: Callable, path_of: Callable[[Any], Any]) -> Callable:
        def call(path, *arguments, **named):
            if named.get("dir_fd") is None:
                self.call(name, path_of(path))
            else:  # as shutil.rmtree calls them
                self.call(name, os.path.join(self._path_of(named["dir_fd"]), os.fsdecode(path)))
            return function(path, *arguments, **named)

        return call

    @staticmethod
    def _path_of(descriptor) -> str:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        return os.readlink(f"/proc/self/fd/{number}")


def crash_at(at: int, below: Path, function: Callable[[], object]) -> list[str] | None:
    """Runs a function in a forked process that is killed at its call `at` that changes a directory.

    Args:
        at: number of the call, from 1 on; 0: it is not killed.
        below: the directory.
        function: of no arguments.

    Returns:
        the calls, as "NAME PATH", if it came to its end; None if it was killed.

    Raises:
        AssertionError: if it raised, with its traceback.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as said:
        child = os.fork()
        if not child:
            status = _FAILED
            try:
                os.setsid()
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                Crashes(below, at, log.fileno()).install()
                function()
                status = _ENDED
            except BaseException:
                os.write(said.fileno(), traceback.format_exc().encode())
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):  # processes that it has started
            os.killpg(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(status)
        for file in (log, said):
            file.seek(0)
        calls, words = log.read().decode().splitlines(), said.read().decode(errors="replace")
    assert code in (_KILLED, _ENDED), f"the process ended with {code} after {calls[-3:]}:\n{words}"
    assert at or code == _ENDED
    return calls if code == _ENDED else None
