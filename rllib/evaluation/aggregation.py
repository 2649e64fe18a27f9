"""Processes that join fragments to train batches while the learner is busy with earlier ones."""

import os
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import runtime
from rllib.evaluation.fault_tolerance import DEATHS, FaultTolerance, Restarts
from rllib.evaluation.worker_set import ensure_runtime
from rllib.sample_batch import SampleBatch
from runtime.errors import GetTimeoutError


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
    """

    def __init__(self, num_workers: int, fault_tolerance: FaultTolerance):
        ensure_runtime()
        self._timeout_s = fault_tolerance.sample_timeout_s
        self._restarts = Restarts(fault_tolerance, "aggregation worker")
        self._joiner = runtime.remote(Joiner).options(oversubscribe=True)
        self._actors = {}
        self._joins: deque[_Join] = deque()
        self._turn = 0
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
    def num_restarts(self) -> int:
        """Processes that were replaced so far."""
        return self._restarts.count

    @property
    def is_busy(self) -> bool:
        """Whether every process has a batch to join, and there is one more, which then should be taken."""
        return len(self._joins) > len(self._actors)

    def give(self, fragments: list[SampleBatch]) -> None:
        """Has the next process join these."""
        index = list(self._actors)[self._turn % len(self._actors)]
        self._turn += 1
        actor = self._actors[index]
        self._joins.append(_Join(index, actor, actor.join.remote(fragments), fragments))

    def take(self) -> tuple[list[SampleBatch], SampleBatch]:
        """The fragments of the oldest batch that was asked for, and the batch, once it is there.

        Raises:
            ActorDiedError: if its process has died and is not to be replaced.
        """
        join = self._joins.popleft()
        try:
            batch = runtime.get(join.ref, timeout=self._timeout_s)
        except (*DEATHS, GetTimeoutError) as death:
            self._bury(join, death)
            return join.fragments, SampleBatch.concat(join.fragments)
        self._restarts.succeeded(join.index)
        return join.fragments, batch

    def _bury(self, join: _Join, death: Exception) -> None:
        """Starts a process in the place of the one that failed, unless that has been done already."""
        if self._actors.get(join.index) is not join.actor:
            return
        runtime.kill(self._actors.pop(join.index))
        if self._restarts.failed(join.index, death, num_left=len(self._actors)):
            self._actors = dict(sorted({**self._actors, join.index: self._start(join.index)}.items()))

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
