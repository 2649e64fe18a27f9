"""A run whose clients write in other ways, make mistakes or lose their connections: each is answered, others play on.

An honest client plays scripted episodes beside them. Whatever others send, each of its steps comes to the learner once,
with its reward, and each of its episodes is counted once.
"""

import contextlib
import itertools
import json
import logging
import random
import threading
import time
from collections import Counter
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rllib import DefaultCallbacks, PPOConfig
from rllib.client import PolicyClient, RunEnded
from tests import wire
from tests.wire import JSON, MSGPACK, HTTPClient, ZeroMQClient, written
from tests.witness.reader import reading
from tests.witness.script import BASE, OBSERVATION_SIZE, decoded, observation

HONEST = 63  # serial of the honest client's observations
LENGTH = 4  # steps of an episode of the honest client
SEEN = gymnasium.spaces.Dict(
    at=gymnasium.spaces.Box(-1, 1, (OBSERVATION_SIZE,)),
    bits=gymnasium.spaces.MultiBinary(2),
    kind=gymnasium.spaces.Discrete(3, start=1),
    pair=gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2), gymnasium.spaces.Box(0, 255, (2,), np.uint8)]),
)
CHOSEN = gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(3, start=1), gymnasium.spaces.Box(-1, 1, (2,))])
RIGHT = {"at": [0.0, 0.5, -1.0, 1.0, *[0] * (OBSERVATION_SIZE - 4)], "bits": [0, 1], "kind": 3, "pair": [1, [0, 255]]}
EXAMPLES = [40, pytest.param(1_000, marks=pytest.mark.slow)]
EVERY = [37, pytest.param(1, marks=pytest.mark.slow)]


def value_of(number: int, step: int) -> float:
    """Reward of a step of the honest client."""
    return float(number) + step / 16


class Notes(DefaultCallbacks):
    """Notes the returns of episodes."""

    returns: ClassVar[Counter] = Counter()

    def on_episode_end(self, *, episode, **_):
        self.returns[float(episode.total_reward)] += 1


