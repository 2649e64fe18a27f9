"""`rllib serve --learn` as processes: actions with ids, rewards, deaths, restarts, and what is refused."""

import json
import re
import socket
import subprocess
import sys

import msgspec
import numpy as np
import psutil
import pytest
from serving_support import CARTPOLE, OBSERVATION, ROOT, Server, ask, until

from rllib import DQNConfig, RainbowConfig
from rllib.runs.files import read_results
from rllib.serving import learner as learner_process
from rllib.serving.learning.progress import prepare_directory

BODY = {"observation": OBSERVATION}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    config = DQNConfig().environment("CartPole-v1").training(num_steps_sampled_before_learning_starts=50, hiddens=[])
    with config.debugging(seed=0).build() as algorithm:
        return algorithm.save(tmp_path_factory.mktemp("dqn") / "checkpoint")


@pytest.fixture
def serve():
    servers = []

    def start(*arguments) -> Server:
        servers.append(Server(*arguments))
        server = servers[-1]
        while "http://" not in server.said[-1]:
            server.said.append(server.process.stdout.readline())
            assert server.said[-1], server.said
        server.address = server.said[-1].rstrip().rpartition("http://")[2]
        server.family = [psutil.Process(server.process.pid), *server.workers()]
        return server

    yield start
    for server in servers:
        server.kill()


def learner_of(server) -> psutil.Process:
    (learner,) = [each for each in server.workers() if "rllib.serving.learner" in each.cmdline()]
    return learner


def play(connection, episode_id, steps=10, better=0.0):
    """One episode of that many steps, each with reward 1, and `better` in addition where a later version acts."""
    for number in range(steps):
        answer = ask(connection, "POST", "/act", {**BODY, "episode_id": episode_id, "explore": True}).json()
        end = {"terminated": True} if number == steps - 1 else {}
        reward = 1.0 + better * bool(answer["policy_version"])
        given = {"action_id": answer["action_id"], "reward": reward, **end}
        assert ask(connection, "POST", "/reward", given).json() == {"accepted": True}


def stats(server) -> dict:
    return server.ask("GET", "/stats").json()


def test_rewards_are_taken_once_and_by_any_process(serve, checkpoint, tmp_path):
    server = serve(checkpoint, "--learn", "--learn-to", tmp_path / "learned", "--workers", "2")
    connections = [server.connect() for _ in range(6)]  # of both processes, as it happens
    ids = [ask(connection, "POST", "/act", BODY).json()["action_id"] for connection in connections]
    for connection, action_id in zip(connections[::-1], ids):
        assert ask(connection, "POST", "/reward", {"action_id": action_id, "reward": 1}).status == 200
    again = server.ask("POST", "/reward", {"action_id": ids[0], "reward": 1})
    assert again.status == 409 and "has its reward already" in again.json()["error"]
    unknown = server.ask("POST", "/reward", {"action_id": "nobody", "reward": 1})
    assert unknown.status == 404 and "there is no open action nobody" in unknown.json()["error"]

    several = {"observations": [OBSERVATION] * 3, "episode_ids": ["a", None, "c"]}
    answer = server.ask("POST", "/act", several).json()
    assert len(set(answer["action_ids"])) == 3 and answer["policy_versions"] == [0, 0, 0]
    rewards = [{"action_id": each, "reward": 0.5, "truncated": True} for each in answer["action_ids"]]
    rewards[0]["next_observation"] = OBSERVATION
    rewards[2] = {"action_id": answer["action_ids"][2], "reward": 0.5}
    results = server.ask("POST", "/reward", {"rewards": rewards}).json()["results"]
    assert [each["accepted"] for each in results] == [True, False, True] and results[1]["status"] == 422
    raw = msgspec.msgpack.encode({"action_id": answer["action_ids"][1], "reward": 2})
    packed = server.ask("POST", "/reward", raw, **{"Content-Type": "application/msgpack"})
    assert packed.status == 200
    counts = stats(server)["decisions"]
    assert (counts["decisions"], counts["rewards"], counts["open"]) == (9, 9, 0)
    for connection in connections:
        connection.close()


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"action_id": "x", "reward": "much"}, 422, "a reward is a finite number"),
        ({"action_id": "x", "reward": 1e300}, 422, "a reward is a finite number"),
        ({"action_id": "x", "reward": 3e38}, 422, "of at most 1e+09"),
        ({"action_id": "x", "reward": True}, 422, "a reward is a finite number"),
        ({"reward": 1}, 422, "missing required field `action_id`"),
        ({"action_id": "x" * 200_000, "reward": 1}, 422, "an action_id of this server has at most 200 characters"),
        ({"action_id": "x", "reward": 1, "done": True}, 422, "unknown field `done`"),
        ({"action_id": "x", "reward": 1, "next_observation": [1, 2]}, 422, "next_observation has shape (2,)"),
        ({"action_id": "x", "reward": 1, "next_observation": {"$array": ["f4", [9], ""]}}, 422, "an array is"),
        ({"rewards": [{"action_id": "x", "reward": None}]}, 422, "rewards[0]: a reward is a finite number"),
        ({"rewards": [{"action_id": "x", "reward": 1}] * 1025}, 413, "1024 rewards, but has 1025"),
        (b"\x80\x04.", 400, "the body cannot be read"),
        ({"rewards": 1}, 422, "Expected `array`"),
        ([], 422, "Expected `object`"),
    ],
)
def test_wrong_rewards(shared_server, body, status, message):
    answer = shared_server.ask("POST", "/reward", body)
    assert answer.status == status and message in answer.json()["error"], answer


