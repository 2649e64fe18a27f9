"""The bytes that processes send one another; no pickling, no sockets, no shared memory in here.

A message is one frame: a header of 48 bytes and a body. The header begins with the *seal*: the version of the protocol
and the session's key, which every process has read from a file (session_key.py). A frame with another seal is dropped
before anything in it is looked at. Values (arguments, results) have a layout of their own, so that
they can be passed on without being understood:

    value   head (32 B) | item keys, 16 B each | buffer table, 32 B each | pickle | buffers, each aligned to 16 B

An *item* is whatever must stay alive as long as the value does: a block of shared memory, an object, an actor. Its key
is (serial, process that made it). A *buffer* is memory the pickle refers to: inside the value, or in a block.

Everything here checks lengths before it reads. A frame that does not fit raises `Malformed`; it is not unpickled.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

HEADER = struct.Struct("<18sBBIQIIQ")  # seal, kind, flags, source process, serial, a, b, c
VALUE = struct.Struct("<IIIIQQ")  # flags, items, buffers, unused, bytes of the pickle, bytes of the value
BUFFER = struct.Struct("<IIIIQQ")  # segment (0: inside the value), fd, item, unused, offset, bytes
LENGTH_BYTES = 8  # of a frame in a batch
REPORT = struct.Struct("<QQi")  # of the zygote (see zygote.py): process, pid, wait status or BORN
KEY = struct.Struct("<QQ")  # serial, process

MAGIC = b"R2"
SESSION_KEY_BYTES = 16
KIND_AT = len(MAGIC) + SESSION_KEY_BYTES  # where in a frame its kind stands
A_AT = KIND_AT + 14  # and a, with b and c behind it
BORN = -1
SEGMENT_MAGIC = b"rt-segm1"
HEADER_BYTES, VALUE_BYTES, BUFFER_BYTES, KEY_BYTES = HEADER.size, VALUE.size, BUFFER.size, KEY.size
ALIGNMENT = 16  # of buffers within a frame; malloc aligns the frame itself to the same
LARGEST_ITEM_COUNT = 2**24

# Kinds of messages, with the meaning of (serial, a, b, c). Between clients:
BATCH = 32  # a: number of frames; their lengths, 8 B each; the frames
CALL = 1  # serial of the first result, bytes of the method's name, number of results, number of values; name, values
CALL_WITH = 74  # the same with a struct instead of the method's name
REPLY = 2  # serial of the first result, number of values; values
PACKED_CALLS = 75  # struct: several calls of one method that have one result each
PACKED_REPLIES = 76  # struct
# From a client to the node:
SUBMIT = 3  # serial of the first result, bytes of the struct, number of results, number of values; struct, values
DONE = 4  # serial of the task, its owner
CREATE = 5  # serial of the actor, bytes of the struct, -, number of values; struct, values
ALIVE = 6  # the constructor of the sender's actor has returned
START_FAILED = 7  # it has raised; a value (the failure). With a serial: this actor of the sender's is not created
REFERENCES = 8  # struct: items held and released
SUBSCRIBE = 9  # serial, a: process of the object that is wanted
GRANT = 10  # serial of the request, c: bytes; 0: the sender does not wait for it any more
RETURN = 11  # a: segment that is not needed any more
BLOCKED = 12  # the sender waits in get() or wait()
UNBLOCKED = 13
KILL = 14  # serial, a: process of the actor; c: 1 if it may start again
WATCH = 15  # serial, a: process of the actor whose state is wanted
DEFINE = 16  # struct: a function or class; also from the node to workers
READY = 17  # a worker's mailbox is bound
LEAVING = 18  # the sender ends by itself; text: why; answered by GOODBYE
SHUTDOWN = 19  # the driver ends the session
RESOURCES = 20  # serial of the request; answered in kind
INSPECT = 44  # serial of the request, c: what (inspection.py); answered in kind: msgpack of built-in types
JOIN = 43  # c: pid of the sender, a further driver with a number it has chosen; answered in kind
NEW_GROUP = 40  # serial of the placement group and the request; struct. Answered: a text, why not
REMOVE_GROUP = 41  # serial, a: process of the placement group
GROUPS = 42  # serial of the request; answered in kind: struct
HOLDERS = 39  # serial of the request; answered in kind: text: who holds the shared memory
SETTLED = 47  # a: process that has ended; keys of what the sender has got in its replies and still has
WAITING = 33  # struct: what the sender's call has waited for during some seconds; nothing when that is over
CANCEL = 35  # serial, a: owner of the call; flags: FORCE, RECURSIVE; also to the owner, and to the process that has it
POKE = 36  # a: process that is to read its mailbox even while user code runs
CLAIM_NAME = 70  # serial of the request; struct: of an actor to be created; answered by NAMED
FIND_NAME = 71  # serial of the request; struct; answered by NAMED
LIST_NAMES = 72  # serial of the request; answered in kind, with a struct
# From the node to a client:
ACTOR_STATE = (
    21  # serial, a: key of the actor; b: its process or 0; flags: see below; c: its calls at a time; text or value
)
FAILED = 22  # serial of the task; struct: class and text of the error
OBJECT = 23  # serial, a: key of the object; a value
GRANTED = 24  # serial of the request, a: segment (0: refused), b: fd, c: bytes; flags: ON_DISK
FREED = 25  # keys of blocks that may be used again
CLOSED = 26  # a: segment that has ended; also "return what you do not need" when 0
GONE = 27  # a: process that has ended
SETTLE = 46  # a: process that has ended some time ago; answered by SETTLED
LOG = 28  # flags: STDOUT or STDERR; text for this stream of the driver
NOTICE = 29  # flags: level; text for the driver's logger
MOVE = 45  # text: the environment in which the worker is from now on: the session's own, but for the namespace
STOP = 30  # an actor ends after its calls, another worker if no call that it made waits; flags: FORCE: in any case
GOODBYE = 31
COLLECT = 34  # memory is short: garbage may hold values
NAMED = 73  # serial of the request; flags: see below; key of the actor and its description if it is held from now on

# From a worker to the caller of a generator, and back:
ITEM = 37  # serial of the call, a: index; a value
CREDIT = 38  # serial of the call, a: process that runs it, c: number of values its caller has taken; by the node

LAST_KIND = 76

STDOUT, STDERR = 1, 2

ACTOR_ALIVE, ACTOR_DEAD, ACTOR_START_FAILED, ACTOR_RESTARTING, ACTOR_STARVED = 1, 2, 3, 4, 5  # flags of ACTOR_STATE
NAME_GRANTED, NAME_HELD, NAME_TAKEN, NAME_UNKNOWN = 1, 2, 3, 4  # flags of NAMED; HELD: by the receiver, with an actor

RAISED = 1  # flag of REPLY: the value is the call's exception
LOST = 1  # flag of OBJECT: the body is a text that says why
ON_DISK = 1  # flag of GRANTED
# Flags of CANCEL. CLOSE: a generator, which ends at its next yield. RUNS, of the node: the task that the receiver runs,
# which it may have called itself as well.
FORCE, RECURSIVE, CLOSE, RUNS = 1, 2, 4, 8

ERROR = 1  # flags of a value: it is an exception
PICKLE_SHARED = 2  # its pickle is the last buffer
NAMES_ITEMS = 4  # its pickle names items

NODE, DRIVER = 0, 1  # process numbers; workers count from 2
FIRST_GUEST = 2**31  # further drivers have numbers from here on, chosen by chance


_seal = MAGIC + bytes(SESSION_KEY_BYTES)


def use_key(session_key: bytes) -> None:
    """From now on the frames of this process have the seal of this session."""
    global _seal
    _seal = MAGIC + session_key


def seal() -> bytes:
    """The first bytes of every frame of the session."""
    return _seal


class Malformed(Exception):
    """A frame that no process of this version has sent."""


class Buffer(NamedTuple):
    """One line of a value's buffer table. Offsets count from the start of the value, or of the segment."""

    segment: int
    fd: int
    item: int
    unused: int
    offset: int
    size: int


