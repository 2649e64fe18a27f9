"""Limits of clients: what they may make a policy server remember, and requests that must not count twice."""

import contextlib
import threading
import time

import gymnasium
import msgspec
import numpy as np
import pytest
from test_policy_server import BOX, CHOICE, Served

from rllib.algorithms.ppo import PPOConfig
from rllib.client import PolicyClient
from rllib.env.external import external_env
from rllib.env.external.exchange import EpisodeLost
from rllib.env.policy_server import clients, http_transport, pending_requests
from rllib.env.policy_server.policy_server import PolicyServerOfAgents
from rllib.web import bodies
from rllib.web.bodies import MSGPACK

SEEN = [0.5, 0.5]


def wait_until(holds, limit_s=20.0):
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, "it has not come to hold"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def served():
    with Served() as server:
        yield server


def begin(server, episode, **more):
    return server.ask("POST", "/v1/episodes", {"episode_id": episode, **more})


def items(episode, **more):
    return {"items": [{"episode_id": episode, "observation": SEEN, **more}]}


# ------------------------------------------------------------------ requests and their numbers


@pytest.mark.parametrize(
    ("path", "changed"), [("/v1/end", {}), ("/v1/log", {}), ("/v1/act", {"reward": 2}), ("/v1/act", {"info": {"a": 1}})]
)
def test_a_number_belongs_to_one_request(served, path, changed):
    episode = f"bound to {path} {changed}"
    begin(served, episode)
    body = {**items(episode, reward=1), "client": episode, "seq": 1}
    first = served.ask("POST", "/v1/act", body)
    count = len(served.turns)
    other = {**items(episode, **{"reward": 1, **changed}), "client": episode, "seq": 1}
    status, answer = served.ask("POST", path, other)
    assert status == 409 and "another request with number 1" in answer["error"] and len(served.turns) == count
    assert served.ask("POST", "/v1/act", body) == first == (200, {"actions": [1]})


def test_a_beginning_is_bound_to_its_number(served):
    body = {"episode_id": "first", "client": "begins", "seq": 1}
    assert served.ask("POST", "/v1/episodes", body)[0] == 200
    assert served.ask("POST", "/v1/episodes", {**body, "episode_id": "second"})[0] == 409
    assert served.ask("POST", "/v1/episodes", body)[0] == 200


def test_a_request_without_a_number_is_withdrawn_when_nobody_samples(monkeypatch):
    monkeypatch.setattr(pending_requests, "ACTION_TIMEOUT_S", 0.1)
    held = []
    with Served(answer=held.append) as server:
        begin(server, "e")
        for count in (1, 2):
            status, answer = server.ask("POST", "/v1/act", items("e", reward=3))
            assert status == 503 and "is train() running?" in answer["error"]
            wait_until(lambda count=count: len(held) == count and held[-1].is_withdrawn)
        assert not any(turn.claim() for turn in held), "the worker may still take one"
        server.answer = lambda turn: turn.answer({"agent0": 2})
        assert server.ask("POST", "/v1/act", items("e", reward=3)) == (200, {"actions": [2]})
        last = server.turns[-1]
        assert last.step.rewards == {"agent0": 3.0} and last.is_first


def test_an_end_without_a_number_stands(monkeypatch):
    monkeypatch.setattr(pending_requests, "ACTION_TIMEOUT_S", 0.1)
    held = []
    with Served(answer=held.append) as server:
        begin(server, "e")
        assert server.ask("POST", "/v1/end", items("e"))[0] == 503
        assert held[0].claim() and not held[0].is_withdrawn
        assert server.ask("POST", "/v1/end", items("e"))[0] == 410


# ------------------------------------------------------------------ turns that are given up in the process


class Waiting(external_env.ExternalEnv):
    """Its turns are taken by the test."""

    def __init__(self):
        super().__init__(CHOICE, BOX)

    def taken(self):
        got = []
        assert self.exchange.serve(lambda turns: got.extend(turns) or True, 10.0)
        (turn,) = got
        return turn


def in_thread(call):
    """Calls a function in a thread; returns the list that gets its result or its exception."""
    got = []

    def run():
        try:
            got.append(call())
        except Exception as error:
            got.append(error)

    threading.Thread(target=run, daemon=True).start()
    return got