@pytest.fixture(scope="module")
def shared_server(checkpoint, tmp_path_factory):
    server = Server(checkpoint, "--learn", "--learn-to", tmp_path_factory.mktemp("shared") / "learned")
    while "http://" not in server.said[-1]:
        server.said.append(server.process.stdout.readline())
    server.address = server.said[-1].rstrip().rpartition("http://")[2]
    yield server
    server.kill()


def test_observations_that_cannot_be_learned_from_are_refused(shared_server):
    large = [0.0, 3e38, 0.0, 0.0]
    one = shared_server.ask("POST", "/act", {"observation": large})
    several = shared_server.ask("POST", "/act", {"observations": [OBSERVATION, large]})
    assert one.status == several.status == 422 and "observation 1 of 2" in several.json()["error"]
    assert stats(shared_server)["decisions"]["open"] == 0


@pytest.mark.parametrize("kind", ["application/json", "application/msgpack", "application/octet-stream"])
@pytest.mark.parametrize("count", [1, 3])
def test_each_decision_can_be_rewarded(shared_server, kind, count):
    """What an answer gives no id for would wait for a reward that cannot come."""
    body = {"observation": OBSERVATION} if count == 1 else {"observations": [OBSERVATION] * count}
    if kind == "application/octet-stream":
        body = np.array([OBSERVATION] * count, np.float32).tobytes()
    elif kind == "application/msgpack":
        body = msgspec.msgpack.encode(body)
    before = stats(shared_server)["decisions"]["decisions"]
    answer = shared_server.ask("POST", "/act", body, **{"Content-Type": kind})
    ids = []
    if answer.status == 200:
        told = (msgspec.msgpack if kind.endswith("msgpack") else msgspec.json).decode(answer.body)
        ids = [told["action_id"]] if count == 1 else told["action_ids"]
    else:
        assert answer.status == 415 and "action_id" in answer.json()["error"]
    assert stats(shared_server)["decisions"]["decisions"] == before + len(ids)
    results = shared_server.ask("POST", "/reward", {"rewards": [{"action_id": each, "reward": 1} for each in ids]})
    assert [each["accepted"] for each in results.json()["results"]] == [True] * len(ids)


def test_an_episode_id_is_checked(shared_server):
    long = shared_server.ask("POST", "/act", {**BODY, "episode_id": "x" * 201})
    assert long.status == 422 and "1 to 200 characters" in long.json()["error"]
    wrong = shared_server.ask("POST", "/act", {"observations": [OBSERVATION] * 2, "episode_ids": ["a"]})
    assert wrong.status == 422 and "episode_ids must be a list with one item" in wrong.json()["error"]


