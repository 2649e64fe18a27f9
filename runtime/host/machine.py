"""CPUs, memory and GPUs of this machine that this process may use."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from ..context import current_engine
from .memory_limits import memory_limits


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
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
    """Address of this machine for others of the session; without a session that of the default route."""
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
