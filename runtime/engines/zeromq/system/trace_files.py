"""Times of tasks, constructors and methods: events in files of the session's directory, one per worker.

They are written only with RUNTIME_TIMELINE=1, by a worker that wraps its calls. Each line is an
event of a Chrome trace (chrome://tracing, ui.perfetto.dev); times are microseconds of the machine's monotonic clock.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import inspect
import itertools
import json
import os
import threading
from collections.abc import Callable
from time import monotonic_ns

PREFIX = "trace-"
LARGEST_BYTES = 2**25  # of one worker; later events are left out
BUFFER_BYTES = 2**16


class TraceFile:
    """The events of this process.

    Args:
        session: the session's directory.
        process: own number.
        name_of: (category, name) of what a frame runs.
    """

    def __init__(self, session: str, process: int, name_of: Callable[[bytes], tuple[str, str]]):
        self._name_of = name_of
        self._lock, self._lines, self._free_lines = threading.Lock(), itertools.count(), []  # of calls side by side
        path = os.path.join(session, f"{PREFIX}{process:x}-{os.getpid()}")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._file, self._written = open(descriptor, "w", buffering=BUFFER_BYTES), 0  # noqa: SIM115
        self.flush = self._file.flush

    def traced(self, function: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """The function, which runs a frame, with an event for each."""

        def run(frame):
            begin = monotonic_ns()
            try:
                return function(frame)
            finally:
                self._write(*self._name_of(frame), begin, monotonic_ns(), 0)

        return run

    def traced_methods(self, find: Callable[[str], Callable], label: str) -> Callable[[str], Callable]:
        """Finds methods by name, with an event for each call of them. They run at the same time.

        Args:
            find: name -> method, a coroutine function or not.
            label: label of the actor.
        """
        return functools.cache(lambda name: self._traced_method(find(name), f"{label}.{name}()"))

    def _traced_method(self, method, name):
        if inspect.isasyncgenfunction(method):

            async def run(*args, **kwargs):
                with self._event(name):
                    async for value in method(*args, **kwargs):
                        yield value
        elif inspect.iscoroutinefunction(method):

            async def run(*args, **kwargs):
                with self._event(name):
                    return await method(*args, **kwargs)
        else:

            def run(*args, **kwargs):
                with self._event(name):
                    return method(*args, **kwargs)

        return run

    @contextlib.contextmanager
    def _event(self, name):
        with self._lock:
            line = heapq.heappop(self._free_lines) if self._free_lines else next(self._lines)
        begin = monotonic_ns()
        try:
            yield
        finally:
            with self._lock:
                self._write("call", name, begin, monotonic_ns(), line)
                heapq.heappush(self._free_lines, line)
                self.flush()  # the main thread may wait for messages meanwhile

    def _write(self, category, name, begin, end, line):
        if self._written < LARGEST_BYTES:
            event = {"name": name, "cat": category, "ph": "X", "ts": begin / 1000, "dur": (end - begin) / 1000}
            event |= {"pid": os.getpid(), "tid": line}
            self._written += self._file.write(json.dumps(event) + "\n")


def read_events(session: str) -> list[dict]:
    """All events that were written out, by time, after one that names each process."""
    names, events = [], []
    for file_name in sorted(os.listdir(session)):
        if file_name.startswith(PREFIX):
            with open(os.path.join(session, file_name)) as file:
                whole = file.read().rpartition("\n")[0]  # the last line may be half written
            lines = [json.loads(line) for line in whole.splitlines()]
            events += lines
            if lines:
                process = {"name": f"worker {lines[0]['pid']}"}
                names.append({"name": "process_name", "ph": "M", "pid": lines[0]["pid"], "args": process})
    return names + sorted(events, key=lambda event: event["ts"])
