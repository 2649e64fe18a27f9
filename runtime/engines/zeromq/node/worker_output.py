"""Output of workers to stdout and stderr: read from their pipes, its end kept for messages, shown in the drivers."""

from __future__ import annotations

import errno
import math
import os
import re
import select
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..transport import wire

TAIL_LINES, TAIL_LINE_CHARACTERS = 20, 500
READ_BYTES = 2**16
PARTIAL_LINE_S = 0.2  # a line without an end is shown after that
LOG_BYTES_PER_S = 2**20  # per worker; more is dropped and counted
WINDOW_S = 5.0  # in which a line that another worker has printed is held back
LARGEST_COUNT = 1000  # different lines that are remembered for that
HINT = "; RUNTIME_DEDUP_LOGS=0 shows all"
_NUMBER = re.compile(r"\d")
CRASH = b"Fatal Python error: "  # from here on, faulthandler describes the end of the process
_OWN_FRAME = f'  File "{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}{os.sep}'.encode()


@dataclass
class Output:
    """Output of one worker: its open pipes, its pid once it runs, the last lines, and its used share of this second."""

    pid: int | None = None
    pipes: list[int] = field(default_factory=list)
    tail: deque = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    second: int = 0
    bytes_used: int = 0
    dropped: int = 0


@dataclass
class Stream:
    """State of one pipe.

    Attributes:
        process, number: stdout (1) or stderr (2) of this worker.
        partial: the line that has no end yet.
        crashed: Python has begun to say where the process was when a signal ended it.
        in_user_code: some of these frames, which begin with the innermost, were not the engine's.
    """

    process: int
    number: int
    partial: bytes = b""
    show_partial_at: float = 0.0
    crashed: bool = False
    in_user_code: bool = False

    def worth_showing(self, lines: list[bytes]) -> list[bytes]:
        """All lines; of a crash neither the frames that call user code, which are always the same, nor the list of
        extension modules.
        """
        if not self.crashed and not any(line.startswith(CRASH) for line in lines):
            return lines
        return [line for line in lines if self._is_worth_showing(line)]

    def _is_worth_showing(self, line):
        self.crashed = self.crashed or line.startswith(CRASH)
        if not self.crashed:
            return True
        is_own = line.startswith(_OWN_FRAME)
        self.in_user_code = self.in_user_code or (line.startswith(b"  File ") and not is_own)
        return bool(line) and not (is_own and self.in_user_code) and not line.startswith(b"Extension modules: ")


class WorkerOutput:
    """The pipes of all workers, and the lines read from them.

    Args:
        poll: the pipes are registered there.
        show: (process, 1 for stdout or 2 for stderr, lines); None: nothing is shown.

    Attributes:
        show: as given; may be changed.
        partial: pipes with a line that has no end yet.
    """

    def __init__(self, poll: select.epoll, show: Callable[[int, int, list[str]], None] | None):
        self._poll, self.show = poll, show
        self._outputs: dict[int, Output] = {}
        self._streams: dict[int, Stream] = {}  # by pipe
        self.partial: set[int] = set()

    def open(self, process: int) -> list[int]:
        """Makes the pipes of a new worker, and returns the ends that it writes to: stdout and stderr."""
        output, its = Output(), []
        self._outputs[process] = output
        for number in (wire.STDOUT, wire.STDERR):
            read, write = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read, False)
            output.pipes.append(read)
            its.append(write)
            self._streams[read] = Stream(process, number)
            self._poll.register(read, select.EPOLLIN)
        return its

    def began(self, process: int, pid: int) -> None:
        """A worker runs now."""
        if process in self._outputs:
            self._outputs[process].pid = pid

    def pid(self, process: int) -> int | None:
        """Pid of a worker, also while its last lines are read after its end."""
        return self._outputs[process].pid

    def read(self, pipe: int) -> bool:
        """Passes on the lines that are in a pipe; False when there is nothing to read now."""
        stream = self._streams.get(pipe)
        if stream is None:
            return False
        try:
            data = os.read(pipe, READ_BYTES)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            return False
        if not data:
            self._close_pipe(pipe)
            return False
        *lines, stream.partial = (stream.partial + data).split(b"\n")
        if len(stream.partial) > READ_BYTES:
            lines, stream.partial = [*lines, stream.partial], b""
        if stream.partial:
            stream.show_partial_at = time.monotonic() + PARTIAL_LINE_S
            self.partial.add(pipe)
        else:
            self.partial.discard(pipe)
        self._pass_on(stream, lines)
        return True

    def read_all(self) -> None:
        """Passes on all lines that workers have written until now; a pipe holds no more than one read takes."""
        for pipe in list(self._streams):
            self.read(pipe)

    def show_partial_lines(self) -> None:
        """Passes on what has waited for the end of its line, such as a prompt or a row of dots."""
        now = time.monotonic()
        for pipe in [p for p in self.partial if self._streams[p].show_partial_at <= now]:
            self._show_partial_line(pipe)

    def show_partial_lines_of(self, processes: set[int]) -> None:
        """Passes on what these workers have begun to print, without waiting for more."""
        for pipe in [p for p in self.partial if self._streams[p].process in processes]:
            self._show_partial_line(pipe)

    def last_lines(self) -> dict[int, list[str]]:
        """The last lines of each living worker, by its number."""
        return {process: list(output.tail) for process, output in self._outputs.items()}

    def close(self, process: int) -> deque[str]:
        """The last lines of a worker that has ended."""
        output = self._outputs.get(process)
        if output is None:
            return deque()
        for pipe in list(output.pipes):
            while self.read(pipe):
                continue
            if pipe in output.pipes:  # a process that the worker started may have it still
                self._close_pipe(pipe)
        del self._outputs[process]
        return output.tail

    def close_all(self) -> None:
        """Passes on the last lines of all workers."""
        for process in list(self._outputs):
            self.close(process)

    def _show_partial_line(self, pipe):
        stream = self._streams[pipe]
        line, stream.partial = stream.partial, b""
        self.partial.discard(pipe)
        if line:
            self._pass_on(stream, [line])

    def _pass_on(self, stream, lines):
        output, lines = self._outputs[stream.process], stream.worth_showing(lines)
        texts = [line.decode(errors="replace") for line in lines]
        output.tail.extend(text[:TAIL_LINE_CHARACTERS] for text in texts)
        if self.show is None or not texts:
            return
        second, size = int(time.monotonic()), sum(map(len, lines))
        if second != output.second:
            if output.dropped:
                texts.insert(0, f"[{output.dropped} lines dropped: more than {LOG_BYTES_PER_S} bytes in a second]")
            output.second, output.bytes_used, output.dropped = second, 0, 0
        output.bytes_used += size
        if output.bytes_used > LOG_BYTES_PER_S:
            output.dropped += len(texts)
        else:
            self.show(stream.process, stream.number, texts)

    def _close_pipe(self, pipe):
        self._show_partial_line(pipe)
        self._poll.unregister(pipe)
        os.close(pipe)
        # From here on the number may name a pipe of another worker.
        self._outputs[self._streams.pop(pipe).process].pipes.remove(pipe)


