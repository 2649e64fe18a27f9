"""The server's side of ZMTP 3, the protocol of ZeroMQ, for requests and answers of one part (rfc.zeromq.org/spec/23).

ZeroMQ's own sockets limit the parts of a message, but not their number, and keep all parts until the last has come: a
peer can make them take all memory before its first message is looked at. Here a message has one part, and its size is
limited by whether the peer has shown the token.
"""

import asyncio
import time
from typing import Protocol

# A message of a peer that has not shown the token, and one of several parts, which is refused (bytes).
MOST_UNTRUSTED_BYTES = 64 << 10
HANDSHAKE_S, MESSAGE_S, UNREAD_S = 10.0, 30.0, 60.0
# A peer that is silent is asked for a sign of life, and dropped without one (seconds).
HEARTBEAT_S, SILENCE_S = 5.0, 20.0
# A peer that was refused reads why within this time (seconds).
_REFUSED_S = 1.0

_GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
_MORE, _LONG, _COMMAND = 1, 2, 4
_READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER\x08Identity\x00\x00\x00\x00"
_PING = b"\x04PING" + int(10 * SILENCE_S).to_bytes(2, "big")
_PARTNERS = (b"DEALER", b"REQ", b"ROUTER")


class Owner(Protocol):
    """Server that the peers belong to."""

    most_bytes: int

    def opened(self, peer: "Peer") -> None:
        """Takes note of a new connection, which it may close."""

    def closed(self, peer: "Peer") -> None:
        """Takes note of the end of a connection."""

    def trusts(self, beginning: bytes) -> bool | None:
        """Whether a message with this beginning carries the token; None: more of it is needed."""

    def distrust(self, peer: "Peer") -> None:
        """Refuses a peer whose message is large and does not carry the token."""

    def take(self, peer: "Peer", message: bytes | None) -> None:
        """Receives a message; None: it had several parts."""