def test_a_repeated_request_is_one_decision(shared_server):
    before = stats(shared_server)["decisions"]
    several = {"observations": [OBSERVATION] * 2, "episode_ids": ["repeated", None], "request_id": "r 1"}
    first, second = (shared_server.ask("POST", "/act", several).json()["action_ids"] for _ in range(2))
    assert first == second and len(set(first)) == 2
    for others in ({"request_id": "r 2"}, {"episode_ids": ["other", "more"]}, {"observations": [[1, 0, 0, 0]] * 2}):
        ids = shared_server.ask("POST", "/act", {**several, **others}).json()["action_ids"]
        assert not set(ids) & set(first)
        first += ids
    results = shared_server.ask("POST", "/reward", {"rewards": [{"action_id": each, "reward": 1} for each in first]})
    assert all(each["accepted"] for each in results.json()["results"])
    assert stats(shared_server)["decisions"]["decisions"] == before["decisions"] + 8
    wrong = shared_server.ask("POST", "/act", {**BODY, "request_id": ""})
    assert wrong.status == 422 and "a request_id has 1 to 200 characters" in wrong.json()["error"]


def test_rewards_need_the_content_type_and_no_page_may_send_them(shared_server):
    body = {"action_id": "x", "reward": 1}
    assert shared_server.ask("POST", "/reward", body, **{"Content-Type": "text/plain"}).status == 415
    assert shared_server.ask("POST", "/reward", body, Origin="http://elsewhere.test").status == 403
    assert shared_server.ask("POST", "/resume", b"{}", **{"Content-Type": "text/plain"}).status == 415
    assert shared_server.ask("POST", "/resume").json()["paused"] is False
    assert shared_server.ask("GET", "/reward").status == 405


def test_candidates_are_offered_and_a_restart_goes_on_from_the_newest(serve, checkpoint, tmp_path):
    options = "--trial-episodes", "5", "--block-episodes", "5", "--offer-every", "50", "--canary-share", "0.5"
    server = serve(checkpoint, "--learn", "--learn-to", tmp_path / "learned", *options)
    connection = server.connect()
    number = 0
    while not stats(server)["promoted"]:
        number += 1
        assert number < 500
        play(connection, f"episode {number}", steps=5, better=1.0)
    version = stats(server)["served"]["version"]
    until(lambda: ask(connection, "POST", "/act", BODY).json()["policy_version"] == version)
    assert version > 0 and (tmp_path / "learned" / "checkpoint_000001").is_dir()
    connection.close()
    assert server.terminate() == 0 and not server.left()
    said = server.process.stdout.read()
    *_, result = read_results(tmp_path / "learned")
    assert result["serving"]["version"] == version and result["episode_reward_mean"] == 10
    assert "acts in 50% of the episodes" in said and "is promoted: its mean return is 10 in" in said

    server = serve(checkpoint, "--learn", "--learn-to", tmp_path / "learned", *options)
    assert f"from version {version}" in server.said[0]
    assert server.ask("POST", "/act", BODY).json()["policy_version"] == version
    assert stats(server)["served"]["episodes"] > 0  # its returns are known still


def test_serving_goes_on_without_the_learner(serve, checkpoint, tmp_path):
    server = serve(checkpoint, "--learn", "--learn-to", tmp_path / "learned")
    connection = server.connect()
    play(connection, "before")
    learner = learner_of(server)
    learner.kill()
    seen = set()

    def is_back():
        answer = ask(connection, "POST", "/act", BODY)
        assert answer.status == 200  # whatever the learner does
        if (action_id := answer.json()["action_id"]) is None:
            seen.add("no id")
            return False
        status = ask(connection, "POST", "/reward", {"action_id": action_id, "reward": 1}).status
        seen.add(status)
        return status == 200 and learner_of(server).pid != learner.pid

    until(is_back)
    assert seen <= {"no id", 503, 404, 200}
    assert stats(server)["learner"]["steps"] == 0
    connection.close()
    server.terminate()
    assert "the learner, process" in (said := server.process.stdout.read()) and "actions are answered" in said
    assert not server.left()


def test_rewards_of_a_process_that_has_died_are_taken_and_all_end_with_the_parent(serve, checkpoint, tmp_path):
    server = serve(checkpoint, "--learn", "--learn-to", tmp_path / "learned")
    action_id = server.ask("POST", "/act", BODY).json()["action_id"]
    (worker,) = [each for each in server.workers() if "rllib.serving.worker" in each.cmdline()]
    worker.kill()
    psutil.wait_procs([worker], timeout=20)
    assert server.ask("POST", "/reward", {"action_id": action_id, "reward": 1}).status == 200
    server.family += server.workers()
    server.process.kill()
    assert not server.left()


