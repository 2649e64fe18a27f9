"""Requests to a policy server over ZeroMQ, for many small calls.

A client has a DEALER socket. A request is an array of MessagePack, [token, path, body], and its answer [status, body];
the token is "" without one, and the body nil where there is none. A path may end with a query: "/v1/weights?have=3". A
client waits for an answer before it asks again. The server speaks ZeroMQ's protocol itself (rllib/web/zmtp.py).
"""

import asyncio
import hmac
import itertools
import logging
import time
from functools import partial
from typing import Any

import msgspec

from rllib.env.policy_server.loop_transport import LoopTransport
from rllib.web.bodies import MSGPACK, QUERY, BadRequest
from rllib.web.guard import most_connections, server_config
from rllib.web.sockets import listen, url_of
from rllib.web.zmtp import Peer

logger = logging.getLogger(__name__)

_BODY_LIMIT = 64 << 20
# Bytes of a request around its body: token, path and MessagePack's own bytes.
_AROUND_BODY = 64 << 10
# Time limit for sending the last answers (seconds).
_LINGER_S = 5.0
# If there are too many connections, one of this number of oldest ones is closed.
_LOOKED_AT = 256


class ZeroMQTransport(LoopTransport):
    """Carries requests over ZeroMQ (policy_server.Transport, web.zmtp.Owner).

    Args:
        host, port: address to listen on; port 0 takes a free one.
        token: token that requests must carry; None: they need none.

    Raises:
        OSError: if the address cannot be listened on.
    """

    most_bytes = _BODY_LIMIT + _AROUND_BODY

    def __init__(self, host: str, port: int, token: str | None):
        self._token = None if token is None else token.encode()
        listening = listen(host, port)
        url = url_of(host, listening.getsockname()[1], "tcp")
        super().__init__(listening, server_config(None).get_loop_factory(), url)
        self._peers: dict[Peer, None] = {}
        self._most_peers = most_connections()
        self._ends = asyncio.Event()
        self._has_ended, self._last_answer = False, None

    # ------------------------------------------------------------------ the thread

    async def _serve(self) -> None:
        if self._has_ended:
            return
        server = await self._loop.create_server(partial(Peer, self), sock=self._socket)
        await self._ends.wait()
        server.close()
        self._server.answer_requests()
        for peer in list(self._peers):
            if self._last_answer is not None and peer.has_asked:
                self._send(peer, *self._last_answer)
            peer.close()
        until = time.monotonic() + _LINGER_S
        while self._peers and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for peer in list(self._peers):
            peer.drop()

    def stop(self, last_answer: tuple[int, Any] | None = None) -> None:
        """Ends `run` (policy_server.Transport)."""
        self._last_answer, self._has_ended = last_answer, True
        try:
            self._loop.call_soon_threadsafe(self._ends.set)
        except (AttributeError, RuntimeError):  # the loop does not run yet, or no longer
            self._socket.close()

    def _reap_idle(self) -> None:
        super()._reap_idle()
        now = time.monotonic()
        for peer in list(self._peers):
            peer.look_after(now)

    # ------------------------------------------------------------------ connections

    def opened(self, peer: Peer) -> None:
        """Adds a connection; if there are too many, closes the least needed one."""
        self._peers[peer] = None
        if len(self._peers) > self._most_peers:
            some = [each for each in itertools.islice(self._peers, _LOOKED_AT) if not each.is_asking]
            min(some, key=lambda each: (each.has_asked, each.heard), default=peer).drop()

    def closed(self, peer: Peer) -> None:
        """Removes a closed connection."""
        self._peers.pop(peer, None)

    def trusts(self, beginning: bytes) -> bool | None:
        """Whether a request with this beginning carries the token; None: more bytes are needed."""
        if self._token is None:
            return True
        right = b"\x93" + msgspec.msgpack.encode(self._token.decode())
        return hmac.compare_digest(beginning[: len(right)], right) if len(beginning) >= len(right) else None

    def distrust(self, peer: Peer) -> None:
        """Refuses a peer without the token, and leaves its further requests unread."""
        self._send(peer, 401, {"error": _NEEDS_TOKEN})
        peer.refuse()

    # ------------------------------------------------------------------ requests

    def take(self, peer: Peer, message: bytes | None) -> None:
        """Accepts a request."""
        try:
            self._ask(peer, message)
        except BadRequest as error:
            self._send(peer, error.status, {"error": error.message})
        except Exception as error:  # a message of one peer must not end the server
            logger.error("a request failed", exc_info=error)
            self._reply(peer, 500, {"error": "the server failed; its log says more"})

    def _ask(self, peer: Peer, message: bytes | None) -> None:
        """Passes a request to the server.

        Raises:
            BadRequest: if the message is no request.
        """
        if message is None:
            raise BadRequest(400, f"{_FORM}, but this message had several parts")
        try:
            token, path, body = _decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(400, f"{_FORM}: {error}") from None
        path, _, query = path.partition("?")
        if self._token is not None and hmac.compare_digest(token.encode(), self._token):
            peer.is_trusted = True
        elif self._token is not None and path not in self._server.open_paths:
            self.distrust(peer)
            return
        if peer.is_asking:
            raise BadRequest(429, "this client waits for the answer to another request")
        route = self._server.route(path)
        given = (query.encode(), QUERY) if route.method == "GET" else (bytes(body), MSGPACK)
        peer.is_asking = peer.has_asked = True
        self._server.ask(route, *given, partial(self._reply, peer))
        self._answer_soon()

    def _reply(self, peer: Peer, status: int, answer: Any) -> None:
        peer.is_asking = False
        self._send(peer, status, answer)

    def _send(self, peer: Peer, status: int, answer: Any) -> None:
        peer.send(_encode((status, answer)))


_FORM = "a request is [token, path, body] in MessagePack"
_NEEDS_TOKEN = "this server needs its token: give it to the client, or set RLLIB_TOKEN"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, str, msgspec.Raw]).decode
