"""The node's account of shared memory: segments within a quota, and requests that wait for some to come back.

When the memory is full, new segments are files on a disk, within a quota of their own. Nothing that exists is moved: a
process may have arrays that look at it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from ..transport import wire
from .entities import Close, Grow
from .process_table import FileBudget


class Segment(msgspec.Struct):
    """Shared memory that a process was granted; `live` blocks are known to others, `readers` may have mapped it."""

    creator: int
    size: int
    on_disk: bool = False
    live: int = 0
    readers: set[int] = msgspec.field(default_factory=set)


class SharedMemory:
    """The segments of a session, within its quota.

    Args:
        quota: bytes that there may be at once in memory.
        disk_quota: bytes that there may be at once on the disk.
        instruct: takes an instruction.
        send: sends a frame to a process, if it lives.
        files: the node's budget of open files, of which each segment takes one.

    Attributes:
        size_bytes: size in bytes of all segments in memory.
        disk_bytes: size in bytes of all segments on the disk.
        refusal: why the disk takes no more, until something there is freed.
    """

    def __init__(
        self, quota: int, disk_quota: int, instruct: Callable, send: Callable[[int, bytes], None], files: FileBudget
    ):
        self.quota, self.disk_quota = quota, disk_quota
        self.size_bytes = self.disk_bytes = 0
        self.refusal = ""
        self._instruct, self._send, self._files = instruct, send, files
        self._segments: dict[int, Segment] = {}
        self._next_segment = 1
        self._grants: deque[Grow] = deque()  # that wait for memory

    def segments(self) -> list[tuple[int, Segment]]:
        """All segments, by their numbers."""
        return sorted(self._segments.items())

    @property
    def is_short(self) -> bool:
        """Whether a process waits for memory: then nothing is kept for later."""
        return bool(self._grants)

    def grant(self, process: int, serial: int, size: int) -> None:
        """A process asks for a segment."""
        if size > max(self.quota, self.disk_quota):
            text = f"more than the {self.quota / 2**20:.1f} MB that the session may use"
            if self.disk_quota:
                text += f", and the {self.disk_quota / 2**20:.1f} MB on the disk"
            self._send(process, wire.message(wire.GRANTED, wire.NODE, serial, body=text.encode()))
            return
        grow = Grow(process, serial, 0, size)
        self._grants.append(grow)
        self._serve_grants()
        if self._grants or grow.on_disk:
            self._ask_for_idle()

    def withdrawn(self, process: int, serial: int) -> None:
        """A process does not wait any more for the segment of this request."""
        self._grants = deque(grant for grant in self._grants if (grant.process, grant.serial) != (process, serial))
        self._serve_grants()

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
        """Closes segments that no other process knows, and forgets what the process waits for."""
        for number in [n for n, s in self._segments.items() if s.creator == process and not s.live]:
            self.close(number)
        self._grants = deque(grant for grant in self._grants if grant.process != process)
        self._serve_grants()

    def close(self, number: int) -> None:
        """Frees a segment that no process holds."""
        segment = self._segments.pop(number)
        self._uncount(segment)
        self._files.segments -= 1
        for reader in sorted(segment.readers - {segment.creator}):
            self._send(reader, wire.message(wire.CLOSED, wire.NODE, a=number))
        self._instruct(Close(number))
        self._serve_grants()

    def disk_refused(self, grow: Grow, text: str) -> None:
        """A segment on disk could not be made: who asked for it waits."""
        segment = self._segments.pop(grow.segment, None)
        if segment is None:
            return
        self._uncount(segment)
        self._files.segments -= 1
        self.refusal = text
        self._grants.appendleft(Grow(grow.process, grow.serial, 0, grow.size))
        self._ask_for_idle()

    def try_disk(self) -> None:
        """Others may have made room on the disk."""
        self.refusal = ""
        self._serve_grants()

    def _ask_for_idle(self):
        """Memory that processes keep for their next objects is to come back."""
        for creator in sorted({s.creator for s in self._segments.values()}):
            self._send(creator, wire.message(wire.CLOSED, wire.NODE))

    def made(self) -> dict[int, list[int]]:
        """Creator -> number of its segments, their bytes in memory, those on the disk."""
        made: dict[int, list[int]] = {}
        for segment in self._segments.values():
            entry = made.setdefault(segment.creator, [0, 0, 0])
            entry[0] += 1
            entry[2 if segment.on_disk else 1] += segment.size
        return made

    def _uncount(self, segment):
        if segment.on_disk:
            self.disk_bytes -= segment.size
            self.refusal = ""
        else:
            self.size_bytes -= segment.size

    def _serve_grants(self):
        """In order; but what only the disk can take, and waits for it, does not hold up others."""
        for grow in list(self._grants):
            if not self._files.has_room():
                return
            size = grow.size
            on_disk = self.size_bytes + size > self.quota
            if on_disk and (self.refusal or self.disk_bytes + size > self.disk_quota):
                if size > self.quota:
                    continue
                return
            self._grants.remove(grow)
            grow.segment, grow.on_disk = self._next_segment, on_disk
            self._next_segment += 1
            self._segments[grow.segment] = Segment(grow.process, size, on_disk)
            self.disk_bytes += size * on_disk
            self.size_bytes += size * (not on_disk)
            self._files.segments += 1
            self._instruct(grow)
