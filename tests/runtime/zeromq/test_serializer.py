"""Values to bytes and back: what is copied, what is shared, what keeps what alive."""

import mmap
import os
import pickle
import resource

import numpy as np
import pytest
from test_store import Memory

from runtime.engines.zeromq.transport import wire
from runtime.engines.zeromq.values.serializer import INLINE_BYTES, Serializer
from runtime.engines.zeromq.values.store import Hold, Segment, block_of


class Pair:
    """A writer and a reader with the same segments."""

    def __init__(self):
        self.memory = Memory()
        self.writer = Serializer(self.memory.writer, None, None, "session")
        self.reader = Serializer(self.memory.reader, None, None, "session")

    def send(self, value):
        """What the reader makes of it, behind a header, and the bytes that travelled."""
        encoded = self.writer.encode(value)
        frame = bytes(wire.HEADER_BYTES) + encoded.data
        pins = tuple(Hold(key, self.memory.dropped.append) for key in encoded.items)
        return self.reader.decode(frame, wire.HEADER_BYTES, pins), len(encoded.data)

    def empty(self, shape, dtype=np.float32):
        block = self.memory.writer.empty(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        return np.frombuffer(block, dtype).reshape(shape)


@pytest.fixture
def pair():
    pair = Pair()
    yield pair
    pair.memory.close()


@pytest.mark.parametrize("value", [None, 1, "text", [1, {"a": (2, 3)}], b"x" * 1000, {1.5, 2}])
def test_plain_values(pair, value):
    received, size = pair.send(value)
    assert received == value and size == wire.VALUE_BYTES + len(pickle.dumps(value, 5))


def test_small_arrays_travel_in_the_message(pair):
    received, size = pair.send({"weights": np.arange(5000, dtype=np.float32)})
    assert size < 21_000 and not pair.memory.files
    assert (received["weights"] == np.arange(5000)).all() and not received["weights"].flags.writeable
    assert received["weights"].ctypes.data % 16 == 0


def test_large_values_are_copied_once_into_one_block(pair):
    value = {f"column {i}": np.full(10_000, i) for i in range(20)}
    received, size = pair.send(value)
    assert size < 3000 and len(pair.memory.files) == 1
    assert all((received[name] == column).all() for name, column in value.items())
    assert len({block_of(column).hold.key for column in received.values()}) == 1
    assert all(column.ctypes.data % 64 == 0 for column in received.values())


@pytest.mark.parametrize("value", [b"x" * 200_000, list(range(100_000)), "y" * 200_000])
def test_a_large_pickle_is_shared_as_well(pair, value):
    received, size = pair.send(value)
    assert received == value and size < 200


def test_columns_born_in_shared_memory_are_only_described(pair):
    whole = pair.empty((32, 8, 400))
    batch = {f"column {i}": pair.empty((1280, 2 + i)) for i in range(8)} | {"part": whole[:16]}
    for i, column in enumerate(batch.values()):
        column[...] = i
    files = len(pair.memory.files)
    received, size = pair.send(batch)
    assert size < 2000 and len(pair.memory.files) == files
    for name, column in batch.items():
        assert (received[name] == column).all() and received[name].shape == column.shape
        mine, theirs = block_of(column), block_of(received[name])
        assert (mine.segment, mine.hold.key) == (theirs.segment, theirs.hold.key)


def test_small_arrays_born_in_shared_memory_travel_in_the_message(pair):
    whole = pair.empty((8, 500))
    whole[:] = np.arange(8)[:, None]
    view, columns = whole[3], {str(i): whole[i] for i in range(8)}
    received, size = pair.send(columns)
    view[:] = 9
    assert 16_000 < size < 17_000 and all(block_of(column) is None for column in received.values())
    assert [column[0] for column in received.values()] == list(range(8)) and pair.send(view)[0][0] == 9


def test_a_small_part_of_what_is_stored_is_described(pair):
    array = pair.empty(50_000)
    array[:] = 5
    received, _ = pair.send(array)
    again = pair.reader.encode(received[:3])
    assert len(again.items) == 1


def test_what_was_sent_cannot_be_written_any_more(pair):
    array = pair.empty((10, 10))
    pair.send([array])
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_ordinary_arrays_stay_writable(pair):
    array = np.zeros(100_000)
    pair.send(array)
    array[0] = 1


def test_received_arrays_are_passed_on_without_a_copy(pair):
    received, _ = pair.send(np.arange(100_000))
    again = pair.reader.encode({"part": received[10:20], "whole": received})
    assert len(again.items) == 1 and len(again.data) < 500
    values = pair.reader.decode(again.data, 0, again.pins)
    assert values["part"].tolist() == list(range(10, 20)) and len(values["whole"]) == 100_000


def test_the_same_array_twice_is_written_once(pair):
    array = np.zeros(100_000)
    (a, b), _ = pair.send([array, array])
    assert a is b and len(pair.memory.files) == 1


def test_arrays_keep_their_memory_and_let_it_go(pair):
    received, _ = pair.send([np.zeros(100_000), "text"])
    pair.memory.dropped.clear()  # the writer's own share
    part = received[0][5:6]
    del received
    assert pair.memory.dropped == []
    del part
    assert len(pair.memory.dropped) == 1


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(()),
        np.zeros((0, 3)),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(20)[::2],
        np.arange(20)[::-1],
        np.arange(5).astype(">i4"),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array(["a", None, 3], dtype=object),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.broadcast_to(np.arange(3), (1000, 3)),
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)
@pytest.mark.parametrize("repeat", [1, 40_000])
def test_odd_arrays(pair, array, repeat):
    if array.ndim and repeat > 1:
        array = np.repeat(array, repeat // max(1, array.size), axis=0)
    received, _ = pair.send(array)
    assert received.dtype == array.dtype and received.shape == array.shape
    assert np.array_equal(received, array)


def test_bytes_at_the_border(pair):
    for size in (INLINE_BYTES - 1, INLINE_BYTES, INLINE_BYTES + 1):
        received, _ = pair.send(np.ones(size, np.uint8))
        assert received.sum() == size


def test_functions_travel_by_value(pair):
    y = np.ones(3)
    received, _ = pair.send(lambda x: x + y)
    assert received(1).tolist() == [2, 2, 2]


def test_what_cannot_be_pickled_raises(pair):
    with pytest.raises(TypeError):
        pair.writer.encode({"lock": __import__("threading").Lock()})


def test_columns_of_one_block_are_sealed_together_and_not_copied(pair, monkeypatch):
    monkeypatch.setattr(pair.memory.writer, "write", None)  # makes copies
    whole = pair.empty((4, 50_000))
    whole[:] = np.arange(4)[:, None]
    views = [whole[i] for i in range(4)]
    columns = {f"column {i}": whole[i] for i in range(4)}
    for _ in range(2):  # passed on twice, unchanged
        received, _ = pair.send(columns)
        assert [received[f"column {i}"][0] for i in range(4)] == [0, 1, 2, 3]
    views[2][:] = 9
    assert (received["column 2"] == 2).all() and whole[2, 0] == 9


def test_what_was_written_after_sealing_is_copied_when_it_is_sent(pair):
    array = pair.empty(50_000)
    array[:] = 1
    view = array[:20_000]
    first, _ = pair.send(array)
    view[5] = 7
    second, _ = pair.send(array)
    assert (first == 1).all() and second[5] == 7 and second.sum() == 50_006


def test_without_private_mappings_the_bytes_are_copied(pair, monkeypatch):
    def refuse(segment, index):
        raise OSError(12, "no more mappings")

    monkeypatch.setattr(Segment, "seal", refuse)
    array = pair.empty(50_000)
    array[:] = 1
    view = array[:]
    received, _ = pair.send(array)
    view[:] = 2
    assert (received == 1).all()


def test_filling_a_block_that_was_sealed_costs_no_page_faults(pair):
    for _ in range(2):
        array = pair.empty(500_000)
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        array[:] = 1
        faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
        pair.send(array)
        del array
        pair.memory.free_dropped()
    assert faults < 500_000 * 4 / mmap.PAGESIZE / 10


def test_closing_the_store_unmaps_what_was_sealed(pair):
    array = pair.empty(50_000)
    array[:] = 1
    pair.writer.encode(array)
    status = os.fstat(pair.memory.files[block_of(array).segment])
    # Inodes are numbers of a device: another one may have a file of the same number.
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x} {status.st_ino} "
    pair.memory.writer.close()
    assert array[0] == 1
    del array
    with open("/proc/self/maps") as file:
        assert not [line for line in file if place in line]


def test_a_sealed_block_is_used_again(pair):
    array = pair.empty(50_000)
    key, segment = block_of(array).hold.key, block_of(array).segment
    array[:] = 1
    view = array[:10]
    received, _ = pair.send(array)
    view[:] = 5  # private pages, which must not stay
    del array, view, received
    pair.memory.free_dropped()
    for value in (2, 3):
        array = pair.empty(50_000)
        assert block_of(array).segment == segment and block_of(array).hold.key != key
        array[:] = value
        received, _ = pair.send(array)
        assert (received == value).all()
        del array, received
        pair.memory.free_dropped()