def test_a_server_that_does_not_learn_says_so(serve, checkpoint):
    server = serve(checkpoint)
    answer = server.ask("POST", "/act", {**BODY, "episode_id": "a"})
    assert answer.status == 422 and "does not learn" in answer.json()["error"]
    assert server.ask("POST", "/reward", {"action_id": "x", "reward": 1}).status == 404
    assert "action_id" not in server.ask("POST", "/act", BODY).json()


# ---------------------------------------------------------------------- what cannot learn


def refusal(*arguments) -> str:
    """What a server says that does not begin."""
    command = [sys.executable, "-m", "rllib", "serve", *map(str, arguments), "--port", "0"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2 and "Traceback" not in ended.stderr, ended
    return ended.stderr


def test_an_algorithm_that_learns_from_its_own_actions(tmp_path):
    said = refusal(CARTPOLE, "--learn", "--learn-to", tmp_path / "learned")
    assert "which learns from its own newest actions" in said and "DQN" in said


def test_a_setting_that_the_algorithm_does_not_have(checkpoint, tmp_path):
    said = refusal(checkpoint, "--learn", "--learn-to", tmp_path / "learned", "--set", "lrr=1")
    assert "--set: DQNConfig has no setting 'lrr'" in said


@pytest.mark.parametrize("word", ["env=Pendulum-v1", "env_config.a=1", "listen=127.0.0.1:1", "action_space=1"])
def test_settings_of_an_environment_would_have_no_effect(checkpoint, tmp_path, word):
    said = refusal(checkpoint, "--learn", "--learn-to", tmp_path / "learned", "--set", word)
    assert f"--set {word.partition('=')[0].partition('.')[0]}=... would have no effect" in said


@pytest.mark.parametrize(
    ("config", "named"),
    [(DQNConfig().environment("Acrobot-v1"), "DQN on Acrobot-v1"),
     (RainbowConfig().environment("CartPole-v1"), "Rainbow on CartPole-v1")],
)  # fmt: skip
def test_another_policy_does_not_continue_in_its_directory(checkpoint, tmp_path, config, named):
    with config.rollouts(num_rollout_workers=0).training(model={"fcnet_hiddens": [4]}).build() as algorithm:
        algorithm.save(tmp_path / "other")
    learned = prepare_directory(tmp_path / "learned", checkpoint)
    said = refusal(tmp_path / "other", "--learn", "--learn-to", tmp_path / "learned")
    assert f"from {learned}, but {tmp_path / 'other'} is of {named}: give a new directory" in said


def test_the_requests_of_the_page_are_answered(shared_server):
    page = (ROOT / "docs" / "deploy" / "deployment.md").read_text().partition("## Learning from rewards")[2]
    lines = re.search(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1].splitlines()
    action_id = None
    for line, shown in zip(lines[::2], lines[1::2]):
        body, path = re.fullmatch(r"curl --json '(.*)' http://[^/]+(/\w+)", line).groups()
        answer = shared_server.ask(
            "POST", path, {**json.loads(body), **({"action_id": action_id} if action_id else {})}
        )
        assert answer.status == 200 and answer.json().keys() == json.loads(shown.removeprefix("# ")).keys()
        action_id = answer.json().get("action_id")
    assert lines[4].endswith("/stats") and shared_server.ask("GET", "/stats").status == 200


def test_a_moved_log_is_one_message_without_a_traceback(monkeypatch):
    def moved(*_):
        raise FileNotFoundError("there is no 'log.csv'. Give their place: --set input_=PATH.")

    monkeypatch.setattr(learner_process, "Learner", moved)
    monkeypatch.setattr(learner_process, "_await_end", lambda channel: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)
    monkeypatch.setattr(learner_process.msgspec.json, "decode", lambda *_, **__: None)
    sent = []
    monkeypatch.setattr(learner_process, "send_report", lambda channel, report: sent.append(report.error))
    here, there = socket.socketpair()
    with here:
        here.send(b"{}\n")
        assert learner_process.main(there.detach()) == 1
    assert sent == ["there is no 'log.csv'. Give their place: --set input_=PATH."]
