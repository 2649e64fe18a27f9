"""Calls as the worker of an actor receives them."""

from __future__ import annotations

import pickle
from typing import NamedTuple

from ...options import worth_retrying
from . import structs, wire


class ReceivedCall(NamedTuple):
    """A call, plain or not.

    Attributes:
        frame, start, count: the message, where its values begin, and how many they are.
        group: concurrency group; "" for that of methods without one.
        retries, retry_on: see structs.CallName.
    """

    source: int
    serial: int
    method: str
    num_returns: int
    frame: bytes
    start: int
    count: int
    group: str = ""
    retries: int = 0
    retry_on: bytes = b""

    def worth_retrying(self, error: BaseException) -> bool:
        """Whether the call is to be made again after this exception."""
        return worth_retrying(pickle.loads(self.retry_on), error)


def received_call(frame: bytes) -> ReceivedCall:
    """The call in a message.

    Raises:
        wire.Malformed: it is cut off.
    """
    _, kind, _, source, serial, size, num_returns, count = wire.HEADER.unpack_from(frame)
    start = wire.HEADER_BYTES + size + wire.padding(size)
    if kind == wire.CALL:
        name = frame[wire.HEADER_BYTES : wire.HEADER_BYTES + size].decode()
        return ReceivedCall(source, serial, name, num_returns, frame, start, count)
    call = structs.decode(structs.CallName, frame, size)
    place = source, serial, call.method, num_returns, frame, start, count
    return ReceivedCall(*place, call.group, call.retries, call.retry_on)
