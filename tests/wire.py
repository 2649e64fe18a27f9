"""Messages as clients in other languages write them: values, bodies in JSON and MessagePack, HTTP and ZeroMQ in pieces.

A message is a tree of Python's values. `Pairs` is a dict with any keys, which may come twice, and `Literal` stands for
the bytes of one value in both formats. How a tree is written is drawn apart from it: by `random.Random(seed)`.
"""

import contextlib
import json
import random
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st

JSON, MSGPACK = "application/json", "application/msgpack"
# Longest wait for an answer (seconds): a server that hangs fails the test.
PATIENCE_S = 100


class Pairs(NamedTuple):
    """A dict as pairs of keys and values; in JSON keys that are no texts are written as texts."""

    pairs: tuple[tuple[Any, Any], ...]


class Literal(NamedTuple):
    """The bytes of one value."""

    json: bytes
    msgpack: bytes


def _packed(value) -> bytes:
    return msgspec.msgpack.encode(value)


# What other languages write where a number is due.
ODD_NUMBERS = [
    Literal(b"NaN", _packed(float("nan"))),
    Literal(b"Infinity", _packed(float("inf"))),
    Literal(b"-Infinity", _packed(float("-inf"))),
    Literal(b"1e400", _packed(1.7e308)),
    Literal(b"1" * 400, b"\xcf" + b"\xff" * 8),
    Literal(b"9" * 5000, b"\xd3\x80" + bytes(7)),
    Literal(b"9007199254740993", b"\xcf" + (2**53 + 1).to_bytes(8, "big")),
    Literal(b"01", b"\xc1"),
    Literal(b"+1", b"\xd6\xff" + bytes(4)),  # a time
    Literal(b".5", b"\xd4\x07\x00"),  # an extension
    Literal(b"1_000", b"\xcb\x7f\xf8" + bytes(6)),
    Literal(b'"1"', _packed("1")),
    Literal(b'"1.0"', _packed(b"1")),
    Literal(b"1.5", _packed(1.5)),
    Literal(b"-1", _packed(-1)),
    Literal(b"-0.0", _packed(-0.0)),
    Literal(b"1e39", _packed(1e39)),
    Literal(b"true", _packed(True)),
    Literal(b"null", _packed(None)),
    Literal(b"[1]", b"\xdd\x00\x00\x00\x01\x01"),
    Literal(b'{"1": 1}', b"\x81\x91\x01\x01"),  # an array as key
]
ODD_TEXTS = [
    "", "é", "e\u0301", "\u202e", "\U0001f600", "x" * 128, "x" * 129,
    "a\nb", "\x00", "__proto__", "__all__", "$array", "null", "1", " e", "\ufeffe",
    Literal(b'"\\ud800"', b"\xa3\xed\xa0\x80"),  # half of a pair of UTF-16
    Literal(b'"\xff"', b"\xa1\xff"),
    Literal(b"'e'", _packed(b"e")),
    Literal(b"1", _packed(1)),
]  # fmt: skip


def deep(levels: int, kind: str = "list") -> Literal:
    """Lists, or dicts, in one another."""
    if kind == "list":
        return Literal(b"[" * levels + b"1" + b"]" * levels, b"\x91" * levels + b"\x01")
    return Literal(b'{"a":' * levels + b"1" + b"}" * levels, b"\x81\xa1a" * levels + b"\x01")


def colliding_keys(count: int) -> Literal:
    """A dict whose keys are arrays of two integers with one hash; in JSON, which has no such keys, a list of them."""
    prime_1, prime_2, prime_5, most = 11400714785074694791, 14029467366897019727, 2870177450012600261, 2**64

    def rotated(value: int, by: int) -> int:
        return (value << by | value >> (64 - by)) % most

    def mixed(acc: int, lane: int) -> int:  # one step of the hash of tuples (xxHash), in CPython 3.8 and later
        return rotated((acc + lane * prime_2) % most, 31) * prime_1 % most

    inverse_1, inverse_2 = pow(prime_1, -1, most), pow(prime_2, -1, most)
    before = rotated(mixed(mixed(prime_5, 1), 1) * inverse_1 % most, 33)
    keys: list[tuple[int, int]] = []
    first = 0
    while len(keys) < count:
        first += 1
        second = (before - mixed(prime_5, first)) * inverse_2 % most
        if second < 2**61 - 1:  # its hash is itself
            keys.append((first, second))
    assert len(set(map(hash, keys))) == 1
    head = b"\xdf" + count.to_bytes(4, "big")
    return Literal(json.dumps(keys).encode(), head + b"".join(_packed(key) + b"\xc0" for key in keys))


