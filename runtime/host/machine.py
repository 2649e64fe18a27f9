"""CPUs, memory and GPUs of this machine that this process may use, and the part of the memory that is free."""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path
from typing import NamedTuple

from ..context import current_engine
from ..errors import PlatformError

CGROUPS = "/sys/fs/cgroup"
STAT_BYTES = 16_384  # of memory.stat at most
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)  # which Windows does not have


def check_is_linux(what: str, instead: str) -> None:
    """Refuses processes of a session on other systems: their supervision needs Linux.

    Args:
        what: is asked for.
        instead: to do.

    Raises:
        PlatformError: on another system.
    """
    if sys.platform != "linux":
        raise PlatformError(
            f"{what} need Linux with kernel 5.3 or newer, and this is {sys.platform!r}. {instead}, or a Linux "
            "container or virtual machine (on Windows WSL)."
        )


def cpu_count() -> int:
    """CPUs this process may use: its affinity, cut by the control group's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(count, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no control group, or "max"
        return count


def memory_bytes() -> int:
    """Bytes of memory this process may use: the machine's, cut by the limits of its control groups."""
    try:
        return min(limit.size_bytes for limit in memory_limits())
    except OSError:  # no /proc
        import psutil  # workers, all of them on Linux, do without

        return psutil.virtual_memory().total


def describe(node_id: str, resources: dict[str, float]) -> dict:
    """This machine as an entry of `runtime.nodes()`."""
    address = ip_address()
    return {
        "NodeID": node_id,
        "Alive": True,
        "NodeManagerAddress": address,
        "NodeManagerHostname": socket.gethostname(),
        "NodeName": address,
        "Resources": dict(resources),
        "Labels": {},
    }


def ip_address() -> str:
    """The address of this machine on the network that the default route leads to; 127.0.0.1 without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:  # connecting it sends nothing
        try:
            unsent.connect(("192.0.2.1", 9))  # reserved for documentation (RFC 5737)
            return unsent.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def node_ip_address() -> str:
    """Address of this machine for others of the session; without a session the address of the default route."""
    engine = current_engine()
    return ip_address() if engine is None else engine.address_info()["node_ip_address"]


def gpu_ids() -> tuple[str, ...]:
    """Devices in CUDA_VISIBLE_DEVICES, or the driver's devices by number. CUDA itself is never initialised here."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(entry.strip() for entry in visible.split(",") if entry.strip() not in ("", "-1", "NoDevFiles"))
    try:
        devices = [name for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name)]
    except OSError:
        return ()
    return tuple(str(index) for index in range(len(devices)))


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
    """Memory of the machine, and further limits on this process."""
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
    file = os.open(path, _FLAGS)
    try:
        return os.read(file, STAT_BYTES)
    finally:
        os.close(file)