def test_a_turn_that_the_worker_has_taken_is_not_withdrawn(monkeypatch):
    """The loop's time is over between the claim and the answer: it gets the answer, and no reward counts twice."""
    monkeypatch.setattr(external_env, "ACTION_TIMEOUT_S", 0.2)
    env = Waiting()
    episode = env.start_episode()
    env.log_returns(episode, 5.0)
    got = in_thread(lambda: env.get_action(episode, np.zeros(2)))
    turn = env.taken()
    assert turn.claim()
    time.sleep(0.25)
    turn.answer({"agent0": 2})
    wait_until(lambda: got)
    assert got == [2] and not turn.is_withdrawn
    got = in_thread(lambda: env.get_action(episode, np.zeros(2)))
    turn = env.taken()
    assert turn.step.rewards == {} and not turn.is_first
    turn.answer({"agent0": 0})
    wait_until(lambda: got)


def test_a_withdrawn_turn_leaves_everything_to_the_next(monkeypatch):
    monkeypatch.setattr(external_env, "ACTION_TIMEOUT_S", 0.05)
    env = Waiting()
    episode = env.start_episode()
    env.log_returns(episode, 5.0, {"lives": 3})
    with pytest.raises(TimeoutError):
        env.get_action(episode, np.zeros(2))
    first = env.taken()
    assert first.is_withdrawn and not first.claim()
    env.log_returns(episode, 1.0, {"lives": 2})
    got = in_thread(lambda: env.get_action(episode, np.zeros(2)))
    turn = env.taken()
    assert turn.step.rewards == {"agent0": 6.0} and turn.step.infos == {"agent0": {"lives": 2}} and turn.is_first
    turn.answer({"agent0": 1})
    wait_until(lambda: got)


def test_an_end_that_nobody_takes_in_stands(monkeypatch):
    monkeypatch.setattr(external_env, "REPORT_TIMEOUT_S", 0.05)
    env = Waiting()
    episode = env.start_episode()
    with pytest.raises(TimeoutError):
        env.end_episode(episode, np.zeros(2))
    turn = env.taken()
    assert turn.step.is_over and turn.claim() and not turn.is_withdrawn
    with pytest.raises(ValueError, match="already completed"):
        env.end_episode(episode, np.zeros(2))


# ------------------------------------------------------------------ what a client can make grow


def test_a_client_has_a_limited_number_of_episodes():
    with Served(max_episodes_per_client=2) as server, PolicyClient(server.env.url) as client:
        first = client.start_episode()
        client.start_episode()
        with pytest.raises(ValueError, match="has 2 episodes under way, and max_episodes_per_client=2: end one"):
            client.start_episode()
        client.get_action(first, np.zeros(2))
        client.end_episode(first, np.zeros(2))
        client.start_episode()
        with PolicyClient(server.env.url) as other:
            other.start_episode()
        assert [begin(server, f"nobody's {number}")[0] for number in range(3)] == [200, 200, 429]


def test_all_clients_together_have_a_limited_number_of_episodes(monkeypatch):
    monkeypatch.setattr(clients, "MOST_EPISODES", 3)
    with Served() as server:
        statuses = [begin(server, str(number), client=f"c{number}", seq=1)[0] for number in range(4)]
        assert statuses == [200, 200, 200, 429]


def test_nothing_is_kept_of_episodes_that_are_over():
    with Served(episode_timeout_s=0.3) as server, PolicyClient(server.env.url) as client:
        ended, lost, untouched = (client.start_episode() for _ in range(3))
        client.get_action([ended, lost], {ended: SEEN, lost: SEEN})
        client.end_episode(ended, SEEN)
        env = server.env
        kept = env._clients
        wait_until(lambda: not kept._last_seen and not kept._num_open)
        assert not (env._episode_table.running or env._newest or env._unanswered)
        assert not (kept._client_of or env._items._agents)
        assert {turn.episode_id for turn in server.turns} == {ended, lost}
        for episode in (lost, untouched):
            status, answer = server.ask("POST", "/v1/act", items(episode))
            assert status == 410 and "was given up after 0.3 s of silence; start a new one" in answer["error"]


def test_lost_episodes_make_room():
    with Served(answer=lambda turn: turn.fail(EpisodeLost("gone")), max_episodes_per_client=1) as server:
        for episode in "abc":
            assert begin(server, episode)[0] == 200
            assert server.ask("POST", "/v1/act", items(episode)) == (409, {"error": "gone", "lost": True})