class Head(NamedTuple):
    """The head of a value and where its parts begin in the frame."""

    flags: int
    items: int
    buffers: int
    pickle_bytes: int
    size: int
    start: int

    @property
    def buffer_table(self) -> int:
        return self.start + VALUE_BYTES + KEY_BYTES * self.items

    @property
    def pickle(self) -> int:
        return self.buffer_table + BUFFER_BYTES * self.buffers


def batch(source: int, frames: list[bytes]) -> bytes:
    """Several frames for one process in one."""
    head = HEADER.pack(_seal, BATCH, 0, source, 0, len(frames), 0, 0)
    return b"".join((head, struct.pack(f"<{len(frames)}Q", *map(len, frames)), *frames))


def unbatched(frame: bytes) -> list[bytes]:
    """The frames in a batch.

    Raises:
        Malformed: they do not fill it.
    """
    count = HEADER.unpack_from(frame)[5]
    position = HEADER_BYTES + LENGTH_BYTES * count
    if position > len(frame):
        raise Malformed("batch cut off")
    sizes = struct.unpack_from(f"<{count}Q", frame, HEADER_BYTES)
    if position + sum(sizes) != len(frame):
        raise Malformed("batch longer or shorter than its frames")
    frames = []
    for size in sizes:
        if size < HEADER_BYTES or frame[position + KIND_AT] == BATCH:
            raise Malformed("frame that does not fit its batch")
        frames.append(frame[position : position + size])
        position += size
    return frames


def segment_header(segment: int) -> bytes:
    """The first bytes of a segment, which tell a reader that it has got the right one."""
    return SEGMENT_MAGIC + segment.to_bytes(8, "little")


