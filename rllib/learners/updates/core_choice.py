"""Chooses the number of CPU cores for each update: all idle ones, or the fastest number measured."""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable

# Number of updates in a measurement, whose median counts, after one that is left out, as it wakes up threads.
NUM_MEASURED = 7
# A number of cores replaces another number only if updates take less than this share of the time with the other.
WORTH_CHANGING = 0.9
# Updates that take this many times as long as when they were measured cause a new measurement before it is due.
SLOWER = 1.5
# The measurement of a number of cores ends early if an update takes this many times as long.
HOPELESS = 2.0
# Reason for one core where more are available.
CLAIMED = "no other core is free"
# Seconds between measurements: the pause doubles, since each measurement costs some slower updates.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 300.0
# Slower updates cause a measurement after this share of the pause at the earliest.
_EARLY = 0.1


class FreeCores:
    """Chooses all free cores for updates that are large enough for several.

    Nothing is measured: helper threads sleep while there is nothing to do, and work for which they are late is done
    without them (models/arithmetic/crew.py).

    Args:
        most: largest number of cores that may be chosen.
        free: function that returns the number of cores that no other process uses during updates, at least 1.
        clock: function that returns the time (seconds).

    Attributes:
        most: the argument.
        cores: number of cores in use.
        reason: reason for this number, as the end of a sentence; empty if updates are too small for more than one.
    """

    def __init__(self, most: int, free: Callable[[], int], clock: Callable[[], float] = time.perf_counter):
        self.most, self._free, self._clock = most, free, clock
        self.cores, self.reason = 1, ""
        self._found, self._looked_at = 1, -math.inf

    def begin(self, worth: int) -> int:
        """Begins an update and returns its number of cores; `end` ends it.

        Args:
            worth: number of cores that the update can use.
        """
        self.cores, self.reason = 1, ""
        if min(worth, self.most) > 1:
            if self._clock() - self._looked_at >= FIRST_PAUSE_S:
                self._found, self._looked_at = min(self.most, self._free()), self._clock()
            self.cores = min(self._found, worth)
            self.reason = "these are free" if self.cores > 1 else CLAIMED
        return self.cores

    def end(self, rows: int) -> None:
        """Ends the update; `rows`: number of rows in its gradients, each row counted as often as it was used."""


class CoreChoice(FreeCores):
    """Chooses between one core and all free cores, by measuring.

    The choice begins with one core. A measurement compares the number in use with the other one, and switches to it if
    it is clearly faster. Measurements are repeated at growing intervals, and earlier if updates have become slower;
    cores that other processes have claimed meanwhile are given up. So a second training on this machine leads back to
    one core.

    Updates are compared by the time for each row, so that batches may differ in size.

    Args, attributes: as for FreeCores; `reason` is never empty.
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
        """Begins an update and returns its number of cores; `end` ends it.

        Args:
            worth: number of cores that the update can use; 1: it uses one, and is not measured.
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
            rows: number of rows in its gradients, each row counted as often as it was used.
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
        """Starts a measurement of the other number of cores, if there is one."""
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
        """Records an update's time for each row (seconds)."""
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
