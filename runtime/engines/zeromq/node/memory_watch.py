"""Readings of memory for the node: free memory, memory of processes, and how many the kernel has killed."""

from __future__ import annotations

import os
import time

from ....host.machine import MemoryLimit, group_directories, memory_limits

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
FILLED_BYTES_PER_S = 2**31  # by one CPU, at most: the kernel clears each page first
REPORTED_WITHIN_S = 10.0  # after the kernel has killed a process, its end is reported


class MemoryWatch:
    """Looks at the memory that this session shares with everything else on the machine.

    Args:
        threshold: share of it that may be in use; with 1 there is nothing to look at.

    Attributes:
        limits: of the machine and of control groups; empty: nothing is watched.
    """

    def __init__(self, threshold: float):
        self._threshold = threshold
        self.limits = [] if threshold >= 1 else _limits()
        self._filled_bytes_per_s = FILLED_BYTES_PER_S * (os.cpu_count() or 1)
        self._kernel_kills = _kernel_kills()
        self._kills_seen_at: list[float] = []  # of those for which no process has been reported yet

    def look(self) -> tuple[int, int, MemoryLimit]:
        """The tightest limit: bytes until its threshold (negative above it), bytes in use, and the limit."""
        return min(map(self._look_at, self.limits), key=lambda seen: seen[0])

    def _look_at(self, limit):
        try:
            free = limit.free_bytes()
        except OSError:  # the control group has been removed
            free = limit.size_bytes
        return free - self.reserve(limit), limit.size_bytes - free, limit

    def reserve(self, limit: MemoryLimit) -> int:
        """Bytes that are to stay free."""
        return int((1 - self._threshold) * limit.size_bytes)

    def pause_s(self, room: int) -> float:
        """Seconds until the next look: before the memory that is left can be filled.

        Args:
            room: bytes until the threshold.
        """
        return min(max(room / self._filled_bytes_per_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)

    def kernel_has_killed(self) -> bool:
        """Whether a process that SIGKILL has just ended can be one that the kernel killed for want of memory.

        Each such kill explains the end of one process: the kernel may kill a second before the first is reported.
        """
        now, count = time.monotonic(), _kernel_kills()
        self._kills_seen_at += [now] * (count - self._kernel_kills)
        self._kernel_kills = count
        self._kills_seen_at = [seen for seen in self._kills_seen_at if now - seen < REPORTED_WITHIN_S]
        return bool(self._kills_seen_at and self._kills_seen_at.pop())


def private_bytes(pid: int) -> int:
    """Memory that would be free without this process: its share of the anonymous pages; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next((1024 * int(line.split()[1]) for line in file if line.startswith("Pss_Anon:")), 0)
    except OSError:
        return 0


def _limits():
    try:
        return [limit for limit in memory_limits() if limit.size_bytes]
    except OSError:  # no /proc
        return []


def _kernel_kills():
    """Number of processes that the kernel has ended for want of memory, in this control group or on the machine."""
    names = ("memory.events", "memory.oom_control")
    innermost = [os.path.join(directory, name) for directory in group_directories() for name in names]
    for path in (*innermost, "/proc/vmstat"):
        try:
            with open(path) as file:
                for line in file:
                    name, _, count = line.partition(" ")
                    if name == "oom_kill":
                        return int(count)
        except OSError:
            continue
    return 0
