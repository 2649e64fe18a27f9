"""The parent process of a policy server: holds the sockets, and replaces processes that have ended.

The sockets between the learner and the processes that answer are its own as well: what was sent to a process that has
ended is read by the one in its place.
"""

import contextlib
import heapq
import itertools
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from rllib.errors import RLlibError
from rllib.serving.counts import Counts
from rllib.serving.learning.packets import socket_pair
from rllib.serving.tasks import GRACE_S, Report, ServingSettings, Task
from rllib.web.sockets import url_of

# A process that ends sooner than this after its start is replaced after a delay, which doubles each time.
STEADY_S = 5.0
FIRST_DELAY_S, LONGEST_DELAY_S = 0.1, 5.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ServingError(RLlibError):
    """Error of a policy server that cannot start: there is no policy at its source, or its processes end at once."""


class _Worker:
    """A process that answers requests, or learns, and the socket to it.

    Args:
        task: its first message.
        module: that it runs.
        before, behind: descriptors that it inherits; in its arguments its own end of the socket stands between.
    """

    def __init__(self, task: Task, module: str, before: Sequence[int], behind: Sequence[int]):
        self.index, self.started, self.rest = task.index, time.monotonic(), b""
        self.channel, theirs = socket.socketpair()
        descriptors = *before, theirs.fileno(), *behind
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *map(str, descriptors)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is handled by the supervisor
            )
        self.channel.sendall(msgspec.json.encode(task) + b"\n")

    def reports(self) -> list[Report] | None:
        """Reports that have arrived from the process; None if it has ended."""
        try:
            received = self.channel.recv(65536)
        except OSError:
            received = b""
        if not received:
            return None
        *lines, self.rest = (self.rest + received).split(b"\n")
        return [msgspec.json.decode(line, type=Report) for line in lines]

    def end(self) -> int:
        """Ends the process, and returns its exit status."""
        self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(1.0)
        self.process.kill()
        return self.process.wait()


