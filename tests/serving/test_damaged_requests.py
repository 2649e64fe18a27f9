"""Whatever a request holds, it is answered with actions or as a mistake of the client, and does no harm to the next."""

import asyncio
import json

import msgspec
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import example, given, settings
from hypothesis import strategies as st
from serving_support import CARTPOLE, OBSERVATION, AppClient

from rllib import PPOConfig
from tests.envs import SampledEnv

JSON, MSGPACK, RAW = "application/json", "application/msgpack", "application/octet-stream"
SPACE = Dict(image=Box(0, 255, (2, 2), np.uint8), kind=Discrete(3))
RIGHT = {
    "cartpole": {"observation": OBSERVATION},
    "memory": {"observation": OBSERVATION, "state": [[0.0] * 4] * 2, "prev_action": 1, "prev_reward": 1.0},
    "dict": {"observation": {"image": [[0, 1], [2, 3]], "kind": 2}},
}

_dtypes = st.sampled_from(["float32", "<f4", "f4,,", "(,f4", "O", "V9", "float32:", "", 4, None])
_shapes = st.one_of(
    st.lists(st.integers(-2, 2**64 - 1), max_size=3), st.just([4]), st.integers(-2, 5), st.text(max_size=2)
)
_contents = st.one_of(st.binary(max_size=16), st.just(bytes(16)), st.none())
_arrays = st.one_of(
    st.tuples(_dtypes, _shapes, _contents).map(list), st.integers(0, 9), st.lists(st.none(), max_size=4)
).map(lambda array: {"$array": array})
_leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=4),
    st.sampled_from([1e39, -0.0, 2**63, *RIGHT["cartpole"].values(), *RIGHT["memory"].values()]),
)  # fmt: skip
_values = st.recursive(
    st.one_of(_leaves, _arrays),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(st.sampled_from(["image", "kind", "$array", "", "x"]), inner, max_size=3),
    ),
    max_leaves=12,
)
_FIELDS = ["observation", "state", "action_mask", "prev_action", "prev_reward", "explore"]
_FIELDS += [f"{name}s" for name in _FIELDS[:5]] + ["other"]
_lists = st.lists(_values, max_size=3)


def _fields(names, values):
    return st.dictionaries(st.sampled_from(names), values, max_size=4)


_bodies = st.one_of(
    _fields(_FIELDS, _values),
    st.builds(lambda value, more: {"observation": value, **more}, _values, _fields(_FIELDS, _values)),
    st.builds(lambda rows, more: {"observations": rows, **more}, _lists, _fields(_FIELDS[6:], _lists)),
    _values,
)  # fmt: skip


@st.composite
def _requests(draw):
    """(body, content type): fields of any values, a right body with damaged bytes, or any bytes."""
    kind = draw(st.sampled_from([JSON, MSGPACK, RAW]))
    encode = json.dumps if kind == JSON else msgspec.msgpack.encode
    value = draw(st.one_of(_bodies, st.sampled_from(list(RIGHT.values()))))
    body = encode(value, default=repr).encode() if kind == JSON else encode(value)
    if draw(st.booleans()):
        where = draw(st.integers(0, len(body)))
        body = body[:where] + draw(st.binary(max_size=4)) + body[where + draw(st.integers(0, 4)) :]
    return draw(st.one_of(st.just(body), st.binary(max_size=40), st.just(b"[" * 50_000))), kind


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Checkpoints of policies that read different things."""
    found, below = {"cartpole": CARTPOLE}, tmp_path_factory.mktemp("served")
    memory = {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    for name, env, env_config, model in (
        ("memory", "CartPole-v1", {}, memory), ("dict", SampledEnv, {"space": SPACE}, {}),
    ):  # fmt: skip
        config = PPOConfig().environment(env, env_config=env_config).debugging(seed=1)
        with config.training(model={"fcnet_hiddens": [4], **model}).build() as algo:
            found[name] = algo.save(below / name)
    return found


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("examples", [100, pytest.param(5_000, marks=pytest.mark.slow)])
def test_no_request_is_the_servers_failure(sources, name, examples):
    with asyncio.Runner() as runner:

        async def begun():
            return AppClient(sources[name])

        client = runner.run(begun())
        expected = runner.run(client.act(RIGHT[name])).json()

        @settings(max_examples=examples, deadline=None)
        @example((msgspec.msgpack.encode({"observation": {"$array": ["f4,,", [4], bytes(16)]}}), MSGPACK))
        @example((json.dumps({"\nobservation": OBSERVATION}).encode(), JSON))
        @example((json.dumps({"observation": OBSERVATION, "state": [[10**400] * 4] * 2}).encode(), JSON))
        @given(_requests())
        def check(request):
            body, kind = request
            answer = runner.run(client.act(body, content_type=kind))
            assert answer.status in (200, 400, 413, 415, 422), (answer, body)
            assert answer.status == 200 or "\n" not in answer.json()["error"]

        check()
        assert runner.run(client.act(RIGHT[name])).json() == expected
