"""The node's account of shared memory: segments within a quota, and requests that wait for some to come back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from . import wire
from .entities import Close, Grow
from .file_budget import FileBudget


@dataclass(slots=True)
class Segment:
    """Shared memory that a process was granted; `live` blocks are known to others, `readers` may have mapped it."""

    creator: int
    size: int
    live: int = 0
    readers: set[int] = field(default_factory=set)


class SharedMemory:
    """The segments of a session, within its quota.

    Args:
        quota: bytes that there may be at once.
        instruct: takes an instruction.
        tell: sends a frame to a process, if it lives.
        files: the node's budget of open files, of which each segment takes one.

    Attributes:
        size_bytes: of all segments.
    """

    def __init__(self, quota: int, instruct: Callable, tell: Callable[[int, bytes], None], files: FileBudget):
        self.quota = quota
        self.size_bytes = 0
        self._instruct, self._tell, self._files = instruct, tell, files
        self._segments: dict[int, Segment] = {}
        self._next_segment = 1
        self._grants: deque[Grow] = deque()  # that wait for memory

    @property
    def is_short(self) -> bool:
        """Whether somebody waits for memory: nothing is to be kept for later."""
        return bool(self._grants)

    def grant(self, process: int, serial: int, size: int) -> None:
        """A process asks for a segment."""
        if size > self.quota:
            text = f"more than the {self.quota / 2**20:.1f} MB that the session may use"
            self._tell(process, wire.message(wire.GRANTED, wire.NODE, serial, body=text.encode()))
            return
        self._grants.append(Grow(process, serial, 0, size))
        self._serve_grants()
        if self._grants:
            for creator in sorted({s.creator for s in self._segments.values()}):
                self._tell(creator, wire.message(wire.CLOSED, wire.NODE))

    def returned(self, process: int, segment: int) -> None:
        """A process does not need a segment any more."""
        if segment in self._segments and self._segments[segment].creator == process:
            self.close(segment)

    def block_added(self, segment: int) -> None:
        """A block in it is known to others."""
        if segment in self._segments:
            self._segments[segment].live += 1

    def block_freed(self, segment: int) -> int | None:
        """One of them is not needed any more; how many are left, None if the segment has gone."""
        entry = self._segments.get(segment)
        if entry is None:
            return None
        entry.live -= 1
        return entry.live

    def read_by(self, segment: int, process: int) -> None:
        """A process may map it."""
        if segment in self._segments:
            self._segments[segment].readers.add(process)

    def process_ended(self, process: int) -> None:
        """What nobody else knows of its segments is closed, and what it waits for is forgotten."""
        for number in [n for n, s in self._segments.items() if s.creator == process and not s.live]:
            self.close(number)
        self._grants = deque(grant for grant in self._grants if grant.process != process)
        self._serve_grants()

    def close(self, number: int) -> None:
        """Nobody needs a segment any more."""
        segment = self._segments.pop(number)
        self.size_bytes -= segment.size
        self._files.segments -= 1
        for reader in sorted(segment.readers - {segment.creator}):
            self._tell(reader, wire.message(wire.CLOSED, wire.NODE, a=number))
        self._instruct(Close(number))
        self._serve_grants()

    def _serve_grants(self):
        while self._grants and self.size_bytes + self._grants[0].size <= self.quota and self._files.has_room():
            grow = self._grants.popleft()
            grow.segment = self._next_segment
            self._next_segment += 1
            self._segments[grow.segment] = Segment(grow.process, grow.size)
            self.size_bytes += grow.size
            self._files.segments += 1
            self._instruct(grow)
