"""Requests to a policy server over ZeroMQ, for many small calls.

A client has a DEALER socket. A request is an array of MessagePack, [token, path, body], and its answer [status, body];
the token is "" without one, and the body nil where there is none. A path may end with a query: "/v1/weights?have=3". A
client waits for an answer before it asks again.
"""

import hmac
import logging
import os
import socket
import threading
import time
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import zmq
from zmq.backend import zmq_poll

from rllib.web.bodies import MSGPACK, QUERY, BadRequest

if TYPE_CHECKING:
    from rllib.env.external.policy_server import PolicyServer

logger = logging.getLogger(__name__)

_BODY_LIMIT = 64 << 20
# Messages of one client that wait in the socket: it needs one.
_MOST_WAITING = 2
# Requests that are taken in before their turns are answered.
_MOST_AT_ONCE = 1024
# Peers without the token that are remembered, and get no further answer.
_MOST_REFUSED = 4096
_HEARTBEAT_MS, _SILENCE_MS, _HANDSHAKE_MS = 5_000, 20_000, 10_000
# The last answers may take so long to be sent.
_LINGER_MS = 5_000
# Peers that have asked, and hear of the end; of more, those that have asked last.
_MOST_KNOWN = 1 << 16


class ZeroMQTransport:
    """Carries requests over ZeroMQ (policy_server.Transport).

    Args:
        host, port: where it listens; port 0 takes a free one.
        token: that requests must carry; None: they need none.

    Raises:
        OSError: if it cannot listen there.
    """

    def __init__(self, host: str, port: int, token: str | None):
        self._token = None if token is None else token.encode()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.IPV6, 1),
            (zmq.LINGER, _LINGER_MS),
            (zmq.BACKLOG, 4096),
            (zmq.MAXMSGSIZE, _BODY_LIMIT),
            (zmq.RCVHWM, _MOST_WAITING),
            (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, _SILENCE_MS),
            (zmq.HANDSHAKE_IVL, _HANDSHAKE_MS),
        ):
            self._socket.set(option, value)
        try:
            self._socket.bind(_endpoint(host, port))
        except zmq.ZMQError as error:
            self._close()
            raise OSError(error.errno, os.strerror(error.errno)) from None
        except OSError:
            self._close()
            raise
        self.url = self._socket.get(zmq.LAST_ENDPOINT).decode().rstrip("\0")
        self._bell: int | None = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ringing = threading.Lock()  # while the bell is rung or closed
        self._is_running = self._ends = False
        self._last_answer: tuple[int, Any] | None = None
        self._known: OrderedDict[bytes, None] = OrderedDict()  # peers that have asked
        self._asking: set[bytes] = set()  # and wait for an answer
        self._refused: OrderedDict[bytes, None] = OrderedDict()

    def _close(self) -> None:
        self._socket.close()
        self._context.term()

    # ------------------------------------------------------------------ the thread

    def run(self, server: "PolicyServer") -> None:
        """Serves until `stop`, and frees the port."""
        self._server, self._is_running = server, True
        both = [(self._socket, _POLLIN), (self._bell, _POLLIN)]
        due = now = time.monotonic()
        try:
            ends = False
            while not ends:
                ends = self._ends  # requests that came before are answered
                for ready, _ in zmq_poll(both, max(0, int(1000 * (due - now))) + 1):
                    if ready is self._socket:
                        self._take_requests()
                    else:
                        os.eventfd_read(self._bell)
                server.answer_turns()
                now = time.monotonic()
                if now >= due:
                    due = now + server.look_after_s
                    server.look_after()
        finally:
            with self._ringing:
                os.close(self._bell)
                self._bell = None
            if self._last_answer is not None:
                for peer in self._known:
                    self._answer(peer, *self._last_answer)
            self._close()

    def wake(self) -> None:
        """Has turns answered soon; from any thread."""
        with self._ringing:
            if self._bell is not None:
                os.eventfd_write(self._bell, 1)

    def stop(self, last_answer: tuple[int, Any] | None = None) -> None:
        """Ends `run` (policy_server.Transport)."""
        self._last_answer, self._ends = last_answer, True
        if self._is_running:
            self.wake()
        else:
            self._close()

    # ------------------------------------------------------------------ requests

    def _take_requests(self) -> None:
        """Passes on all requests that have arrived."""
        alone = [(self._socket, _POLLIN)]
        for _ in range(_MOST_AT_ONCE):
            peer, part = self._socket.recv(), self._socket.recv(copy=False)
            is_one = not part.more
            while part.more:
                part = self._socket.recv(copy=False)
            if peer not in self._refused:
                try:
                    self._take(peer, part.bytes if is_one else b"")
                except BadRequest as error:
                    self._answer(peer, error.status, {"error": error.message})
                except Exception as error:  # no message of one peer may end the server of all
                    logger.error("a request failed", exc_info=error)
                    self._reply(peer, 500, {"error": "the server failed; its log says more"})
            if not zmq_poll(alone, 0):
                return

    def _take(self, peer: bytes, message: bytes) -> None:
        """Passes a request on.

        Raises:
            BadRequest: if it is none, or the peer may not ask.
        """
        try:
            token, path, body = _decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(400, f"a request is [token, path, body] in MessagePack: {error}") from None
        path, _, query = path.partition("?")
        needs_token = self._token is not None and path not in self._server.open_paths
        if needs_token and not hmac.compare_digest(token.encode(), self._token):
            self._refuse(peer)
            raise BadRequest(401, "this server needs its token: give it to the client, or set RLLIB_TOKEN")
        if peer in self._asking:
            raise BadRequest(429, "this client waits for the answer to another request")
        route = self._server.route(path)
        given = (query.encode(), QUERY) if route.method == "GET" else (bytes(body), MSGPACK)
        self._asking.add(peer)
        self._known[peer] = None
        self._known.move_to_end(peer)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        self._server.ask(route, *given, partial(self._reply, peer))

    def _refuse(self, peer: bytes) -> None:
        """Leaves further requests of a peer unanswered."""
        self._refused[peer] = None
        if len(self._refused) > _MOST_REFUSED:
            self._refused.popitem(last=False)

    def _reply(self, peer: bytes, status: int, answer: Any) -> None:
        self._asking.discard(peer)
        self._answer(peer, status, answer)

    def _answer(self, peer: bytes, status: int, answer: Any) -> None:
        # Nothing is sent to a peer that is gone, or that does not read its answers.
        self._socket.send(peer, _SNDMORE)
        self._socket.send(_encode((status, answer)), _DONTWAIT)


# As numbers: the operators of zmq's own flags take longer than a call.
_POLLIN, _SNDMORE, _DONTWAIT = int(zmq.POLLIN), int(zmq.SNDMORE | zmq.DONTWAIT), int(zmq.DONTWAIT)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, str, msgspec.Raw]).decode


def _endpoint(host: str, port: int) -> str:
    """The address as ZeroMQ writes it: a socket binds to numbers alone."""
    number = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][4][0]
    return f"tcp://[{number}]:{port}" if ":" in number else f"tcp://{number}:{port}"
