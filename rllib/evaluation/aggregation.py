"""Processes that join fragments to train batches while the learner is busy with earlier ones."""

import logging
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import runtime
from rllib import spans
from rllib.processes import ensure_runtime
from rllib.sample_batch import SampleBatch
from runtime.util.fleet import FaultTolerance, Fleet, Member

logger = logging.getLogger(__name__)


class Joiner:
    """An actor that maps fragments and writes the joined columns to shared memory.

    Args:
        index: its number.
        spans_directory: directory of its recorded spans (spans.py); None: it records none.
    """

    def __init__(self, index: int, spans_directory: str | None):
        spans.start(spans_directory, f"aggregation worker {index}", serves=True)

    def process_id(self) -> int:
        """Number of the process."""
        return os.getpid()

    def join(self, fragments: Sequence[SampleBatch]) -> SampleBatch:
        """One batch of them all, in order."""
        with spans.call("join"):
            return SampleBatch.concat(fragments, runtime.empty)


@dataclass
class _Join:
    """A train batch that is being joined; `batch` is set when it is there."""

    fragments: list[SampleBatch]
    batch: SampleBatch | None = None


class Aggregators:
    """Processes that join fragments to train batches, which are returned in the order of the requests.

    Fragments are kept here until their batch is there: what was given to a process that dies is joined by this one.

    Args:
        num_workers: number of processes.
        fault_tolerance: whether, and how often, a dead process is replaced. Joining takes no time to speak of, so a
            process that was silent for `silence_s` once counts as dead.
        spans_directory: where they record what they do when (spans.py); None: they do not.

    Attributes:
        fleet: the processes.
    """

    def __init__(self, num_workers: int, fault_tolerance: FaultTolerance, spans_directory: str | None = None):
        ensure_runtime()
        joiner = runtime.remote(Joiner).options(oversubscribe=True)
        self.fleet = Fleet(
            lambda index, _: joiner.options(label=f"aggregation worker {index}").remote(index, spans_directory),
            range(1, num_workers + 1),
            kind="aggregation worker",
            tolerance=replace(fault_tolerance, patience=1, delay_s=0.0),
            ready=lambda actor: actor.process_id.remote(),
            on_lost=self._join_here,
            logger=logger,
        )
        self._joins: deque[_Join] = deque()
        self._turn = 0

    @property
    def is_busy(self) -> bool:
        """Whether every process has a batch to join, and there is one more, which then should be taken."""
        return len(self._joins) > len(self.fleet.members)

    def give(self, fragments: list[SampleBatch]) -> None:
        """Sends these to the next process to be joined."""
        join = _Join(fragments)
        self._joins.append(join)
        members = list(self.fleet.members.values())
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
            for answer in self.fleet.take(self.fleet.tolerance.silence_s):
                answer.tag.batch = answer.value
        return join.fragments, join.batch

    def _join_here(self, index: int, member: Member) -> None:
        for join, _ in member.pending:
            join.batch = SampleBatch.concat(join.fragments)

    def clear(self) -> None:
        """Drops the batches that are being joined."""
        self._joins.clear()
        self.fleet.forget()

    def stop(self) -> None:
        """Ends the processes."""
        self._joins.clear()
        self.fleet.stop()
