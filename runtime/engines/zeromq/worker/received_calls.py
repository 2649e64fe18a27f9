"""Calls as a worker receives them: their names, options, arguments, and the functions and classes that they name."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import NamedTuple

from .... import worker_imports
from ....calls.retries import Attempts, worth_retrying
from ..transport import structs, wire
from ..values.serializer import Serializer


class ReceivedCall(NamedTuple):
    """A call of an actor, plain or not.

    Attributes:
        frame, start, count: the message, where its values begin, and how many they are.
        group: concurrency group; "": the group of methods without one.
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

    def attempts(self) -> Attempts | None:
        """Attempts after the first; None if there are none."""
        return Attempts(self.retries, self._is_worth_it) if self.retries else None

    def _is_worth_it(self, error):
        return worth_retrying(pickle.loads(self.retry_on), error)


def received_call(frame: bytes) -> ReceivedCall:
    """The call of an actor in a message.

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


class ReceivedValues:
    """The values that come with calls.

    Args:
        serializer: of this process.
        pins: (frame, start) -> the shares that came with a value.
    """

    def __init__(self, serializer: Serializer, pins: Callable[[bytes, int], tuple]):
        self.decode, self.pins = serializer.decode, pins
        self._definitions: dict[bytes, object] = {}  # digest -> structs.Define, or the function or class itself

    def arguments(self, frame: bytes, start: int, count: int) -> tuple[tuple, dict]:
        """(args, kwargs) of a call; values that were references at the top stand in their places."""
        if count == 1:
            return self.decode(frame, start, self.pins(frame, start))
        starts = wire.value_starts(frame, start, count)
        args, kwargs, places = self.decode(frame, starts[0], self.pins(frame, starts[0]))
        args = list(args)
        for place, begin in zip(places, starts[1:]):
            value = self.decode(frame, begin, self.pins(frame, begin))
            if isinstance(place, str):
                kwargs[place] = value
            else:
                args[place] = value
        return args, kwargs

    def definition(self, digest: bytes) -> Callable:
        """The function or class with this digest."""
        known = self._definitions[digest]
        if isinstance(known, structs.Define):
            worker_imports.load(known.imports)
            known = self.decode(known.data, 0, self.pins(known.data, 0))
            self._definitions[digest] = known
        return known

    def on_define(self, frame, head):
        define = structs.decode(structs.Define, frame)
        self._definitions[define.digest] = define
        sys.path += [entry for entry in define.path if entry not in sys.path]
