"""Whatever a client sends to a policy server is answered; nothing in it is run, and the next client is not harmed."""

import http.client
import itertools
import json
import pickle

import gymnasium
import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_policy_server import CHOICE, Served

from rllib.client import PolicyClient
from rllib.env.policy_server.policy_server import PolicyServer, PolicyServerOfAgents

JSON, MSGPACK = "application/json", "application/msgpack"
SPACE = gymnasium.spaces.Dict(image=gymnasium.spaces.Box(0, 255, (2, 2), np.uint8), kind=CHOICE)
SEEN = {"image": [[0, 1], [2, 3]], "kind": 2}
PATHS = ["/v1/episodes", "/v1/act", "/v1/log", "/v1/end", "/v1/samples"]
DEEP = b"[" * 50_000
OTHER_PATHS = ["/", "/health", "/v1/spec", "/v1", "/v1/act/", "/v1/act?x=1", "//v1/act", "/v1/%2e%2e", "/v1/weights"]
ANSWERS = {200, 400, 403, 404, 405, 409, 410, 413, 415, 421, 422, 426, 429}

_ids = st.sampled_from(["e", "f", "", "é", "x" * 200, 1, None, "e\n"])
_numbers = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.sampled_from([1e39, -0.0, "1"])
)
_arrays = st.tuples(
    st.sampled_from(["float32", "|u1", "f4,,", "O", "V9", "", 4, None]),
    st.one_of(st.lists(st.integers(-2, 2**40), max_size=3), st.just([2, 2]), st.none()),
    st.one_of(st.binary(max_size=16), st.just(bytes(4)), st.none()),
).map(lambda array: {"$array": list(array)})
_values = st.recursive(
    st.one_of(_numbers, st.text(max_size=4), _arrays, st.just(SEEN)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["image", "kind", "a", "b", "$array", ""]), inner, max_size=3),
    ),
    max_leaves=10,
)


def _fields(**fields):
    """Some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


_items = st.builds(
    lambda right, more: {**right, **more},
    st.sampled_from([{"episode_id": "e", "observation": SEEN}, {"episode_id": "e", "observation": {"a": SEEN}}, {}]),
    _fields(
        episode_id=_ids, observation=_values, reward=_values, info=_values, action=_values, truncated=_values,
        dones=_values, truncateds=_values, other=_values,
    ),
)  # fmt: skip
_wholes = st.one_of(
    _fields(
        items=st.one_of(st.lists(_items, max_size=3), _values), client=_ids, seq=_numbers, episode_id=_ids,
        training_enabled=_values, protocol=_numbers, observation_space=_values, action_space=_values,
    ),
    _values,
)  # fmt: skip


@st.composite
def requests(draw):
    """(method, path, body, content type): fields of any values, damaged bytes, or any bytes."""
    kind = draw(st.sampled_from([JSON, MSGPACK]))
    value = draw(_wholes)
    body = json.dumps(value, default=repr).encode() if kind == JSON else msgspec.msgpack.encode(value)
    if draw(st.booleans()):
        where = draw(st.integers(0, len(body)))
        body = body[:where] + draw(st.binary(max_size=4)) + body[where + draw(st.integers(0, 4)) :]
    body = draw(st.one_of(st.just(body), st.just(body), st.binary(max_size=40), st.just(DEEP)))
    path = draw(st.one_of(st.sampled_from(PATHS), st.sampled_from(PATHS), st.sampled_from(OTHER_PATHS)))
    kind = draw(st.one_of(st.just(kind), st.sampled_from(["application/octet-stream", "text/plain", ""])))
    return draw(st.sampled_from(["POST"] * 9 + ["GET", "PUT"])), path, body, kind


class MakesAFile:
    """Makes a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("kind", [PolicyServer, PolicyServerOfAgents])
@pytest.mark.parametrize("examples", [80, pytest.param(2_000, marks=pytest.mark.slow)])
def test_no_request_is_the_servers_failure(kind, examples, monkeypatch, tmp_path, caplog):
    unpickled = []
    monkeypatch.setattr(pickle, "loads", lambda *_, **__: unpickled.append(1))
    has_several = kind is PolicyServerOfAgents
    seen = {"a": SEEN} if has_several else SEEN
    with Served(kind, (CHOICE, SPACE)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        names = itertools.count()

        def asked(method, path, body, content_type):
            for _ in range(2):
                try:
                    connection.request(method, path, body, {"Content-Type": content_type})
                    response = connection.getresponse()
                    return response.status, response.read()
                except (OSError, http.client.HTTPException):
                    connection.close()  # the server closes one whose body it has not read
            return None, b""

        def answered(method, path, body, content_type):
            status, answer = asked(method, path, body, content_type)
            # There is no policy for clients that act themselves.
            is_known = status in ANSWERS or (status == 503 and path.startswith(("/v1/weights", "/v1/samples")))
            assert is_known or (status is None and len(body) == len(DEEP)), (status, answer, body)
            if status not in (None, 200) and content_type == JSON and method == "POST":
                assert "\n" not in json.loads(answer)["error"]

        def an_episode():
            """An episode of another client is as it was."""
            name = f"right {next(names)}"
            reward = {"a": 1} if has_several else 1
            right = json.dumps({"items": [{"episode_id": name, "observation": seen, "reward": reward}]})
            assert asked("POST", "/v1/episodes", json.dumps({"episode_id": name}), JSON)[0] == 200
            status, answer = asked("POST", "/v1/act", right, JSON)
            assert (status, json.loads(answer)) == (200, {"actions": [{"a": 1}] if has_several else [1]})
            assert asked("POST", "/v1/end", right, JSON)[0] == 200

        an_episode()

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
        @example(("POST", "/v1/act", pickle.dumps(MakesAFile(tmp_path / "run")), MSGPACK))
        @example(("POST", "/v1/act", pickle.dumps(MakesAFile(tmp_path / "run"), 0), JSON))
        @example(("POST", "/v1/act", pickle.dumps(MakesAFile(tmp_path / "run")), "application/octet-stream"))
        @example(("POST", "/v1/act", msgspec.msgpack.encode(msgspec.msgpack.Ext(1, b"x" * 9)), MSGPACK))
        @example(("POST", "/v1/act", msgspec.msgpack.encode({"items": [{"episode_id": "e", "info": {1: 2}}]}), MSGPACK))
        @given(requests())
        def check(request):
            asked("POST", "/v1/episodes", b'{"episode_id": "e"}', JSON)
            answered(*request)

        check()
        an_episode()
        connection.close()
        with PolicyClient(server.env.url) as client:
            assert client.get_action(client.start_episode(), seen) == ({"a": 1} if has_several else 1)
    assert not unpickled and not (tmp_path / "run").exists()
    assert "a request to" not in caplog.text, "the server has logged a failure of its own"
