"""Calls in flight whose values are numbers, None or short texts: many of them, or of their replies, in one message.

Such values cannot change, so that they need not be pickled one by one while the caller waits. Msgpack writes the values
of many calls at once. Replies to quick calls are held back briefly while more such calls wait, to be sent together.
"""

from __future__ import annotations

import pickle
from collections import deque

from . import structs, wire
from .mailbox import Mailbox

LONGEST_TEXT = 1024  # characters or bytes
_NUMBERS = frozenset((int, float, bool, type(None)))
_TEXTS = frozenset((str, bytes))
_UNKNOWN_TO_MSGPACK = OverflowError, UnicodeEncodeError  # integers of more than 64 bits, halves of surrogate pairs

QUICK_S, QUICK_RUNS = 100e-6, 8  # a method is quick when each of its last QUICK_RUNS calls took less than QUICK_S
LARGEST_COUNT = 32  # of replies that are held back

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
        serials: serials of the calls, in the order in which they are to run.
        arguments: arguments of each call.
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


class HeldReplies:
    """The replies of one worker that are held back.

    They are sent when another method comes next, when user code waits, or by the keeper, so that a call that turns out
    slow does not delay them long.

    Attributes:
        replies: (receiver, reply) of each, the oldest first; a reply is a message, or (serial, value) to be
            packed. Appended to without the lock, emptied with it.
    """

    def __init__(self, mailbox: Mailbox):
        self._mailbox = mailbox
        self.replies: deque[tuple[int, bytes | tuple]] = deque()
        self._quick: dict[bytes | str, int] = {}  # what was called -> number of its last runs in a row that were quick

    def expects(self, what: bytes, seconds: float, following: bytes | tuple) -> bool:
        """Whether the reply of a call that took `seconds` may wait for the reply of the frame that follows.

        Args:
            what: the part of the call's frame from wire.A_AT to the end of the method's name.
        """
        runs = self._quick[what] = self._quick.get(what, 0) + 1 if seconds < QUICK_S else 0
        if runs < QUICK_RUNS or type(following) is tuple or following[wire.KIND_AT] != wire.CALL:
            return False
        return following[wire.A_AT : wire.A_AT + len(what)] == what

    def expects_packed(self, method: str, seconds: float, following: bytes | tuple) -> bool:
        """The same of a call that came packed with others, and of what follows it in the queue."""
        runs = self._quick[method] = self._quick.get(method, 0) + 1 if seconds < QUICK_S else 0
        return runs >= QUICK_RUNS and type(following) is tuple and following[2] == method

    def add(self, receiver: int, reply: bytes | tuple) -> None:
        """Holds a reply back."""
        self.replies.append((receiver, reply))
        count = len(self.replies)
        if count >= LARGEST_COUNT:
            self.send_all()
        elif count == 1:
            self._mailbox.start_keeper()
            self._mailbox.wake()

    def send_all(self) -> None:
        """Sends them all."""
        with self._mailbox.lock:
            self.send()

    def send(self) -> None:
        """The same. The mailbox's lock is held."""
        by_receiver: dict[int, list[bytes | tuple]] = {}
        while self.replies:
            receiver, reply = self.replies.popleft()
            by_receiver.setdefault(receiver, []).append(reply)
        for receiver, replies in by_receiver.items():
            frames = [reply for reply in replies if type(reply) is bytes]
            if len(frames) < len(replies):
                packed = [reply for reply in replies if type(reply) is tuple]
                frames += pack_replies(self._mailbox.process, packed)
            self._mailbox.send_several(receiver, frames)
