"""Processes that join fragments to train batches while the learner is busy with earlier ones."""

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import runtime
from rllib.evaluation.worker_set import ensure_runtime
from rllib.sample_batch import SampleBatch
from runtime.util.fleet import FaultTolerance, Fleet, Member


class Joiner:
    """In a process of its own: fragments are mapped there, and the joined columns are born in shared memory."""

    def process_id(self) -> int:
        """Answers once the process is there."""
        return os.getpid()

    def join(self, fragments: Sequence[SampleBatch]) -> SampleBatch:
        """One batch of them all, in order."""
        return SampleBatch.concat(fragments, runtime.empty)


@dataclass
class _Join:
    """A train batch under way: of what, and the batch once it is there."""

    fragments: list[SampleBatch]
    batch: SampleBatch | None = None


class Aggregators:
    """Joins fragments in other processes, one train batch each, and hands out the batches in the order of asking.

    Fragments are kept here until their batch is there: what was given to a process that dies is joined by this one.

    Args:
        num_workers: number of processes.
        fault_tolerance: whether, and how often, a dead process is replaced. Joining takes no time to speak of, so a
            process that was silent for `silence_s` once counts as dead.
    """

    def __init__(self, num_workers: int, fault_tolerance: FaultTolerance):
        ensure_runtime()
        joiner = runtime.remote(Joiner).options(oversubscribe=True)
        self._fleet = Fleet(
            lambda index, _: joiner.options(name=f"aggregation worker {index}").remote(),
            range(1, num_workers + 1),
            kind="aggregation worker",
            tolerance=replace(fault_tolerance, patience=1, delay_s=0.0),
            ready=lambda actor: actor.process_id.remote(),
            on_lost=self._join_here,
        )
        self._joins: deque[_Join] = deque()
        self._turn = 0

    @property
    def num_restarts(self) -> int:
        """Number of processes that were replaced so far."""
        return self._fleet.num_restarts

    @property
    def is_busy(self) -> bool:
        """Whether every process has a batch to join, and there is one more, which then should be taken."""
        return len(self._joins) > len(self._fleet.members)

    def give(self, fragments: list[SampleBatch]) -> None:
        """Has the next process join these."""
        join = _Join(fragments)
        self._joins.append(join)
        members = list(self._fleet.members.values())
        member = members[self._turn % len(members)]
        self._turn += 1
        member.send(member.handle.join.remote(fragments), join)

    def take(self) -> tuple[list[SampleBatch], SampleBatch]:
        """The fragments of the oldest batch that was asked for, and the batch, once it is there.

        Raises:
            ActorDiedError: if its process has died and is not to be replaced.
        """
        join = self._joins.popleft()
        while join.batch is None:
            for answer in self._fleet.take(self._fleet.tolerance.silence_s):
                answer.tag.batch = answer.value
        return join.fragments, join.batch

    def _join_here(self, index: int, member: Member) -> None:
        for join, _ in member.pending:
            join.batch = SampleBatch.concat(join.fragments)

    def clear(self) -> None:
        """Forgets what is under way."""
        self._joins.clear()
        self._fleet.forget()

    def remote_workers(self) -> list:
        """The processes' handles, in order."""
        return [member.handle for member in self._fleet.members.values()]

    def stop(self) -> None:
        """Ends the processes."""
        self._joins.clear()
        self._fleet.stop()
