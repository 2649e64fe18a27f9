"""How much memory a replay may take."""

from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


def check_memory(rows: int, size_bytes: int) -> None:
    """Refuses a replay that would not fit, before anything is allocated.

    Args:
        rows: of the replay.
        size_bytes: of all of them.

    Raises:
        ValueError: if that is more than what is free; the message has the size, and a capacity that fits.
    """
    free = free_bytes()
    if size_bytes > free:
        fitting = max(rows * free // (2 * size_bytes), 1)
        raise ValueError(
            f"a replay of {rows} transitions takes {size_bytes / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB are free. "
            f"Use .training(replay_buffer_config={{'capacity': {fitting}}})."
        )


def free_bytes() -> int:
    """Memory that can still be taken: what the machine has free, or the container this process lives in."""
    free = psutil.virtual_memory().available
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        statistics = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return free
    if limit == "max":
        return free
    # Pages of files that nobody looks at count as used, but make room for whoever needs it.
    return max(min(free, int(limit) - used + int(statistics.get("inactive_file", 0))), 0)
