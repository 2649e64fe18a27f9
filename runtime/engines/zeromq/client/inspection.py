"""`Inspector` asks the node for reports of a session; node/reports.py makes the answers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..system.trace_files import read_events
from ..transport import wire

STATUS, MEMORY, LOGS, FOLLOW = 1, 2, 3, 4  # what may be asked for: see wire.INSPECT


class Inspector:
    """The API functions of a driver that show its session: asks the node, and reads the files of the session.

    Args:
        session: the session's directory.
        ask: `NodeRequests.ask`.
        enter: `Client.enter`.
    """

    def __init__(self, session: str, ask: Callable[..., bytes], enter: Callable[[], None]):
        self._session, self._ask, self._enter = session, ask, enter
        self._decode = msgspec.msgpack.Decoder().decode

    def status(self) -> dict:
        """Resources, processes with what they run, and what waits; see `session_reports.status`."""
        return self._answer(STATUS)

    def memory(self) -> dict:
        """Shared objects, segments of shared memory, and the processes that hold them."""
        return self._answer(MEMORY)

    def logs(self, follow: bool = False) -> list[dict]:
        """The last lines of each worker: pid, name and lines. With `follow` new ones of all workers are shown here."""
        return self._answer(FOLLOW if follow else LOGS)

    def timeline(self) -> list[dict]:
        """The events of all workers, as a Chrome trace has them; none without RUNTIME_TIMELINE=1."""
        self._enter()
        return read_events(self._session)

    def _answer(self, what):
        self._enter()
        return self._decode(memoryview(self._ask(wire.INSPECT, c=what))[wire.HEADER_BYTES :])
