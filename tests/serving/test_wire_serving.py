"""`rllib serve --learn` whose clients write in other ways, make mistakes or lose their connections.

Each is answered: with an action, or with its mistake. An honest client plays beside: each of its rewards is taken once,
and its episodes end; neither the processes that answer nor the learner end.
"""

import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving_support import OBSERVATION, Server

from rllib import DQNConfig
from tests import wire
from tests.wire import JSON, MSGPACK, HTTPClient, written

EXAMPLES = [30, pytest.param(1_000, marks=pytest.mark.slow)]
EVERY = [43, pytest.param(1, marks=pytest.mark.slow)]
SEEN = [0, 0.1, -0.1, 1.0]
kinds = st.sampled_from([JSON, MSGPACK, f"{JSON}; charset=utf-8", "application/x-msgpack"])
names = (f"visit {number}" for number in itertools.count())


class Learning(Server):
    """A server that learns, and its honest client."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        while "http://" not in self.said[-1]:
            self.said.append(self.process.stdout.readline())
            assert self.said[-1], self.said
        self.address = self.said[-1].rstrip().rpartition("http://")[2]
        self.port = int(self.address.rpartition(":")[2])
        self.honest = HTTPClient(self.port)
        self.processes = {each.pid for each in self.workers()}
        self.num_rewards = 0  # that were accepted

    def post(self, path: str, body: dict, client: HTTPClient | None = None) -> tuple[int, dict]:
        status, answer = (client or self.honest).ask("POST", path, written(body, JSON))
        return status, json.loads(answer)

    def decided(self) -> str:
        """The id of an action on an observation of the honest client."""
        status, answer = self.post("/act", {"observation": OBSERVATION, "episode_id": next(names), "explore": True})
        assert status == 200 and answer["action"] in (0, 1), answer
        return answer["action_id"]

    def check(self) -> None:
        """The honest client acts, is rewarded, and ends its episode."""
        body = {"action_id": self.decided(), "reward": 1.0, "terminated": True}
        assert self.post("/reward", body) == (200, {"accepted": True})
        assert self.post("/reward", body)[0] == 409
        self.num_rewards += 1
        status, answer = self.honest.ask("GET", "/stats", b"")
        assert status == 200 and json.loads(answer)["decisions"]["rewards"] == self.num_rewards, answer
        assert {each.pid for each in self.workers()} == self.processes, "a process of the server has died"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    below = tmp_path_factory.mktemp("served")
    config = DQNConfig().environment("CartPole-v1").training(num_steps_sampled_before_learning_starts=50, hiddens=[])
    with config.debugging(seed=0).build() as algorithm:
        checkpoint = algorithm.save(below / "checkpoint")
    server = Learning(checkpoint, "--learn", "--learn-to", below / "learned")
    yield server
    server.honest.close()
    server.kill()


def right(server, number: int) -> tuple[str, dict]:
    """A right request, of several forms."""
    several = {"observations": [SEEN, SEEN], "episode_ids": [next(names), None], "explore": True}
    return [
        ("/act", {"observation": SEEN, "explore": False, "episode_id": next(names)}),
        ("/act", {"observation": SEEN, "prev_action": None, "prev_reward": None, "action_mask": None}),
        ("/act", several),
        ("/reward", {"action_id": server.decided(), "reward": 2, "terminated": None, "truncated": False}),
        ("/reward", {"rewards": [{"action_id": server.decided(), "reward": 0.5, "truncated": True,
                                  "next_observation": SEEN}]}),
    ][number]  # fmt: skip


def num_accepted(path: str, answer: bytes) -> int:
    return answer.count(b'"accepted":true') if path == "/reward" else 0


@pytest.mark.parametrize("examples", EXAMPLES)
def test_a_right_message_is_right_in_any_writing(server, examples):
    @settings(max_examples=examples, deadline=None, derandomize=examples == EXAMPLES[0])
    @given(st.integers(0, 4), kinds, st.integers(0, 2**32), wire.framings)
    def check(number, kind, seed, framing):
        path, body = right(server, number)
        client = HTTPClient(server.port)
        status, answer = client.ask("POST", path, written(body, kind, seed), kind, framing)
        client.close()
        server.num_rewards += num_accepted(path, answer)
        assert status == 200 and (path == "/act" or num_accepted(path, answer) == 1), (body, answer)

    check()
    server.check()


@pytest.mark.parametrize("examples", EXAMPLES)
def test_a_mistake_is_told(server, examples):
    @settings(
        max_examples=examples, deadline=None, derandomize=examples == EXAMPLES[0],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def check(data):
        path, body = right(server, data.draw(st.integers(0, 4)))
        kind, client = data.draw(kinds), HTTPClient(server.port)
        content = written(data.draw(wire.mistakes(body)), kind, data.draw(st.integers(0, 2**32)))
        status, answer = client.ask("POST", path, content, kind, data.draw(wire.framings))
        client.close()
        server.num_rewards += num_accepted(path, answer)
        assert status == 200 or (400 <= status < 500 and "\n" not in json.loads(answer)["error"]), (content, answer)
        server.check()

    check()


def test_odd_numbers_and_keys_are_told(server):
    client = HTTPClient(server.port)
    for kind, odd in itertools.product((JSON, MSGPACK), [*wire.ODD_NUMBERS, wire.deep(3000), wire.deep(3000, "dict")]):
        for path, body in (
            ("/act", {"observation": [odd, *SEEN[1:]]}),
            ("/act", {"observation": SEEN, "explore": odd}),
            ("/reward", {"action_id": "x", "reward": odd}),
            ("/reward", {"action_id": "x", "reward": 1, "next_observation": [odd, *SEEN[1:]]}),
        ):
            status, answer = client.ask("POST", path, written(body, kind), kind)
            assert status == 200 or (400 <= status < 500 and "error" in json.loads(answer)), (path, odd, answer)
    colliding = wire.colliding_keys(3000)
    for path, body in (("/act", {"observation": colliding}), ("/reward", {"action_id": "x", "reward": colliding})):
        status, answer = client.ask("POST", path, written(body, MSGPACK), MSGPACK)
        assert status == 422 and b"not arrays" in answer, answer
    client.close()
    server.check()


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("side", ["request", "answer"])
def test_a_reward_whose_connection_is_cut_at_any_byte_is_taken_once(server, side, every):
    length, k = None, 3 % every
    while length is None or k < length:
        body = {"action_id": server.decided(), "reward": 1.0, "terminated": True}
        data, client = wire.http_request("POST", "/reward", written(body, JSON), JSON), HTTPClient(server.port)
        client.send(data[:k] if side == "request" else data)
        if side == "request":
            length = len(data)
        else:
            length = 80
            client.receive(k)
        client.cut(resets=k % 2 == 1)
        status, answer = server.post("/reward", body)
        assert status == 200 or (side == "answer" and status == 409), answer
        server.num_rewards += 1
        k += every
    server.check()
