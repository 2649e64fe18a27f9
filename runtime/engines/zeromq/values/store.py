"""Shared memory: segments that the node made, blocks in them, and the arrays that look at blocks.

The node creates every segment (a memfd) and keeps it open, so that objects outlive the process that wrote them and the
kernel frees everything when the last process of the session is gone. Others map it through /proc/NODE/fd/N. A process
that writes objects owns whole segments, cuts them into blocks of one size, and uses blocks again: only the first use of
a page is slow.

Who frees a block is said here: a `Hold` is one share in an item (a block, an object, an actor). Whatever needs the item
keeps the `Hold`: a reference its value, an array its memory. When the last one goes, the key lands in a queue; the
client empties the queue and either reuses the block or tells the node.

A block that a user has filled (`empty`) is stored without a copy, though views of it, tensors and pointers may be alive
that can still write. It is *sealed* then: its shared pages move to another address, and the same part of the segment is
mapped privately in their place. A later write there changes a copy of the page, which this process alone sees. When the
block is freed, the shared pages move back. They stay mapped meanwhile: to map them again would cost a page fault each.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Callable
from time import monotonic

import numpy as np

from ..system.spilling import is_in_memory
from ..transport import wire

SEGMENT_HEADER = 4096  # bytes before the first block: one page, of which the first bytes name the segment
SMALLEST_CLASS = 4096
LARGEST_SLAB_BLOCK = 2**20  # larger blocks have a segment of their own
SLAB_BLOCKS = 16
COLD_WRITE_BYTES = 2**17  # from here on a first write goes through the file: half the page faults' price
LARGE_COPY_BYTES = 2**20
LARGEST_WRITE = 2**30  # pwrite stops a little short of 2 GiB
IDLE_SEGMENT_S = 10.0

_libc = ctypes.CDLL(None, use_errno=True)
_mmap, _mremap, _munmap, _madvise = _libc.mmap, _libc.mremap, _libc.munmap, _libc.madvise
_mmap.restype = _mremap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_PRIVATE_HERE = mmap.MAP_PRIVATE | 0x10  # MAP_FIXED
_MOVE_HERE = 1 | 2  # MREMAP_MAYMOVE | MREMAP_FIXED
_MOVE_PAGES = 1 | 4  # MREMAP_MAYMOVE | MREMAP_DONTUNMAP: the old address stays mapped, without pages; Linux 5.13
_POPULATE_READ = 22  # MADV_POPULATE_READ; Linux 5.14


def size_class(size: int) -> int:
    """The bytes of the block that holds `size` bytes: 4096 * 2^k * {1, 1.25, 1.5, 1.75}."""
    if size <= SMALLEST_CLASS:
        return SMALLEST_CLASS
    power = 1 << ((size - 1).bit_length() - 1)
    quarter = max(power // 4, 1024)
    return -(-size // quarter) * quarter


def segment_bytes(block_bytes: int) -> int:
    """The size of a segment for blocks of one class."""
    blocks = SLAB_BLOCKS if block_bytes <= LARGEST_SLAB_BLOCK else 1
    return SEGMENT_HEADER + blocks * block_bytes


class Hold:
    """One share in an item; its end is reported, by whichever thread and at whatever moment, to `release(key)`."""

    __slots__ = ("key", "release")

    def __init__(self, key: bytes, release: Callable[[bytes], None]):
        self.key, self.release = key, release

    def __del__(self):
        self.release(self.key)


class Block(np.ndarray):
    """Bytes in a segment. Arrays made from it keep it alive, and it keeps its `hold`."""

    hold: Hold | None = None
    segment = fd = offset = address = 0


def block_of(buffer) -> Block | None:
    """The block that the memory of an array (or whatever exports a buffer) lies in."""
    while buffer is not None:
        if type(buffer) is Block and buffer.hold is not None:
            return buffer
        buffer = buffer.base if isinstance(buffer, np.ndarray) else getattr(buffer, "obj", None)
    return None


def freeze(buffer) -> None:
    """Makes an array from `empty`, and the arrays it is a view of, read-only: later writes would have no effect.

    Other views of the same memory that exist already are beyond reach and stay writable; see Store.seal.
    """
    while isinstance(buffer, np.ndarray) and type(buffer) is not Block:
        buffer.flags.writeable = False
        buffer = buffer.base


def position(view: memoryview, block: Block) -> int:
    """Offset in its segment of a buffer that lies in this block (see block_of)."""
    if not view.nbytes:
        return block.offset
    if not block.address:
        block.address = _address(block)
    return block.offset + _address(np.frombuffer(view, np.uint8)) - block.address


def _address(array):
    return array.__array_interface__["data"][0]


class Segment:
    """A segment this process writes into.

    Attributes:
        free: indices of blocks that are free; the last one is used next, its pages are most likely in cache.
        cold: indices of blocks never written.
        idle_since: monotonic seconds since all its blocks are free.
        was_sealed: whether one of its blocks ever was; then `mapping` need not show what others see.
        on_disk: whether it was made when the memory was full. It is not used again when it is free.
    """

    def __init__(self, number: int, node_fd: int, path: str, block_bytes: int, on_disk: bool = False):
        self.number, self.node_fd, self.block_bytes, self.on_disk = number, node_fd, block_bytes, on_disk
        self.file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        size = os.fstat(self.file).st_size
        self.mapping = mmap.mmap(self.file, size)
        self.address = _address(np.frombuffer(self.mapping, np.uint8))
        self.bytes = memoryview(self.mapping)
        self.count = (size - SEGMENT_HEADER) // block_bytes
        self.free = list(range(self.count))
        self.cold = set(self.free)
        self.idle_since = 0.0
        self.was_sealed = False

    def seal(self, index: int) -> int:
        """From now on, writes to a block through existing views change private copies of its pages.

        Returns:
            The address that its shared pages have moved to.

        Raises:
            OSError: the kernel refuses: there are too many mappings, or it is older than Linux 5.13.
        """
        offset = SEGMENT_HEADER + index * self.block_bytes
        address, size = self.address + offset, self.block_bytes
        shared = _checked(_mremap(address, size, size, _MOVE_PAGES, None))
        try:
            _checked(_mmap(address, size, _READ_WRITE, _PRIVATE_HERE, self.file, offset))
        except OSError:
            _munmap(shared, size)
            raise
        return shared

    def unseal(self, index: int, shared: int) -> None:
        """Moves the shared pages of a block back.

        Raises:
            OSError: the kernel refuses, for lack of mappings.
        """
        address = self.address + SEGMENT_HEADER + index * self.block_bytes
        _checked(_mremap(shared, self.block_bytes, self.block_bytes, _MOVE_HERE, address))

    def close(self) -> None:
        """Lets go of the file; arrays that still look at the memory keep the mapping."""
        os.close(self.file)
        self.bytes.release()
        self.mapping = None


class Store:
    """The shared memory of one process: its own segments, and mapped segments of others.

    Args:
        node_pid: whose descriptors the segments are.
        grow: asks the node for a segment of this many bytes; (segment, fd, whether it is on a disk), or raises
            ObjectStoreFullError.
        give_back: tells the node that a segment is not needed.
        new_key: names a new block.
        release: where the end of a `Hold` is reported.

    Attributes:
        idle_segments: number of free segments kept for the next objects.
        ended: segments on a disk that are free, for the caller of `free` to close and to give back.
    """

    def __init__(self, node_pid: int, grow, give_back, new_key, release):
        self._node_pid, self._grow, self._give_back = node_pid, grow, give_back
        self._new_key, self._release = new_key, release
        self._lock = threading.RLock()  # a finalizer, run by the collector while it is held, may store something
        self._classes: dict[int, list[Segment]] = {}
        self._used: dict[bytes, tuple[Segment, int]] = {}  # key of a block in use -> where it is
        self._own: dict[int, Segment] = {}
        self._mapped: dict[int, mmap.mmap] = {}  # segments of others, and own ones as others see them
        self._on_disk: set[int] = set()  # segments in `_own` and `_mapped` that are files on a disk
        self._sealed: dict[bytes, int] = {}  # key of a block -> address of its shared pages
        self.idle_segments = 0
        self.ended: list[Segment] = []

    def owns(self, key: bytes) -> bool:
        """Whether the key names a block in use that this process made."""
        return key in self._used

    def segment_of(self, key: bytes) -> int:
        """The segment that a block of this process lies in."""
        return self._used[key][0].number

    def allocate(self, size: int) -> Block:
        """A block of at least `size` bytes, writable, cut to `size`.

        Raises:
            ObjectStoreFullError: there is no memory, and none was freed in time.
        """
        block_bytes = size_class(size)
        with self._lock:
            place = self._take(block_bytes)
        if place is None:
            number, fd, on_disk = self._grow(segment_bytes(block_bytes))
            segment = Segment(number, fd, self._path(fd), block_bytes, on_disk)
            place = segment, segment.free.pop()
            with self._lock:
                self._own[number] = segment
                if on_disk:
                    self._on_disk.add(number)
                self._classes.setdefault(block_bytes, []).append(segment)
        segment, index = place
        key = self._new_key()
        self._used[key] = place
        block = _block(segment.mapping, size, SEGMENT_HEADER + index * block_bytes, Hold(key, self._release))
        block.segment, block.fd = segment.number, segment.node_fd
        return block

    def write(self, parts: list) -> tuple[Block, list[int]]:
        """Copies buffers (memoryviews of bytes) into one new block.

        Returns:
            The block, and where in it each part begins, in bytes.
        """
        offsets, size = [], 0
        for part in parts:
            offsets.append(size)
            size += part.nbytes + -part.nbytes % 64
        block = self.allocate(max(size, 1))
        segment, index = self._used[block.hold.key]
        cold = index in segment.cold and size >= COLD_WRITE_BYTES
        for offset, part in zip(offsets, parts):
            begin, size = block.offset + offset, part.nbytes
            if cold:
                _write_file(segment.file, part, begin)
            elif size < LARGE_COPY_BYTES:
                segment.bytes[begin : begin + size] = part
            else:
                block[offset : offset + size] = np.frombuffer(part, np.uint8)  # lets other threads run meanwhile
        segment.cold.discard(index)
        return block, offsets

    def empty(self, size: int) -> Block:
        """A block to be filled by the user, of whole pages."""
        block = self.allocate(max(-(-size // mmap.PAGESIZE), 1) * mmap.PAGESIZE)
        segment, index = self._used[block.hold.key]
        segment.cold.discard(index)
        return block[:size]

    def seal(self, block: Block) -> bool:
        """Stores the block: readers see its present content, whatever this process writes later.

        Returns:
            False if that cannot be had, and the bytes are to be copied.
        """
        with self._lock:
            if block.hold.key in self._sealed:
                return True
            segment, index = self._used[block.hold.key]
            try:
                self._sealed[block.hold.key] = segment.seal(index)
            except OSError:
                return False
            segment.was_sealed = True
            return True

    def is_sealed(self, block: Block) -> bool:
        """Whether it is stored already, and arrays here may show something else."""
        return block.hold.key in self._sealed

    def has_stored(self, view: memoryview, block: Block) -> bool:
        """Whether a sealed block still has the bytes that an array of it shows."""
        place = position(view, block)
        stored = self.view(block.segment, block.fd, place, view.nbytes, block.hold)
        return np.array_equal(np.frombuffer(view, np.uint8), stored)

    def view(self, segment: int, fd: int, offset: int, size: int, hold: Hold) -> Block:
        """Read-only bytes of a segment, kept alive with `hold`; those on a disk are read before it returns.

        Raises:
            FileNotFoundError: the segment is gone.
        """
        own = self._own.get(segment)
        if own is not None and own.was_sealed:
            own = None
        mapping = own.mapping if own is not None else self._mapped.get(segment)
        if mapping is None:
            mapping = self._mapped[segment] = self._map(segment, fd)
        if offset + size > len(mapping):
            raise FileNotFoundError(f"segment {segment} has {len(mapping)} bytes, not {offset + size}")
        block = _block(mapping, size, offset, hold)
        block.segment, block.fd = segment, fd
        if own is not None:
            block.flags.writeable = False
        if segment in self._on_disk:
            _read_in(block)
        return block

    def free(self, key: bytes) -> None:
        """A block of this process is not needed any more."""
        with self._lock:
            place = self._used.pop(key, None)
            if place is None:
                return
            segment, index = place
            shared = self._sealed.pop(key, None)
            if shared is not None:
                try:
                    segment.unseal(index, shared)
                except OSError:  # never to be used again
                    return
            segment.free.append(index)
            if len(segment.free) < segment.count:
                return
            if segment.on_disk:
                self._remove(segment)
                self.ended.append(segment)
            else:
                segment.idle_since = monotonic()
                self.idle_segments += 1

    def trim(self, older_than_s: float = 0.0) -> None:
        """Returns the segments that have been idle for this long."""
        with self._lock:
            limit = monotonic() - older_than_s
            idle = [s for s in self._own.values() if len(s.free) == s.count and s.idle_since <= limit]
            for segment in idle:
                self.idle_segments -= 1
                self._remove(segment)
        for segment in idle:
            segment.close()
            self._give_back(segment.number)

    def _remove(self, segment):
        del self._own[segment.number]
        self.forget(segment.number)
        self._classes[segment.block_bytes].remove(segment)

    def forget(self, segment: int) -> None:
        """A segment of another process has ended; arrays that look at it keep their mapping."""
        self._mapped.pop(segment, None)
        self._on_disk.discard(segment)

    def close(self) -> None:
        """Lets go of all memory but what arrays still look at."""
        for key, shared in self._sealed.items():
            _munmap(shared, self._used[key][0].block_bytes)
        self._sealed.clear()
        for segment in (*self._own.values(), *self.ended):
            segment.close()
        self.ended.clear()
        self._own.clear()
        self._classes.clear()
        self._mapped.clear()
        self._on_disk.clear()

    def _take(self, block_bytes):
        for segment in self._classes.get(block_bytes, ()):
            if segment.free:
                self.idle_segments -= len(segment.free) == segment.count
                return segment, segment.free.pop()
        return None

    def _map(self, segment, fd):
        file = os.open(self._path(fd), os.O_RDONLY | os.O_CLOEXEC)
        try:
            expected = wire.segment_header(segment)
            if os.pread(file, len(expected), 0) != expected:
                raise FileNotFoundError(f"segment {segment} is gone")
            if not is_in_memory(self._path(fd)):
                self._on_disk.add(segment)
            return mmap.mmap(file, 0, prot=mmap.PROT_READ)
        finally:
            os.close(file)

    def _path(self, fd):
        return f"/proc/{self._node_pid}/fd/{fd}"


def _checked(address):
    """The address that mmap or mremap has returned; raises the error that it represents."""
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return address


def _block(mapping, size, offset, hold):
    # Not a view of an array: numpy would let arrays of it skip it and keep only what lies below.
    block = Block.__new__(Block, size, np.uint8, mapping, offset)
    block.hold, block.offset = hold, offset
    return block


def _read_in(block):
    # Page faults would read the same at half the disk's speed. An older kernel refuses, and leaves it to them.
    address = _address(block)
    _madvise(address & -mmap.PAGESIZE, block.nbytes + address % mmap.PAGESIZE, _POPULATE_READ)


def _write_file(file, part, offset):
    done = 0
    while done < part.nbytes:
        done += os.pwrite(file, part[done : done + LARGEST_WRITE], offset + done)
