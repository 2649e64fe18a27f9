"""Starting a session: its directory, and the node agent in it. Imports nothing that takes time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import time

from ....host.linux import readable
from ..system.interrupts import interruptible
from ..transport.session_key import create_key
from . import boot

LONGEST_DIRECTORY = 80  # bytes; the path of a unix socket has at most 107 bytes
PREFIX, LOCK = "rts-", "lock"
START_S = 30.0
INTERRUPT_S = 1.0


class NodeProcess:
    """The node agent as the driver sees it.

    Attributes:
        session: its directory.
        pid: process id of the agent.
    """

    def __init__(self, config):
        """Starts the process; `wait_ready` says when it serves.

        Args:
            config: `EngineConfig`.

        Raises:
            OSError: no directory or no process could be made; nothing is left behind.
        """
        self.session, lock = create_session_directory()
        with contextlib.ExitStack() as failed, contextlib.ExitStack() as handed_over:
            failed.callback(shutil.rmtree, self.session, ignore_errors=True)
            create_key(self.session)
            handed_over.callback(os.close, lock)
            ready, its = map(_above_standard, os.pipe())
            self._ready = failed.enter_context(open(ready, "rb", buffering=0))
            handed_over.callback(os.close, its)
            arguments = {
                "module": "runtime.engines.zeromq.node.node_agent",
                "has_zygote": True,
                "session": self.session,
                "driver": os.getpid(),
                "resources": dict(config.resources),
                "gpu_ids": list(config.gpu_ids),
                "object_store_memory": config.object_store_memory,
                "spilling_directory": config.spilling_directory,
                "spilling_bytes": config.spilling_bytes,
                "memory_usage_threshold": config.memory_usage_threshold,
                "preload": ["runtime.engines.zeromq.worker.worker_process", *config.preload],
                "log_to_driver": config.log_to_driver,
                "environment": config.environment,
                "dedup_logs": config.dedup_logs,
                "namespace": config.namespace,
                "timeline": config.timeline,
                "path": _import_path(),
                "inherited": {"ready": its, "lock": lock},
            }
            self._process = subprocess.Popen(
                boot.command(arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if _is_open(2) else subprocess.DEVNULL,
                pass_fds=[its, lock],
                start_new_session=True,  # Ctrl-C in the terminal is the driver's affair
            )
            failed.callback(self._process.wait)
            failed.callback(self._process.kill)
            self.pid = self._process.pid
            self.pidfd = os.pidfd_open(self.pid)
            failed.pop_all()

    def wait_ready(self) -> None:
        """Returns when the node serves.

        Raises:
            RuntimeError: it does not, within START_S seconds or at all.
            KeyboardInterrupt: Ctrl-C came before the node had its own process group, and ended it.
        """
        with self._ready:
            answered = readable(self._ready.fileno(), START_S)
            if answered and self._ready.read(1):
                return
        if answered and self._ended_by() == -signal.SIGINT:
            _let_interrupt_come()
        raise RuntimeError("the runtime's node agent did not start; see its message on stderr")

    def _ended_by(self):
        """The return code of a process that is ending, None if it does not."""
        try:
            return self._process.wait(START_S)
        except subprocess.TimeoutExpired:
            return None

    def wait_end(self, seconds: float) -> None:
        """Returns when the process has ended; it is killed after this many seconds."""
        if not readable(self.pidfd, seconds):
            self._process.kill()
        self._process.wait()
        shutil.rmtree(self.session, ignore_errors=True)

    def close(self) -> None:
        """Closes the descriptors."""
        self._ready.close()
        os.close(self.pidfd)


@interruptible
def _let_interrupt_come() -> None:
    """The same Ctrl-C is about to be raised here, in the driver, a few milliseconds after (see interrupts.py)."""
    time.sleep(INTERRUPT_S)


def create_session_directory() -> tuple[str, int]:
    """Makes a directory with a random name for this user alone, and removes directories of dead sessions next to it.

    A session lives as long as a process holds the lock (`flock`) of the file LOCK in its directory: the driver until
    the node has inherited the descriptor, then the node. Unlike a pid, a lock means the same in all containers that
    share the directory, and the kernel releases it however the node ends.

    Returns:
        Its path, and a descriptor that holds its lock.

    Raises:
        OSError: no place has room for one, or may be written to.
    """
    errors = []
    for base in session_places():
        try:
            if len(os.fsencode(base)) > LONGEST_DIRECTORY:
                raise OSError(errno.ENAMETOOLONG, f"longer than {LONGEST_DIRECTORY} bytes")
            _sweep(base)
            return _create_in(base)
        except OSError as error:
            errors.append(f"{base}: {error.strerror}")
    raise OSError(
        f"no directory for the session could be made ({'; '.join(errors)}). Name a directory with room by the "
        "environment variable XDG_RUNTIME_DIR or TMPDIR"
    )


def session_places():
    """Places for the directories of sessions: the first with room is taken."""
    yield from (path for path in map(os.environ.get, ("XDG_RUNTIME_DIR", "TMPDIR")) if path)
    yield from ("/tmp", "/var/tmp", "/dev/shm")


def _create_in(base):
    while True:
        session = os.path.join(base, f"{PREFIX}{os.getuid()}-{os.urandom(4).hex()}")
        os.mkdir(session, 0o700)
        try:
            lock = _lock(session)
        except OSError:
            shutil.rmtree(session, ignore_errors=True)
            raise
        if lock is not None:
            return session, lock


def _lock(session):
    """Locks a session's directory: a descriptor, None if another process holds the lock or removes the directory.

    Both who makes a directory and who removes it hold the lock. A directory that was removed after it was made and
    before it was locked shows in its file: it has gone, or is not the one that was locked.
    """
    path = os.path.join(session, LOCK)
    try:
        lock = _above_standard(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    except FileNotFoundError:
        return None
    with contextlib.ExitStack() as failed:
        failed.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(lock), os.stat(path)):
                return None
        except (BlockingIOError, FileNotFoundError):
            return None
        failed.pop_all()
    return lock


def _sweep(base):
    """Removes the directories of sessions of this user that have ended without doing it."""
    with contextlib.suppress(OSError):  # a new session does not need it
        for name in os.listdir(base):
            if name.startswith(f"{PREFIX}{os.getuid()}-"):
                _remove_if_dead(os.path.join(base, name))


def _remove_if_dead(session):
    with contextlib.suppress(OSError):
        if not is_own_directory(session):
            return
        lock = _lock(session)
        if lock is not None:
            shutil.rmtree(session, ignore_errors=True)
            os.close(lock)


def is_own_directory(path: str) -> bool:
    """Whether this is a directory of this user, and no link to one: in /tmp, others may make any name.

    Raises:
        OSError: there is nothing.
    """
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _is_open(descriptor):
    """Whether this process has such a file; it may have been started without, or have closed it since."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _above_standard(descriptor):
    """The same file under a number above stdin, stdout and stderr, which this process may have closed."""
    if descriptor > 2:
        return descriptor
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved


def _import_path() -> list[str]:
    """sys.path of this process, with the directory that holds the runtime: workers import what the driver can."""
    root = os.path.abspath(__file__).rsplit(os.sep + "runtime" + os.sep, 1)[0]
    return [*sys.path, *([] if root in map(os.path.abspath, sys.path) else [root])]
