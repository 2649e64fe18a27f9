"""The limits of a request's size and time, the place of connections, and who gets an answer."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn

from rllib.web import guard
from rllib.web.guard import Guard, server_config

RIGHT = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextlib.contextmanager
def served(app, limit: int | None = None) -> Iterator[int]:
    """The port at which a thread answers with this application."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = server_config(app)
    config.limit_concurrency = limit or config.limit_concurrency
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


async def hello(scope, receive, send):
    """Answers without reading the body."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


async def read_all(scope, receive, send):
    """Answers when the body has been read."""
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] == "http.request":
        await hello(scope, receive, send)


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def answer_to(port: int, *pieces: bytes) -> bytes:
    """All that comes back until the server ends the connection."""
    with connected(port) as connection:
        return said_to(connection, *pieces)


def said_to(connection: socket.socket, *pieces: bytes) -> bytes:
    said = b""
    with contextlib.suppress(ConnectionError):  # it has been ended while something was being sent
        for piece in pieces:
            connection.sendall(piece)
    with contextlib.suppress(ConnectionError):
        while more := connection.recv(65536):
            said += more
    return said


def first_line(connection: socket.socket) -> bytes:
    return connection.recv(65536).partition(b"\r\n")[0]


HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
MANY = b"".join(b"A%d: b\r\n" % number for number in range(20_000))


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: [HEAD + b"A: ", *[b"x" * 50_000] * 4],
        lambda: [HEAD + MANY],
        lambda: [b"GET /" + b"x" * 100_000],
        lambda: [CHUNKED + b"0\r\nA: ", *[b"x" * 50_000] * 4],
        lambda: [CHUNKED + b"0\r\n" + MANY],
        lambda: [CHUNKED + b"1;" + b"x" * 100_000],
    ],
    ids=["one header", "many headers", "path", "one trailer", "many trailers", "chunk extension"],
)
def test_what_is_no_body_has_a_limit(request_of):
    with served(read_all) as port:
        assert answer_to(port, *request_of()).startswith(b"HTTP/1.1 431 ")


def test_bodies_and_headers_below_the_limit_are_taken():
    body = b"x" * 300_000
    pieces = [b"%x\r\n" % len(piece) + piece + b"\r\n" for piece in [b"x"] * 20_000]
    close = HEAD + b"Connection: close\r\nA: " + b"x" * 20_000 + b"\r\n"
    with served(read_all) as port:
        assert answer_to(port, close + b"Content-Length: %d\r\n\r\n" % len(body) + body).startswith(b"HTTP/1.1 200 ")
        chunked = close + b"Transfer-Encoding: chunked\r\n\r\n"
        assert answer_to(port, chunked, *pieces, b"0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


HALVES = [HEAD, HEAD + b"Content-Length: 5\r\n\r\nab", CHUNKED + b"5\r\n"]


@pytest.mark.parametrize("half", [b"", b"\r\n", *HALVES, *(RIGHT + half for half in HALVES)], ids=range(8))
def test_half_a_request_has_a_limited_time(monkeypatch, half):
    monkeypatch.setattr(guard, "HEADERS_S", 0.1)
    monkeypatch.setattr(guard, "BODY_S", 0.1)
    with served(read_all) as port:
        answer = answer_to(port, half)
        assert answer.count(b"HTTP/1.1 408 ") == 1
        assert answer.count(b"HTTP/1.1 200 ") == half.startswith(RIGHT)


def test_a_body_that_nobody_reads_has_a_limited_time(monkeypatch):
    monkeypatch.setattr(guard, "BODY_S", 0.1)
    with served(hello) as port:
        answer = answer_to(port, HEAD + b"Content-Length: 5\r\n\r\nab")
        assert answer.startswith(b"HTTP/1.1 200 ") and b"HTTP/1.1 408 " in answer


def test_an_answer_that_nobody_reads_has_a_limited_time(monkeypatch):
    monkeypatch.setattr(guard, "UNREAD_S", 0.1)
    ended = threading.Event()

    async def endless(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.ensure_future(receive())
        while not gone.done():
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            await asyncio.sleep(0)
        ended.set()

    with served(endless) as port, connected(port) as connection:
        connection.sendall(RIGHT)
        assert ended.wait(60)


@pytest.mark.parametrize("begun", [b"", HEAD, RIGHT + HEAD, RIGHT, HEAD + b"Content-Length: 9\r\n\r\n"], ids=range(5))
def test_connections_that_wait_lock_nobody_out(begun):
    with served(read_all, limit=10) as port, contextlib.ExitStack() as open_ones:
        for _ in range(40):
            waiting = open_ones.enter_context(connected(port))
            waiting.sendall(begun)
            if begun.startswith(RIGHT):
                assert first_line(waiting) == b"HTTP/1.1 200 OK"
        for _ in range(5):
            newcomer = open_ones.enter_context(connected(port))
            newcomer.sendall(RIGHT)
            assert first_line(newcomer) == b"HTTP/1.1 200 OK"


def test_connections_that_are_being_answered_keep_their_place():
    answers, begun = threading.Event(), threading.Semaphore(0)

    async def slow(scope, receive, send):
        begun.release()
        await asyncio.to_thread(answers.wait)
        await hello(scope, receive, send)

    with served(slow, limit=3) as port, contextlib.ExitStack() as open_ones:
        asked = [open_ones.enter_context(connected(port)) for _ in range(3)]
        for one in asked:
            one.sendall(RIGHT)
            assert begun.acquire(timeout=60)
        assert answer_to(port).startswith(b"HTTP/1.1 503 ")
        answers.set()
        assert [first_line(one) for one in asked] == [b"HTTP/1.1 200 OK"] * 3


def test_requests_one_after_the_other_and_in_one_piece_are_all_answered():
    with served(hello) as port:
        last = RIGHT.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        assert answer_to(port, RIGHT * 3 + last).count(b"HTTP/1.1 200 ") == 4
        assert answer_to(port, RIGHT * 1000).count(b"HTTP/1.1 200 ") <= 65
        with connected(port) as connection:
            for _ in range(3):
                connection.sendall(RIGHT[:9])
                connection.sendall(RIGHT[9:])
                assert first_line(connection) == b"HTTP/1.1 200 OK"


def refusal(guard: Guard, *tokens: str, **headers: str) -> int | None:
    named = [(name.encode(), value.encode()) for name, value in headers.items()]
    found = guard.refusal({"headers": named}, tokens)
    return found and found[0]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "localhost:8000"}, None),
        ({"host": "127.0.0.1"}, None),
        ({"host": "[::1]:8000"}, None),
        ({"host": "Box:8000"}, None),
        ({"host": "box.:8000"}, None),
        ({"host": "localhost:8000", "origin": "http://localhost:8000"}, None),
        ({}, 421),
        ({"host": "evil.example"}, 421),
        ({"host": "localhost.evil.example:8000"}, 421),
        ({"host": "[evil]"}, 421),
        ({"host": "localhost:8000", "origin": "http://evil.example"}, 403),
        ({"host": "localhost:8000", "origin": "http://localhost:9000"}, 403),
        ({"host": "localhost:8000", "origin": "null"}, 403),
    ],
)
def test_without_a_token_this_machine_alone_gets_answers(headers, status):
    assert refusal(Guard(None, ["box"]), **headers) == status


def test_a_token_is_all_that_is_needed():
    with_token = Guard("secret")
    elsewhere = {"host": "policy.example", "origin": "https://page.example"}
    assert refusal(with_token, authorization="Bearer secret", **elsewhere) is None
    assert refusal(with_token, "secret", **elsewhere) is None
    for kind in ("bearer", "BEARER"):  # RFC 9110, 11.1
        assert refusal(with_token, authorization=f"{kind} secret", **elsewhere) is None
    for given in ("secret", "Bearer ", "Bearer wrong", "Basic secret"):
        assert refusal(with_token, "", authorization=given, host="localhost") == 401
    assert refusal(with_token, "wrong\udcff", host="localhost") == 401


def test_wrong_tokens_are_answered_slowly_in_the_end(monkeypatch):
    waited = []

    async def sleep(seconds):
        waited.append(seconds)

    monkeypatch.setattr(guard.asyncio, "sleep", sleep)
    with_token = Guard("secret")

    def ask(address, token):
        scope = {"headers": [(b"authorization", b"Bearer " + token)], "client": [address, 5000]}
        refused = with_token.refusal(scope) is not None
        asyncio.run(with_token.slow_down(scope)) if refused else None
        return refused

    assert all(ask("10.0.0.1", b"wrong") for _ in range(10)) and waited == []
    assert ask("10.0.0.1", b"wrong") and waited == [1.0]
    assert ask("10.0.0.2", b"wrong") and waited == [1.0], "another address is not delayed"
    assert not ask("10.0.0.1", b"secret") and ask("10.0.0.1", b"wrong") and waited == [1.0], "it knows the token"


def test_few_addresses_are_remembered():
    with_token = Guard("secret")
    for number in range(5000):
        with_token.refusal({"headers": [], "client": [f"address {number}", 1]})
    assert len(with_token._failures) == 1024
