"""Memory that this process and those that it starts may use, and the part of it that is free."""

from __future__ import annotations

import os
from typing import NamedTuple

CGROUPS = "/sys/fs/cgroup"
STAT_BYTES = 16_384  # of memory.stat at most


class MemoryLimit(NamedTuple):
    """The memory of the machine, or the limit of a control group that this process is in.

    Attributes:
        name: for messages.
        size_bytes: that may be used.
        usage: file with the bytes in use; "" for the machine.
        cache: what the fields of memory.stat that count the page cache begin with.
    """

    name: str
    size_bytes: int
    usage: str = ""
    cache: str = ""

    def free_bytes(self) -> int:
        """Bytes that can be used without swapping. The page cache counts as free: the kernel takes it back first.

        Raises:
            OSError: there is no such file any more.
        """
        if not self.usage:
            return _machine(b"MemAvailable:")
        stat = b"\n" + _read(os.path.join(os.path.dirname(self.usage), "memory.stat"))
        cached = sum(_field(stat, f"\n{self.cache}{which}_file ".encode()) for which in ("inactive", "active"))
        return self.size_bytes - int(_read(self.usage)) + cached


def memory_limits() -> list[MemoryLimit]:
    """The memory of the machine, and what limits that of this process further."""
    machine = MemoryLimit("the machine's memory", _machine(b"MemTotal:"))
    limits = [machine]
    for directory, limit, usage, cache in _groups():
        try:
            size = int(_read(os.path.join(directory, limit)))
        except (OSError, ValueError):  # no such group here, or "max"
            continue
        if size < machine.size_bytes:
            name = f"the memory of the control group {directory}"
            limits.append(MemoryLimit(name, size, os.path.join(directory, usage), cache))
    return limits


def group_directories() -> list[str]:
    """The directories of the control groups that account for the memory of this process, the innermost first."""
    return [directory for directory, *_ in _groups()]


def _groups():
    """Directory, names of the files with limit and use, and prefix in memory.stat, of each group and those around it.

    In a container, the root may hold the group's files, whatever path /proc names.
    """
    try:
        lines = _read("/proc/self/cgroup").decode().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, names = CGROUPS, ("memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            root, names = f"{CGROUPS}/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        else:
            continue
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts), -1, -1):
            yield "/".join([root, *parts[:depth]]), *names


def _machine(field):
    return 1024 * _field(_read("/proc/meminfo"), field)


def _field(data, name):
    """The number behind a name; 0 without it."""
    start = data.find(name)
    return 0 if start < 0 else int(data[start + len(name) : start + len(name) + 32].split(None, 1)[0])


def _read(path):
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, STAT_BYTES)
    finally:
        os.close(file)