class Run:
    """A run that trains in a thread, and its honest client in another.

    Args:
        transport: "http" or "tcp".
    """

    def __init__(self, transport: str):
        self.transport = transport
        Notes.returns = self.returns = Counter()
        listen = "127.0.0.1:0" if transport == "http" else "tcp://127.0.0.1:0"
        config = PPOConfig().environment(observation_space=SEEN, action_space=CHOSEN).callbacks(Notes)
        config.external(listen=listen).rollouts(num_rollout_workers=0, rollout_fragment_length=32)
        config.training(train_batch_size=32, sgd_minibatch_size=32, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
        self.algorithm = config.debugging(seed=1).build()
        self.url = self.algorithm.workers.local_worker().stream.environments[0].url
        self.port = int(self.url.rpartition(":")[2])
        self.errors: list[BaseException] = []
        self.rows: Counter = Counter()
        self.ended: list[int] = []
        self._ends = threading.Event()
        self._steps = threading.Semaphore(0)  # that the honest client may make
        self._threads = [threading.Thread(target=self._guarded, args=(each,)) for each in (self._train, self._play)]
        for each in self._threads:
            each.start()

    def _guarded(self, function) -> None:
        try:
            function()
        except BaseException as error:
            self.errors.append(error)
            self._ends.set()

    def _train(self) -> None:
        with reading(self.algorithm) as read:
            while not self._ends.is_set():
                self.algorithm.train()
                for _, columns in read.learned:
                    self._note(columns)
                read.learned.clear()

    def _note(self, columns) -> None:
        for seen, reward in zip(columns["obs"], columns["rewards"]):
            if seen[0] * BASE == HONEST:
                serial, number, _, step = decoded(seen[:OBSERVATION_SIZE])
                assert serial == HONEST and reward == value_of(number, step), (number, step, reward)
                self.rows[number, step] += 1

    def _play(self) -> None:
        with contextlib.suppress(RunEnded), PolicyClient(self.url, retry_s=wire.PATIENCE_S) as client:
            for number in itertools.count():
                episode = client.start_episode(f"honest {number}")
                for step in range(LENGTH):
                    self._steps.acquire()
                    kind, _ = client.get_action(episode, {**RIGHT, "at": observation(HONEST, number, 0, step)})
                    assert kind in (1, 2, 3)
                    client.log_returns(episode, value_of(number, step))
                client.end_episode(episode, {**RIGHT, "at": observation(HONEST, number, 0, LENGTH)})
                self.ended.append(number)
        assert self._ends.is_set(), "the run has ended"

    def check(self) -> None:
        """Each of the honest client's episodes until now came whole and once, and others begin and end."""
        count = len(self.ended)
        self.wait(lambda: len(self.ended) > count)
        ended = list(self.ended)
        steps = [(number, step) for number in ended for step in range(LENGTH)]
        self.wait(lambda: all(map(self.rows.__contains__, steps)))
        assert set(self.rows.values()) == {1}, "a step of the honest client came twice"
        for number in ended:
            assert self.returns[sum(value_of(number, step) for step in range(LENGTH))] == 1, number

    def wait(self, condition) -> None:
        """Waits until it is true."""
        until = time.monotonic() + wire.PATIENCE_S
        while not condition():
            assert not self.errors, self.errors
            assert time.monotonic() < until, "the honest client, or the run, hangs"
            self._steps.release()
            time.sleep(0.001)

    @contextlib.contextmanager
    def client(self):
        """A client; the honest one makes a step or two meanwhile."""
        self._steps.release(2)
        client = (HTTPClient if self.transport == "http" else ZeroMQClient)(self.port)
        try:
            yield client
        finally:
            client.close()

    def close(self) -> None:
        training, playing = self._threads
        self._ends.set()
        self.wait(lambda: not training.is_alive())
        self.algorithm.stop()
        self.wait(lambda: not playing.is_alive())


@pytest.fixture(scope="module", params=["http", "tcp"])
def run(request):
    run = Run(request.param)
    yield run
    run.close()
    assert not run.errors, run.errors


names = (f"intruder {number}" for number in itertools.count())


def steps_of(name: str, training: bool = False) -> list[tuple[str, dict]]:
    """A right episode: (path, body) of its requests."""

    def item(**more):
        return {"items": [{"episode_id": name, "observation": RIGHT, **more}]}

    return [
        ("/v1/episodes", {"episode_id": name, "training_enabled": training, "protocol": 1}),
        ("/v1/act", item()),
        ("/v1/act", item(reward=2, info={"lives": 3})),
        ("/v1/log", item(reward=0.5, info=None, action=[2, [0, -1]])),
        ("/v1/end", item(reward=None, truncated=True, dones={}, truncateds={})),
    ]


def numbered(steps, client: str):
    """The requests with the name of a client, and numbers, so that they may be sent again."""
    return [(path, {**body, "client": client, "seq": number}) for number, (path, body) in enumerate(steps, 1)]


def is_told(status: int, answer: bytes) -> bool:
    """Whether a client is told its mistake, in one line."""
    return 400 <= status < 500 and "\n" not in json.loads(answer)["error"]


kinds = st.sampled_from([JSON, MSGPACK, f"{JSON}; charset=utf-8", "application/x-msgpack"])


@pytest.mark.parametrize("examples", EXAMPLES)
def test_a_right_message_is_right_in_any_writing(run, examples):
    """Numbers as 1.0, keys in any order, escapes, wide forms of MessagePack; in chunks and pieces."""

    @settings(max_examples=examples, deadline=None, derandomize=examples == EXAMPLES[0])
    @given(kinds, st.integers(0, 2**32), wire.framings, st.booleans())
    def check(kind, seed, framing, has_numbers):
        kind = kind if run.transport == "http" else MSGPACK
        name = next(names)
        steps = numbered(steps_of(name, training=True), name) if has_numbers else steps_of(name, training=True)
        with run.client() as client:
            for number, (path, body) in enumerate(steps):
                data = written(body, kind, seed and seed + number)
                status, answer = client.ask("POST", path, data, kind, framing)
                assert status == 200, (path, data, answer)

    check()
    run.check()


@pytest.mark.parametrize("examples", EXAMPLES)
def test_a_mistake_is_told_and_the_episode_goes_on(run, examples, caplog):
    """Missing and unknown fields, nulls, keys given twice, NaN, large numbers, depth: 200 or 4xx, and on it goes."""

    @settings(
        max_examples=examples, deadline=None, derandomize=examples == EXAMPLES[0],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def check(data):
        kind = data.draw(kinds) if run.transport == "http" else MSGPACK
        name, seed = next(names), data.draw(st.integers(0, 2**32))
        steps = steps_of(name)
        if data.draw(st.booleans()):
            steps = numbered(steps, name)
        wrong_at = data.draw(st.integers(0, len(steps) - 1))
        with run.client() as client:
            for number, (path, body) in enumerate(steps):
                if number == wrong_at:
                    wrong = data.draw(wire.mistakes(body))
                    content = written(wrong, kind, seed)
                    status, answer = client.ask("POST", path, content, kind, data.draw(wire.framings))
                    assert status in (0, 200) or is_told(status, answer), (status, answer, path, content)
                    assert status or len(content) > 60_000, (path, content)
                status, answer = client.ask("POST", path, written(body, kind), kind)
                # The changed message may have been another right one: it began, acted in, or ended the episode.
                allowed = {200, 400, 409, 410} if number >= wrong_at else {200}
                assert status in allowed, (status, answer, path, body)

    with caplog.at_level(logging.ERROR):
        check()
    run.check()
    assert not caplog.records, [each.getMessage() for each in caplog.records]


def test_an_unknown_writing_of_a_number_is_told(run):
    kind = JSON if run.transport == "http" else MSGPACK
    name = next(names)
    with run.client() as client:
        begin = steps_of(name)[0]
        assert client.ask("POST", begin[0], written(begin[1], kind), kind)[0] == 200
        for field, odd in itertools.product(("reward", "kind", "bits", "at"), wire.ODD_NUMBERS):
            item = {"episode_id": name, "observation": dict(RIGHT)}
            if field == "reward":
                item["reward"] = odd
            elif field == "kind":
                item["observation"]["kind"] = odd
            else:
                item["observation"][field] = [odd, *RIGHT[field][1:]]
            status, answer = client.ask("POST", "/v1/act", written({"items": [item]}, kind), kind)
            assert status == 200 or is_told(status, answer), (field, odd, status, answer)
    run.check()


def test_keys_that_are_arrays_are_refused_before_they_are_hashed(run):
    """Their hashes can be made equal, so that a dict of them takes time by the square of its size."""
    name, colliding = next(names), wire.colliding_keys(3000)
    with run.client() as client:
        begin, act, *_ = steps_of(name)
        assert client.ask("POST", begin[0], written(begin[1], MSGPACK), MSGPACK)[0] == 200
        for field in ("observation", "info", "action", "reward", "dones"):
            item = {**act[1]["items"][0], field: colliding}
            status, answer = client.ask("POST", "/v1/log", written({"items": [item]}, MSGPACK), MSGPACK)
            assert status == 422 and is_told(status, answer), (field, status, answer)
    run.check()


def part_of(run, name: str) -> dict:
    """A whole episode of two steps, as a client that acts itself sends it."""
    policy = run.algorithm.workers.local_worker().stream.environments[0]._policy
    rows = policy.rows

    def array(shape, dtype) -> dict:
        values = np.zeros(shape, dtype)
        return {"$array": [values.dtype.str, list(shape), values.tobytes()]}

    return {
        "episode_id": name, "version": policy.version, "observations": [RIGHT] * 3, "rewards": [0, 1, 0.5],
        "actions": array((2, *rows.shape), rows.dtype), "action_dist_inputs": array((2, rows.num_dist_inputs), "f4"),
        "is_first": True, "training_enabled": False, "logged": [1], "infos": [[0, {"lives": 3}]], "end": "truncated",
    }  # fmt: skip


@pytest.mark.parametrize("examples", EXAMPLES)
def test_parts_of_clients_that_act_themselves(run, examples, caplog):
    """A right part is taken in any writing of MessagePack; a changed one is taken, or its mistake told."""
    run.wait(lambda: run.rows)  # the policy is published

    @settings(
        max_examples=examples, deadline=None, derandomize=examples == EXAMPLES[0],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data(), st.integers(0, 2**32))
    def check(data, seed):
        name = next(names)
        with run.client() as client:
            wrong = {"client": name, "seq": 1, "parts": [part_of(run, f"{name} a")]}
            wrong = written(data.draw(wire.mistakes(wrong)), MSGPACK, seed)
            status, answer = client.ask("POST", "/v1/samples", wrong, MSGPACK, data.draw(wire.framings))
            assert status == 200 or is_told(status, answer), (status, answer, wrong)
            right = {"client": f"{name} b", "seq": 1, "parts": [part_of(run, f"{name} b")], "have": None}
            status, answer = client.ask("POST", "/v1/samples", written(right, MSGPACK, seed), MSGPACK)
            assert status == 200, answer

    with caplog.at_level(logging.ERROR):
        check()
    run.check()
    assert not caplog.records, [each.getMessage() for each in caplog.records]


ODD_REQUESTS = [
    b"GET /v1/\xe9 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /v1/%ff%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /health HTTP/1.0\r\n\r\n",
    b"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"HEAD /v1/act HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"POST /v1/act HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/act HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /v1/act HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    b"POST /v1/act HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/act HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"POST /v1/act HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nZ\r\n",
    b"POST /v1/act HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    b"Content-Length: 5\r\n\r\n--x--",
    b"POST /v1/act HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v1/act HTTP/1.1\r\nHost: localhost\r\nContent-Type: \xff\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v1/act HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Type: application/json\r\n"
    b"Content-Length: 2\r\n\r\n{}",
    b"GET /v1/weights?have=1.0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /v1/weights?have=%ff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /v1/weights?have=" + b"9" * 5000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /v1/weights?have=1&have=2&x=3 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\r\n\r\n\r\n",
]
ODD_FRAMES = [
    wire.frame(b"part", has_more=True) + wire.frame(b"another"),
    wire.frame(b""),
    wire.frame(b"\x93\xa0\xa7/v1/act"),
    wire.frame(b"\x93\xc0\xc0\xc0"),
    wire.frame(b"\x93\xa0\xa7/v1/act\xc1"),
    wire.frame(b"\x93\xa0\xa8/v1/\xff\xfe\xfd\xc0"),
    wire.frame(b"\x93\xa0\xa7/health\x80"),
    wire.frame(wire.zeromq_request("/v1/weights?have=1.0", b"")),
    wire.frame(wire.zeromq_request("/v1/weights?have=é", b"")),
    wire.frame(b"\x91" * 5000 + b"\x01"),
    wire.frame(b"\xdd\xff\xff\xff\xff"),
    bytes([4, 0]),
    bytes([4, 1, 200]),
    bytes([4, 5]) + b"\x04PING",
    bytes([8, 0]),
    b"\x02" + b"\xff" * 8,
    b"GET / HTTP/1.1\r\n\r\n",
]


def test_what_is_no_request_is_answered_or_ends_its_connection(run, caplog):
    odd = ODD_REQUESTS if run.transport == "http" else ODD_FRAMES
    with caplog.at_level(logging.ERROR):
        for data in odd:
            with run.client() as client:
                with contextlib.suppress(ConnectionError):
                    client.send(data)
                    client.send(_right_question(run))  # something has an answer, or the connection ends
                status, _ = client.answer()
                assert status < 500, (data, status)
    run.check()
    assert not caplog.records, [each.getMessage() for each in caplog.records]


def _right_question(run) -> bytes:
    if run.transport == "http":
        return b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    return wire.frame(wire.zeromq_request("/health", b""))


def test_requests_that_follow_at_once_are_answered_in_order(run):
    """Pipelining; over ZeroMQ, where a client waits for its answer, those that come too early are refused."""
    name = next(names)
    steps = numbered(steps_of(name, training=True), name)
    with run.client() as client:
        if run.transport == "http":
            client.send(b"".join(wire.http_request("POST", path, written(body, JSON), JSON) for path, body in steps))
            answers = [client.answer()[0] for _ in steps]
            assert answers == [200] * len(steps)
        else:
            begin, *acts = [wire.frame(wire.zeromq_request(path, written(body, MSGPACK))) for path, body in steps]
            assert client.message(begin)[0] == 200
            client.send(b"".join(acts))
            assert sorted({client.answer()[0] for _ in acts}) in ([200], [200, 409, 429], [200, 429], [200, 409])
    run.check()


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("side", ["request", "answer"])
def test_a_connection_that_is_cut_at_any_byte(run, side, every):
    """A request is cut after k bytes, of itself or of its answer, and sent again with the same number, for every k."""
    kind = JSON if run.transport == "http" else MSGPACK
    ids, returns = [], run.returns.copy()
    for number in range(5):
        length = None
        k = random.Random(number).randrange(every)
        while length is None or k < length:
            name = next(names)
            ids.append(len(ids))
            steps = numbered(steps_of(name, training=True), name)
            steps[-1][1]["items"][0]["reward"] = 1e6 + 1000 * number + len(ids)  # a return of its own
            with run.client() as client:
                for path, body in steps[:number]:
                    assert client.ask("POST", path, written(body, kind), kind)[0] == 200
            data = _as_sent(run, *steps[number], kind)
            with run.client() as client:
                if side == "request":
                    client.send(data[:k])
                    length = len(data)
                else:
                    client.send(data)
                    length = length or _length_of_answer(run, number)
                    _read(client, min(k, length))
                client.cut(resets=k % 2 == 1)
            with run.client() as client:
                for path, body in steps[number:]:
                    status, answer = client.ask("POST", path, written(body, kind), kind)
                    assert status == 200, (number, k, path, status, answer)
            k += every
    run.check()
    new = [each for each in (run.returns.copy() - returns).elements() if each > 1e5]
    assert len(new) == len(ids) and len(set(new)) == len(ids), "an episode was counted twice, or never"


def _as_sent(run, path: str, body: dict, kind: str) -> bytes:
    if run.transport == "http":
        return wire.http_request("POST", path, written(body, kind), kind)
    return wire.frame(wire.zeromq_request(path, written(body, kind)))


def _length_of_answer(run, number: int) -> int:
    """Least number of bytes that an answer to these requests has."""
    return 70 if run.transport == "http" else wire.SAID_FIRST + 3


def _read(client, count: int) -> None:
    try:
        client.receive(count)
    except ConnectionError as error:
        raise AssertionError("the server has hung up") from error
