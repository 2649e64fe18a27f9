"""A process by more than its pid, so that a signal never reaches a later one with the same number."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import NamedTuple, Self


class LivingProcess(NamedTuple):
    """A process that can be told from a later one with the same pid, and from those of other machines and containers.

    Attributes:
        where: boot of the machine, and namespace of its pids.
        pid: its number there.
        started: when it was started, in ticks since the boot.
    """

    where: tuple[str, str]
    pid: int
    started: str

    @classmethod
    def this(cls) -> Self | None:
        """The calling process; None on a system that does not say so."""
        try:
            return cls(_whereabouts(), os.getpid(), _started(os.getpid()))
        except OSError:
            return None

    def send(self, number: int) -> None:
        """Sends it a signal, if it runs here and has not ended."""
        try:
            if self.where != _whereabouts():
                return
            pidfd = os.pidfd_open(self.pid)
        except OSError:
            return
        try:
            with contextlib.suppress(OSError):
                if _started(self.pid) == self.started:
                    signal.pidfd_send_signal(pidfd, number)
        finally:
            os.close(pidfd)


def _whereabouts():
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip(), os.readlink("/proc/self/ns/pid")


def _started(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[19]
