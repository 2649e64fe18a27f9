"""How busy the machine is, for the `perf` key of results."""

import time

import psutil

_REFRESH_S = 1.0  # reading /proc costs a good part of a millisecond; short iterations share one reading


class SystemUsage:
    """CPU and memory use of the machine and memory of this process."""

    def __init__(self):
        self._process = psutil.Process()
        self._read_at = -_REFRESH_S
        self._last: dict[str, float] = {}
        psutil.cpu_percent()  # the first call only sets the point that the next one counts from

    def read(self) -> dict[str, float]:
        """cpu_util_percent, ram_util_percent and rss_mb of this process, at most a second old."""
        now = time.monotonic()
        if now - self._read_at >= _REFRESH_S:
            self._read_at = now
            self._last = {
                "cpu_util_percent": psutil.cpu_percent(),
                "ram_util_percent": psutil.virtual_memory().percent,
                "rss_mb": self._process.memory_info().rss / 2**20,
            }
        return dict(self._last)
