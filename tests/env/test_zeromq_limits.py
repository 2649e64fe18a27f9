"""Limits of a policy server over ZeroMQ for peers that have not shown the token, and for the protocol itself."""

import socket
import struct

import msgspec
import numpy as np
import pytest
import zmq
from test_policy_server import Served, item

from rllib.client import PolicyClient
from rllib.env.policy_server import zeromq_transport
from rllib.web import zmtp

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
MORE, COMMAND = 1, 4


def frame(body, flags=0):
    return bytes((flags | 2,)) + struct.pack(">Q", len(body)) + body


def connected(server, first=GREETING, ready=READY):
    """A connection that has done its handshake without ZeroMQ's library."""
    peer = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    peer.sendall(first + frame(ready, COMMAND))
    return peer


def all_of(peer):
    """What arrives until the server closes the connection."""
    data = b""
    try:
        while part := peer.recv(1 << 16):
            data += part
    except ConnectionResetError:
        pass
    return data


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text("secret")
    with Served(transport="tcp", token_file=str(token)) as server:
        yield server


def request(token, path="/v1/spec", body=None):
    return msgspec.msgpack.encode((token, path, body))


@pytest.mark.parametrize("size", [0, 1000, 1 << 20])
def test_a_message_has_no_endless_parts(guarded, size):
    """The server closes the connection; it keeps none of the parts."""
    part = frame(b"A" * size, MORE) * max(1, 1000 // (size + 1))
    with connected(guarded) as peer, pytest.raises(ConnectionError):
        for _ in range((64 << 20) // len(part)):
            peer.sendall(part)


def test_a_large_message_needs_the_token_at_its_beginning(guarded):
    large = {"items": [{"episode_id": "e", "observation": [0.5, 0.5], "info": {"text": "x" * (1 << 20)}}]}
    with connected(guarded) as peer:
        peer.sendall(frame(request("wrong", "/v1/act", large))[: 70 << 10])
        assert b"needs its token" in all_of(peer)
    with connected(guarded) as peer:  # which is announced alone
        peer.sendall(b"\x02" + struct.pack(">Q", 60 << 20) + b"\x93\xa6secreT")
        assert b"needs its token" in all_of(peer)
    with PolicyClient(guarded.env.url, token="secret") as client:
        episode = client.start_episode()
        client.log_returns(episode, 1.0, {"text": "x" * (1 << 20)})
        assert client.get_action(episode, np.zeros(2)) == 1


@pytest.mark.parametrize("first, more", [
    (b"GET / HTTP/1.1\r\n\r\n", b""),
    (GREETING[:10] + b"\x01\x00" + GREETING[12:], b""),  # version 1
    (GREETING[:12] + b"PLAIN".ljust(20, b"\0") + bytes(32), b""),
    (GREETING, frame(b"\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB", COMMAND)),
    (GREETING, frame(b"", COMMAND)),
    (GREETING, frame(request("secret"))),  # before the handshake
    (GREETING, frame(READY + bytes(65 << 10), COMMAND)),
    (GREETING, b"\xf8\x00"),
])  # fmt: skip
def test_other_protocols_are_hung_up_on(guarded, first, more):
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=20) as peer:
        peer.sendall(first + more)
        all_of(peer)
    assert guarded.ask_over_zeromq("/v1/spec", token="secret")[0] == 200


def test_what_takes_too_long_is_hung_up_on(guarded, monkeypatch):
    for name in ("HANDSHAKE_S", "MESSAGE_S"):
        monkeypatch.setattr(zmtp, name, 0.0)
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=20) as silent:
        all_of(silent)
    monkeypatch.setattr(zmtp, "HANDSHAKE_S", 20.0)
    for half in (frame(request("secret"))[:-1], frame(b"part", MORE)):
        with connected(guarded) as peer:
            peer.sendall(half)
            all_of(peer)


def test_a_silent_peer_is_asked_for_a_sign_of_life(guarded, monkeypatch):
    monkeypatch.setattr(zmtp, "HEARTBEAT_S", 0.0)
    with connected(guarded) as peer:
        data = b""
        while b"\x04PING" not in data:
            data += peer.recv(1 << 16)
        peer.sendall(frame(b"\x04PING\x00\x00context", COMMAND))
        while b"\x04PONGcontext" not in data:
            data += peer.recv(1 << 16)
        monkeypatch.setattr(zmtp, "SILENCE_S", 0.0)
        all_of(peer)


def test_too_many_connections_lock_nobody_out(monkeypatch):
    monkeypatch.setattr(zeromq_transport, "most_connections", lambda: 4)
    with Served(transport="tcp") as server, PolicyClient(server.env.url) as client:
        episode = client.start_episode()
        silent = [connected(server) for _ in range(10)]
        assert client.get_action(episode, np.zeros(2)) == 1
        with PolicyClient(server.env.url) as other:
            assert other.get_action(other.start_episode(), np.zeros(2)) == 1
        for peer in silent[:6]:
            all_of(peer)
        for peer in silent:
            peer.close()


def test_a_peer_that_reads_no_answers_is_not_listened_to(guarded):
    """Answers do not pile up in the server."""
    with connected(guarded) as peer, pytest.raises(TimeoutError):
        peer.settimeout(1.0)
        for _ in range(10_000):
            peer.sendall(frame(request("secret", "/v1/nothing")) * 200)


def test_several_requests_in_pieces(guarded):
    with connected(guarded) as peer:
        for byte in frame(request("secret")) + frame(request("secret", "/health")):
            peer.sendall(bytes((byte,)))
        data = b""
        while data.count(b"protocol") < 1 or data.count(b"status") < 1:
            data += peer.recv(1 << 16)


def test_one_part_is_what_a_request_has(guarded):
    """A REQ socket puts an empty part before each message."""
    with zmq.Context.instance().socket(zmq.DEALER) as peer:
        peer.connect(guarded.env.url)
        peer.send_multipart([b"", request("secret", "/v1/act", item())])
        assert peer.poll(10_000)
        status, answer = msgspec.msgpack.decode(peer.recv())
        assert status == 400 and "had several parts" in answer["error"]
