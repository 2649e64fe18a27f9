"""The layout of messages: what goes in comes out, and what nobody sent is refused without harm."""

import random

import pytest

from runtime.engines.zeromq.transport import structs, wire


def test_message_round_trip():
    frame = wire.message(wire.CALL, 7, 2**40, 4, 1, 2**33, body=b"body", flags=3)
    assert wire.header(frame) == (wire.seal(), wire.CALL, 3, 7, 2**40, 4, 1, 2**33)
    assert frame[wire.HEADER_BYTES :] == b"body"


def test_keys():
    key = wire.key(2**63, 2**32 - 1)
    assert len(key) == wire.KEY_BYTES and wire.KEY.unpack(key) == (2**63, 2**32 - 1)


def test_plain_value():
    frame = b"x" * 32 + wire.value(b"pickle", wire.ERROR)
    head = wire.value_head(frame, 32)
    assert (head.flags, head.items, head.buffers) == (wire.ERROR, 0, 0)
    assert frame[head.pickle : head.pickle + head.pickle_bytes] == b"pickle"


@pytest.mark.parametrize("sizes", [(), (0,), (5,), (16, 1, 100), (0, 7, 0)])
def test_composed_value(sizes):
    items = [wire.key(i, 1) for i in range(3)]
    inline = [memoryview(bytes([i]) * size) for i, size in enumerate(sizes)]
    buffers = [wire.Buffer(0, 0, 0, 0, 0, size) for size in sizes]
    buffers.insert(len(buffers) // 2, wire.Buffer(9, 4, 2, 0, 4096, 10**12))
    frame = bytes(48) + wire.composed_value(b"pickle", items, buffers, inline)
    head = wire.value_head(frame, 48)
    assert head.size == len(frame) - 48
    assert wire.value_items(frame, head) == items
    table = wire.value_buffers(frame, head)
    assert [buffer for buffer in table if buffer.segment] == [wire.Buffer(9, 4, 2, 0, 4096, 10**12)]
    assert frame[head.pickle : head.pickle + head.pickle_bytes] == b"pickle"
    for buffer, part in zip([b for b in table if not b.segment], inline):
        assert buffer.offset % wire.ALIGNMENT == 0
        assert frame[48 + buffer.offset : 48 + buffer.offset + buffer.size] == part


def test_values_one_after_the_other():
    values = [wire.value(bytes(n)) for n in (0, 1, 15, 16, 17)]
    frame = bytes(32) + b"".join(wire.pad(value) for value in values)
    starts = wire.value_starts(frame, 32, 5)
    assert [frame[start : start + len(value)] for start, value in zip(starts, values)] == values
    with pytest.raises(wire.Malformed):
        wire.value_starts(frame, 32, 6)


def test_batch():
    frames = [wire.message(wire.CALL, 1, i, body=bytes(i)) for i in range(5)]
    batch = wire.batch(1, frames)
    assert wire.header(batch)[1] == wire.BATCH and wire.unbatched(batch) == frames
    with pytest.raises(wire.Malformed):
        wire.unbatched(batch[:-1])
    with pytest.raises(wire.Malformed):  # a batch in a batch could be nested without end
        wire.unbatched(wire.batch(1, [batch]))


@pytest.mark.parametrize(
    "frame", [b"", wire.MAGIC, bytes(48), wire.seal() + bytes(30), wire.seal() + b"\xff" + bytes(29)]
)
def test_header_of_strangers(frame):
    with pytest.raises(wire.Malformed):
        wire.header(frame)


def test_frames_of_another_session_or_version():
    seal = wire.seal()
    for other in (seal[:-1] + bytes([seal[-1] ^ 1]), b"R1" + seal[2:], seal[:2] + seal[3:] + b"x"):
        with pytest.raises(wire.Malformed, match="another session"):
            wire.header(other + wire.message(wire.KILL, 1)[len(seal) :])


def test_lengths_that_lie():
    value = bytearray(wire.composed_value(b"pickle", [wire.key(1, 1)], [wire.Buffer(0, 0, 0, 0, 0, 3)], [b"abc"]))
    head = wire.value_head(bytes(value), 0)
    value[head.buffer_table + 24 : head.buffer_table + 32] = (2**62).to_bytes(8, "little")
    with pytest.raises(wire.Malformed, match="outside"):
        wire.value_buffers(bytes(value), wire.value_head(bytes(value), 0))
    value[4:8] = (2**31).to_bytes(4, "little")
    with pytest.raises(wire.Malformed):
        wire.value_head(bytes(value), 0)


def test_buffer_of_no_item():
    frame = wire.composed_value(b"", [], [wire.Buffer(3, 4, 0, 0, 4096, 3)], [])
    with pytest.raises(wire.Malformed, match="item"):
        wire.value_buffers(frame, wire.value_head(frame, 0))


def parse(frame):
    """All that is read of a frame before anything is unpickled."""
    kind = wire.header(frame)[1]
    if kind == wire.BATCH:
        for inner in wire.unbatched(frame):
            parse(inner)
    head = wire.value_head(frame, wire.HEADER_BYTES)
    wire.value_items(frame, head)
    wire.value_buffers(frame, head)
    wire.value_starts(frame, wire.HEADER_BYTES, 3)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_frames(seed):
    rng = random.Random(seed)
    value = wire.composed_value(
        b"pickle", [wire.key(1, 1)] * 2, [wire.Buffer(0, 0, 0, 0, 0, 9), wire.Buffer(2, 3, 1, 0, 64, 99)], [bytes(9)]
    )
    plain = wire.message(wire.REPLY, 3, 4, 3, body=wire.pad(value) * 3)
    for _ in range(5000):
        frame = bytearray(rng.choice((plain, wire.batch(1, [plain, plain]))))
        for _ in range(rng.randrange(1, 6)):
            frame[rng.randrange(len(frame))] = rng.choice((0, 1, 255, rng.randrange(256)))
        try:
            parse(bytes(frame[: rng.randrange(len(frame) + 1)] if rng.random() < 0.3 else frame))
        except wire.Malformed:
            continue


@pytest.mark.parametrize("kind", [structs.Task, structs.Create, structs.Define, structs.References, structs.Failed])
def test_control_of_strangers(kind):
    rng = random.Random(0)
    key = wire.key(1, 2)
    good = structs.encode(structs.References([(key, 1)], [(key, None, [])], [(key, 2)], [key]))
    for _ in range(2000):
        data = bytearray(good)
        data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            structs.decode(kind, wire.message(wire.REFERENCES, 1, body=bytes(data)))
        except wire.Malformed:
            continue
    with pytest.raises(wire.Malformed):
        structs.decode(kind, wire.message(wire.REFERENCES, 1), 5)


def test_control_round_trip():
    task = structs.Task(bytes(32), "f", (("CPU", 10_000),), [wire.key(1, 2)], 3, b"")
    data = structs.encode(task)
    frame = wire.message(wire.SUBMIT, 1, 2, len(data), body=data + b"values")
    assert structs.decode(structs.Task, frame, len(data)) == task
