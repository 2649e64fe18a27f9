"""The server as processes: deaths, ends, newer checkpoints and crowds."""

import concurrent.futures
import http.client
import json
import re
import shutil
import socket

import psutil
import pytest
from serving_support import OBSERVATION, Server, ask, until, write_version

BODY = {"observation": OBSERVATION}


@pytest.fixture
def serve():
    servers = []

    def start(*arguments) -> Server:
        servers.append(Server(*arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


def test_a_killed_process_is_replaced_and_the_end_leaves_nothing(serve, tmp_path):
    server = serve(write_version(tmp_path / "checkpoint", 7, 1))
    assert "Serving PPO on CartPole-v1, version 7" in server.said[0]
    assert server.ask("POST", "/act", BODY).json() == {"action": 1, "policy_version": 7}
    for _ in range(2):
        server.kill_worker()
        assert server.ask("POST", "/act", BODY).json() == {"action": 1, "policy_version": 7}
    metrics = server.ask("GET", "/metrics").body.decode()
    assert "rllib_serve_restarts_total 2" in metrics and "rllib_serve_actions_total 3" in metrics
    idle = server.connect()  # a connection that is kept open
    assert ask(idle, "GET", "/health").status == 200
    assert server.terminate() == 0
    assert not server.left()
    host, port = server.address.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=10)
    assert "was ended by SIGKILL; another takes its place" in server.process.stdout.read()
    idle.close()


def test_processes_end_with_their_parent(serve, tmp_path):
    server = serve(write_version(tmp_path / "checkpoint", 1), "--workers", "2")
    until(lambda: len(server.workers()) == 2)
    server.family += server.workers()
    server.process.kill()
    assert not server.left()


def test_newer_checkpoints_are_taken_up_without_a_failed_request(serve, tmp_path):
    write_version(tmp_path / "checkpoint_000001", 1, 1)
    server = serve(tmp_path, "--watch")
    seen, ended = [], False

    def keep_asking():
        connection = server.connect()
        while not ended:
            seen.append(ask(connection, "POST", "/act", BODY))
        connection.close()

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(keep_asking) for _ in range(2)]
        try:
            for number in (2, 3):
                write_version(tmp_path / f"checkpoint_{number:06}", number, number % 2)
                until(lambda wanted=number: seen and seen[-1].json()["policy_version"] == wanted)
            shutil.copytree(tmp_path / "checkpoint_000003", tmp_path / "checkpoint_000004")
            (tmp_path / "checkpoint_000004" / "config.json").write_text("{")
            until(lambda: b"reload_errors_total 1" in server.ask("GET", "/metrics").body)
            shutil.rmtree(tmp_path / "checkpoint_000001")
            assert not any(one.done() for one in asking)  # no request has failed while versions were swapped
            server.kill_worker()  # what takes its place acts by the third still
        finally:
            ended = True
        failures = [one.exception() for one in asking]
    assert {answer.status for answer in seen} == {200}
    assert all(answer.json()["action"] == answer.json()["policy_version"] % 2 for answer in seen)
    # Those that were under way when the process was killed are lost.
    lost = (ConnectionError, http.client.HTTPException)
    assert all(failure is None or isinstance(failure, lost) for failure in failures)
    assert server.ask("POST", "/act", BODY).json()["policy_version"] == 3
    write_version(tmp_path / "checkpoint_000005", 5)
    until(lambda: server.ask("GET", "/health").json()["policy_version"] == 5)
    assert server.terminate() == 0
    assert "config.json" in server.process.stdout.read()


def test_what_has_arrived_is_answered_before_the_end(serve, tmp_path):
    server = serve(write_version(tmp_path / "checkpoint", 1, 1), "--max-wait-us", "2000000")
    waiting = server.connect()
    waiting.request("POST", "/act", json.dumps(BODY), {"Content-Type": "application/json"})
    arrived = "rllib_serve_queue_length 1", "rllib_serve_actions_total 1"
    until(lambda: any(line in server.ask("GET", "/metrics").body.decode() for line in arrived))
    assert server.terminate() == 0
    answer = waiting.getresponse()
    assert answer.status == 200 and json.loads(answer.read())["action"] == 1
    waiting.close()


def test_clients_that_hang_up_do_no_harm(serve, tmp_path):
    server = serve(write_version(tmp_path / "checkpoint", 1, 1), "--max-wait-us", "200000")
    host, port = server.address.split(":")
    for _ in range(50):
        with socket.create_connection((host, int(port))) as connection:
            body = b'{"observation": [0, 0, 0, 0]}'
            head = b"POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            head += b"Content-Length: %d\r\n\r\n"
            connection.sendall(head % len(body) + body)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"POST /act HTTP/1.1\r\nContent-Le")
    assert server.ask("GET", "/health", A="x" * 200_000).status == 431
    assert server.ask("POST", "/act", BODY).json()["action"] == 1
    metrics = server.ask("GET", "/metrics").body.decode()
    assert int(re.search(r"^rllib_serve_dropped_total (\d+)$", metrics, re.MULTILINE)[1]) > 0
    assert psutil.Process(server.process.pid).children() == server.family[1:]
    assert server.terminate() == 0


def test_a_reload_reaches_all_processes(serve, tmp_path):
    write_version(tmp_path / "checkpoint_000001", 1)
    server = serve(tmp_path, "--workers", "2")
    versions = {'rllib_serve_policy_version{worker="0"}', 'rllib_serve_policy_version{worker="1"}'}

    def all_have(version: int) -> bool:
        lines = server.ask("GET", "/metrics").body.decode().splitlines()
        return {f"{name} {version}" for name in versions} <= set(lines)

    until(lambda: all_have(1))
    write_version(tmp_path / "checkpoint_000002", 2)
    assert server.ask("POST", "/reload").json()["changed"]
    until(lambda: all_have(2))
