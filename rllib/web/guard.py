"""Checks of HTTP requests to the policy server and the dashboard: permission, size and time."""

import asyncio
import contextlib
import functools
import hmac
import ipaddress
import itertools
import logging
import resource
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

logger = logging.getLogger(__name__)

MOST_HEADER_BYTES = 32 << 10
HEADERS_S, BODY_S, UNREAD_S = 10.0, 30.0, 60.0
HANDSHAKE_S, _TLS_END_S = 10.0, 1.0
_MOST_CONNECTIONS, _OTHER_DESCRIPTORS, _LOOKED_AT = 16384, 64, 256
_MOST_PIPELINED = 64
_ACCEPTED_AT_ONCE = 16
# Hosts of requests that are remembered.
_KNOWN_HOSTS = 64
_HEADERS, _BODY = "headers", "body"
# After this number of wrong tokens in a row, an address waits for each refusal (seconds).
FAILURES_WITHOUT_DELAY, DELAY_S = 10, 1.0
_MOST_ADDRESSES = 1024


class Guard:
    """Refuses requests that may not be answered.

    With a token, a request needs nothing else. Without one the server is for programs on this machine, and pages in its
    browsers must be kept out: a page of another server names it in Origin, and a page whose name was made to resolve to
    this machine (DNS rebinding) has that name in Host.

    Args:
        token: that a request must carry; None: requests need no token.
        names: host names of this machine, besides addresses and localhost.
    """

    def __init__(self, token: str | None, names: Iterable[str] = ()):
        self._token = None if token is None else token.encode()
        self._names = {"localhost", *(name.lower() for name in names)}
        # Wrong tokens in a row, by address; the address that failed last stands last.
        self._failures: OrderedDict[str, int] = OrderedDict()
        self._is_ours = functools.lru_cache(_KNOWN_HOSTS)(self._names_us)

    def refusal(self, scope: dict[str, Any], tokens: Sequence[str] = ()) -> tuple[int, str] | None:
        """Status and message for a request that may not be answered, else None.

        Args:
            scope: scope of the request in ASGI.
            tokens: tokens that it carries outside of "Authorization: Bearer TOKEN".
        """
        headers = dict(scope["headers"])
        if self._token is not None:
            kind, _, bearer = headers.get(b"authorization", b"").partition(b" ")
            given = [token.encode(errors="replace") for token in tokens] + [bearer] * (kind.lower() == b"bearer")
            if any(hmac.compare_digest(token, self._token) for token in given):
                if self._failures:
                    self._failures.pop(_address(scope), None)
                return None
            self._note_failure(_address(scope))
            return 401, "this server needs its token: the header Authorization: Bearer TOKEN"
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not self._is_ours(host):
            return 421, "this machine has another name: use localhost, its number, or what was given as --host"
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower().partition("://")[2] != host:
            return 403, "pages from elsewhere get no answer; start the server with --token, and send the token"
        return None

    def _note_failure(self, address: str) -> None:
        self._failures[address] = self._failures.pop(address, 0) + 1
        if len(self._failures) > _MOST_ADDRESSES:
            self._failures.popitem(last=False)

    async def slow_down(self, scope: dict[str, Any]) -> None:
        """Delays the refusal of a request whose address has given too many wrong tokens in a row."""
        if self._failures.get(_address(scope), 0) > FAILURES_WITHOUT_DELAY:
            await asyncio.sleep(DELAY_S)

    def _names_us(self, host: str) -> bool:
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if name.rstrip(".") in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _address(scope: dict[str, Any]) -> str:
    """The address that a request comes from, without its port."""
    return (scope.get("client") or ("",))[0]


class LimitedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with limits of size and time, which uvicorn does not have.

    - Headers and all other bytes outside of a body: at most 32 KiB; all headers of a request must arrive within 10 s.
    - A body must arrive within 30 s. The application limits its size: bytes that it does not read stop the reading.
    - At most 64 requests of a connection may wait behind the one that is being answered; a further one closes it.
    - The connection of a client that does not read its answer for 60 s is closed.
    - Beyond `limit_concurrency` connections, a new one replaces the one that would time out first: unfinished requests
      and idle connections do not lock out other clients. If all are being answered, the new one gets 503.
    """

    _part: str | None = _HEADERS  # part of a request that is arriving
    _timed: str | None = None  # part whose time the timer limits
    _timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _waiting_bytes = 0  # number of bytes that arrived since bytes were last passed on

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self._set_timer()
        most, self.limit_concurrency = self.config.limit_concurrency, None  # in place of uvicorn's
        _make_room(self.connections, most, self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._part = None
        self._set_timer()
        self._read_again()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._part = self._part or _HEADERS
        for start in range(0, len(data), MOST_HEADER_BYTES):
            if self.transport.is_closing():
                break
            piece = data[start : start + MOST_HEADER_BYTES]
            self._waiting_bytes += len(piece)
            super().data_received(piece)
            if self._waiting_bytes > MOST_HEADER_BYTES:
                self.refuse(431, f"the headers of a request may have {MOST_HEADER_BYTES} bytes")
        if self.transport.is_closing():
            self._part = None
        self._set_timer()

    def on_message_begin(self) -> None:
        self._part = _HEADERS
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._part, self._waiting_bytes = _BODY, 0
        super().on_headers_complete()
        if len(self.pipeline) > _MOST_PIPELINED:
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        self._waiting_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._part, self._waiting_bytes = None, 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_timer = self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._read_again()
        super().resume_writing()

    def ends_at(self) -> float | None:
        """Time on the loop's clock at which the connection times out; None while a request is answered, or it ends."""
        if self.transport.is_closing():
            return None
        timer = self._timer or self.timeout_keep_alive_task
        return timer and timer.when()

    def _read_again(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _set_timer(self) -> None:
        """Starts the timer of the part that is arriving, unless it runs. Requests in one piece need none."""
        if self._part != self._timed:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._part is not None:
                limit = HEADERS_S if self._part == _HEADERS else BODY_S
                message = f"the {self._part} of a request must arrive within {limit:g} s"
                self._timer = self.loop.call_later(limit, self.refuse, 408, message)
            self._timed = self._part

    def refuse(self, status: int, message: str) -> None:
        """Closes the connection, after an answer to a request that is arriving and has none yet."""
        is_arriving, self._part = self._part is not None, None
        self._set_timer()
        if self.transport.is_closing():
            return
        if is_arriving and (self.cycle is None or self.cycle.response_complete or not self.cycle.response_started):
            self._write_last(status, b"text/plain", message.encode() + b"\n")
        self.transport.close()

    def shutdown(self) -> None:
        if self.transport.is_closing():
            return
        super().shutdown()
        if self.scheme == "https" and self.transport.is_closing():
            # asyncio would wait 30 s for a client that does not read, to end TLS in due form.
            self.loop.call_later(_TLS_END_S, self.transport.abort)

    def answer_ahead(self, status: int, kind: bytes, body: bytes) -> None:
        """Closes the connection if nothing is being answered, with an answer to the request that would come next.

        A client that reads it as the answer to its next request learns why the server no longer listens.
        """
        if self.cycle is not None and self.cycle.response_complete and not self.transport.is_closing():
            self._write_last(status, kind, body)
            self.shutdown()

    def _write_last(self, status: int, kind: bytes, body: bytes) -> None:
        head = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (kind, len(body))
        self.transport.write(STATUS_LINE[status] + head + body)


class Handshake:
    """A connection that was accepted and has not begun TLS; it counts as others do (uvicorn's ServerState).

    Args:
        connections: connections of the server.
        accepted: its socket.
        began: time on the loop's clock.
    """

    scope = None
    _ends = False

    def __init__(self, connections: set, accepted: socket.socket, began: float):
        self._connections, self._socket, self._began = connections, accepted, began
        connections.add(self)

    async def finish(self, loop: asyncio.AbstractEventLoop, make_protocol: Callable, context: ssl.SSLContext) -> None:
        """Hands the connection over to a protocol when TLS has begun, or closes it."""
        try:
            await loop.connect_accepted_socket(
                make_protocol, self._socket, ssl=context, ssl_handshake_timeout=HANDSHAKE_S
            )
        except OSError:  # no TLS, too late, or hung up
            self._socket.close()
        finally:
            self._connections.discard(self)

    def ends_at(self) -> float | None:
        """Time on the loop's clock at which it times out; None if it ends."""
        return None if self._ends else self._began + HANDSHAKE_S

    def refuse(self, status: int, message: str) -> None:
        """Closes the connection; before TLS there is no answer."""
        self.shutdown()

    def shutdown(self) -> None:
        """Closes the connection."""
        self._ends = True
        with contextlib.suppress(OSError):  # it has hung up
            self._socket.shutdown(socket.SHUT_RDWR)


class EncryptedListener:
    """Accepts connections that begin TLS (instead of asyncio's Server).

    asyncio's server reports a connection only once TLS has begun, for which it waits 60 s: silent connections would use
    up the descriptors of the process.

    Args:
        listening: the socket.
        config: settings of the server.
        connections: connections of the server.
        make_protocol: makes the protocol of a connection.
    """

    def __init__(self, listening: socket.socket, config: uvicorn.Config, connections: set, make_protocol: Callable):
        self._loop, self._socket, self._config = asyncio.get_running_loop(), listening, config
        self._connections, self._make_protocol = connections, make_protocol
        self._tasks: set[asyncio.Task] = set()
        listening.setblocking(False)
        self._loop.add_reader(listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors are left
                logger.warning("no connection can be accepted: %s", error)
                self._loop.remove_reader(self._socket.fileno())
                self._loop.call_later(1.0, self._accept_again)
                return
            accepted.setblocking(False)
            handshake = Handshake(self._connections, accepted, self._loop.time())
            _make_room(self._connections, self._config.limit_concurrency, handshake)
            task = self._loop.create_task(handshake.finish(self._loop, self._make_protocol, self._config.ssl))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _accept_again(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Accepts no more."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())

    async def wait_closed(self) -> None:
        """Waits for the connections that have not begun TLS."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _make_room(connections: set, most: int, new: Any) -> None:
    """Closes one of too many connections: that which would time out first, or the new one if all are being answered."""
    if len(connections) > most:
        ends = {each: each.ends_at() for each in itertools.islice(connections, _LOOKED_AT) if each is not new}
        min(filter(ends.get, ends), key=ends.get, default=new).refuse(503, "there are too many connections")


def server_config(app, **settings) -> uvicorn.Config:
    """Configures uvicorn for both servers: with the limits, and without features that they do not use.

    Args:
        app: the ASGI application.
        settings: further arguments of uvicorn.Config.
    """
    return uvicorn.Config(
        app, http=LimitedProtocol, limit_concurrency=most_connections(), lifespan="off", ws="none", access_log=False,
        log_level="warning", server_header=False, **settings,
    )  # fmt: skip


def most_connections() -> int:
    """Number of connections of a server, by the descriptors that the process may have."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if descriptors < 0 else min(_MOST_CONNECTIONS, max(descriptors - _OTHER_DESCRIPTORS, 16))
