"""Python values to the layout of wire.py and back; large buffers go to shared memory on the way.

Plain pickle first, in C; what it cannot write (a class of `__main__`, a lambda, a reference, an actor's handle) goes
through cloudpickle. Every array leaves the pickle as a buffer. Buffers that are stored in shared memory already are
only described. The others stay in the message if they are small together; else those in blocks from `empty` are stored
where they are, and the rest is copied into one block.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import NamedTuple

from ....errors import ObjectLostError, SessionClosedError
from ....pickling import Pickler
from ....remote.actors import ActorHandle, handle_from_state, handle_session, handle_state
from ....remote.refs import ObjectRef
from ..transport import wire
from .store import Store, block_of, freeze, position

_pack_value = wire.VALUE.pack
_new_tuple = tuple.__new__  # a third of the price of a NamedTuple's own constructor

INLINE_BYTES = 2**16  # a value with more bytes than this goes to shared memory
COPIED_BYTES = 2**10  # a pickle of at most this many bytes is copied out of its frame faster than it is viewed


def error_value(error: BaseException) -> bytes:
    """An exception as a value."""
    return wire.value(pickle.dumps(error, 5), wire.ERROR)


def called_by_encode() -> bool:
    """Whether the caller's caller is a `__reduce_ex__` that the plain pickle in `Serializer.encode` asks.

    That pickle must fail with references and handles, so that they are carried as items. The frame that called pickle
    tells; a flag set around it would cost every call.
    """
    frame = sys._getframe(2).f_back
    return frame is not None and frame.f_code is Serializer.encode.__code__


class Encoded(NamedTuple):
    """A value as bytes, the keys of its items, and what keeps each of them alive in this process."""

    data: bytes
    items: tuple = ()
    pins: tuple = ()


class Serializer:
    """Values to bytes and back.

    Args:
        store: where large buffers go.
        find_reference: (key, hold) -> this process's reference for a key found in a message.
        find_actor: (key, hold); called before a handle of this actor is made.
        session_id: references and handles of other sessions are refused.
    """

    def __init__(self, store: Store, find_reference, find_actor, session_id: str):
        self._store, self._find_reference, self._find_actor = store, find_reference, find_actor
        self._session_id = session_id

    def encode(self, value, flags: int = 0) -> Encoded:
        """A copy of the value. Raises whatever pickling raises."""
        buffers = []
        try:
            data = pickle.dumps(value, 5, buffer_callback=buffers.append)
            if data.find(b"__main__") >= 0:  # `in` would first try the bytes as a number, and format an error
                return self.encode_by_value(value, flags)
        except Exception:  # user code runs in here; if it is to blame, it fails in the next line again
            return self.encode_by_value(value, flags)
        if not buffers and len(data) <= INLINE_BYTES:
            size = len(data)
            value = _pack_value(flags, 0, 0, 0, size, size + wire.VALUE_BYTES) + data
            return _new_tuple(Encoded, (value, (), ()))
        return self._compose(data, buffers, {}, flags)

    def encode_by_value(self, value, flags: int = 0, inline: bool = False) -> Encoded:
        """The same through cloudpickle, which carries functions and classes that cannot be imported elsewhere.

        Args:
            inline: leave everything in the value, whatever its size.
        """
        file, buffers = io.BytesIO(), []
        pickler = _Pickler(file, buffers, self._session_id)
        pickler.dump(value)
        if pickler.items:
            flags |= wire.NAMES_ITEMS
        return self._compose(file.getvalue(), buffers, pickler.items, flags, inline)

    def dumps(self, value) -> bytes:
        """The bytes of `encode`, for finding out what can be pickled."""
        return self.encode_by_value(value, inline=True).data

    def decode(self, frame: bytes, start: int, pins: tuple):
        """The value that begins at `start`; an ERROR gives the exception itself.

        Args:
            pins: what keeps its items alive, as received.

        Raises:
            ObjectLostError: its memory is gone.
        """
        flags, items, count, _, pickle_bytes, _ = wire.VALUE.unpack_from(frame, start)
        if not items and not count:
            begin = start + wire.VALUE_BYTES
            source = frame if pickle_bytes <= COPIED_BYTES else memoryview(frame)
            return pickle.loads(source[begin : begin + pickle_bytes])
        head = wire.value_head(frame, start)
        buffers = self._buffers(frame, head, pins)
        if flags & wire.PICKLE_SHARED:
            data = buffers.pop()
        else:
            data = memoryview(frame)[head.pickle : head.pickle + pickle_bytes]
        if not flags & wire.NAMES_ITEMS:
            return pickle.loads(data, buffers=buffers)
        unpickler = _Unpickler(io.BytesIO(data), buffers=buffers)
        unpickler.serializer, unpickler.keys, unpickler.pins = self, wire.value_items(frame, head), pins
        return unpickler.load()

    def _compose(self, data, buffers, items, flags, all_inline=False):
        """Decides for each buffer where it lives, and lays out the value."""
        views = [buffer.raw() for buffer in buffers]
        if len(data) > INLINE_BYTES and not all_inline:
            views.append(memoryview(data))
            data, flags = b"", flags | wire.PICKLE_SHARED
        blocks = [block_of(view.obj) for view in views]
        # Buffers that are not stored yet: ordinary memory, and blocks from `empty`.
        is_new = [block is None or block.flags.writeable for block in blocks]
        is_small = sum(view.nbytes for view, new in zip(views, is_new) if new) <= INLINE_BYTES
        table, loose, sealed = [], [], set()
        for view, block, new in zip(views, blocks, is_new):
            if new and (block is None or is_small or not self._settled(view, block, sealed)):
                loose.append(view)
                table.append((0, 0, 0, 0, 0, view.nbytes))
            else:
                item = _number(items, block.hold.key, block.hold)
                table.append((block.segment, block.fd, item, 0, position(view, block), view.nbytes))
            if new and block is not None:
                freeze(view.obj)
        if not all_inline and sum(view.nbytes for view in loose) > INLINE_BYTES:
            moved = self._move(loose, items)
            table = [line if line[0] else next(moved) for line in table]
            loose = []
        value = wire.composed_value(data, [*items], table, loose, flags)
        return Encoded(value, tuple(items), tuple(pin for _, pin in items.values()))

    def _settled(self, view, block, sealed) -> bool:
        """Whether a block from `empty` keeps these bytes, so that they need not be copied.

        Args:
            sealed: blocks that were sealed for the value that is being encoded; no process has written there since.
        """
        if block.hold.key in sealed:
            return True
        if self._store.is_sealed(block):  # an earlier value has it; there may be a view that was written afterwards
            return self._store.has_stored(view, block)
        if not self._store.seal(block):
            return False
        sealed.add(block.hold.key)
        return True

    def _move(self, loose, items):
        """Copies buffers into a block of shared memory; their lines in the buffer table."""
        block, offsets = self._store.write(loose)
        segment, fd, begin = block.segment, block.fd, block.offset
        item = _number(items, block.hold.key, block.hold)
        return ((segment, fd, item, 0, begin + offset, view.nbytes) for view, offset in zip(loose, offsets))

    def _buffers(self, frame, head, pins):
        """Buffers of the pickle: slices of the frame, or read-only slices of shared memory."""
        table, buffers = wire.value_buffers(frame, head), []
        memory: dict[int, tuple[memoryview, int]] = {-1: (memoryview(frame), -head.start)}
        for segment, _, item, _, offset, size in table:
            if segment == 0:
                item = -1
            elif item not in memory:
                memory[item] = self._memory_of(item, table, pins)
            view, first = memory[item]
            buffers.append(view[offset - first : offset - first + size])
        return buffers

    def _memory_of(self, item, table, pins):
        """The part of a block in which all buffers of a value lie that are in it, and where that part begins."""
        lines = [line for line in table if line.segment and line.item == item]
        first, end = min(line.offset for line in lines), max(line.offset + line.size for line in lines)
        try:
            block = self._store.view(lines[0].segment, lines[0].fd, first, end - first, pins[item])
        except OSError as error:
            raise ObjectLostError(f"the memory of this value is gone: {error}") from error
        return memoryview(block), first


def _number(items, key, pin):
    """The number of an item in a value. `items`: key -> (number, object that keeps it alive here)."""
    return items.setdefault(key, (len(items), pin))[0]


class _Pickler(Pickler):
    """cloudpickle that names references and handles by their number among the items."""

    def __init__(self, file, buffers, session_id):
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self.items, self._session_id = {}, session_id

    def persistent_id(self, obj):
        if isinstance(obj, ObjectRef):
            self._check(obj, obj.session_id)
            return _number(self.items, obj.id, obj), None
        if isinstance(obj, ActorHandle):
            self._check(obj, handle_session(obj))
            state = handle_state(obj)
            return _number(self.items, state[0], obj), state
        return None

    def _check(self, obj, session_id):
        if session_id != self._session_id:  # its id may name another object here
            raise SessionClosedError(f"{obj!r} belongs to another session")


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, identity):
        number, handle = identity
        key, pin = self.keys[number], self.pins[number]
        if handle is None:
            return self.serializer._find_reference(key, pin)
        self.serializer._find_actor(key, pin)
        return handle_from_state(*handle)