LONG = "x" * 129


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/episodes", {"client": LONG, "seq": 1}, "client"),
        ("/v1/episodes", {"episode_id": LONG}, "episode_id"),
        ("/v1/act", items(LONG), "episode_id"),
        ("/v1/act", items("e", dones={LONG: True}), "dones"),
        ("/v1/act", {**items("e"), "client": "c", "seq": 2**70}, "seq"),
        ("/v1/act", {**items("e"), "client": "c", "seq": -1}, "seq"),
    ],
)
def test_names_and_numbers_are_short(served, path, body, message):
    status, answer = served.ask("POST", path, body)
    assert status == 422 and message in answer["error"]


def of_agents(spaces=(CHOICE, BOX)):
    return Served(PolicyServerOfAgents, spaces)


def test_agents_are_those_of_the_run():
    with of_agents(({"a": CHOICE, "b": CHOICE}, {"a": BOX, "b": BOX})) as server:
        begin(server, "e")
        seen = {"a": SEEN}
        for more in ({"reward": {"c": 1}}, {"info": {"c": {}}}, {"dones": {"c": True}}, {"truncateds": {"c": True}}):
            body = {"items": [{"episode_id": "e", "observation": seen, **more}]}
            status, answer = server.ask("POST", "/v1/act", body)
            assert status == 400 and "there is no agent 'c'; there are 'a', 'b'" in answer["error"]


@pytest.fixture(scope="module", params=["http", "tcp"])
def served_agents(request):
    with Served(PolicyServerOfAgents, transport=request.param) as server:
        yield server


NUMBERED = {0: SEEN, 1: SEEN}


@pytest.mark.parametrize(
    "call",
    [
        lambda client, episode: client.get_action(episode, NUMBERED),
        lambda client, episode: client.get_action([episode], {episode: NUMBERED}),
        lambda client, episode: client.log_action(episode, {"a": SEEN}, {0: 1}),
        lambda client, episode: client.log_returns(episode, {"a": 1.0, 0: 1.0}),
        lambda client, episode: client.log_returns(episode, {"a": 1.0}, {0: {"lives": 2}}),
        lambda client, episode: client.log_returns(episode, {"a": 1.0}, None, {0: True}),
        lambda client, episode: client.log_returns(episode, {"a": 1.0}, truncated_dict={0: True}),
        lambda client, episode: client.end_episode(episode, NUMBERED),
    ],
)
def test_a_client_refuses_agents_that_are_no_strings(served_agents, call):
    """Over each transport, before anything is sent or counted; the episode goes on."""
    served_agents.turns.clear()
    with PolicyClient(served_agents.env.url) as client:
        episode = client.start_episode()
        with pytest.raises(ValueError, match=r"the agents of a client are strings, but one is 0 \(int\): name it '0'"):
            call(client, episode)
        assert not served_agents.turns
        assert client.get_action(episode, {"0": SEEN, "1": SEEN}) == {"0": 1, "1": 1}
        client.log_returns(episode, {"0": 1.0, "1": 2.0})
        client.log_returns(episode, {"0": 1.0})
        client.end_episode(episode, {"0": SEEN, "1": SEEN})
    assert [turn.step.rewards for turn in served_agents.turns] == [{}, {"0": 2.0, "1": 2.0}]


@pytest.mark.parametrize("path, values", [
    ("/v1/act", {"observation": NUMBERED}),
    ("/v1/log", {"action": {0: 1}}),
    ("/v1/act", {"reward": {0: 1.0}}),
    ("/v1/act", {"info": {0: {}}}),
    ("/v1/act", {"dones": {0: True}}),
    ("/v1/end", {"truncateds": {0: True}}),
])  # fmt: skip
def test_a_server_refuses_agents_that_are_no_strings(path, values):
    """MessagePack has them, from clients in other languages."""
    with Served(PolicyServerOfAgents, transport="tcp") as server:
        begin(server, "e")
        body = {"items": [{"episode_id": "e", "observation": {"a": SEEN}, **values}]}
        status, answer = server.ask("POST", path, body)
        assert status == 422 and ("strings, but one is 0" in answer["error"] or "Expected `str`" in answer["error"])
        assert not server.turns


