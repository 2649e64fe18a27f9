"""Bodies of requests and answers, as JSON, MessagePack or raw arrays, and their errors."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

JSON, MSGPACK, RAW = "application/json", "application/msgpack", "application/octet-stream"
# Of the query of an address, in place of a body.
QUERY = "application/x-www-form-urlencoded"
Receive = Callable[[], Awaitable[dict[str, Any]]]


class BadRequest(Exception):
    """Error for a request that cannot be answered as it asks.

    Args:
        status: status of HTTP.
        message: the rule; joined to one line, since it may contain text of the client.
    """

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status, self.message = status, " ".join(message.split())


class ClientHasGone(Exception):
    """The client of a request has hung up."""


async def read_body(scope: dict[str, Any], receive: Receive, limit: int) -> bytes:
    """Reads the body of a request of at most `limit` bytes.

    Raises:
        BadRequest: for a longer one.
        ClientHasGone: if its client has hung up.
    """
    length = header(scope, b"content-length")
    if length is not None and int(length) > limit:
        raise BadRequest(413, f"a body may have {limit} bytes, but this one has {int(length)}")
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientHasGone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise BadRequest(413, f"a body may have {limit} bytes")
        if not message.get("more_body"):
            return b"".join(parts)


def refuse_costly(body: bytes, kind: str) -> None:
    """Refuses a body, JSON or MessagePack, that would fill the memory or take very long before its form is checked.

    A dict without entries is one byte of MessagePack and 72 in memory. Numbers take 12 times their bytes at most. Keys
    that are arrays become tuples, whose hashes anybody can make equal: a dict of them takes time by the square of its
    size. Texts and bytes have hashes with a secret, and few numbers share one.

    Raises:
        BadRequest: for more than MOST_VALUES, and for arrays as keys of large dicts.
    """
    if kind == JSON:
        # Characters within texts count as well; no sensible text has this many.
        if len(body) > MOST_VALUES and body.count(b"{") + body.count(b"[") + body.count(b'"') // 2 > MOST_VALUES:
            raise _too_many()
    elif len(body) > _MOST_UNREAD:
        _refuse_costly_msgpack(body)


def _refuse_costly_msgpack(body: bytes) -> None:
    """Counts the dicts, lists, texts and bytes; where there are dicts of many entries, looks at all keys as well."""
    at = count = 0
    has_large_dict = False
    while count <= MOST_VALUES and (at := _NUMBERS.match(body, at).end()) < len(body):
        count, first = count + 1, body[at]
        if first in _LARGE_DICTS:
            width = _LARGE_DICTS[first]
            has_large_dict |= int.from_bytes(body[at + 1 : at + 1 + width], "big") > _FEW_KEYS
        at += _size(body, at, first)
    if count > MOST_VALUES:
        raise _too_many()
    if has_large_dict:
        _refuse_array_keys(body)


def _too_many() -> BadRequest:
    return BadRequest(413, f"a body may have {MOST_VALUES:,} dicts, lists and texts: send numbers as arrays")


def _size(body: bytes, at: int, first: int) -> int:
    """Bytes of a value that begins there, without the entries of a list or dict."""
    if first in _SIZED:
        width, more = _SIZED[first]
        return 1 + width + more + int.from_bytes(body[at + 1 : at + 1 + width], "big")
    return 1 + (first & 31 if 0xA0 <= first < 0xC0 else _OTHERS.get(first, 0))


def _refuse_array_keys(body: bytes) -> None:
    """Refuses MessagePack in which a key is an array; ends where the body does, or is malformed."""
    at = steps = 0
    left, is_dict = 1, False  # values of the list or dict that is being read; of a dict, keys as well
    outer: list[tuple[int, bool]] = []
    while at < len(body):
        while not left:
            if not outer:
                return
            left, is_dict = outer.pop()
        steps += 1
        if steps > MOST_VALUES:
            raise _too_many()
        if not is_dict and left >= _RUN and (run := _RUN_OF_NUMBERS.match(body, at)):
            at, left = run.end(), left - _RUN
            continue
        left -= 1
        first = body[at]
        is_array = 0x90 <= first < 0xA0 or first in (0xDC, 0xDD)
        if is_array and is_dict and left % 2:
            raise BadRequest(422, "the keys of a dict are texts, not arrays")
        if is_array or 0x80 <= first < 0x90 or first in _LARGE_DICTS:
            width = {0xDC: 2, 0xDD: 4, **_LARGE_DICTS}.get(first, 0)
            size = int.from_bytes(body[at + 1 : at + 1 + width], "big") if width else first & 15
            outer.append((left, is_dict))
            left, is_dict = (size, False) if is_array else (2 * size, True)
            at += 1 + width
        else:
            number = _NUMBER.match(body, at)
            at = number.end() if number else at + _size(body, at, first)


MOST_VALUES = 1 << 20
# Bodies of MessagePack up to this size (bytes), and dicts of this number of entries, are read in milliseconds.
_MOST_UNREAD, _FEW_KEYS = 16 << 10, 64
# A number, a truth value or nil.
_ONE_NUMBER = rb"(?:[\x00-\x7f\xc0\xc2\xc3\xe0-\xff]|[\xcc\xd0].|[\xcd\xd1]..|[\xca\xce\xd2].{4}|[\xcb\xcf\xd3].{8})"
_NUMBER = re.compile(_ONE_NUMBER, re.DOTALL)
_RUN = 64
_RUN_OF_NUMBERS = re.compile(_ONE_NUMBER + b"{%d}+" % _RUN, re.DOTALL)
# A run of them.
_NUMBERS = re.compile(
    rb"(?:[\x00-\x7f\xc0\xc2\xc3\xe0-\xff]++|[\xcc\xd0].|[\xcd\xd1]..|[\xca\xce\xd2].{4}|[\xcb\xcf\xd3].{8})*+",
    re.DOTALL,
)
# Dicts of more than 15 entries: bytes of their number.
_LARGE_DICTS = {0xDE: 2, 0xDF: 4}
# Texts, bytes and extensions that say their length: bytes of the length, and those of the kind of extension.
_SIZED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1), 0xD9: (1, 0)}
_SIZED |= {0xDA: (2, 0), 0xDB: (4, 0)}
# Bytes behind the first: of short extensions, and of the number of entries of long lists and dicts.
_OTHERS = {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}


def header(scope, name: bytes) -> bytes | None:
    """The value of a header of a request; None without it."""
    for key, value in scope["headers"]:
        if key == name:
            return value
    return None


def content_kind(content_type: bytes) -> str:
    """Reads JSON, MSGPACK or RAW from the header Content-Type.

    Raises:
        BadRequest: for other types, which include all types that a page may send without a preflight request (CORS).
    """
    kind = _KINDS.get(content_type.partition(b";")[0].strip().lower())
    if kind is None:
        known = f"{JSON} (curl --json does that), {MSGPACK} or {RAW}"
        raise BadRequest(415, f"a body needs the header Content-Type: {known}")
    return kind


_KINDS = {kind.encode(): kind for kind in (JSON, MSGPACK, RAW)} | {b"application/x-msgpack": MSGPACK}


def plain(value):
    """Converts arrays, and tuples and dicts of them, to lists and numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    return value


NO_ARRAY = (TypeError, ValueError, OverflowError, RecursionError)
_NAMES = ["bool", "float16", "float32", "float64"]
_NAMES += [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
# By name, "<f4" and "f4". numpy's own parser accepts a whole language, so it is not used on a client's words.
_DTYPES = {word: dtype for dtype in map(np.dtype, _NAMES) for word in (dtype.name, dtype.str, dtype.str[1:])}


def with_arrays(value):
    """Replaces each {"$array": [dtype, shape, bytes]} in a value by an array."""
    if isinstance(value, dict):
        if value.keys() == {"$array"}:
            dtype, shape, data = value["$array"]
            if dtype not in _DTYPES:
                raise ValueError(f"the dtype {dtype!r:.40} is none of {', '.join(_NAMES)}")
            if isinstance(shape, list):  # with sizes as 2.0, where a language has one kind of numbers
                shape = [int(size) if isinstance(size, float) and size.is_integer() else size for size in shape]
            return np.frombuffer(data, _DTYPES[dtype]).reshape(shape)
        return {key: with_arrays(part) for key, part in value.items()}
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        return [with_arrays(part) for part in value]
    return value
