"""A running session, found by another process of its user that joins it as a further driver."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys

from ..transport import wire
from .launch import LOCK, PREFIX, is_own_directory, session_places

NAME = "session.json"
PYTHON = "{}.{}".format(*sys.version_info)
NEWEST = "session", "auto"  # addresses that mean the session that was started last; the second is Ray's


def describe_session(session: str, config: dict) -> None:
    """Writes what a process must know to join; by the node, before it serves."""
    described = {
        "protocol": wire.MAGIC.decode(),
        "python": PYTHON,
        "node_pid": os.getpid(),
        "driver_pid": config["driver"],
        "resources": config["resources"],
    }
    path = os.path.join(session, NAME)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
        json.dump(described, file)


class RunningSession:
    """The node agent of a session that another process has started, as a driver that joins sees it.

    Attributes:
        session: its directory.
        pid: process id of the agent.
        pidfd: of the agent.
        driver_pid: id of the process that has started it.
        resources: totals of the session.
    """

    def __init__(self, address: str):
        """Finds the session; nothing is sent yet.

        Args:
            address: its directory, or one of NEWEST for the one of this user that was started last.

        Raises:
            ConnectionError: there is none, it has ended, or it belongs to another user.
            RuntimeError: another version of Python or of this library runs it.
        """
        self.session = _newest() if address in NEWEST else os.path.abspath(address)
        described = _described(self.session)
        ended = ConnectionError(f"the session at {self.session} has ended")
        if not _runs(self.session):  # a pid alone may be another process's by now
            raise ended
        if (described["protocol"], described["python"]) != (wire.MAGIC.decode(), PYTHON):
            raise RuntimeError(
                f"the session at {self.session} runs Python {described['python']} with protocol "
                f"{described['protocol']}, and this process Python {PYTHON} with protocol {wire.MAGIC.decode()}; use "
                "the same versions for both"
            )
        self.pid, self.driver_pid = described["node_pid"], described["driver_pid"]
        self.resources = described["resources"]
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            raise ended from None

    def wait_end(self, seconds: float) -> None:
        """The session continues without this driver."""

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self.pidfd)


def running_sessions() -> list[str]:
    """Directories of this user's sessions that run, the one to join first.

    New sessions go to the first place that has room; so the search goes from place to place, in each from the newest.
    What others have put there is passed over, whatever its name.
    """
    found = []
    for place in dict.fromkeys(session_places()):
        paths = []
        with contextlib.suppress(OSError):
            paths = [e.path for e in os.scandir(place) if e.name.startswith(f"{PREFIX}{os.getuid()}-")]
        running = []
        for path in paths:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if is_own_directory(path) and _runs(path):
                    running.append((os.stat(os.path.join(path, NAME)).st_mtime_ns, path))
        found += [path for _, path in sorted(running, reverse=True)]
    return found


def _newest():
    sessions = running_sessions()
    if not sessions:
        places = ", ".join(dict.fromkeys(session_places()))
        raise ConnectionError(
            f"no session of this user is running; looked in {places}. "
            "A Ray cluster needs engine='ray', or RUNTIME_ENGINE=ray"
        )
    return sessions[0]


def _runs(session):
    """Whether the session was described, and a process holds its lock."""
    if not os.path.exists(os.path.join(session, NAME)):  # a new one, whose lock must not be disturbed
        return False
    try:
        with open(os.open(os.path.join(session, LOCK), os.O_RDWR | os.O_NOFOLLOW)) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _described(session):
    try:
        if os.stat(session).st_uid != os.getuid():
            raise ConnectionError(f"the session at {session} belongs to another user")
        with open(os.path.join(session, NAME)) as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        if isinstance(error, ConnectionError):
            raise
        raise ConnectionError(
            f"there is no session at {session} ({error}). Give the directory that runtime.init() returned in the first "
            "driver as session_dir, or address='session' for the newest one"
        ) from None