def test_spaces_of_agents_that_are_no_strings_are_refused():
    with pytest.raises(ValueError, match=r"the agents of a client are strings, but one is 0 \(int\)"):
        PolicyClient("127.0.0.1:1", observation_space={0: BOX}, action_space={0: CHOICE})
    config = PPOConfig().environment(observation_space={0: BOX}, action_space={0: CHOICE})
    config.external(listen="127.0.0.1:0").multi_agent(policies="shared").rollouts(num_rollout_workers=0)
    with pytest.raises(ValueError, match="observation_space has the agent 0, but the agents of clients are strings"):
        config.build()


def test_an_episode_has_a_limited_number_of_agents():
    with of_agents() as server:
        begin(server, "e")
        for first in (0, 500):
            rewards = {f"agent {number}": 1 for number in range(first, first + 500)}
            body = {"items": [{"episode_id": "e", "observation": {"a": SEEN}, "reward": rewards}]}
            assert server.ask("POST", "/v1/act", body)[0] == 200
        body["items"][0]["reward"] = {f"other {number}": 1 for number in range(100)}
        status, answer = server.ask("POST", "/v1/act", body)
        assert status == 422 and "an episode may have 1,024 agents" in answer["error"]
        body["items"][0]["reward"] = {LONG: 1}
        assert "128 characters" in server.ask("POST", "/v1/act", body)[1]["error"]


def test_a_body_has_a_limited_size(served, monkeypatch):
    monkeypatch.setattr(http_transport, "_BODY_LIMIT", 1000)
    status, answer = served.ask("POST", "/v1/act", items("e", info={"text": "x" * 2000}))
    assert status == 413 and "may have 1000 bytes" in answer["error"]


@pytest.fixture
def few_values(monkeypatch):
    monkeypatch.setattr(bodies, "MOST_VALUES", 1000)
    monkeypatch.setattr(bodies, "_MOST_UNREAD", 0)


# An empty dict, an empty list, a list of one, texts, an extension, and bytes, in MessagePack.
VALUES = b"\x80", b"\x90", b"\x91\x01", b"\xa2ab", b"\xd9\x01a", b"\xd4\x05a", b"\xc4\x01a"


@pytest.mark.parametrize("one", VALUES)
@pytest.mark.parametrize("numbers", [b"", b"\xca????", b"\x01\xd3????????"])
def test_a_body_has_a_limited_number_of_values(few_values, one, numbers):
    """A dict without entries is one byte of MessagePack, and 72 in memory."""
    bodies.refuse_costly((one + numbers) * 1000 + numbers * 100 + b"\x01" * 10_000, MSGPACK)
    with pytest.raises(bodies.BadRequest, match="may have 1,000 dicts, lists and texts"):
        bodies.refuse_costly((one + numbers) * 1001, MSGPACK)


@pytest.mark.parametrize("surplus", [0, 1])
def test_the_values_of_real_messages_are_counted(surplus, monkeypatch):
    numbers = [0, -5, 300, -70_000, 2**40, 1.5, True, None, *range(200, 70_000, 7)]
    texts = ["x" * 40, "y" * 300, b"z" * 70_000, msgspec.msgpack.Ext(5, b"abc"), msgspec.msgpack.Ext(5, b"aa")]
    values = [numbers, texts, {str(number): number for number in range(40)}, numbers]
    monkeypatch.setattr(bodies, "MOST_VALUES", 1 + 1 + (1 + 5) + (1 + 40) + 1 - surplus)
    refuses = pytest.raises(bodies.BadRequest) if surplus else contextlib.nullcontext()
    with refuses:
        bodies.refuse_costly(msgspec.msgpack.encode(values), MSGPACK)


LARGE = dict.fromkeys(map(str, range(100)), 1)


@pytest.mark.parametrize("tree", [
    {**LARGE, "nested": {"a": [[1.5] * 200, {"b": b"x" * 300}]}},
    {key: [1, 2] for key in range(100)},
    [LARGE, *[[1, -5, 2**40, 0.5, True, None] * 20] * 9, "x" * 20_000],
])  # fmt: skip
def test_only_arrays_as_keys_are_refused(tree):
    body = msgspec.msgpack.encode([tree, {"last": 1}]) + bytes(bodies._MOST_UNREAD)
    bodies.refuse_costly(body, MSGPACK)
    inner = msgspec.msgpack.encode([tree, {(1, 2): 1}]) + bytes(bodies._MOST_UNREAD)
    if any(isinstance(each, dict) and len(each) > bodies._FEW_KEYS for each in [tree, *tree]):
        with pytest.raises(bodies.BadRequest, match="texts, not arrays"):
            bodies.refuse_costly(inner, MSGPACK)


