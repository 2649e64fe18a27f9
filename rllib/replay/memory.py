"""The check that a replay fits into memory."""

from collections.abc import Callable
from pathlib import Path

from rllib.config.conflicts import Unfit

_CGROUP = Path("/sys/fs/cgroup")


def check_memory(
    rows: int, size_bytes: int, setting_of: Callable[[int], int] = int, promised: int = 0, replays: int = 1
) -> None:
    """Refuses a replay that would not fit, before anything is allocated.

    Args:
        rows: number of rows.
        size_bytes: memory of all rows together.
        setting_of: the setting "capacity" that has room for a number of rows.
        promised: free bytes that other replays of the run are going to fill.
        replays: number of the run's replays.

    Raises:
        Unfit: (a ValueError) if that is more than the free memory, with a capacity that fits.
    """
    free = free_bytes()
    if size_bytes + promised > free:
        fitting = setting_of(max(rows * free // (2 * max(size_bytes + promised, size_bytes * replays)), 1))
        others = f", and replays of other policies take {promised / 2**30:.1f} GiB of them" if promised else ""
        raise Unfit(
            f"a replay of {rows} rows takes {size_bytes / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB are free{others}.",
            f"Use .training(replay_buffer_config={{'capacity': {fitting}}}), or {{'storage': 'disk'}}.",
            {"replay_buffer_config": {"capacity": fitting}},
        )


def free_bytes() -> int:
    """Free memory of the machine, or of the container that this process runs in if that is less."""
    import psutil  # here, so that the library's import does without

    free = psutil.virtual_memory().available
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        statistics = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return free
    if limit == "max":
        return free
    # Cached pages of files count as used, but the kernel frees them when memory is needed.
    return max(min(free, int(limit) - used + int(statistics.get("inactive_file", 0))), 0)
