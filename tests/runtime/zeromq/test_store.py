"""Blocks and segments of one process, with a node that only makes files."""

import os

import numpy as np
import pytest

from runtime.engines.zeromq.system.spilling import is_in_memory, unnamed_file
from runtime.engines.zeromq.transport import wire
from runtime.engines.zeromq.values.store import (
    SEGMENT_HEADER,
    Block,
    Hold,
    Store,
    block_of,
    freeze,
    position,
    segment_bytes,
    size_class,
)


class Memory:
    """Two stores, a writer and a reader, and the node's part: making segments, in a directory of a disk if given."""

    def __init__(self, directory=None):
        self.directory = directory
        self.files, self.returned, self.dropped, self.serial = {}, [], [], 0
        self.writer = self.store()
        self.reader = self.store()

    def store(self):
        return Store(os.getpid(), self.grow, self.returned.append, self.new_key, self.dropped.append)

    def grow(self, size):
        number = len(self.files) + 1
        file = self.files[number] = unnamed_file(self.directory, size) if self.directory else self.memory_file(size)
        os.pwrite(file, wire.segment_header(number), 0)
        return number, file, self.directory is not None

    def memory_file(self, size):
        file = os.memfd_create("test")
        os.ftruncate(file, size)
        return file

    def new_key(self):
        self.serial += 1
        return wire.key(self.serial, 1)

    def free_dropped(self):
        while self.dropped:
            self.writer.free(self.dropped.pop())

    def close(self):
        for file in self.files.values():
            os.close(file)


@pytest.fixture
def memory():
    memory = Memory()
    yield memory
    memory.close()


def written(store, *parts):
    block, offsets = store.write([memoryview(part).cast("B") for part in parts])
    return block, offsets


@pytest.mark.parametrize("size", [1, 4096, 4097, 5000, 65_537, 10**6, 10**8, 2**33 + 1])
def test_size_classes_fit_closely(size):
    block = size_class(size)
    assert block >= size and block % 64 == 0 and block <= max(4096, 1.26 * size)
    assert size_class(block) == block
    assert segment_bytes(block) >= block + SEGMENT_HEADER


def test_what_is_written_is_read(memory):
    parts = [bytes([i]) * n for i, n in enumerate((1, 64, 0, 100_000, 2**21))]
    block, offsets = written(memory.writer, *parts)
    assert all(offset % 64 == 0 for offset in offsets)
    for part, offset in zip(parts, offsets):
        hold = Hold(b"k", lambda key: None)
        view = memory.reader.view(block.segment, block.fd, block.offset + offset, len(part), hold)
        assert bytes(view) == part
        assert not view.flags.writeable


@pytest.mark.parametrize("who", ["writer", "reader"])
def test_what_the_page_cache_has_let_go_of_is_read_in_at_once(tmp_path, who):
    if is_in_memory(str(tmp_path)):
        pytest.skip(f"{tmp_path} is not on a disk")
    memory, size = Memory(str(tmp_path)), 2**24
    block, _ = written(memory.writer, np.arange(size, dtype=np.uint8))
    file = memory.files[block.segment]
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    with pytest.raises(BlockingIOError):
        cached_bytes(file, size, block.offset)
    view = getattr(memory, who).view(block.segment, block.fd, block.offset, size, block.hold)
    assert cached_bytes(file, size, block.offset) == size
    assert np.array_equal(view, np.arange(size, dtype=np.uint8))
    memory.close()


def cached_bytes(file, size, offset):
    """The bytes from an offset on that can be read without waiting for the disk."""
    return os.preadv(file, [bytearray(size)], offset, os.RWF_NOWAIT)


def test_own_blocks_are_read_only_when_read(memory):
    block, _ = written(memory.writer, b"x" * 100)
    view = memory.writer.view(block.segment, block.fd, block.offset, 100, block.hold)
    assert bytes(view) == b"x" * 100 and not view.flags.writeable


def test_blocks_are_used_again(memory):
    places = set()
    for _ in range(10):
        block, _ = written(memory.writer, bytes(10**6))
        places.add((block.segment, block.offset))
        del block
        memory.free_dropped()
    assert len(places) == 1 and len(memory.files) == 1


def test_a_new_name_for_every_use(memory):
    keys = set()
    for _ in range(5):
        block, _ = written(memory.writer, bytes(100))
        keys.add(block.hold.key)
        del block
        memory.free_dropped()
    assert len(keys) == 5


def test_small_blocks_share_a_segment(memory):
    blocks = [memory.writer.empty(3000) for _ in range(16)]
    assert len(memory.files) == 1
    assert len({block_of(block).offset for block in blocks}) == 16


def test_views_keep_their_block(memory):
    block, _ = written(memory.writer, np.arange(1000))
    array = np.frombuffer(block, np.int64)[10:20].reshape(2, 5).T
    key = block.hold.key
    del block
    assert memory.dropped == []
    assert block_of(array).hold.key == key
    del array
    assert memory.dropped == [key]


def test_position_of_a_view(memory):
    block = memory.writer.empty(8000)
    array = np.frombuffer(block, np.float64, 1000).reshape(10, 100)
    root = block_of(array)
    assert type(root) is Block
    assert position(memoryview(array[3:4]).cast("B"), root) == root.offset + 2400


def test_freeze_reaches_the_array_behind_the_view(memory):
    block = memory.writer.empty(800)
    array = np.frombuffer(block, np.float64, 100)
    freeze(array[10:20])
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_ordinary_arrays_are_in_no_block():
    assert block_of(np.zeros(3)[1:]) is None
    assert block_of(b"bytes") is None
    assert block_of(memoryview(bytearray(3))) is None


def test_a_segment_that_is_another_by_now(memory):
    block, _ = written(memory.writer, bytes(100))
    with pytest.raises(FileNotFoundError, match="gone"):
        memory.reader.view(block.segment + 1, block.fd, block.offset, 100, block.hold)
    with pytest.raises(FileNotFoundError):
        memory.reader.view(block.segment, 10_000, block.offset, 100, block.hold)


def test_offsets_beyond_the_segment(memory):
    block, _ = written(memory.writer, bytes(100))
    with pytest.raises(FileNotFoundError):
        memory.reader.view(block.segment, block.fd, 2**40, 100, block.hold)


def test_arrays_survive_the_end_of_the_store(memory):
    block, _ = written(memory.writer, np.arange(100_000))
    view = memory.reader.view(block.segment, block.fd, block.offset, 800_000, block.hold)
    array = np.frombuffer(view, np.int64)
    memory.writer.close()
    memory.reader.close()
    assert array[99_999] == 99_999


def test_idle_segments_are_returned(memory):
    kept, _ = written(memory.writer, bytes(5000))
    gone, _ = written(memory.writer, bytes(10**7))
    number = gone.segment
    del gone
    memory.free_dropped()
    memory.writer.trim(older_than_s=1000)
    assert memory.returned == []
    memory.writer.trim()
    assert memory.returned == [number]
    memory.writer.trim()
    assert memory.returned == [number], "a segment in use stays"
    del kept


def test_freeing_twice_is_harmless(memory):
    block, _ = written(memory.writer, bytes(100))
    key = block.hold.key
    memory.writer.free(key)
    memory.writer.free(key)
    first, second = memory.writer.empty(100), memory.writer.empty(100)
    assert block_of(first).offset != block_of(second).offset