anything = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(width=64), st.text(max_size=3),
        st.sampled_from(ODD_NUMBERS), st.sampled_from(ODD_TEXTS), st.binary(max_size=4),
        st.sampled_from([deep(40), deep(40, "dict"), deep(3000), deep(3000, "dict")]),
        st.just({"$array": ["<f4", [9], b"1234"]}),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(st.tuples(st.one_of(st.text(max_size=2), inner), inner), max_size=3).map(
            lambda pairs: Pairs(tuple(pairs))
        ),
    ),
    max_leaves=6,
)  # fmt: skip


# ---------------------------------------------------------------------- changes of right messages


def paths_in(tree) -> list[tuple]:
    """Paths of all values in a tree of dicts and lists."""
    found: list[tuple] = [()]
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        found += [(key, *path) for path in paths_in(value)]
    return found


def replaced(tree, path: Sequence, change: Callable[[Any], Any]):
    """A tree in which the value at a path is changed."""
    if not path:
        return change(tree)
    key, *rest = path
    if isinstance(tree, dict):
        return {**tree, key: replaced(tree[key], rest, change)}
    return [replaced(value, rest, change) if at == key else value for at, value in enumerate(tree)]


@st.composite
def mistakes(draw, tree):
    """A right message with a change that a client may make by mistake: it need not be wrong."""
    path = draw(st.sampled_from(paths_in(tree)))
    kind = draw(st.sampled_from(["value", "missing", "more", "twice", "null", "wrapped", "text"]))
    other = draw(anything)

    def change(value):
        if isinstance(value, dict) and value:
            key = draw(st.sampled_from(sorted(value)))
            if kind == "missing":
                return {name: each for name, each in value.items() if name != key}
            if kind == "more":
                return {**value, draw(st.sampled_from(["Reward", "done", "", "é", "episodeId"])): other}
            if kind == "twice":
                return Pairs((*value.items(), (key, draw(st.one_of(st.just(value[key]), st.just(other))))))
        if isinstance(value, list) and kind in ("missing", "more", "twice"):
            return value[1:] if kind == "missing" else [*value, *(value[:1] if kind == "twice" else [other])]
        return {"null": None, "wrapped": [value], "text": json.dumps(value, default=repr)}.get(kind, other)

    return replaced(tree, path, change)


# ---------------------------------------------------------------------- bodies


def as_json(tree, seed: int = 0) -> bytes:
    """Writes a tree as JSON: the seed draws the order of keys, white space, escapes, and forms of numbers."""
    rng = random.Random(seed)
    plain = not seed

    def space() -> bytes:
        return b"" if plain else rng.choice([b"", b"", b" ", b"\n", b"\t\r\n "])

    def text(value: str) -> bytes:
        if plain or rng.random() < 0.5:
            return json.dumps(value, ensure_ascii=plain).encode()
        units = value.encode("utf-16-be", "surrogatepass")
        return b'"' + b"".join(b"\\u%02x%02X" % (units[at], units[at + 1]) for at in range(0, len(units), 2)) + b'"'

    def number(value: int | float) -> bytes:
        if plain or value != value or abs(value) > 2**53:
            return json.dumps(value).encode()
        whole = int(value) == value
        forms = ["%r", "%.1f", "%.17e", "%.1fE+0"] + ["%d"] * (whole and (value != 0 or type(value) is int))
        return (rng.choice(forms if whole else ["%r", "%.17e"]) % value).encode()

    def pairs(items: Iterable[tuple[Any, Any]]) -> bytes:
        parts = []
        for key, value in items:
            name = key if isinstance(key, str) else key.json if isinstance(key, Literal) else repr(key)
            name = name if isinstance(name, bytes) and name[:1] == b'"' else text(str(name))
            parts.append(space() + name + space() + b":" + write(value))
        return b"{" + b",".join(parts) + space() + b"}"

    def write(value) -> bytes:
        if isinstance(value, Literal):
            return value.json
        if isinstance(value, Pairs):
            return pairs(value.pairs)
        if isinstance(value, dict):
            items = list(value.items())
            if not plain:
                rng.shuffle(items)
            return pairs(items)
        if isinstance(value, list | tuple):
            return b"[" + b",".join(space() + write(each) for each in value) + space() + b"]"
        if isinstance(value, bool) or value is None:
            return json.dumps(value).encode()
        if isinstance(value, int | float):
            return number(value)
        return text(value if isinstance(value, str) else repr(value))

    return space() + write(tree) + space()


