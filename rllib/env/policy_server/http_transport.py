"""Requests to a policy server over HTTP, with bodies in JSON or MessagePack."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import uvicorn

from rllib.env.policy_server.loop_transport import LoopTransport
from rllib.web.bodies import JSON, MSGPACK, QUERY, BadRequest, ClientHasGone, Receive, content_kind, header, read_body
from rllib.web.guard import EncryptedListener, Guard, server_config
from rllib.web.sockets import listen, url_of

_BODY_LIMIT = 64 << 20
# Time for which idle connections are kept (seconds); the end of the run is sent through them.
_KEPT_S = 300
_ENCODE = {JSON: msgspec.json.Encoder().encode, MSGPACK: msgspec.msgpack.Encoder().encode}
_HEADERS = {
    401: [(b"www-authenticate", b"Bearer")],
    426: [(b"upgrade", b"rllib")],
    503: [(b"retry-after", b"1")],
}


class _Server(uvicorn.Server):
    """uvicorn with a last answer to clients that have no request under way."""

    last_answer: tuple[int, Any] | None = None

    async def startup(self, sockets=None) -> None:
        if self.config.ssl is None:
            await super().startup(sockets)
            return
        state = self.server_state
        make = partial(self.config.http_protocol_class, config=self.config, server_state=state, app_state={})
        self.servers = [EncryptedListener(each, self.config, state.connections, make) for each in sockets]
        self.started = True

    async def shutdown(self, sockets=None) -> None:
        if self.last_answer is not None:
            status, answer = self.last_answer
            for connection in list(self.server_state.connections):
                if (connection.scope or {}).get("path", "").startswith("/v1/"):
                    connection.answer_ahead(status, JSON.encode(), _ENCODE[JSON](answer))
        await super().shutdown(sockets)


class HTTPTransport(LoopTransport):
    """Carries requests over HTTP (policy_server.Transport).

    Args:
        host, port: address to listen on; port 0 takes a free one.
        token: token that requests must carry; None: they need none.
        certificate, key: PEM files, for HTTPS; the key may be in the first. None: requests are not encrypted.

    Raises:
        OSError: if the address cannot be listened on; ssl.SSLError (an OSError) if certificate and key are unusable.
    """

    def __init__(self, host: str, port: int, token: str | None, certificate: str | None = None, key: str | None = None):
        encryption = {} if certificate is None else {"ssl_certfile": certificate, "ssl_keyfile": key}
        config = server_config(
            self._app, interface="asgi3", proxy_headers=False, timeout_keep_alive=_KEPT_S, **encryption
        )
        config.load()  # reads the certificate before the port is open
        self._uvicorn = _Server(config)
        listening = listen(host, port)
        url = url_of(host, listening.getsockname()[1], "https" if encryption else "http")
        super().__init__(listening, config.get_loop_factory(), url)
        self._guard = Guard(token)

    def stop(self, last_answer: tuple[int, Any] | None = None) -> None:
        """Ends `run` (policy_server.Transport)."""
        self._uvicorn.last_answer, self._uvicorn.should_exit = last_answer, True
        if self._loop is None:
            self._socket.close()

    async def _serve(self) -> None:
        await self._uvicorn.serve(sockets=[self._socket])

    async def _app(self, scope: dict[str, Any], receive: Receive, send: Callable[[dict], Awaitable[None]]) -> None:
        """The application of ASGI."""
        kind = JSON
        try:
            kind, answered = await self._pass_on(scope, receive)
            status, answer = await answered
        except BadRequest as error:
            status, answer = error.status, {"error": error.message}
        except ClientHasGone:
            return
        kind = kind if status == 200 else JSON
        body = b"" if status == 204 else _ENCODE[kind](answer)
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        headers += _HEADERS.get(status, [])
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _pass_on(self, scope, receive: Receive) -> tuple[str, asyncio.Future]:
        """Passes a request to the server; returns the kind of its answer, and a future of status and answer."""
        path, server = scope["path"], self._server
        if path not in server.open_paths and (refusal := self._guard.refusal(scope)):
            await self._guard.slow_down(scope)
            raise BadRequest(*refusal)
        route = server.route(path, scope["method"])
        kind, given, body = route.kind, QUERY, scope.get("query_string", b"")
        if route.method != "GET":
            kind = given = content_kind(header(scope, b"content-type") or b"")
            if kind not in _ENCODE:
                raise BadRequest(415, f"a body is {JSON} or {MSGPACK}")
            body = await read_body(scope, receive, _BODY_LIMIT)
        answered = self._loop.create_future()
        server.ask(route, body, given, partial(_set, answered))
        self._answer_soon()
        return kind, answered


def _set(answered: asyncio.Future, status: int, answer: Any) -> None:
    if not answered.done():
        answered.set_result((status, answer))