class ShownLines:
    """Shows a worker's lines in the driver for which it works, and all lines in the drivers that follow.

    Args:
        send: (process, frame).
        origin: worker -> its driver, and what its lines begin with.
        to_first_driver: whether the driver that has started the session is shown anything.
        hold_back: whether lines that several workers of a driver print alike are shown once; see RepeatedLines.

    Attributes:
        followers: drivers that are shown all lines.
    """

    def __init__(
        self,
        send: Callable[[int, bytes], None],
        origin: Callable[[int], tuple[int, str]],
        to_first_driver: bool,
        hold_back: bool,
    ):
        self._send, self._origin, self._to_first_driver = send, origin, to_first_driver
        self._holds_back = hold_back
        self._repeats: defaultdict[int, RepeatedLines] = defaultdict(RepeatedLines)  # by driver
        self._drivers = {wire.DRIVER}  # whose workers' lines are held back
        self.followers: set[int] = set()

    @property
    def next_due(self) -> float:
        """Time at which `show_due` will have something to show; infinite: never, as things are."""
        return min((repeats.next_due for repeats in self._repeats.values()), default=math.inf)

    def show(self, process: int, stream: int, lines: list[str]) -> None:
        """New lines of a worker: see WorkerOutput."""
        driver, prefix = self._origin(process)
        if self._holds_back and driver in self._drivers:
            lines = self._repeats[driver].add(process, (driver, stream, prefix), lines, time.monotonic())
        if lines:
            self._show(driver, stream, prefix, lines)

    def show_due(self, until: float) -> None:
        """Shows the summary of the lines that were held back until then."""
        for repeats in self._repeats.values():
            for place, line in repeats.due(until):
                self._show(*place, [line])

    def show_all_of(self, driver: int) -> None:
        """Shows the summary of all lines that are held back for a driver."""
        for place, line in self._repeats[driver].due(math.inf):
            self._show(*place, [line])

    def driver_joined(self, driver: int) -> None:
        """A further driver is shown the lines of its workers."""
        self._drivers.add(driver)

    def driver_ended(self, driver: int) -> None:
        """A driver that had joined is shown nothing any more."""
        self._drivers.discard(driver)  # its workers may print after it
        self.followers.discard(driver)
        self._repeats.pop(driver, None)

    def _show(self, driver, stream, prefix, lines):
        body = "".join(f"{prefix}{line}\n" for line in lines).encode()
        receivers = {driver, *self.followers}
        if not self._to_first_driver:
            receivers.discard(wire.DRIVER)
        for receiver in receivers:
            self._send(receiver, wire.message(wire.LOG, wire.NODE, body=body, flags=stream))


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
    itself is always shown. Uses no clock.
    """

    def __init__(self):
        self._seen: dict[str, Repeated] = {}
        self._hinted = False

    @property
    def next_due(self) -> float:
        """Time at which `due` will have something to show; infinite: never, as things are."""
        return min((entry.due for entry in self._seen.values() if entry.count), default=math.inf)

    def add(self, process: int, place: Any, lines: list[str], now: float) -> list[str]:
        """Selects the new lines of a worker that are shown now; `place` says where, for those shown later."""
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
        """Notices of lines that were held back until now: where each is shown, and its text."""
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
