"""Calls in flight whose values are numbers, None or short texts: many of them, or of their replies, in one message.

Such values cannot change, so that they need not be pickled one by one while the caller waits. Msgpack writes those of
many calls at once.
"""

from __future__ import annotations

import pickle

from . import structs, wire

LONGEST_TEXT = 1024  # characters or bytes
_NUMBERS = frozenset((int, float, bool, type(None)))
_TEXTS = frozenset((str, bytes))
_UNKNOWN_TO_MSGPACK = OverflowError, UnicodeEncodeError  # integers of more than 64 bits, halves of surrogate pairs

PLACEHOLDER = wire.value(b"")  # the `frame` of a reference that has its value in `value`


def can_pack(value) -> bool:
    """Whether a value may be packed."""
    kind = type(value)
    return kind in _NUMBERS or (kind in _TEXTS and len(value) <= LONGEST_TEXT)


def can_pack_all(values: tuple) -> bool:
    """Whether all of them may be packed."""
    return _NUMBERS.issuperset(map(type, values)) or all(map(can_pack, values))


def value_bytes(value) -> bytes:
    """A value as it is passed on by itself."""
    return wire.value(pickle.dumps(value, 5))


def pack_calls(process: int, method: str, serials: list[int], arguments: list[tuple]) -> list[bytes]:
    """The messages for calls of one method that have one result each.

    Args:
        process: the sender.
        method: its name.
        serials: of the calls, in the order in which they are to run.
        arguments: of each call.
    """
    packed = structs.PackedCalls(method, serials, arguments)
    try:
        return [wire.message(wire.PACKED_CALLS, process, body=structs.encode(packed))]
    except _UNKNOWN_TO_MSGPACK:
        name = method.encode()
        bodies = [wire.pad(name) + value_bytes((args, {})) for args in arguments]
        messages = zip(serials, bodies)
        return [wire.message(wire.CALL, process, serial, len(name), 1, 1, body) for serial, body in messages]


def pack_replies(process: int, replies: list[tuple]) -> list[bytes]:
    """The messages for replies to such calls.

    Args:
        process: the sender.
        replies: (serial, value) of each.
    """
    try:
        return [wire.message(wire.PACKED_REPLIES, process, body=structs.encode(structs.PackedReplies(replies)))]
    except _UNKNOWN_TO_MSGPACK:
        messages = ((serial, value_bytes(value)) for serial, value in replies)
        return [wire.message(wire.REPLY, process, serial, 1, body=body) for serial, body in messages]
