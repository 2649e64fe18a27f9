"""Chooses the number of CPU cores for each update: all idle ones, or the fastest number measured."""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable

# Updates that a number of cores is measured by; their median counts. One before them, which wakes threads up, does not.
NUM_MEASURED = 7
# A number of cores replaces another one only if updates take less than this share of the other's time.
WORTH_CHANGING = 0.9
# Updates that take this many times as long as when they were measured bring a new measurement before it is due.
SLOWER = 1.5
# A number of cores whose update takes this many times as long is measured no further.
HOPELESS = 2.0
# Reason of one core where others are there.
CLAIMED = "no other core is free"
# Seconds from one measurement to the next: they double, since each costs some slower updates.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 300.0
# Slower updates are looked into after this share of the pause at the earliest.
_EARLY = 0.1


class FreeCores:
    """All cores that are free, for updates that are worth several.

    Nothing is measured: threads that help sleep while there is nothing to do, and work that they are late for is done
    without them (models/arithmetic/crew.py).

    Args:
        most: largest number of cores that is ever chosen.
        free: returns the number of cores that no other process uses during updates, at least 1.
        clock: seconds.

    Attributes:
        most: as given.
        cores: number in use.
        reason: why, as the end of a sentence; empty where updates are too short for more than one.
    """

    def __init__(self, most: int, free: Callable[[], int], clock: Callable[[], float] = time.perf_counter):
        self.most, self._free, self._clock = most, free, clock
        self.cores, self.reason = 1, ""
        self._found, self._looked_at = 1, -math.inf

    def begin(self, worth: int) -> int:
        """Number of cores of an update that begins now; `end` tells that it is over.

        Args:
            worth: number of cores that it can use.
        """
        self.cores, self.reason = 1, ""
        if min(worth, self.most) > 1:
            if self._clock() - self._looked_at >= FIRST_PAUSE_S:
                self._found, self._looked_at = min(self.most, self._free()), self._clock()
            self.cores = min(self._found, worth)
            self.reason = "these are free" if self.cores > 1 else CLAIMED
        return self.cores

    def end(self, rows: int) -> None:
        """Ends the update, which has computed gradients of this number of rows, each as often as it was used."""


class CoreChoice(FreeCores):
    """Choice between one core and all that are free, by measuring.

    It begins with one core. A measurement compares the number in use with the other one, and takes that if it is
    clearly faster. It is repeated at growing intervals, and earlier when updates have become slower; cores that have
    been claimed meanwhile are given up. So a second training on this machine brings it back to one core.

    Updates are compared by the time for each row, so that batches may differ in size.

    Args, attributes: as for FreeCores; the reason is never empty.
    """

    def __init__(self, most: int, free: Callable[[], int], clock: Callable[[], float] = time.perf_counter):
        super().__init__(most, free, clock)
        self.reason = "nothing has been measured yet"
        self._recent: deque[float] = deque(maxlen=NUM_MEASURED)
        self._expected_s = math.inf
        self._other: int | None = None
        self._other_s: list[float] = []
        self._pause_s, self._measured_at = FIRST_PAUSE_S, -math.inf
        self._began: float | None = None

    def begin(self, worth: int) -> int:
        """Number of cores of an update that begins now; `end` tells that it is over.

        Args:
            worth: number of cores that it can use; 1: it takes one, and is not measured.
        """
        if worth == 1:
            self.cores, self.reason, self._other, self._began = 1, "updates are too short for more", None, None
            return 1
        cores = min(self._next(worth), worth)
        self._began = self._clock()
        return cores

    def end(self, rows: int) -> None:
        """Ends the update.

        Args:
            rows: number of rows that it has computed gradients of, each as often as it was used.
        """
        if self._began is not None and rows:
            self._ended((self._clock() - self._began) / rows)

    def _next(self, worth: int) -> int:
        """Number of cores of the next update."""
        if self._other is None and len(self._recent) == NUM_MEASURED and self._is_due():
            self._begin(min(self.most, self._free(), worth))
        return self.cores if self._other is None else self._other

    def _is_due(self) -> bool:
        since = self._clock() - self._measured_at
        is_slower = statistics.median(self._recent) > SLOWER * self._expected_s
        return since >= self._pause_s or (is_slower and since >= _EARLY * self._pause_s)

    def _begin(self, free: int) -> None:
        """Begins to measure the number of cores that is not in use, if there is one."""
        if self.cores > free:
            self._take(free, "the others have been claimed")
            return
        other = free if self.cores == 1 else 1
        if other == self.cores:
            self._keep(CLAIMED)
            self._expected_s = statistics.median(self._recent)
            return
        self._other, self._other_s = other, []

    def _ended(self, row_s: float) -> None:
        """Notes an update that took so long for each row."""
        if self._other is None:
            self._recent.append(row_s)
            if self._expected_s == math.inf and len(self._recent) == NUM_MEASURED:
                self._expected_s = statistics.median(self._recent)
            return
        self._other_s.append(row_s)
        measured, own_s = self._other_s[1:], statistics.median(self._recent)
        if measured and (len(measured) == NUM_MEASURED or measured[-1] > HOPELESS * own_s):
            self._compare(self._other, measured, own_s)

    def _compare(self, other: int, measured: list[float], own_s: float) -> None:
        ratio = statistics.median(measured) / own_s
        what = f"{_counted(other)} took {ratio:.2f} of the time of {_counted(self.cores)}"
        if ratio < WORTH_CHANGING:
            self._take(other, what)
            self._recent.extend(measured)
            self._expected_s = ratio * own_s
        else:
            self._keep(what)
            self._expected_s = own_s

    def _take(self, cores: int, reason: str) -> None:
        self._keep(reason)
        self.cores, self._expected_s = cores, math.inf
        self._recent.clear()

    def _keep(self, reason: str) -> None:
        """Ends a measurement; the next one is due after twice the pause."""
        if self._measured_at > -math.inf:
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self.reason, self._other, self._measured_at = reason, None, self._clock()


def _counted(cores: int) -> str:
    return f"{cores} core{'s' if cores > 1 else ''}"
