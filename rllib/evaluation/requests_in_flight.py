"""Requests to rollout workers that are answered in whatever order they are done, for asynchronous algorithms."""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import runtime
from rllib.evaluation.fault_tolerance import FAILURES
from rllib.evaluation.patience import PATIENCE
from rllib.evaluation.worker_set import SilentWorkerError, WorkerSet

logger = logging.getLogger(__name__)


class RequestsInFlight:
    """Keeps every worker of a set busy with requests, and hands out the answers as they come.

    A worker answers its requests in the order in which it got them. One that dies loses those that it had, is replaced
    as the set's FaultTolerance says, and is asked again; one that falls silent is reported, then replaced. Neither
    holds up the others. At most `max_per_worker` requests of a worker are unanswered, or answered and not yet taken:
    how far workers are ahead is bounded, and whoever does not take answers stops them.

    Args:
        workers: remote workers; nobody else should change the set.
        max_per_worker: requests of one worker; with 2 it has the next one at hand when it has answered.
    """

    def __init__(self, workers: WorkerSet, max_per_worker: int = 2):
        self._workers = workers
        self._max_per_worker = max_per_worker
        self._pending: dict[int, deque] = {}  # worker -> its requests, the oldest first
        self._asked: dict[int, Any] = {}  # worker -> the actor that they went to
        self._since: dict[int, float] = {}  # worker -> when its oldest request became the one it works at
        self._warnings: dict[int, int] = {}  # worker -> how often its silence was reported
        self._due: dict[int, float] = {}  # dead worker -> when it may be replaced

    @property
    def num_in_flight(self) -> int:
        """Requests that were made and whose answers have not been taken."""
        return sum(map(len, self._pending.values()))

    def ask(self, request: Callable[[Any, int], Any]) -> None:
        """Brings every worker to its full number of requests.

        Args:
            request: makes one: `request(actor, index)` calls a method of the actor and returns the reference.
        """
        self._replace_due()
        for index, actor in self._workers.actors.items():
            if self._asked.get(index) is not actor:
                # Requests of its predecessor, whom somebody else has replaced, are forgotten.
                self._asked[index], self._pending[index] = actor, deque()
            pending = self._pending[index]
            if not pending:
                self._restart_clock(index)
            while len(pending) < self._max_per_worker:
                pending.append(request(actor, index))

    def take(self, timeout_s: float) -> list[tuple[int, Any]]:
        """The answers that are there, (worker, answer) each; waits for the first one.

        Args:
            timeout_s: how long to wait at most. Deaths and replacements end the wait as well, so that the new workers
                can be asked.

        Returns:
            the answers, none if there are none yet.

        Raises:
            what the request raised in the worker, or ActorDiedError if that died, where FaultTolerance does not allow
                it.
        """
        heads = {pending[0]: index for index, pending in self._pending.items() if pending}
        if not heads:
            self._wait_for_replacement(timeout_s)
            return []
        timeout_s = self._bounded(timeout_s)
        done, _ = runtime.wait(list(heads), timeout=timeout_s)
        if done and len(heads) > 1:
            done, _ = runtime.wait(list(heads), num_returns=len(heads), timeout=0)
        answers = []
        for ref in done:
            self._take_from(heads[ref], answers)
        self._check_silence()
        return answers

    def _take_from(self, index: int, answers: list) -> None:
        pending = self._pending[index]
        try:
            answer = runtime.get(pending[0])
        except FAILURES as failure:
            self._bury(index, failure)
            return
        pending.popleft()
        self._restart_clock(index)
        self._workers.restarts.succeeded(index)
        answers.append((index, answer))

    def _restart_clock(self, index: int) -> None:
        self._since[index] = time.monotonic()
        self._warnings[index] = 0

    # ------------------------------------------------------------------ the silent and the dead

    def _check_silence(self) -> None:
        """Reports workers that are at one request for long, and gives them up after PATIENCE times as long."""
        timeout_s, now = self._workers.fault_tolerance.sample_timeout_s, time.monotonic()
        for index, pending in list(self._pending.items()):
            silent_s = now - self._since[index]
            if not pending or silent_s < timeout_s * (self._warnings[index] + 1):
                continue
            if runtime.wait([pending[0]], timeout=0)[0]:
                continue  # answered while nobody looked
            self._warnings[index] += 1
            if self._warnings[index] >= PATIENCE:
                self._bury(index, SilentWorkerError(index, timeout_s))
            else:
                logger.warning("rollout worker %d has not answered for %.3g s", index, silent_s)

    def _bury(self, index: int, failure: Exception) -> None:
        del self._pending[index]
        if self._workers.actors.get(index) is not self._asked.pop(index):
            return  # somebody else has seen it first
        if self._workers.give_up(index, failure):
            self._due[index] = time.monotonic() + self._workers.restarts.delay_s(index)
            self._replace_due()

    def _replace_due(self) -> None:
        for index in [index for index, due in self._due.items() if due <= time.monotonic()]:
            del self._due[index]
            self._workers.replace(index)

    def _wait_for_replacement(self, timeout_s: float) -> None:
        if self._due:
            time.sleep(min(timeout_s, max(0.0, min(self._due.values()) - time.monotonic())))

    def _bounded(self, timeout_s: float) -> float:
        """No longer than until a replacement or a report of silence is due."""
        limits = [timeout_s, self._workers.fault_tolerance.sample_timeout_s]
        limits += [max(0.0, due - time.monotonic()) for due in self._due.values()]
        return min(limits)
