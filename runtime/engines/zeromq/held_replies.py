"""Replies to quick calls while more such calls wait: held back for a moment, they are sent together."""

from __future__ import annotations

from . import wire
from .mailbox import Mailbox

QUICK_S, QUICK_RUNS = 100e-6, 8  # a method is quick when each of its last QUICK_RUNS calls took less than QUICK_S
LARGEST_COUNT = 32


class HeldReplies:
    """The replies of one worker that are held back.

    They are sent when another method comes next, when user code waits, or by the keeper, so that a call that turns out
    slow does not delay them long.

    Attributes:
        count: number of replies that are held back.
    """

    def __init__(self, mailbox: Mailbox):
        self._mailbox = mailbox
        self._replies: dict[int, list[bytes]] = {}  # by caller
        self._quick: dict[bytes, int] = {}  # method -> number of its last runs in a row that were quick
        self.count = 0

    def expects(self, method: bytes, seconds: float, following: bytes) -> bool:
        """Whether the reply of a call that took `seconds` may wait for the reply of the frame that follows."""
        runs = self._quick[method] = self._quick.get(method, 0) + 1 if seconds < QUICK_S else 0
        if runs < QUICK_RUNS or following[wire.KIND_AT] != wire.CALL:
            return False
        return following[wire.HEADER_BYTES : wire.HEADER_BYTES + len(method) + 1].rstrip(b"\0") == method

    def add(self, receiver: int, reply: bytes) -> None:
        """Holds a reply back."""
        with self._mailbox.lock:
            self._replies.setdefault(receiver, []).append(reply)
            self.count += 1
            first = self.count == 1
            if self.count >= LARGEST_COUNT:
                self.send()
        if first:
            self._mailbox.start_keeper()
            self._mailbox.wake()

    def send_all(self) -> None:
        """Sends them all."""
        with self._mailbox.lock:
            self.send()

    def send(self) -> None:
        """The same. The mailbox's lock is held."""
        for receiver, replies in self._replies.items():
            self._mailbox.send_several(receiver, replies)
        self._replies.clear()
        self.count = 0
