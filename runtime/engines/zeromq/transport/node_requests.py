"""Requests to the node whose answer is waited for: shared memory, free resources, names of actors."""

from __future__ import annotations

from collections.abc import Callable

from .... import errors
from . import wire
from .mailbox import Mailbox, Waiter

STORE_FULL_S = 30.0
REPORT_S = 5.0


class NodeRequests:
    """Requests to the node that wait for its answer.

    Args:
        mailbox: mailbox of this process.
        next_serial: a new number for a request.
        wait_for: `Client.wait_for`.
        flush: releases items that this process no longer needs; called with the mailbox's lock held.

    Attributes:
        growing: number of threads that wait for shared memory; meanwhile freed segments go back to the node at once.
    """

    def __init__(self, mailbox: Mailbox, next_serial: Callable[[], int], wait_for: Callable, flush: Callable):
        self._mailbox, self._next_serial, self._wait_for, self._flush = mailbox, next_serial, wait_for, flush
        self._open: dict[int, list] = {}  # serial -> [waiter, answer]
        self.growing = 0

    def ask(self, kind: int, timeout_s: float | None = None, c: int = 0, body: bytes = b"") -> bytes | None:
        """Sends a request to the node and waits; the answer's frame, or None if it did not come in time."""
        return self._ask(self._next_serial(), kind, timeout_s, c, body)

    def _ask(self, serial, kind, timeout_s, c, body=b""):
        waiter = Waiter()
        entry = self._open[serial] = [waiter, None]
        with self._mailbox.lock:
            self._mailbox.send_to_node(kind, serial, c=c, body=body)
        try:
            self._wait_for(waiter, timeout_s, (), raising=False)
        finally:
            self._open.pop(serial, None)
        return entry[1]

    def grow(self, size: int) -> tuple[int, int, bool]:
        """A new segment of `size` bytes: its number, the node's descriptor of it, and whether it is on a disk.

        Raises:
            ObjectStoreFullError: none in time.
        """
        with self._mailbox.lock:
            self._flush()
        self._mailbox.start_keeper()
        self.growing += 1
        serial, answer = self._next_serial(), None
        try:
            answer = self._ask(serial, wire.GRANT, STORE_FULL_S, size)
        finally:
            self.growing -= 1
            if answer is None:  # also if Ctrl-C ended the wait
                with self._mailbox.lock:
                    self._mailbox.send_to_node(wire.GRANT, serial)
        if answer is not None:
            _, _, flags, _, _, segment, fd, _ = wire.header(answer)
            if segment:
                return segment, fd, bool(flags & wire.ON_DISK)
            text = bytes(answer[wire.HEADER_BYTES :]).decode()
        else:
            text = f"nothing was freed within {STORE_FULL_S:g} s"
        report = self.ask(wire.HOLDERS, REPORT_S)
        held = f" Now {bytes(report[wire.HEADER_BYTES :]).decode()}." if report is not None else ""
        raise errors.ObjectStoreFullError(
            f"the shared memory is full: {size / 2**20:.1f} MB more were needed, {text}.{held} Drop references and "
            "arrays you do not need, or give more: runtime.init(object_store_memory=..., object_spilling_bytes=...)."
        )

    def give_back(self, segment: int) -> None:
        """Returns a segment to the node."""
        with self._mailbox.lock:
            self._mailbox.send_to_node(wire.RETURN, a=segment)

    # -- messages -----------------------------------------------------------------------------------------------------

    def on_granted(self, frame, head):
        if head[4] in self._open:
            self.on_answer(frame, head)
        elif head[5]:
            self.give_back(head[5])  # it came too late

    def on_answer(self, frame, head):
        entry = self._open.get(head[4])
        if entry is not None:
            entry[1] = frame
            entry[0].tick()