class Supervisor:
    """Runs the processes of a server until SIGTERM or Ctrl-C, and ends them all.

    Args:
        settings: settings of the server.
        listening: the listening socket (sockets.py).
        workers: number of processes.
        say: called with a line for each event.
    """

    def __init__(self, settings: ServingSettings, listening: socket.socket, workers: int, say: Callable[[str], None]):
        self._settings, self._listening, self._num_workers, self._say = settings, listening, workers, say
        self._counts = Counts.new(workers + 1)
        self._selector = selectors.DefaultSelector()
        self._workers: dict[int, _Worker] = {}
        self._due: list[tuple[float, int]] = []  # heap of (when, index of the process to start)
        self._delays: dict[int, float] = {}
        self._newest: Report | None = None  # the last report of a process that serves a new policy
        self._signals = 0
        # With a learner: its end and the other of a socket to each process that answers.
        self._to_workers = [socket_pair() for _ in range(workers)] if settings.learning else []
        self._learner_has_begun = False

    def run(self) -> None:
        """Serves until a signal.

        Raises:
            ServingError: if no process begins to serve.
        """
        with self._signals_wake_us():
            try:
                if self._to_workers:
                    self._start(self._num_workers)  # the others follow when it has begun
                else:
                    self._start_workers()
                while not self._signals:
                    self._step()
                self._drain()
            finally:
                self._listening.close()
                for worker in self._workers.values():
                    worker.process.kill()
                    worker.end()
                for pair in self._to_workers:
                    for each in pair:
                        each.close()

    @contextlib.contextmanager
    def _signals_wake_us(self):
        reading, writing = socket.socketpair()
        reading.setblocking(False)
        writing.setblocking(False)
        self._selector.register(reading, selectors.EVENT_READ)
        wakeup = signal.set_wakeup_fd(writing.fileno())
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)
            self._selector.close()
            reading.close()
            writing.close()

    def _on_signal(self, number: int, frame) -> None:
        self._signals += 1

    def _start_workers(self) -> None:
        for index in range(self._num_workers):
            self._start(index)

    def _start(self, index: int) -> None:
        before = self._newest and self._newest.checkpoint
        task = Task(settings=self._settings, index=index, workers=self._num_workers, before=before)
        if index < self._num_workers:
            behind = [self._counts.descriptor, *(pair[1].fileno() for pair in self._to_workers[index : index + 1])]
            started = _Worker(task, "rllib.serving.worker", [self._listening.fileno()], behind)
        else:
            started = _Worker(task, "rllib.serving.learner", [], [pair[0].fileno() for pair in self._to_workers])
        worker = self._workers[index] = started
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)

    def _step(self) -> None:
        """Waits for the next report, end of a process, restart or signal."""
        wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
        for key, _ in self._selector.select(wait):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    key.fileobj.recv(1024)
            else:
                self._hear(key.data)
        while self._due and self._due[0][0] <= time.monotonic():
            _, index = heapq.heappop(self._due)
            self._start(index)

    def _hear(self, worker: _Worker) -> None:
        reports = worker.reports()
        for report in reports or ():
            if report.event:
                self._learner_says(report.event)
            elif report.error:
                self._refused(worker, report.error)
            elif report != self._newest:
                self._announce(report)
        if reports is None:
            self._ended(worker)

    def _announce(self, report: Report) -> None:
        is_first, self._newest = self._newest is None, report
        what = f"{report.of}, version {report.version}, from {report.checkpoint}"
        self._say(
            f"Serving {what} at {url_of(*self._listening.getsockname()[:2])}" if is_first else f"Now serving {what}"
        )

    def _learner_says(self, event: str) -> None:
        if not self._counts.of_all("learner_running"):
            self._counts.set("learner_running", 1)
            self._counts.add("learner_starts")
            if not self._learner_has_begun:
                self._learner_has_begun = True
                self._start_workers()
        self._say(event)

    def _is_learner(self, worker: _Worker) -> bool:
        return worker.index == self._num_workers

    def _refused(self, worker: _Worker, error: str) -> None:
        if self._is_learner(worker) and self._learner_has_begun:
            self._say(f"the learner cannot begin: {error}")
        elif self._newest is None or self._is_learner(worker):
            raise ServingError(error)
        self._say(f"process {worker.process.pid} cannot serve: {error}")

    def _ended(self, worker: _Worker) -> None:
        """Schedules the replacement of a process that has ended: at once if it had lived for STEADY_S."""
        self._selector.unregister(worker.channel)
        status = worker.end()
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"has ended with status {status}"
        if self._is_learner(worker):
            self._counts.set("learner_running", 0)
            if not self._learner_has_begun:
                raise ServingError(f"the process that was to learn {how} before it did")
        elif self._newest is None:
            raise ServingError(f"the process that was to serve {how} before it did")
        now = time.monotonic()
        delay = 0.0
        if now - worker.started < STEADY_S:
            delay = min(2 * self._delays.get(worker.index, 0.0) or FIRST_DELAY_S, LONGEST_DELAY_S)
        self._delays[worker.index] = delay
        self._counts.add("restarts")
        if self._is_learner(worker):
            self._say(
                f"the learner, process {worker.process.pid}, {how}; actions are answered, another takes its place"
            )
        else:
            self._say(f"process {worker.process.pid} {how}; another takes its place")
        heapq.heappush(self._due, (now + delay, worker.index))

    def _drain(self) -> None:
        """Ends the processes, which answer the requests that have arrived, and waits for them."""
        self._listening.close()
        living = [worker for worker in self._workers.values() if worker.process.poll() is None]
        for worker in living:
            worker.process.terminate()
        self._say("Ending: requests that have arrived are answered")
        deadline, signals = time.monotonic() + GRACE_S + 1.0, self._signals
        for worker in itertools.cycle(living):
            if all(each.process.poll() is not None for each in living):
                return
            if self._signals > signals or time.monotonic() > deadline:
                return  # `run` kills the remaining ones
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(0.05)
