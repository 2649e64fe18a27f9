"""What workers write to stdout and stderr: read from their pipes, passed on line by line, its end kept for messages."""

from __future__ import annotations

import errno
import os
import select
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from . import wire

TAIL_LINES, TAIL_LINE_CHARACTERS = 20, 500
READ_BYTES = 2**16
PARTIAL_LINE_S = 0.2  # a line without an end is shown after that
LOG_BYTES_PER_S = 2**20  # per worker; more is dropped and counted


@dataclass
class Output:
    """Of one worker: its pipes, its pid once it runs, the last lines, and how much of this second's share is used."""

    pid: int | None = None
    pipes: list[int] = field(default_factory=list)
    tail: deque = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    second: int = 0
    bytes_used: int = 0
    dropped: int = 0


@dataclass
class Stream:
    """What is read from one pipe: stdout (1) or stderr (2) of a worker, and the line that has no end yet."""

    process: int
    number: int
    partial: bytes = b""
    show_partial_at: float = 0.0


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

    def last_lines(self) -> dict[int, list[str]]:
        """The last lines of each living worker, by its number."""
        return {process: list(output.tail) for process, output in self._outputs.items()}

    def close(self, process: int) -> deque[str]:
        """The last lines of a worker that has ended."""
        output = self._outputs.get(process)
        if output is None:
            return deque()
        for pipe in output.pipes:
            while self.read(pipe):
                continue
            if pipe in self._streams:  # a process that the worker started may have it still
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
        output = self._outputs[stream.process]
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
        del self._streams[pipe]
