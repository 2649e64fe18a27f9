"""Spans: begin and end of each activity of a process, written to a file, for a timeline of several processes.

    spans.start(directory, "driver")        # in each process that is to be recorded
    with spans.span("sample"):
        with spans.span("wait"):
            ...
    spans.stop()
    lanes = read_lanes(directory)           # one lane for each process

A process that has not called `start` records nothing, and `span` costs it a fraction of a microsecond. Only the thread
that has called `start` is recorded.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, time

import msgspec

SUFFIX = ".spans"
# Number of single spans that a process keeps, at most half of them from hot loops; later ones are only summed. A Chrome
# trace of a hundred processes can still be opened.
MOST_SPANS = 50_000
# Number of spans that are written together.
MOST_UNWRITTEN = 1_000
IDLE = "idle"
# Time for which a learner waits until the others have come to a sum.
WAIT = "wait for learners"
_NOTHING = contextlib.nullcontext()
_recorder: _Recorder | None = None


def start(directory: str | os.PathLike | None, lane: str, serves: bool = False) -> None:
    """Begins to record the spans of this process, if a directory is given and they are not recorded yet.

    Args:
        directory: directory of the files, one for each process; nothing is recorded if it does not exist, as on another
            machine.
        lane: name of the process in the timeline.
        serves: whether it is an actor, which is idle between calls (see `call`).
    """
    global _recorder
    if directory is not None and _recorder is None and os.path.isdir(directory):
        _recorder = _Recorder(Path(directory), lane, serves)


def stop() -> None:
    """Writes the spans that are not written yet, and ends the recording."""
    global _recorder
    recorder, _recorder = _recorder, None
    if recorder is not None:
        recorder.close()


def flush() -> None:
    """Writes the spans that are not written yet."""
    if _recorder is not None:
        _recorder.write()


def is_recording() -> bool:
    """Whether the spans of this process are recorded."""
    return _recorder is not None


def _forget() -> None:
    """Ends the recording in a forked child: the file is its parent's."""
    global _recorder
    _recorder = None


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_forget)


def span(kind: str) -> contextlib.AbstractContextManager:
    """Context manager that records when it is entered and left, if this thread is recorded."""
    recorder = _recorder
    return _NOTHING if recorder is None or recorder.thread != threading.get_ident() else recorder.span(kind)


def call(kind: str) -> contextlib.AbstractContextManager:
    """`span` of an actor's method: the time since its last call counts as idle, and the spans are written."""
    recorder = _recorder
    return _NOTHING if recorder is None or recorder.thread != threading.get_ident() else recorder.call(kind)


def stopwatch(*kinds: str) -> Callable[[], float]:
    """A clock (seconds) for a hot loop.

    It is read once before the first kind of work and once after each of them; then the next round begins. If this
    thread is recorded, the times between the readings become spans; else the clock is `time.perf_counter` itself.
    """
    recorder = _recorder
    if recorder is None or recorder.thread != threading.get_ident():
        return perf_counter
    return recorder.stopwatch(kinds)


class _Recorder:
    """Records the spans of one thread.

    Spans have paths: "sample/wait" was entered inside of "sample".
    """

    def __init__(self, directory: Path, lane: str, serves: bool):
        self.thread = threading.get_ident()
        self._serves = serves
        self._path = ""
        self._seconds: dict[str, float] = defaultdict(float)
        self._spans: list[tuple[str, float, float]] = []
        self._readings: list[tuple[str, tuple[str, ...], list[float]]] = []
        self._room = MOST_SPANS
        self._idle_since = self._began = perf_counter()
        self._file = open(directory / f"{os.getpid()}-{time():.6f}{SUFFIX}", "xb")  # noqa: SIM115 (closed in close())
        # Clocks of several machines have only the time of day in common.
        self._append(
            {"lane": lane, "pid": os.getpid(), "host": socket.gethostname(), "epoch": time() - perf_counter()}
        )

    @contextlib.contextmanager
    def span(self, kind: str) -> Iterator[None]:
        outer, self._path = self._path, f"{self._path}/{kind}" if self._path else kind
        begin = perf_counter()
        try:
            yield
        finally:
            self._add(self._path, begin, perf_counter())
            self._path = outer
            if not outer and len(self._spans) >= MOST_UNWRITTEN:
                self.write()

    @contextlib.contextmanager
    def call(self, kind: str) -> Iterator[None]:
        outermost = self._serves and not self._path
        if outermost:
            self._add(IDLE, self._idle_since, perf_counter())
        try:
            with self.span(kind):
                yield
        finally:
            if outermost:
                self.write()
                self._idle_since = perf_counter()

    def stopwatch(self, kinds: tuple[str, ...]) -> Callable[[], float]:
        self._settle()
        readings: list[float] = []
        self._readings.append((f"{self._path}/" if self._path else "", kinds, readings))

        def read() -> float:
            now = perf_counter()
            readings.append(now)
            return now

        return read

    def _settle(self) -> None:
        """Turns the readings of stopwatches into spans; rounds that an exception ended are left out."""
        for prefix, kinds, readings in self._readings:
            per_round = len(kinds) + 1
            for first in range(0, len(readings) - len(kinds), per_round):
                for place, kind in enumerate(kinds, first):
                    self._add(prefix + kind, readings[place], readings[place + 1], MOST_SPANS // 2)
        self._readings.clear()

    def _add(self, path: str, begin: float, end: float, left: int = 0) -> None:
        self._seconds[path] += end - begin
        if self._room > left:
            self._room -= 1
            self._spans.append((path, begin, end))

    def write(self) -> None:
        self._settle()
        self._append({"spans": self._spans, "seconds": self._seconds, "lasted": perf_counter() - self._began})
        self._spans.clear()

    def _append(self, record: dict) -> None:
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()

    def close(self) -> None:
        self.write()
        self._file.close()


@dataclass
class Lane:
    """Spans of one process.

    Attributes:
        name, pid, host: name, process id and host of the process.
        epoch: offset from the times of its spans to seconds since 1970.
        spans: path, begin and end (seconds) of the first MOST_SPANS spans.
        seconds: path -> sum of all spans.
        lasted: duration of the recording (seconds).
    """

    name: str
    pid: int
    host: str
    epoch: float
    spans: list[tuple[str, float, float]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    lasted: float = 0.0


def read_lanes(directory: str | os.PathLike) -> list[Lane]:
    """Reads the spans of all processes in a directory, sorted by name. Killed processes lack unwritten spans."""
    lanes = []
    for path in Path(directory).glob(f"*{SUFFIX}"):
        whole = path.read_bytes().rpartition(b"\n")[0]  # the last line may be half written
        head, *records = [msgspec.json.decode(line) for line in whole.splitlines()] or [None]
        if head is None:
            continue
        lane = Lane(head["lane"], head["pid"], head["host"], head["epoch"])
        for record in records:
            lane.spans += map(tuple, record["spans"])
            lane.seconds, lane.lasted = record["seconds"], record["lasted"]
        lanes.append(lane)
    return sorted(lanes, key=lambda lane: (_in_words(lane.name), lane.epoch, lane.pid))


def _in_words(name: str) -> list[tuple[bool, int | str]]:
    """Sort key of a name, which puts "worker 10" after "worker 2"."""
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in re.split(r"(\d+)", name)]
