"""Clients in other processes: what they are answered, and what happens when they, or the server, go away."""

import contextlib
import http.client
import inspect
import json
import pickle
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
from functools import partial
from types import SimpleNamespace

import gymnasium
import msgspec
import numpy as np
import pytest
import zmq

import rllib.client
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.client import EpisodeLost, PolicyClient, RunEnded
from rllib.env.external import exchange
from rllib.env.external.external_env import AGENT
from rllib.env.external.stream import ExternalStream
from rllib.env.multi_agent.agent_spaces import RESERVED
from rllib.env.policy_server import pending_requests, policy_server
from rllib.env.policy_server.forms import LONGEST_NAME, Item
from rllib.env.policy_server.policy_server import PolicyServer, PolicyServerOfAgents
from rllib.env.policy_server.policy_server_input import PolicyServerInput
from rllib.env.policy_server.served import served_environment
from rllib.env.policy_server.server_settings import ServerSettings
from rllib.env.policy_server.weights import ActionRows, PublishedPolicy
from rllib.env.spaces.supported import LARGEST
from rllib.web import guard

CHOICE, BOX = gymnasium.spaces.Discrete(3), gymnasium.spaces.Box(-1, 1, (2,))


class Served:
    """A server whose turns are noted, and answered by a function of the turn."""

    def __init__(self, kind=PolicyServer, spaces=(CHOICE, BOX), answer=None, port=0, transport="http", **settings):
        self.env = kind(*spaces, ServerSettings("127.0.0.1", port, transport, **settings))
        self.turns, self.answer = [], answer or (lambda turn: turn.answer(dict.fromkeys(turn.step.observations, 1)))
        self.stream = ExternalStream(self.env, 1, "rollout worker 0")
        self.port = int(self.env.url.rpartition(":")[2])
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        for _ in range(200):
            try:
                self.ask("GET", "/health")
                break
            except OSError:
                time.sleep(0.02)

    def _serve(self):
        while not self._ends.is_set():
            self.env.exchange.serve(self._take, 0.05)

    def _take(self, turns):
        for turn in turns:
            self.turns.append(turn)
            self.answer(turn)
        return self._ends.is_set()

    def ask(self, method, path, body=None, headers=None, kind="application/json"):
        if self.env.url.startswith("tcp://"):
            return self.ask_over_zeromq(path, body)
        if self.env.url.startswith("https://"):
            context = ssl._create_unverified_context()
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10, context=context)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": kind, **(headers or {})})
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, json.loads(content) if content[:1] in b"{[" else content

    def ask_over_zeromq(self, path, body=None, token=""):
        with zmq.Context.instance().socket(zmq.DEALER) as peer:
            peer.set(zmq.RCVTIMEO, 10_000)
            peer.connect(self.env.url)
            peer.send(msgspec.msgpack.encode((token, path, body)))
            return tuple(msgspec.msgpack.decode(peer.recv()))

    def close(self):
        self._ends.set()
        self.stream.close()
        self._thread.join(10)
        self.stream._loop.join(10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@pytest.fixture(scope="module", params=["http", "tcp"])
def transport(request):
    return request.param


@pytest.fixture(scope="module")
def served(transport):
    with Served(transport=transport) as server:
        yield server


def item(**more):
    return {"items": [{"episode_id": "e", "observation": [0.5, 0.5], **more}]}


def test_an_episode_of_any_client(served):
    status, answer = served.ask("POST", "/v1/episodes", {"episode_id": "any"})
    assert (status, answer) == (200, {"episode_id": "any"})
    act = {"items": [{"episode_id": "any", "observation": [0, 1], "reward": 0.5, "info": {"lives": 3}}]}
    assert served.ask("POST", "/v1/act", act) == (200, {"actions": [1]})
    log = {"items": [{"episode_id": "any", "observation": [0, 1], "reward": 2, "action": 2}]}
    assert served.ask("POST", "/v1/log", log) == (200, {})
    end = {"items": [{"episode_id": "any", "observation": [1, 1], "reward": 1, "truncated": True}]}
    assert served.ask("POST", "/v1/end", end) == (200, {})
    first, logged, last = served.turns[-3:]
    assert first.is_first and first.step.rewards == {"agent0": 0.5} and first.step.infos == {"agent0": {"lives": 3}}
    assert logged.logged == {"agent0": 2} and logged.step.rewards == {"agent0": 2.0}
    assert last.step.is_over and last.step.truncateds["__all__"] and not last.step.terminateds["__all__"]
    assert served.ask("POST", "/v1/act", act)[0] == 410


def test_messagepack_with_arrays(served, transport):
    served.ask("POST", "/v1/episodes", {"episode_id": "m"})
    seen = {"$array": ["<f4", [2], np.array([0.25, 0.75], np.float32).tobytes()]}
    body = {"items": [{"episode_id": "m", "observation": seen}]}
    if transport == "http":
        body = msgspec.msgpack.encode(body)
    status, answer = served.ask("POST", "/v1/act", body, kind="application/msgpack")
    assert status == 200
    assert (msgspec.msgpack.decode(answer) if transport == "http" else answer) == {"actions": [1]}
    np.testing.assert_array_equal(served.turns[-1].step.observations["agent0"], [0.25, 0.75])


@pytest.mark.parametrize(
    "path, body, status, message",
    [
        ("/v1/act", {"items": []}, 422, "at least one item"),
        ("/v1/act", {"items": [{"episode_id": "e"}]}, 422, "missing required field `observation`"),
        ("/v1/act", {"item": []}, 422, "unknown field `item`"),
        ("/v1/act", item(episode_id="no"), 410, "Episode no not found."),
        ("/v1/act", item(observation=[1, 2, 3]), 400, "needs shape (2,)"),
        ("/v1/act", item(observation="left"), 400, "needs numbers"),
        ("/v1/act", item(reward="much"), 400, "must be a finite number"),
        ("/v1/act", b'{"items": [{"episode_id": "e", "observation": [0, 0], "reward": 1e999}]}', 422, "out of range"),
        ("/v1/act", item(reward=1e300), 400, "of at most"),
        ("/v1/act", {**item(), "client": "c"}, 422, "needs seq"),
        ("/v1/log", item(), 422, "needs the action"),
        ("/v1/log", item(action=3), 400, "action = 3 lies above"),
        ("/v1/act", {"items": 2 * item()["items"]}, 422, "one item of a request"),
        ("/v1/act", item(action=1), 422, "by /v1/log"),
        ("/v1/end", item(action=1), 422, "by /v1/log"),
        ("/v1/act", item(truncated=True), 422, "by /v1/end"),
        ("/v1/log", item(action=1, truncated=True), 422, "by /v1/end"),
        ("/v1/act", item(dones={"agent0": True}), 422, "for several agents"),
        ("/v1/act", item(truncateds={"a": False}), 422, "for several agents"),
        ("/v1/end", item(dones={"__all__": True}), 422, "for several agents"),
        ("/v1/log", item(action=1, dones={"__all__": True}), 422, "for several agents"),
        ("/v1/act", pickle.dumps({"items": []}), 400, "the body is not JSON"),
        ("/v1/act", b"[" * 100_000, 422, "Expected `object`"),
        ("/v1/nothing", {}, 404, "there is no /v1/nothing"),
        ("/v1/spec", {}, 405, "is for GET"),
        ("/v1/episodes", {"episode_id": "e"}, 409, "Episode e is already started"),
    ],
)
def test_a_refused_request_says_why_and_changes_nothing(served, transport, path, body, status, message):
    if transport == "tcp" and (isinstance(body, bytes) or status == 405):
        pytest.skip("of JSON and HTTP alone")
    served.ask("POST", "/v1/episodes", {"episode_id": "e"})
    count = len(served.turns)
    answer = served.ask("POST", path, body)
    assert answer[0] == status and message in answer[1]["error"] and len(served.turns) == count


# A right value of each optional field of an item, for one agent and for several.
MORE = {
    "reward": 0.5, "info": {"lives": 3}, "action": 2, "truncated": True, "dones": {AGENT: True},
    "truncateds": {AGENT: True},
}  # fmt: skip


@pytest.mark.parametrize("name", [each for each in Item.__struct_fields__ if each not in ("episode_id", "observation")])
@pytest.mark.parametrize("path", ["/v1/act", "/v1/log", "/v1/end"])
@pytest.mark.parametrize("several", [False, True])
def test_each_field_of_an_item_is_used_or_refused(transport, several, path, name):
    """Whatever a path leaves out would be lost without a word: the turn is another one, or there is none."""

    def by_agent(value):
        return {AGENT: value} if several else value

    plain = {"observation": by_agent([0.5, 0.5])} | ({"action": by_agent(1)} if path == "/v1/log" else {})
    value = by_agent(MORE[name]) if name in ("reward", "info", "action") else MORE[name]
    with Served(PolicyServerOfAgents if several else PolicyServer, transport=transport) as server:
        told = []
        for number, fields in enumerate((plain, {**plain, name: value})):
            server.ask("POST", "/v1/episodes", {"episode_id": str(number)})
            status, _ = server.ask("POST", path, {"items": [{"episode_id": str(number), **fields}]})
            turn = server.turns[number] if status == 200 else None
            told.append((status, repr(turn and (turn.step, turn.logged))))
        assert told[0][0] == 200 and (told[1] != told[0]), told
        assert told[1][0] in (200, 400, 422) and (told[1][0] == 200) == (len(server.turns) == 2)


def test_other_bodies_and_pages_are_refused(served, transport):
    if transport == "tcp":
        pytest.skip("of HTTP alone")
    assert served.ask("POST", "/v1/act", b"x", kind="text/plain")[0] == 415
    assert served.ask("GET", "/v1/spec", headers={"Origin": "http://elsewhere.example"})[0] == 403
    assert served.ask("GET", "/v1/spec", headers={"Host": "rebound.example"})[0] == 421


def test_a_repeated_request_is_taken_in_once(served):
    served.ask("POST", "/v1/episodes", {"episode_id": "again"})
    body = {"items": [{"episode_id": "again", "observation": [0, 0], "reward": 1}], "client": "c", "seq": 7}
    count = len(served.turns)
    assert [served.ask("POST", "/v1/act", body) for _ in range(3)] == [(200, {"actions": [1]})] * 3
    assert len(served.turns) == count + 1
    assert served.ask("POST", "/v1/act", {**body, "seq": 6})[0] == 409


def test_a_request_that_waits_is_held_and_asked_again(monkeypatch, transport):
    monkeypatch.setattr(pending_requests, "LONG_POLL_S", 0.1)
    held = []
    with Served(transport=transport, answer=held.append) as server, PolicyClient(server.env.url) as client:
        threading.Timer(0.6, lambda: held[0].answer({"agent0": 2})).start()
        episode = client.start_episode()
        assert client.get_action(episode, np.zeros(2)) == 2
        assert len(held) == 1


def test_a_silent_episode_is_given_up_at_its_last_observation(transport):
    with Served(transport=transport, episode_timeout_s=0.3) as server, PolicyClient(server.env.url) as client:
        episode = client.start_episode()
        client.get_action(episode, np.array([0.5, 0.25]))
        for _ in range(200):
            if len(server.turns) == 2:
                break
            time.sleep(0.05)
        last = server.turns[1].step
        assert last.is_over and last.truncateds["__all__"] and server.turns[1].is_void
        np.testing.assert_array_equal(last.observations["agent0"], [0.5, 0.25])
        with pytest.raises(EpisodeLost, match=r"was given up after 0\.3 s of silence; start a new one"):
            client.get_action(episode, np.zeros(2))


def test_an_episode_that_waits_for_the_algorithm_is_not_silent(transport):
    held = []
    server = Served(transport=transport, answer=held.append, episode_timeout_s=0.2)
    with server, PolicyClient(server.env.url) as client:
        threading.Timer(1.2, lambda: held[0].answer({"agent0": 2})).start()
        assert client.get_action(client.start_episode(), np.zeros(2)) == 2
        assert len(held) == 1


def test_the_server_looks_on_after_a_look_that_fails(monkeypatch, transport, caplog):
    looks = []
    monkeypatch.setattr(policy_server, "_REAP_INTERVAL_S", 0.02)
    monkeypatch.setattr(PolicyServer, "_reap_idle", lambda *_: (looks.append(0), {}["no"]))
    with Served(transport=transport) as server:
        assert until(lambda: len(looks) >= 3) and server.ask("GET", "/health")[0] == 200
    assert "could not check its clients for silence" in caplog.text


def test_an_episode_is_there_when_its_client_is_told_to_ask_again(monkeypatch, transport):
    monkeypatch.setattr(pending_requests, "ACTION_TIMEOUT_S", 0.2)
    held = []

    def hold(turn):
        held.append(turn)
        server.env._clients._last_seen["", "e"] = -1e9  # the request has waited for longer than silence may last

    with Served(transport=transport, answer=hold) as server:
        server.ask("POST", "/v1/episodes", {"episode_id": "e"})
        assert server.ask("POST", "/v1/act", item())[0] == 503 and held[0].is_withdrawn
        assert "e" in server.env._episode_table.running


def test_a_refused_request_costs_no_reward(transport):
    with Served(transport=transport) as server, PolicyClient(server.env.url) as client:
        episode = client.start_episode()
        client.log_returns(episode, 2.0)
        for wrong in (np.zeros(3), [float("nan"), 0.0]):
            with pytest.raises(ValueError):
                client.get_action(episode, wrong)
        client.end_episode(episode, np.zeros(2))
        assert server.turns[-1].step.rewards == {"agent0": 2.0}


def test_an_answer_is_not_held_back_by_the_network():
    """Head and body of an answer are two packets: with Nagle's algorithm the second waits 40 ms for the first."""
    with Served() as server, PolicyClient(server.env.url) as client:
        episode = client.start_episode()
        took = []
        for _ in range(30):
            began = time.perf_counter()
            client.get_action(episode, np.zeros(2))
            took.append(time.perf_counter() - began)
        assert min(took) < 0.03


def test_a_token_is_needed(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    with Served(token_file=str(tmp_path / "token")) as server:
        assert server.ask("GET", "/v1/spec")[0] == 401 and server.ask("GET", "/health")[0] == 200
        with pytest.raises(ValueError, match="needs its token"):
            PolicyClient(server.env.url).start_episode()
        with PolicyClient(server.env.url, token="secret") as client:
            assert client.get_action(client.start_episode(), np.zeros(2)) == 1


@pytest.mark.parametrize("token", ["a b", "schl\u00fcssel", "\u5bc6\u94a5", '"50%&?#"', "x" * 9000, "\tline\n"])
@pytest.mark.parametrize("is_given", [False, True])
def test_any_text_is_a_token(transport, monkeypatch, token, is_given):
    monkeypatch.setenv("RLLIB_TOKEN", token)
    server = PolicyServer(CHOICE, BOX, ServerSettings("127.0.0.1", 0, transport))
    with contextlib.closing(server):
        server.open()
        threading.Thread(target=server.run, daemon=True).start()
        monkeypatch.setenv("RLLIB_TOKEN", "wrong" if is_given else token)
        with PolicyClient(server.url, token=token if is_given else None) as client:
            assert client.start_episode("a") == "a"
        with PolicyClient(server.url, token="wrong") as client, pytest.raises(ValueError, match="token"):
            client.start_episode("b")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """PEM files of a certificate for 127.0.0.1 that has signed itself, and of its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl to make a certificate")
    made = tmp_path_factory.mktemp("tls")
    files = made / "server.pem", made / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(files[0]), "-keyout", str(files[1])]
    subprocess.run(command, check=True, capture_output=True)
    return tuple(map(str, files))


def test_requests_are_encrypted(certificate):
    with Served(tls_certificate=certificate[0], tls_key=certificate[1]) as server:
        assert server.env.url.startswith("https://127.0.0.1:")
        with PolicyClient(server.env.url, ca_file=certificate[0]) as client:
            assert client.get_action(client.start_episode(), np.zeros(2)) == 1
        with pytest.raises(ConnectionError, match=r"is not trusted: .*ca_file="):
            PolicyClient(server.env.url).start_episode()


def hangs_up(connection) -> bool:
    """Whether the server closes a connection on which nothing is said."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_connections_without_tls_lock_nobody_out(certificate, monkeypatch):
    """Each takes a descriptor of the process from the moment at which it is accepted."""
    monkeypatch.setattr(guard, "most_connections", lambda: 4)
    with (
        Served(tls_certificate=certificate[0], tls_key=certificate[1]) as server,
        PolicyClient(server.env.url, ca_file=certificate[0]) as client,
        contextlib.ExitStack() as kept,
    ):
        episode = client.start_episode()
        address = "127.0.0.1", server.port
        silent = [kept.enter_context(socket.create_connection(address, timeout=20)) for _ in range(12)]
        assert sum(map(hangs_up, silent[:7])) == 7
        assert client.get_action(episode, np.zeros(2)) == 1
        with PolicyClient(server.env.url, ca_file=certificate[0]) as other:
            assert other.get_action(other.start_episode(), np.zeros(2)) == 1
        plain = kept.enter_context(socket.create_connection(address, timeout=20))
        plain.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        while plain.recv(1000):
            pass


def test_tls_begins_in_time(certificate, monkeypatch):
    monkeypatch.setattr(guard, "HANDSHAKE_S", 0.1)
    with (
        Served(tls_certificate=certificate[0], tls_key=certificate[1]) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as silent,
    ):
        assert hangs_up(silent)


def test_certificates_that_cannot_be_used_are_refused(certificate, tmp_path):
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for settings, error, message in (
        ({"tls_certificate": "missing.pem"}, FileNotFoundError, "not there"),
        ({"tls_key": certificate[1]}, ValueError, "without the tls_certificate"),
        ({"transport": "tcp", "tls_certificate": certificate[0]}, ValueError, "ZeroMQ is not encrypted"),
        ({"tls_certificate": str(wrong)}, ValueError, "cannot be used"),
        ({"tls_certificate": certificate[0]}, ValueError, "cannot be used"),  # without its key
    ):
        with pytest.raises(error, match=message):
            PolicyServer(CHOICE, BOX, ServerSettings("127.0.0.1", 0, **settings)).open()
    with pytest.raises(ValueError, match="ca_file checks the certificate of https"):
        PolicyClient("http://127.0.0.1:9900", ca_file=certificate[0])


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_token_file_is_refused(tmp_path, text):
    (tmp_path / "token").write_text(text)
    with pytest.raises(ValueError, match="is empty: write a token into it"):
        PolicyServer(CHOICE, BOX, ServerSettings("0.0.0.0", 0, token_file=str(tmp_path / "token")))


def test_a_peer_without_the_token_is_refused_once(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    with Served(transport="tcp", token_file=str(tmp_path / "token")) as server:
        assert server.ask_over_zeromq("/v1/spec", token="secret")[0] == 200
        assert server.ask_over_zeromq("/v1/spec", token="wrong")[0] == 401 and server.ask("GET", "/health")[0] == 200
        with zmq.Context.instance().socket(zmq.DEALER) as peer:
            peer.connect(server.env.url)
            for token in ("", "wrong", "secret"):
                peer.send(msgspec.msgpack.encode((token, "/v1/spec", None)))
            assert peer.poll(10_000) and msgspec.msgpack.decode(peer.recv())[0] == 401
            assert server.ask_over_zeromq("/v1/spec", token="secret")[0] == 200  # behind the three
            assert not peer.poll(0)
        with PolicyClient(server.env.url, token="secret") as client:
            assert client.get_action(client.start_episode(), np.zeros(2)) == 1


def test_messages_that_are_no_requests_are_refused():
    with Served(transport="tcp") as server, zmq.Context.instance().socket(zmq.DEALER) as peer:
        peer.connect(server.env.url)
        encode = msgspec.msgpack.encode
        whole = encode(("", "/v1/act", item()))
        messages = b"", b"\xc1", encode("x"), encode(("", "/v1/act")), encode(("", "", None)), encode((0, "/v1/act", 0))
        broken = b"\x93\xa1\xff\xa0\x00", whole[:-1], encode(("", "/v1/act", [[]])), encode(("", "/v1/act", None))
        deep = b"\x93\xa0\xa0" + b"\x91" * 5_000 + b"\xc0", b"\x91" * 5_000
        for parts in [(each,) for each in messages + broken + deep] + [(whole, whole)]:
            peer.send_multipart(parts)
            assert peer.poll(10_000)
            status, answer = msgspec.msgpack.decode(peer.recv())
            assert status in (400, 404, 422) and answer["error"]
        peer.send(b"x" * (65 << 20))  # closes the connection
        assert server.ask("GET", "/health")[0] == 200


def test_a_request_that_fails_ends_itself_alone(monkeypatch):
    with Served(transport="tcp") as server:
        monkeypatch.setattr(server.env, "route", lambda path: {}[path])
        assert server.ask("GET", "/health")[0] == 500
        monkeypatch.undo()
        assert server.ask("GET", "/health")[0] == 200


def test_a_peer_has_one_request_at_a_time():
    held = []
    with Served(transport="tcp", answer=held.append) as server, zmq.Context.instance().socket(zmq.DEALER) as peer:
        peer.connect(server.env.url)
        server.ask("POST", "/v1/episodes", {"episode_id": "e"})
        for _ in range(2):
            peer.send(msgspec.msgpack.encode(("", "/v1/act", item())))
        assert peer.poll(10_000) and msgspec.msgpack.decode(peer.recv())[0] == 429
        assert until(lambda: held)
        held[0].answer({"agent0": 2})
        assert peer.poll(10_000) and msgspec.msgpack.decode(peer.recv()) == [200, {"actions": [2]}]


def message(array) -> dict:
    array = np.asarray(array)
    return {"$array": [array.dtype.str, list(array.shape), array.tobytes()]}


def part(**more):
    """A part of an episode of two steps, as clients that act themselves send it."""
    arrays = {"observations": np.zeros((2, 2), np.float32), "rewards": np.zeros(2), "actions": np.ones(2, np.int64)}
    arrays["action_dist_inputs"] = np.zeros((2, 3), np.float32)
    return {"episode_id": "p", "version": 0, "is_first": True, **{k: message(v) for k, v in arrays.items()}, **more}


def publish(server):
    rows = ActionRows((), np.dtype(np.int64), (3,), 3, None)
    server.env.publish(PublishedPolicy(0, 0, 0, None, rows, b"", {}, {}))


def ask_samples(server, body):
    if server.env.url.startswith("http"):
        status, answer = server.ask("POST", "/v1/samples", msgspec.msgpack.encode(body), kind="application/msgpack")
        return status, answer if isinstance(answer, dict) else msgspec.msgpack.decode(answer)
    return server.ask("POST", "/v1/samples", body)


DAMAGED = 1, None, "x", [], [[1, 2], [3]], {"$array": ["<f4", [], b"\0" * 4]}, [{}, []], [[[]]], {"a": 1}
DAMAGED = *DAMAGED, message(np.zeros(0)), message(np.zeros((2, 3, 1))), message(np.array(["a", "b"])), [None, None]


@pytest.mark.parametrize("field", ["observations", "rewards", "actions", "action_dist_inputs"])
def test_damaged_parts_are_refused(served, field):
    publish(served)
    count = len(served.turns)
    for number, damaged in enumerate(DAMAGED, 1):
        body = {"parts": [part(**{field: damaged})], "client": field, "seq": number}
        status, answer = ask_samples(served, body)
        assert status in (400, 422), (damaged, answer)
    assert len(served.turns) == count


def test_a_departed_client_is_forgotten_with_what_it_has_sent(transport):
    with Served(transport=transport, episode_timeout_s=0.3) as server:
        publish(server)
        end = part(observations=message(np.zeros((1, 2), np.float32)), rewards=[0.0], end="truncated")
        body = {"parts": [end], "client": "c", "seq": 1}
        assert ask_samples(server, body)[0] == 200
        kept = server.env._requests._clients.get("c")
        assert kept is None or kept.batch is None
        assert until(lambda: not server.env._requests._clients and not server.env._chains._newest)


def until(holds):
    end = time.monotonic() + 20
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


def acts(url):
    """Two episodes of a client that asks for actions, and a function that acts in one of them."""
    client = PolicyClient(url)
    episodes = [client.start_episode() for _ in range(2)]
    return episodes, lambda episode: client.get_action(episode, np.zeros(2))


def sends_parts(url):
    """Two episodes of a client that acts itself, and a function that sends a part of one of them."""
    client, begun = PolicyClient(url), set()
    arrays = {"observations": np.zeros((1, 2), np.float32), "rewards": np.zeros(1), "actions": np.ones(1, np.int64)}
    arrays = {name: message(each) for name, each in arrays.items()}
    arrays["action_dist_inputs"] = message(np.zeros((1, 3), np.float32))
    client._connection.close()
    client._connection = rllib.client._PackedHTTPConnection(urllib.parse.urlsplit(url), None, 30.0, None)

    def send(episode):
        part = {"episode_id": episode, "version": 0, "is_first": episode not in begun, **arrays}
        begun.add(episode)
        client._post("/v1/samples", {"parts": [part]})

    return ["a", "b"], send


@pytest.mark.parametrize("client", [acts, sends_parts])
def test_an_episode_of_a_client_that_waits_for_another_is_not_silent(monkeypatch, client):
    """Its clock is that of its client: it stands while a request is unanswered, and starts anew with the answer."""
    ahead_s, looks, held, holds = [0.0], [], [], threading.Event()

    def reap_idle(env):
        looks.append(ahead_s[0])
        env._reap_idle(time.monotonic() + ahead_s[0])

    def looked():
        count = len(looks)
        assert until(lambda: len(looks) >= count + 3)

    monkeypatch.setattr(PolicyServer, "reap_idle", reap_idle)
    monkeypatch.setattr(policy_server, "_REAP_INTERVAL_S", 0.02)
    monkeypatch.setattr(policy_server, "LAST_WORDS_S", 0.2)
    with Served(answer=lambda turn: held.append(turn) if holds.is_set() else turn.answer({"agent0": 1})) as server:
        publish(server)
        episodes, act = client(server.env.url)
        for episode in episodes:
            act(episode)
        holds.set()
        thread = threading.Thread(target=act, args=episodes[:1])
        thread.start()
        assert until(lambda: held)
        ahead_s[0] = 1000.0  # the learner is busy for longer than episode_timeout_s
        looked()
        ahead_s[0] = 0.0
        looked()
        assert set(server.env._episode_table.running) == set(episodes)
        holds.clear()
        held[0].answer({"agent0": 1})
        thread.join(20)
        act(episodes[1])
        ahead_s[0] = 1000.0
        assert until(lambda: not server.env._episode_table.running), "the client asks no more"


def test_wrong_addresses_and_ports(monkeypatch, transport):
    monkeypatch.delenv("RLLIB_TOKEN", raising=False)
    with pytest.raises(ValueError, match="without a token"):
        PolicyServer(CHOICE, BOX, ServerSettings("0.0.0.0", 0))
    in_use = pytest.raises(OSError, match=r'cannot listen on 127.0.0.1:\d+ .*in use.*listen="127.0.0.1:0"')
    with Served(transport=transport) as server, in_use:
        Served(port=server.port, transport=transport)
    wrong = ("nowhere", "http://nowhere", "ftp://host:1", "http://host:65536", "http://host:1/behind/a/proxy")
    for address in (*wrong, "http://user:word@host:1", "http://host:1?a=b", "http://host:1#a", "tcp://host:1/a", ""):
        with pytest.raises(ValueError, match="http://HOST:PORT"):
            PolicyClient(address)
    with pytest.raises(ValueError, match="timeout_s must be at least"):
        PolicyClient("localhost:9900", timeout_s=1)


@pytest.mark.parametrize(
    "port, workers, fits", [(65_535, 1, True), (65_535, 2, False), (65_530, 7, False), (0, 9, True)]
)
@pytest.mark.parametrize("is_function", [False, True])
def test_each_worker_has_a_port(transport, port, workers, fits, is_function):
    config = PPOConfig().environment(observation_space=BOX, action_space=CHOICE).rollouts(num_rollout_workers=workers)
    address = ServerSettings("127.0.0.1", port, transport).address(port)
    if is_function:
        address = partial(PolicyServerInput, address="127.0.0.1", port=port)
    config = config.external(listen=address).to_dict()
    if fits:
        assert served_environment(config).settings.port == port
    else:
        with pytest.raises(ValueError, match=f"num_rollout_workers={workers}: .* largest port"):
            served_environment(config)


NUMBERED = gymnasium.spaces.Dict({1: BOX, 2: BOX})


@pytest.mark.parametrize("kind", ["observation_space", "action_space"])
@pytest.mark.parametrize(
    "space", [NUMBERED, gymnasium.spaces.Dict(a=gymnasium.spaces.Tuple([CHOICE, NUMBERED])), {"left": NUMBERED}]
)
def test_keys_that_clients_cannot_send_are_refused(transport, kind, space):
    """JSON makes texts of them, so that no observation would ever have them."""
    spaces = {"observation_space": BOX, "action_space": CHOICE}
    if isinstance(space, dict):
        spaces = {name: {"left": each} for name, each in spaces.items()}
    config = PPOConfig().environment(**{**spaces, kind: space})
    config.external(listen=ServerSettings("127.0.0.1", 0, transport).address(0))
    with pytest.raises(ValueError, match=f"{kind}=.*has the key 1"):
        served_environment(config.to_dict())


def test_several_agents_and_arrays_of_actions(transport):
    spaces = {"a": gymnasium.spaces.Box(-1, 1, (1,)), "b": CHOICE}, {"a": BOX, "b": BOX}
    given = {"a": np.array([0.5], np.float32), "b": 2}
    server = Served(PolicyServerOfAgents, spaces, lambda turn: turn.answer(given), transport=transport)
    with server, PolicyClient(server.env.url) as client:
        episode = client.start_episode()
        actions = client.get_action(episode, {"a": np.zeros(2), "b": np.zeros(2)})
        assert actions["a"].dtype == np.float32 and actions["a"].tolist() == [0.5] and actions["b"] == 2
        client.log_returns(episode, {"a": 1.0}, None, {"b": True})
        client.log_returns(episode, {"a": 1.0, "b": 3.0})
        client.end_episode(episode, {"a": np.zeros(2)})
        step = server.turns[-1].step
        assert step.rewards == {"a": 2.0, "b": 3.0} and step.terminateds == {"b": True, "__all__": True}


@pytest.mark.parametrize("has_spaces_by_agent", [False, True])
def test_what_a_client_of_several_agents_refuses_changes_nothing(transport, has_spaces_by_agent):
    spaces = tuple(dict.fromkeys("ab", space) for space in (CHOICE, BOX)) if has_spaces_by_agent else (CHOICE, BOX)
    seen = dict.fromkeys("ab", np.zeros(2))
    wrong = [
        (1.0,),
        (None,),
        ({"a": 1.0, "b": np.inf},),
        ({"a": 1.0, "b": 1e10},),
        ({"a": 1.0, "__common__": 1.0},),
        ({"a": 1.0, "x" * 129: 1.0},),
        ({"a": 1.0}, 5),
        ({"a": 1.0}, None, True),
        ({"a": 1.0}, None, {"b": True, 0: True}),
    ]
    wrong += [({"a": 1.0, "c": 1.0},), ({"a": 1.0}, {"c": {}}), ({"a": 1.0}, None, {"c": True})] * has_spaces_by_agent
    with Served(PolicyServerOfAgents, spaces, transport=transport) as server, PolicyClient(server.env.url) as client:
        episode = client.start_episode()
        client.get_action(episode, seen)
        for each in wrong:
            with pytest.raises(ValueError):
                client.log_returns(episode, *each)
        client.log_returns(episode, {"a": 2.0}, {"a": {}}, {"b": True, "__all__": False})
        client.get_action(episode, {"a": np.zeros(2)})
        step = server.turns[-1].step
        assert step.rewards == {"a": 2.0} and step.terminateds == {"b": True, "__all__": False}


def test_a_closed_client_refuses_every_call(transport):
    """Those that it has: a method that is added is found by its parameters' names."""
    given = {"episode_id": "e", "observation": np.zeros(2), "action": 1, "reward": 1.0}
    methods = inspect.getmembers(PolicyClient, inspect.isfunction)
    public = {name: method for name, method in methods if not name.startswith("_") and name != "close"}
    assert {"start_episode", "get_action", "log_action", "log_returns", "end_episode"} < public.keys()
    with Served(transport=transport) as server:
        client = PolicyClient(server.env.url)
        client.get_action(client.start_episode("e"), np.zeros(2))
        client.close()
        requests = server.env._counter.requests
        for name, method in public.items():
            needed = list(inspect.signature(method).parameters.values())[1:]
            arguments = {each.name: given[each.name] for each in needed if each.default is each.empty}
            with pytest.raises(RuntimeError, match=r"this client is closed.*Make another one"):
                getattr(client, name)(**arguments)
        client.close()
        assert server.env._counter.requests == requests


@pytest.mark.parametrize("name", ["multiagent_done_dict", "truncated_dict"])
@pytest.mark.parametrize("flags", [{"__all__": True}, {"__all__": False}, {"agent0": True}, True])
def test_ends_of_agents_where_there_is_one_are_refused(transport, name, flags):
    with Served(transport=transport) as server, PolicyClient(server.env.url) as client:
        episode = client.start_episode()
        client.get_action(episode, np.zeros(2))
        with pytest.raises(ValueError, match=r"have one agent, and end with|are a dict by agent"):
            client.log_returns(episode, 1.0, None, **{name: flags})
        client.log_returns(episode, 2.0, None, {})
        client.end_episode(episode, np.zeros(2))
        assert server.turns[-1].step.rewards == {"agent0": 2.0}


def test_a_client_knows_the_limits_of_the_server():
    assert (rllib.client._LONGEST_NAME, rllib.client._LARGEST_REWARD) == (LONGEST_NAME, LARGEST)
    assert {rllib.client._ALL, rllib.client._COMMON} == set(RESERVED)


@pytest.fixture(scope="module")
def served_agents(transport):
    with Served(PolicyServerOfAgents, (CHOICE, BOX), transport=transport) as server:
        yield server


@pytest.mark.parametrize("action", [{"a": 1}, {"a": 1, "b": 1, "c": 1}, {}])
def test_logged_actions_are_those_of_the_agents_that_are_seen(served_agents, action):
    served_agents.ask("POST", "/v1/episodes", {"episode_id": "logged"})
    seen = {"a": [0, 0], "b": [0, 0]}
    body = {"items": [{"episode_id": "logged", "observation": seen, "action": action, "reward": {"a": 1.0}}]}
    status, answer = served_agents.ask("POST", "/v1/log", body)
    assert status == 422 and "an action for each agent with an observation" in answer["error"]
    assert not served_agents.turns
    body["items"][0]["action"] = {"a": 1, "b": 2}
    assert served_agents.ask("POST", "/v1/log", body) == (200, {})
    assert served_agents.turns.pop().step.rewards == {"a": 1.0}


def test_an_agent_that_has_ended_is_not_seen_again(served_agents):
    served_agents.ask("POST", "/v1/episodes", {"episode_id": "ended"})
    both = {"episode_id": "ended", "observation": {"a": [0, 0], "b": [0, 0]}}
    for more in ({}, {"dones": {"a": True}}):
        assert served_agents.ask("POST", "/v1/act", {"items": [{**both, **more}]})[0] == 200
    status, answer = served_agents.ask("POST", "/v1/act", {"items": [both]})
    assert status == 400 and "agent 'a' has ended in episode ended" in answer["error"]
    assert served_agents.ask("POST", "/v1/act", {"items": [{**both, "observation": {"b": [0, 0]}}]})[0] == 200
    assert served_agents.ask("POST", "/v1/end", {"items": [both]})[0] == 200
    served_agents.turns.clear()


def test_episodes_of_one_request(transport):
    with Served(transport=transport) as server, PolicyClient(server.env.url) as client:
        ids = [client.start_episode() for _ in range(3)]
        client.log_returns(ids[1], 2.0)
        actions = client.get_action(ids, {each: np.zeros(2) for each in ids})
        assert actions == dict.fromkeys(ids, 1)
        assert [turn.step.rewards for turn in server.turns] == [{}, {"agent0": 2.0}, {}]


def test_a_client_waits_for_a_server_that_comes_back(transport):
    server = Served(transport=transport)
    with PolicyClient(server.env.url, retry_s=20) as client:
        client.start_episode()
        client._connection.close()  # without the last answer, as of a server that was killed
        server.close()
        started = threading.Event()

        def come_back():
            time.sleep(0.5)
            again.append(Served(port=server.port, transport=transport))
            started.set()

        again = []
        threading.Thread(target=come_back, daemon=True).start()
        episode = client.start_episode()
        assert started.wait(10) and client.get_action(episode, np.zeros(2)) == 1
        again[0].close()


def test_a_client_gives_up_in_the_end(transport):
    with Served(transport=transport) as server:
        url = server.env.url
    with pytest.raises(ConnectionError, match=r"could not be reached for 0 s"):
        PolicyClient(url, retry_s=0.3).start_episode()


def test_a_client_that_waits_for_a_server_logs_it_once(transport, monkeypatch, caplog):
    with Served(transport=transport) as server:
        url = server.env.url
    monkeypatch.setattr("rllib.client._SILENT_S", 0.05)
    with pytest.raises(ConnectionError):
        PolicyClient(url, retry_s=0.6).start_episode()
    (said,) = [each.getMessage() for each in caplog.records if each.name == "rllib"]
    assert "cannot be reached" in said and url.rpartition("/")[2] in said and "Does it run" in said


def test_a_client_that_speaks_http_to_zeromq_says_so():
    with Served(transport="tcp") as server:
        client = PolicyClient(server.env.url.replace("tcp://", "http://"), retry_s=0)
        with pytest.raises(ConnectionError, match="does not speak HTTP; is it tcp://"):
            client.start_episode()


@pytest.mark.parametrize(
    "error, raised", [(exchange.EpisodeLost("gone"), EpisodeLost), (exchange.RunEnded("gone"), RunEnded)]
)
def test_lost_episodes_and_ended_runs(error, raised, transport):
    server = Served(transport=transport, answer=lambda turn: turn.fail(error))
    with server, PolicyClient(server.env.url) as client, pytest.raises(raised, match="gone"):
        client.get_action(client.start_episode(), np.zeros(2))


def test_the_client_is_one_file_that_needs_numpy_alone(tmp_path):
    shutil.copy(rllib.client.__file__, tmp_path / "policy_client_copy.py")
    code = (
        "import sys, policy_client_copy as c; "
        "names = {name.partition('.')[0] for name in sys.modules}; "
        "print(sorted(names & {'rllib', 'gymnasium', 'msgspec', 'torch', 'runtime'}))"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=tmp_path, timeout=60)
    assert printed.strip() == "[]"


@pytest.fixture
def no_last_words(monkeypatch):
    """The end of a run waits for nobody."""
    monkeypatch.setattr(policy_server, "LAST_WORDS_S", 0.0)


def test_a_client_in_a_long_step_hears_that_the_run_has_ended(transport, no_last_words):
    with Served(transport=transport) as server:
        client = PolicyClient(server.env.url, retry_s=0.0)
        episode = client.start_episode()
        client.get_action(episode, np.zeros(2, np.float32))
    with pytest.raises(RunEnded, match="has ended"):  # nobody listens any more
        client.end_episode(episode, np.zeros(2, np.float32))


def test_a_client_in_a_long_step_hears_it_over_https(certificate, no_last_words):
    with Served(tls_certificate=certificate[0], tls_key=certificate[1]) as server:
        client = PolicyClient(server.env.url, retry_s=0.0, ca_file=certificate[0])
        episode = client.start_episode()
    with pytest.raises(RunEnded, match="has ended"):
        client.get_action(episode, [0, 0])


def test_connections_that_never_asked_for_the_run_get_no_last_answer(no_last_words):
    with Served() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", "/health")
        assert connection.getresponse().read()
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        connection.request("GET", "/health")
        connection.getresponse()


WAITING = """
import sys
from rllib.client import PolicyClient, RunEnded
with PolicyClient(sys.argv[1], retry_s=0.0) as client:
    episode = client.start_episode()
    print("asks", flush=True)
    try:
        client.get_action(episode, [0, 0])
    except RunEnded:
        print("ended")
"""


def test_an_answer_is_read_though_the_server_has_closed_since(transport):
    """The client is stopped as one of a busy machine may be: it runs again when its connection is closed."""
    with Served(transport=transport, answer=lambda turn: None) as server:
        command = [sys.executable, "-c", WAITING, server.env.url]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert client.stdout.readline() == "asks\n"
        while not server.turns:
            time.sleep(0.01)
        client.send_signal(signal.SIGSTOP)
        server.turns[0].fail(exchange.RunEnded("the run has ended"))  # as the worker does
    client.send_signal(signal.SIGCONT)
    printed, _ = client.communicate(timeout=60)
    assert printed == "ended\n"


def test_the_end_does_not_wait_for_clients_that_were_silent(transport, monkeypatch):
    ahead_s, waits = 0.0, []

    def wait(duration_s):
        nonlocal ahead_s
        ahead_s += policy_server.LAST_WORDS_S / 2
        waits.append(duration_s)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s, sleep=wait)
    monkeypatch.setattr(policy_server, "time", clock)
    for silence_s in (0.0, policy_server.LAST_WORDS_S):
        waits.clear()
        with Served(transport=transport) as server:
            server.ask("POST", "/v1/episodes", {"episode_id": "e", "client": "killed", "seq": 1})
            ahead_s += silence_s
        assert bool(waits) == (silence_s == 0)


CLIENT = """
import sys
import gymnasium
from rllib.client import PolicyClient, RunEnded
env = gymnasium.make("CartPole-v1")
with PolicyClient(sys.argv[1]) as client:
    try:
        for seed in range(10**6):
            episode, (observation, _), over = client.start_episode(), env.reset(seed=seed), False
            while not over:
                action = client.get_action(episode, observation)
                observation, reward, terminated, truncated, _ = env.step(action)
                client.log_returns(episode, reward)
                over = terminated or truncated
            client.end_episode(episode, observation, truncated=not terminated)
    except RunEnded:
        print("ended")
"""


@pytest.mark.parametrize(
    "config, listen", [(PPOConfig, "127.0.0.1:0"), (DQNConfig, "127.0.0.1:0"), (PPOConfig, "tcp://127.0.0.1:0")]
)
def test_algorithms_learn_from_clients_in_other_processes(config, listen):
    env = gymnasium.make("CartPole-v1")
    config = config().environment(observation_space=env.observation_space, action_space=env.action_space)
    config.external(listen=listen).rollouts(num_rollout_workers=0)
    config.training(train_batch_size=128).reporting(min_sample_timesteps_per_iteration=200, min_time_s_per_iteration=0)
    with config.build() as algorithm:
        server = algorithm.workers.local_worker().stream.environments[0]
        command = [sys.executable, "-c", CLIENT, server.url]
        clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        for _ in range(600):  # one that starts later than the run ends would wait for another run
            if server.num_clients == 2:
                break
            time.sleep(0.1)
        result = algorithm.train()
        assert result["timesteps_total"] >= 200 and result["episodes_total"] >= 2
        assert all(episode.episode_return == episode.length for episode in algorithm.metrics.episodes)
    for client in clients:
        printed, _ = client.communicate(timeout=60)
        assert printed.strip() == "ended" and client.returncode == 0


def test_listen_goes_without_an_environment():
    with pytest.raises(ValueError, match="leave env out"):
        PPOConfig().environment("CartPole-v1").external(listen="127.0.0.1:0").build()
    config = PPOConfig().environment(observation_space=BOX, action_space=CHOICE)
    for wrong in ("9900", "http://127.0.0.1:9900"):
        with pytest.raises(ValueError, match="HOST:PORT"):
            config.external(listen=wrong).build()
