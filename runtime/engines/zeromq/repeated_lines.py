"""Lines that several workers print alike are shown once, and counted. Pure: no clock, no process."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

WINDOW_S = 5.0
LARGEST_COUNT = 1000  # different lines that are remembered
HINT = "; RUNTIME_DEDUP_LOGS=0 shows all"
_NUMBER = re.compile(r"\d")


@dataclass
class Repeated:
    """A line that was shown, and what came after it.

    Attributes:
        due: when the lines that were held back are shown as one.
        processes: that have printed it.
        last: where the last one that was held back is shown, and the line.
        count: number of those.
    """

    due: float
    processes: set[int] = field(default_factory=set)
    last: tuple[Any, str] | None = None
    count: int = 0


class RepeatedLines:
    """Holds back lines that another worker has printed within the last WINDOW_S seconds, and then says how many.

    Lines are alike if they differ in words with digits only, such as counts, times and paths. A worker that repeats
    itself is always shown.
    """

    def __init__(self):
        self._seen: dict[str, Repeated] = {}
        self._hinted = False

    @property
    def next_due(self) -> float | None:
        """When `due` will have something to show; None: never, as things are."""
        return min((entry.due for entry in self._seen.values() if entry.count), default=None)

    def add(self, process: int, place: Any, lines: list[str], now: float) -> list[str]:
        """Those of a worker's new lines that are to be shown now; `place` says where, for those shown later."""
        return [line for line in lines if self._is_shown(process, place, line, now)]

    def _is_shown(self, process, place, line, now):
        alike = " ".join(word for word in line.split() if not _NUMBER.search(word))
        if not alike:
            return True
        entry = self._seen.get(alike)
        if entry is None or (now >= entry.due and not entry.count):
            if len(self._seen) >= LARGEST_COUNT:
                self._forget()
            entry = self._seen[alike] = Repeated(now + WINDOW_S)
        entry.processes.add(process)
        if len(entry.processes) == 1:
            return True
        entry.last = place, line
        entry.count += 1
        return False

    def due(self, now: float) -> list[tuple[Any, str]]:
        """What stands for the lines that were held back until now: where it is shown, and the line."""
        shown = []
        for alike, entry in list(self._seen.items()):
            if now >= entry.due:
                del self._seen[alike]
                if entry.count:
                    shown.append(self._summary(entry))
        return shown

    def _summary(self, entry):
        place, line = entry.last
        if entry.count == 1:
            return entry.last
        hint, self._hinted = "" if self._hinted else HINT, True
        return place, f"{line} [repeated {entry.count}x by {len(entry.processes)} processes{hint}]"

    def _forget(self):
        """Makes room: the oldest line that nothing is held back of."""
        oldest = next((alike for alike, entry in self._seen.items() if not entry.count), None)
        if oldest is not None:
            del self._seen[oldest]