def key(serial: int, process: int) -> bytes:
    """The 16 bytes that name an object, block or actor in the whole session."""
    return KEY.pack(serial, process)


def message(kind: int, source: int, serial: int = 0, a: int = 0, b: int = 0, c: int = 0, body=b"", flags: int = 0):
    """A frame."""
    return HEADER.pack(_seal, kind, flags, source, serial, a, b, c) + body


def header(frame: bytes) -> tuple:
    """(seal, kind, flags, source, serial, a, b, c) of a frame.

    Raises:
        Malformed: not one of ours.
    """
    if len(frame) < HEADER_BYTES:
        raise Malformed(f"frame of {len(frame)} bytes")
    head = HEADER.unpack_from(frame)
    if head[0] != _seal or not 0 < head[1] <= LAST_KIND:
        raise Malformed(f"frame of kind {head[1]} that begins with {bytes(frame[:2])!r}, or of another session")
    return head


def padding(size: int) -> int:
    """Bytes to the next multiple of ALIGNMENT."""
    return -size % ALIGNMENT


def pad(data: bytes) -> bytes:
    """The data with zeros up to a multiple of ALIGNMENT."""
    return data + bytes(-len(data) % ALIGNMENT)


def value(pickle, flags: int = 0) -> bytes:
    """The layout of a value without items and buffers."""
    size = VALUE_BYTES + len(pickle)
    return VALUE.pack(flags, 0, 0, 0, len(pickle), size) + pickle


def composed_value(pickle, items: list[bytes], buffers: list[tuple], inline: list, flags: int = 0) -> bytes:
    """The layout of a value.

    Args:
        pickle: bytes; empty with PICKLE_SHARED.
        items: keys.
        buffers: the table, with the fields of `Buffer`; of those inside the value the offset is filled in here, in the
            order of `inline`.
        inline: contiguous byte buffers.
        flags: of the value.
    """
    offset = VALUE_BYTES + KEY_BYTES * len(items) + BUFFER_BYTES * len(buffers) + len(pickle)
    table, tail, remaining = [], [], iter(inline)
    for buffer in buffers:
        if buffer[0] == 0:
            gap = padding(offset)
            tail += (bytes(gap), next(remaining))
            buffer = (0, 0, 0, 0, offset + gap, buffer[5])
            offset += gap + buffer[5]
        table.append(BUFFER.pack(*buffer))
    head = VALUE.pack(flags, len(items), len(buffers), 0, len(pickle), offset)
    return b"".join((head, *items, *table, pickle, *tail))


def value_head(frame: bytes, start: int) -> Head:
    """The head of the value that begins at `start`.

    Raises:
        Malformed: it does not lie within the frame.
    """
    if start + VALUE_BYTES > len(frame):
        raise Malformed("value cut off")
    flags, items, buffers, _, pickle_bytes, size = VALUE.unpack_from(frame, start)
    head = Head(flags, items, buffers, pickle_bytes, size, start)
    if max(items, buffers) > LARGEST_ITEM_COUNT or start + size > len(frame):
        raise Malformed("value longer than its frame")
    if head.pickle + pickle_bytes > start + size:
        raise Malformed("tables longer than their value")
    return head


def value_items(frame: bytes, head: Head) -> list[bytes]:
    """The keys of a value's items."""
    first = head.start + VALUE_BYTES
    return [frame[i : i + KEY_BYTES] for i in range(first, first + KEY_BYTES * head.items, KEY_BYTES)]


def items_at(frame: bytes, start: int) -> list[bytes]:
    """The keys of the items of a value that starts there."""
    return value_items(frame, value_head(frame, start))


def value_buffers(frame: bytes, head: Head) -> list[Buffer]:
    """A value's buffer table.

    Raises:
        Malformed: a buffer lies outside the value, or names an item that is not there.
    """
    table = list(map(Buffer._make, BUFFER.iter_unpack(memoryview(frame)[head.buffer_table : head.pickle])))
    for segment, _, item, _, offset, size in table:
        if segment == 0 and offset + size > head.size:
            raise Malformed("buffer outside its value")
        if segment != 0 and item >= head.items:
            raise Malformed("buffer of no item")
    return table


def value_starts(frame: bytes, start: int, count: int) -> list[int]:
    """Offsets of `count` values that follow one another from `start`, aligned.

    Raises:
        Malformed: fewer values than that.
    """
    starts = []
    for _ in range(count):
        head = value_head(frame, start)
        starts.append(start)
        start += head.size + padding(head.size)
    return starts


def keys(frame: bytes, start: int) -> list[bytes]:
    """The keys in the rest of a frame (FREED, SETTLED).

    Raises:
        Malformed: not a whole number of keys.
    """
    if (len(frame) - start) % KEY_BYTES:
        raise Malformed("keys cut off")
    return [frame[i : i + KEY_BYTES] for i in range(start, len(frame), KEY_BYTES)]
