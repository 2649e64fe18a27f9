"""Starting a session: its directory, and the node agent in it. Imports nothing that takes time."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from . import boot
from .interrupts import interruptible

LONGEST_DIRECTORY = 80  # the path of a unix socket has at most 107 bytes
PREFIX = "rt-"
START_S = 30.0
STALE_S = 60.0
INTERRUPT_S = 1.0


class NodeProcess:
    """The node agent as the driver sees it.

    Attributes:
        session: its directory.
        pid: of the agent.
    """

    def __init__(self, config, session: str):
        """Starts the process; `wait_ready` says when it serves.

        Args:
            config: `EngineConfig`.
            session: an existing directory.
        """
        ready, its = os.pipe()
        arguments = {
            "role": "node",
            "session": session,
            "driver": os.getpid(),
            "resources": dict(config.resources),
            "gpu_ids": list(config.gpu_ids),
            "object_store_memory": config.object_store_memory,
            "preload": ["runtime.engines.zeromq.worker", *config.preload],
            "log_to_driver": config.log_to_driver,
            "path": _import_path(),
            "ready": its,
        }
        try:
            self._process = subprocess.Popen(
                boot.command(arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its],
                start_new_session=True,  # Ctrl-C in the terminal is the driver's affair
            )
        except BaseException:
            os.close(ready)
            raise
        finally:
            os.close(its)
        self.session, self.pid, self._ready = session, self._process.pid, ready
        self.pidfd = os.pidfd_open(self.pid)
        with open(f"{session}/node", "w") as file:
            file.write(f"{self.pid} {start_time(self.pid)}")

    def wait_ready(self) -> None:
        """Returns when the node serves.

        Raises:
            RuntimeError: it does not, within START_S seconds or at all.
            KeyboardInterrupt: Ctrl-C came before the node had a process group of its own, and ended it.
        """
        try:
            readable, _, _ = select.select([self._ready], [], [], START_S)
            if not readable or not os.read(self._ready, 1):
                if readable and self._process.wait(START_S) == -signal.SIGINT:
                    _let_interrupt_come()
                raise RuntimeError("the runtime's node agent did not start; what it wrote to stderr says why")
        finally:
            os.close(self._ready)

    def wait_end(self, seconds: float) -> None:
        """Returns when the process has ended, after so many seconds by force."""
        if not select.select([self.pidfd], [], [], seconds)[0]:
            self._process.kill()
        self._process.wait()
        shutil.rmtree(self.session, ignore_errors=True)

    def close(self) -> None:
        """Lets go of the descriptor."""
        os.close(self.pidfd)


@interruptible
def _let_interrupt_come() -> None:
    """The same Ctrl-C is about to be raised here, in the driver, a few milliseconds after (see interrupts.py)."""
    time.sleep(INTERRUPT_S)


def create_session_directory() -> str:
    """A new directory with a random name that only this user can enter.

    Raises:
        OSError: there is no place for one.
    """
    base = next(path for path in _places() if len(path) <= LONGEST_DIRECTORY and os.access(path, os.W_OK | os.X_OK))
    _sweep(base)
    path = os.path.join(base, f"{PREFIX}{os.getuid()}-{os.urandom(4).hex()}")
    os.mkdir(path, 0o700)
    return path


def start_time(pid: int) -> str:
    """When a process began (clock ticks since boot), "" if it is gone: tells it from a later one of the same pid."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return fields[19] if fields[0] not in "ZX" else ""  # the dead stay listed where nobody reaps orphans
    except OSError:
        return ""


def _places():
    yield from (path for path in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir()) if path)
    yield from ("/tmp", "/var/tmp", "/dev/shm")


def _sweep(base):
    """Removes the directories of sessions that were killed with everything in them."""
    for name in os.listdir(base):
        path = os.path.join(base, name)
        if not name.startswith(f"{PREFIX}{os.getuid()}-"):
            continue
        with contextlib.suppress(OSError):
            state = os.lstat(path)
            if state.st_uid != os.getuid():
                continue
            node = _node_of(path)
            if start_time(node[0]) != node[1] if node else time.time() - state.st_mtime > STALE_S:
                shutil.rmtree(path, ignore_errors=True)


def _node_of(session):
    """(pid, start time) of the node, None as long as it has not been noted: another driver may be starting it now."""
    try:
        with open(f"{session}/node") as file:
            noted = file.read().split()
    except FileNotFoundError:
        return None
    return (int(noted[0]), noted[1]) if noted else None


def _import_path() -> list[str]:
    """sys.path of this process, with the directory that holds the runtime: workers import what the driver can."""
    package = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(os.path.dirname(package)))
    return [*sys.path, *([] if root in map(os.path.abspath, sys.path) else [root])]
