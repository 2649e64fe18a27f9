"""Threads that help another one to compute, and sleep in between."""

import functools
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue

import numpy as np


class Crew:
    """Threads that take tasks from the thread which calls `run`.

    The first free thread takes the next task. A helper that wakes up late, because other programs use its core, finds
    no task left, and no thread waits for it. Between calls helpers sleep: threads that spin, as those of OpenBLAS and
    of OpenMP do, take the cores from other programs and lose most of their time where these use them as well.

    Args:
        num_helpers: number of threads.
        begin: called in each of them at its beginning.
    """

    def __init__(self, num_helpers: int, begin: Callable[[], None]):
        self._begin, self._job = begin, _Job(())
        self._calls = [SimpleQueue() for _ in range(num_helpers)]
        for number, calls in enumerate(self._calls):
            name = f"rllib-update-helper-{number}"
            threading.Thread(target=self._help, args=(calls,), name=name, daemon=True).start()

    def run(self, tasks: Iterable[Callable[[], object]]) -> None:
        """Runs tasks, here and in helpers, and returns when all have ended.

        Raises:
            BaseException: the first that a task has raised; the others have been run.
        """
        self._job = job = _Job(tasks)
        for calls in self._calls[: job.count - 1]:
            # A helper that has not answered the last call takes part in this job when it does.
            if calls.empty():
                calls.put(None)
        job.take_part()
        job.ended.acquire()
        if job.error is not None:
            raise job.error

    def _help(self, calls: SimpleQueue) -> None:
        self._begin()
        # numpy's context of errors belongs to a thread; learners report overflows by the parameter's name.
        with np.errstate(over="ignore", invalid="ignore"):
            while True:
                calls.get()
                self._job.take_part()


class _Job:
    """Tasks that threads take until none is left.

    Attributes:
        count: number of tasks.
        ended: a lock that is open when all tasks have ended.
        error: the first that a task has raised.
    """

    def __init__(self, tasks: Iterable[Callable[[], object]]):
        self._tasks = deque(tasks)
        self.count, self._numbers = len(self._tasks), itertools.count(1)
        self.ended, self.error = threading.Lock(), None
        if self.count:
            self.ended.acquire()

    def take_part(self) -> None:
        """Runs tasks until none is left; others may still be running them."""
        while True:
            try:
                task = self._tasks.popleft()
            except IndexError:
                return
            try:
                task()
            except BaseException as error:
                self.error = self.error or error
            if next(self._numbers) == self.count:
                self.ended.release()


def crew(num_helpers: int, begin: Callable[[], None]) -> Crew:
    """The crew of this process with this number of helpers, and this function; made on the first call."""
    return _crew(num_helpers, begin, os.getpid())


@functools.cache
def _crew(num_helpers: int, begin: Callable[[], None], process: int) -> Crew:
    """The crew of a process: a fork has no threads but the one that forked."""
    return Crew(num_helpers, begin)
