"""The node's budget of open files: each worker and each segment of shared memory costs some."""

from __future__ import annotations

PROCESS_FILES = 5  # of the node: the pipes of its output, a socket to it with its descriptor for waking, one from it
SEGMENT_FILES = 8  # that actors leave to shared memory


class FileBudget:
    """Number of files that the node has open, and whether there is room for more.

    Args:
        limit: number of files that the node may have open for workers and segments.

    Attributes:
        workers: number of workers that live, those of actors included.
        task_workers: number of those that run tasks. There is always room for one.
        segments: number of segments.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self.workers = self.task_workers = self.segments = 0

    def has_room(self, files: int = 1) -> bool:
        """Whether this many more files may be opened."""
        workers = self.workers + (not self.task_workers)
        return self._limit - PROCESS_FILES * workers - self.segments >= files

    def has_room_for_task_worker(self) -> bool:
        """Whether a worker may be started to run tasks."""
        return not self.task_workers or self.has_room(PROCESS_FILES)

    def has_room_for_actor(self) -> bool:
        """Whether a worker may be started for an actor."""
        return self.has_room(PROCESS_FILES + SEGMENT_FILES)

    def refusal(self, actor: str) -> str:
        """Reason why an actor could not be started."""
        return (
            f"actor {actor} could not be started: under the limit of open files (ulimit -n) the session's "
            f"supervisor may use {self._limit}, and each of {self.workers} processes needs {PROCESS_FILES}. "
            "Raise the limit, or use fewer actors"
        )