def as_msgpack(tree, seed: int = 0) -> bytes:
    """Writes a tree as MessagePack: the seed draws the order of keys, and which of its forms each value has."""
    rng = random.Random(seed)

    def form(number: int):
        return rng.randrange(number) if seed else 0

    def head(size: int, short: int, most: int, wide: Sequence[int]) -> bytes:
        """First bytes of something with a size: in one byte, or with its size in two or four, if it may be wider."""
        widths = {0xD9: ">BB", 0xC4: ">BB"}
        kinds = [code for code in wide if size < (256 if code in widths else 2**16 if code in _IN_TWO else 2**32)]
        if size < most and form(2) == 0:
            return bytes([short | size])
        code = kinds[form(len(kinds))]
        return struct.pack(widths.get(code, ">BH" if code in _IN_TWO else ">BI"), code, size)

    def number(value: int | float) -> bytes:
        if not seed or value != value or abs(value) > 2**53:
            return _packed(value)
        choices = [struct.pack(">Bd", 0xCB, value)]
        if struct.unpack(">f", struct.pack(">f", value))[0] == value:
            choices.append(struct.pack(">Bf", 0xCA, value))
        if int(value) == value and (value != 0 or type(value) is int):
            choices += [_packed(int(value)), struct.pack(">Bq", 0xD3, int(value))]
            if value >= 0:
                choices.append(struct.pack(">BQ", 0xCF, int(value)))
        return rng.choice(choices)

    def pairs(items: Sequence[tuple[Any, Any]]) -> bytes:
        return head(len(items), 0x80, 16, (0xDE, 0xDF)) + b"".join(write(key) + write(each) for key, each in items)

    def write(value) -> bytes:
        if isinstance(value, Literal):
            return value.msgpack
        if isinstance(value, Pairs):
            return pairs(value.pairs)
        if isinstance(value, dict):
            items = list(value.items())
            if seed:
                rng.shuffle(items)
            return pairs(items)
        if isinstance(value, list | tuple):
            return head(len(value), 0x90, 16, (0xDC, 0xDD)) + b"".join(map(write, value))
        if isinstance(value, str):
            data = value.encode()
            return head(len(data), 0xA0, 32, (0xD9, 0xDA, 0xDB)) + data
        if isinstance(value, bytes):
            return head(len(value), 0, 0, (0xC4, 0xC5, 0xC6)) + value
        if isinstance(value, bool) or value is None:
            return _packed(value)
        return number(value)

    return write(tree)


_IN_TWO = (0xDE, 0xDC, 0xDA, 0xC5)


def written(tree, kind: str, seed: int = 0) -> bytes:
    """A body of this content type."""
    return as_json(tree, seed) if kind.startswith(JSON) else as_msgpack(tree, seed)


# ---------------------------------------------------------------------- HTTP


class Framing(NamedTuple):
    """How a request is put into HTTP.

    Attributes:
        chunks: sizes of the chunks of its body, which take turns; empty: its length is said.
        pieces: sizes of the pieces in which it is sent, which take turns; empty: in one.
        expects: whether the client asks to be told to go on.
        lower: whether names of headers are in small letters.
        closes: whether the connection ends with the answer.
    """

    chunks: tuple[int, ...] = ()
    pieces: tuple[int, ...] = ()
    expects: bool = False
    lower: bool = False
    closes: bool = False


PLAIN = Framing()
framings = st.builds(
    Framing,
    st.one_of(st.just(()), st.lists(st.integers(1, 60), min_size=1, max_size=3).map(tuple)),
    st.one_of(st.just(()), st.just(()), st.lists(st.integers(1, 200), min_size=1, max_size=3).map(tuple)),
    *[st.booleans()] * 3,
)


def http_request(method: str, path: str, body: bytes, kind: str, framing: Framing = PLAIN) -> bytes:
    """The bytes of a request."""
    headers = {"Host": "localhost", "Content-Type": kind}
    if framing.expects:
        headers["Expect"] = "100-continue"
    if framing.closes:
        headers["Connection"] = "close"
    if framing.chunks:
        headers["Transfer-Encoding"] = "chunked"
        parts = in_parts(body, framing.chunks)
        body = b"".join(b"%X;name=value\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    else:
        headers["Content-Length"] = str(len(body))
    lines = [f"{name.lower() if framing.lower else name}: {value}" for name, value in headers.items()]
    return f"{method} {path} HTTP/1.1\r\n".encode("latin-1") + "\r\n".join([*lines, "\r\n"]).encode() + body


def in_parts(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """The data in parts of these sizes, which take turns; in one part without sizes."""
    parts, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)] if sizes else len(data)
        parts.append(data[at : at + size])
        at, turn = at + size, turn + 1
    return parts


