"""Base class of the transports of a policy server: an event loop in a thread, between clients and the server."""

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllib.env.policy_server.policy_server import PolicyServer


class LoopTransport(ABC):
    """Carries requests in an event loop (policy_server.Transport).

    Args:
        listening: the listening socket.
        make_loop: makes the event loop.
        url: URL for clients.
    """

    def __init__(self, listening: socket.socket, make_loop: Callable[[], asyncio.AbstractEventLoop], url: str):
        self._socket, self._make_loop, self.url = listening, make_loop, url
        self._server: PolicyServer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_due = False  # whether answer_requests will be called

    @abstractmethod
    async def _serve(self) -> None:
        """Serves until `stop`."""

    @abstractmethod
    def stop(self, last_answer: tuple[int, Any] | None = None) -> None:
        """Ends `run` (policy_server.Transport)."""

    def run(self, server: "PolicyServer") -> None:
        """Serves until `stop`, and frees the port."""
        self._server = server
        try:
            with asyncio.Runner(loop_factory=self._make_loop) as runner:
                runner.run(self._serve_and_reap())
        finally:
            self._socket.close()

    def wake(self) -> None:
        """Has step requests answered soon; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and no request waits any more
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._server.answer_requests)

    async def _serve_and_reap(self) -> None:
        self._loop = asyncio.get_running_loop()
        reaping = self._loop.create_task(self._reap_repeatedly())
        try:
            await self._serve()
        finally:
            reaping.cancel()

    async def _reap_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(self._server.reap_interval_s)
            self._reap_idle()

    def _reap_idle(self) -> None:
        self._server.reap_idle()
        self._answer_soon()

    def _answer_soon(self) -> None:
        """Schedules one answer for the step requests of all requests that are read in this pass of the loop."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._answer)

    def _answer(self) -> None:
        self._is_due = False
        self._server.answer_requests()
