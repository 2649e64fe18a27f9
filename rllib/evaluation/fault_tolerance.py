"""What happens when a process that serves a run fails: whether it is replaced, left out, or ends the run."""

import logging
from collections import Counter
from dataclasses import dataclass

from runtime.errors import ActorDiedError, ActorUnavailableError, TaskError

logger = logging.getLogger(__name__)

DEATHS = (ActorDiedError, ActorUnavailableError)
FAILURES = (*DEATHS, TaskError)
# A process that fell silent hangs for a reason that a new one rarely mends: it is replaced once in a row.
MAX_CONSECUTIVE_SILENCES = 1


class SilentActorError(ActorUnavailableError):
    """The process lives, but has not answered for too long."""


@dataclass(frozen=True)
class FaultTolerance:
    """What happens to a process that dies or falls silent (a death), or whose code raises (an exception).

    | restart | ignore | after a death | after an exception                     |
    |---------|--------|---------------|----------------------------------------|
    | None    | False  | replaced      | ends the run: a bug that would come back |
    | True    | any    | replaced      | replaced                               |
    | False   | False  | ends the run  | ends the run                           |
    | else    | True   | left out      | left out                               |

    Args:
        restart: put a new process in the place of one that failed; see the table.
        ignore: go on with the processes that are left; see the table.
        max_restarts: of all processes of a group together, in the whole run.
        delay_s: pause before a process that failed twice in a row is replaced (seconds).
        max_consecutive_failures: tolerated failures of one process and its successors without a useful answer between.
        sample_timeout_s: a process that has not answered for this long is reported (seconds).
    """

    restart: bool | None = None
    ignore: bool = False
    max_restarts: int = 1000
    delay_s: float = 1.0
    max_consecutive_failures: int = 3
    sample_timeout_s: float = 60.0

    def replaces(self, failure: Exception) -> bool:
        """Whether the process that failed in this way gets a successor."""
        if self.restart is None:
            return not self.ignore and not isinstance(failure, TaskError)
        return self.restart


class Restarts:
    """The failures of a group of processes, held against what FaultTolerance allows.

    Args:
        tolerance: what is allowed.
        kind: what one of the processes is called in messages; their numbers follow.

    Attributes:
        count: processes that were replaced so far.
    """

    def __init__(self, tolerance: FaultTolerance, kind: str):
        self._tolerance, self._kind = tolerance, kind
        self._in_a_row: Counter[int] = Counter()
        self.count = 0

    def succeeded(self, index: int) -> None:
        """Forgets earlier failures of a process: it has given a useful answer."""
        self._in_a_row.pop(index, None)

    def failed(self, index: int, failure: Exception, num_left: int) -> bool:
        """Decides what follows a failure.

        Args:
            index: the process.
            failure: one of FAILURES.
            num_left: processes of the group that still work.

        Returns:
            True: it is to be replaced. False: it is left out from now on.

        Raises:
            failure itself, with a note that says why, if it is not tolerated.
        """
        tolerance, name = self._tolerance, f"{self._kind} {index}"
        if not tolerance.replaces(failure):
            if not tolerance.ignore:
                raise failure
            if not num_left:
                failure.add_note(f"{name} was the last one that worked; recreate_failed_workers=True replaces them")
                raise failure
            logger.warning("%s is left out from now on: %s", name, failure)
            return False
        self._in_a_row[index] += 1
        limit = tolerance.max_consecutive_failures
        if isinstance(failure, SilentActorError):
            limit = min(limit, MAX_CONSECUTIVE_SILENCES)
        if self.count >= tolerance.max_restarts or self._in_a_row[index] > limit:
            failure.add_note(
                f"{name} is not started again: {self.count} restarts in this run "
                f"(max_num_worker_restarts={tolerance.max_restarts}), {self._in_a_row[index]} failures in a row "
                f"without a sample (num_consecutive_worker_failures_tolerance={tolerance.max_consecutive_failures})"
            )
            raise failure
        self.count += 1
        logger.warning("%s is replaced: %s", name, failure)
        return True

    def delay_s(self, index: int) -> float:
        """Seconds to wait before this process is replaced: none, unless it has failed several times in a row."""
        return self._tolerance.delay_s if self._in_a_row[index] > 1 else 0.0