@pytest.mark.parametrize("kind, body", [
    ("application/json", b'{"items": [{"episode_id": "e", "observation": [' + b"{}," * 1000 + b"{}]}]}"),
    ("application/json", b'{"items": [{"episode_id": "e", "observation": [' + b'"aa",' * 1000 + b"0]}]}"),
    ("application/msgpack", b"\x81\xa5items\xdc\x08\x00" + b"\x80" * 2048),
])  # fmt: skip
def test_requests_of_too_many_values_are_refused(served, few_values, kind, body):
    status, answer = served.ask("POST", "/v1/act", body, kind=kind)
    assert status == 413 and "dicts, lists and texts" in answer["error"]
    assert served.ask("POST", "/v1/act", b"[" + b"1," * 10_000 + b"1]")[0] == 422


# ------------------------------------------------------------------ agreement of client and server


def test_another_protocol_is_refused(served, monkeypatch):
    status, answer = begin(served, "protocol", protocol=2)
    assert status == 426 and "version 2 of the protocol, and this server 1" in answer["error"]
    monkeypatch.setattr("rllib.client.PROTOCOL", 2)
    with PolicyClient(served.env.url) as client, pytest.raises(ValueError, match=r"version 1 .*, and this client 2"):
        client.start_episode()


def test_other_spaces_are_refused(served):
    right = {"observation_space": served.env.observation_space, "action_space": served.env.action_space}
    with PolicyClient(served.env.url, **right) as client:
        client.end_episode(client.start_episode(), SEEN)
    wrong = {**right, "action_space": "Discrete(4)"}
    differ = pytest.raises(ValueError, match=r"client is Discrete\(4\), but that of the run is Discrete\(3\)")
    with PolicyClient(served.env.url, **wrong) as client, differ:
        client.start_episode()
    texts = {"observation_space": "Box(0, 1, (9,))", "action_space": "Discrete(3)"}
    assert served.ask("POST", "/v1/spaces", texts)[0] == 409
    assert served.ask("POST", "/v1/spaces", {**texts, "observation_space": "__import__('os')"})[0] == 422


# ------------------------------------------------------------------ numbers that are none


def test_a_reward_that_is_not_finite_is_named(served):
    begin(served, "nan")
    served.ask("POST", "/v1/act", items("nan"))
    body = msgspec.msgpack.encode(items("nan", reward=float("nan")))
    status, answer = served.ask("POST", "/v1/act", body, kind="application/msgpack")
    assert status == 400 and "in episode nan, after 1 steps, must be a finite number" in answer["error"]


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), None, "much"])
def test_a_client_refuses_it_at_once_and_goes_on(served, reward):
    with PolicyClient(served.env.url) as client:
        episode = client.start_episode()
        client.get_action(episode, SEEN)
        client.log_returns(episode, 1.0)
        with pytest.raises(ValueError, match=f"but after step 1 of episode {episode} it is"):
            client.log_returns(episode, reward)
        with pytest.raises(ValueError, match="must be finite numbers"):
            client.log_returns(episode, 1.0, {"speed": float("inf")})
        client.end_episode(episode, SEEN)
        assert served.turns[-1].step.rewards == {"agent0": 1.0} and served.turns[-1].step.infos == {}


# ------------------------------------------------------------------ a server without clients


def test_a_server_that_nobody_asks_says_so():
    with Served() as server:
        assert server.env.describe_silence() == f"0 clients have asked {server.env.url} so far. Does one run?"


def test_spaces_are_those_of_gymnasium():
    box = gymnasium.spaces.Box(-np.inf, 1.0, (3,))
    with Served(spaces=(CHOICE, box)) as server:
        with PolicyClient(server.env.url, observation_space=box, action_space=CHOICE) as client:
            client.start_episode()
        with pytest.raises(ValueError, match="give both"):
            PolicyClient(server.env.url, observation_space=box)