class Client:
    """A connection to a server; after its end the next call makes a new one."""

    def __init__(self, port: int):
        self._port, self._socket, self._data = port, None, b""

    def send(self, data: bytes, pieces: Sequence[int] = ()) -> None:
        """Sends bytes in pieces of these sizes, which take turns."""
        if self._socket is None:
            self._socket, self._data = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S), b""
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in in_parts(data, pieces):
            self._socket.sendall(part)

    def receive(self, count: int) -> bytes:
        """That many bytes.

        Raises:
            ConnectionError: if the server closes the connection before.
        """
        while len(self._data) < count:
            part = self._socket.recv(1 << 16)
            if not part:
                raise ConnectionError("the server has closed the connection")
            self._data += part
        data, self._data = self._data[:count], self._data[count:]
        return data

    def answer(self) -> tuple[int, bytes]:
        """Status and body of the next answer; (0, b"") if the server has closed the connection."""
        try:
            return self._answer()
        except ConnectionError:
            self.close()
            return 0, b""

    def _answer(self) -> tuple[int, bytes]:
        raise NotImplementedError

    def cut(self, resets: bool) -> None:
        """Ends the connection, with FIN or with RST."""
        if resets and self._socket is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class HTTPClient(Client):
    """A client that speaks HTTP."""

    def ask(self, method: str, path: str, body: bytes, kind: str = JSON, framing: Framing = PLAIN) -> tuple[int, bytes]:
        """Status and body of the answer to a request; (0, b"") if the server has closed the connection instead."""
        with contextlib.suppress(OSError):  # it has answered, and reads no further
            self.send(http_request(method, path, body, kind, framing), framing.pieces)
        answer = self.answer()
        if framing.closes:
            self.close()
        return answer

    def _answer(self) -> tuple[int, bytes]:
        status = 100
        while status < 200:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += self.receive(1)
            first, *lines = head.split(b"\r\n")
            status = int(first.split()[1])
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        if b"content-length" in headers:
            body = self.receive(int(headers[b"content-length"]))
        else:  # uvicorn's own answer to what is no HTTP, after which it closes the connection
            body = b""
            with contextlib.suppress(ConnectionError):
                while True:
                    body += self.receive(1)
        if headers.get(b"connection", b"").lower() == b"close":
            self.close()
        return status, body


# ---------------------------------------------------------------------- ZeroMQ

_READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"
# What a client says before its first message, and the number of bytes that the server says before its first answer.
HELLO = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32) + bytes([4, len(_READY)]) + _READY
SAID_FIRST = 64 + 2 + len(_READY)


def frame(body: bytes, is_long: bool = False, has_more: bool = False) -> bytes:
    """A frame of ZMTP with a part of a message."""
    if is_long or len(body) > 255:
        return bytes([2 | has_more]) + len(body).to_bytes(8, "big") + body
    return bytes([has_more, len(body)]) + body


def zeromq_request(path: str, body: bytes) -> bytes:
    """The content of the message of a request."""
    return b"\x93\xa0" + as_msgpack(path) + (body or b"\xc0")


class ZeroMQClient(Client):
    """A client that speaks ZeroMQ's protocol."""

    def ask(
        self, method: str, path: str, body: bytes, kind: str = MSGPACK, framing: Framing = PLAIN
    ) -> tuple[int, bytes]:
        """As for HTTP; of the framing only its pieces matter, and `lower`, for a long frame."""
        return self.message(frame(zeromq_request(path, body), is_long=framing.lower), framing.pieces)

    def message(self, frames: bytes, pieces: Sequence[int] = ()) -> tuple[int, bytes]:
        """The answer to these frames."""
        try:
            self.send(frames, pieces)
        except OSError:
            self.close()
            return 0, b""
        return self.answer()

    def send(self, data: bytes, pieces: Sequence[int] = ()) -> None:
        if self._socket is None:
            self._has_greeted = False
            data = HELLO + data
        super().send(data, pieces)

    def _answer(self) -> tuple[int, bytes]:
        if not self._has_greeted:
            self.receive(64)
            self._has_greeted = True
        while True:
            flags, size = self.receive(2)
            if flags & 2:
                size = int.from_bytes(bytes([size]) + self.receive(7), "big")
            content = self.receive(size)
            if not flags & 4:  # a command: READY, PING
                status, answer = msgspec.msgpack.decode(content)
                return status, json.dumps(answer, default=repr).encode()