class Peer(asyncio.Protocol):
    """A connection.

    Args:
        owner: of all connections.

    Attributes:
        is_trusted: whether it has shown the token.
        is_asking: whether it waits for an answer.
        has_asked: whether a request of this peer was accepted.
        heard: when something of it arrived (s).
    """

    is_trusted = is_asking = has_asked = False
    _transport: asyncio.Transport
    _minor: int | None = None  # version of the protocol, once the greeting is there
    _is_ready = _has_parts = False
    _size = 0  # of the parts of a message that came before
    _unread: float | None = None  # since then the peer does not read its answers (s)
    _refused: float | None = None  # since then it is not listened to (s)

    def __init__(self, owner: Owner):
        self._owner, self._data, self.heard = owner, bytearray(), time.monotonic()
        # When what is arriving began, which is the handshake at first (s); None: nothing is.
        self._began: float | None = self.heard
        self._pinged = self.heard

    # ------------------------------------------------------------------ of asyncio

    def connection_made(self, transport) -> None:
        self._transport = transport
        transport.write(_GREETING)
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._data.clear()
        self._owner.closed(self)

    def pause_writing(self) -> None:
        self._unread = time.monotonic()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._unread = None
        if self._refused is None:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._refused is not None or self._transport.is_closing():
            return
        self.heard = time.monotonic()
        self._data += data
        try:
            if self._minor is not None or self._greeted():
                self._read_frames()
        except _Wrong:
            self.drop()
        if self._is_ready:
            is_arriving = bool(self._data) or self._has_parts
            self._began = (self._began or self.heard) if is_arriving else None

    # ------------------------------------------------------------------ of the owner

    def send(self, message: bytes) -> None:
        """Sends a message, unless the peer is gone."""
        if not self._transport.is_closing():
            self._transport.write(_frame(0, message))

    def refuse(self) -> None:
        """Leaves all further messages unread, and closes the connection when the peer has had time to read why."""
        self._refused = time.monotonic()
        self._data.clear()
        self._transport.pause_reading()

    def close(self) -> None:
        """Closes the connection, once the peer has what was sent."""
        self._transport.close()

    def drop(self) -> None:
        """Closes the connection at once."""
        self._transport.abort()

    def look_after(self, now: float) -> None:
        """Closes a connection that has taken too long (s), and asks a silent peer for a sign of life."""
        limit = MESSAGE_S if self._is_ready else HANDSHAKE_S
        waits = (self._began, limit), (self._unread, UNREAD_S), (self._refused, _REFUSED_S)
        # Before version 3.1 there are no signs of life.
        silence = (self.heard if self._minor and self._unread is None else None), SILENCE_S
        if any(since is not None and now - since > most for since, most in (*waits, silence)):
            self.drop()
        elif self._is_ready and self._minor and now - max(self.heard, self._pinged) > HEARTBEAT_S:
            self._pinged = now
            self._transport.write(_frame(_COMMAND, _PING))

    # ------------------------------------------------------------------ what arrives

    def _greeted(self) -> bool:
        data = self._data
        if data[:1] not in (b"", b"\xff") or (len(data) > 10 and (data[9] != 0x7F or data[10] < 3)):
            raise _Wrong
        if len(data) < len(_GREETING):
            return False
        if data[12:32] != _GREETING[12:32]:
            raise _Wrong
        self._minor = data[11] if data[10] == 3 else 1
        del data[: len(_GREETING)]
        self._transport.write(_frame(_COMMAND, _READY))
        return True

    def _read_frames(self) -> None:
        data, at = self._data, 0
        while len(data) > at + 1 and self._refused is None and not self._transport.is_closing():
            flags = data[at]
            width = 8 if flags & _LONG else 1
            begin = at + 1 + width
            if len(data) < begin:
                break
            size = int.from_bytes(data[at + 1 : begin], "big")
            if not self._may_have(flags, size, begin):
                break
            if len(data) < begin + size:
                break
            body, at = bytes(memoryview(data)[begin : begin + size]), begin + size
            if flags & _COMMAND:
                self._obey(body)
            elif not self._is_ready:
                raise _Wrong
            else:
                self._take(flags, body)
        if self._refused is None:
            del data[:at]

    def _may_have(self, flags: int, size: int, begin: int) -> bool:
        """Whether a frame of this size may be waited for; False: more must arrive before that is known."""
        if flags & ~(_MORE | _LONG | _COMMAND):
            raise _Wrong
        if size + self._size <= MOST_UNTRUSTED_BYTES:
            return True
        is_whole = not (flags & (_COMMAND | _MORE) or self._has_parts)
        if not is_whole or not self._is_ready or size > self._owner.most_bytes:
            raise _Wrong
        if not self.is_trusted:
            trusts = self._owner.trusts(bytes(self._data[begin : begin + MOST_UNTRUSTED_BYTES]))
            if trusts is None:
                return False
            if not trusts:
                self._owner.distrust(self)
                return False
            self.is_trusted = True
        return True

    def _obey(self, command: bytes) -> None:
        name, more = command[1 : 1 + command[0]] if command else b"", command[1 + command[0] :] if command else b""
        if not self._is_ready:
            if name != b"READY" or not any(_property(b"Socket-Type", kind) in more for kind in _PARTNERS):
                raise _Wrong
            self._is_ready, self._began = True, None
        elif name == b"PING":
            self._transport.write(_frame(_COMMAND, b"\x04PONG" + more[2:18]))
        elif name == b"ERROR":
            raise _Wrong

    def _take(self, flags: int, body: bytes | None) -> None:
        if flags & _MORE or self._has_parts:
            self._has_parts, self._size = bool(flags & _MORE), self._size + len(body) + 1
            if self._has_parts:
                return
            self._size, body = 0, None
        self._began = None
        self._owner.take(self, body)


class _Wrong(Exception):
    """Error for bytes that no peer sends that speaks the protocol and may connect."""


def _frame(flags: int, body: bytes) -> bytes:
    if len(body) < 256:
        return bytes((flags, len(body))) + body
    return bytes((flags | _LONG,)) + len(body).to_bytes(8, "big") + body


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value
