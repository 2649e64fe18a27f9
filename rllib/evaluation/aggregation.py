"""Processes that join fragments to train batches while the learner is busy with earlier ones."""

import logging
import os
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import runtime
from rllib.evaluation.worker_set import DEATHS, FaultTolerance, ensure_runtime
from rllib.sample_batch import SampleBatch
from runtime.errors import GetTimeoutError

logger = logging.getLogger(__name__)


class Joiner:
    """In a process of its own: fragments are mapped there, and the joined columns are born in shared memory."""

    def process_id(self) -> int:
        """Answers once the process is there."""
        return os.getpid()

    def join(self, fragments: Sequence[SampleBatch]) -> SampleBatch:
        """One batch of them all, in order."""
        return SampleBatch.concat(fragments, runtime.empty)


class _Join(NamedTuple):
    """A train batch under way: who joins it, the answer's reference, and of what."""

    index: int
    actor: runtime.ActorHandle
    ref: runtime.ObjectRef
    fragments: list[SampleBatch]


class Aggregators:
    """Joins fragments in other processes, one train batch each, and hands out the batches in the order of asking.

    Fragments are kept here until their batch is there: what was given to a process that dies is joined by this one.

    Args:
        num_workers: how many processes.
        fault_tolerance: whether, and how often, a dead process is replaced; a silent one counts as dead.

    Attributes:
        num_restarts: processes that were replaced.
    """

    def __init__(self, num_workers: int, fault_tolerance: FaultTolerance):
        ensure_runtime()
        self.num_restarts = 0
        self._fault_tolerance = fault_tolerance
        self._joiner = runtime.remote(Joiner).options(oversubscribe=True)
        self._actors = {}
        self._joins: deque[_Join] = deque()
        self._next = 0
        try:
            for index in range(1, num_workers + 1):
                self._actors[index] = self._start(index)
            runtime.get([actor.process_id.remote() for actor in self._actors.values()])
        except BaseException:
            self.stop()
            raise

    def _start(self, index: int):
        return self._joiner.options(name=f"aggregation worker {index}").remote()

    @property
    def is_busy(self) -> bool:
        """Whether every process has a batch to join, and there is one more, which then should be taken."""
        return len(self._joins) > len(self._actors)

    def give(self, fragments: list[SampleBatch]) -> None:
        """Has the next process join these."""
        index = self._next + 1
        self._next = index % len(self._actors)
        actor = self._actors[index]
        self._joins.append(_Join(index, actor, actor.join.remote(fragments), fragments))

    def take(self) -> tuple[list[SampleBatch], SampleBatch]:
        """The fragments of the oldest batch that was asked for, and the batch, once it is there.

        Raises:
            ActorDiedError: if its process has died and is not to be replaced.
        """
        join = self._joins.popleft()
        try:
            return join.fragments, runtime.get(join.ref, timeout=self._fault_tolerance.sample_timeout_s)
        except (*DEATHS, GetTimeoutError) as death:
            self._replace(join, death)
            return join.fragments, SampleBatch.concat(join.fragments)

    def _replace(self, join: _Join, death: Exception) -> None:
        """Starts a process in the place of the one that failed, unless that has been done already."""
        policy = self._fault_tolerance
        if self._actors[join.index] is not join.actor:
            return
        if not policy.restart or self.num_restarts >= policy.max_restarts:
            death.add_note(f"aggregation worker {join.index} is not started again: {self.num_restarts} restarts so far")
            raise death
        logger.warning("aggregation worker %d is replaced: %s", join.index, death)
        runtime.kill(join.actor)
        self.num_restarts += 1
        self._actors[join.index] = self._start(join.index)

    def clear(self) -> None:
        """Forgets what is under way."""
        self._joins.clear()

    def remote_workers(self) -> list:
        """The processes' handles, in order."""
        return list(self._actors.values())

    def stop(self) -> None:
        """Ends the processes."""
        self._joins.clear()
        for actor in self._actors.values():
            runtime.kill(actor)
        self._actors.clear()
