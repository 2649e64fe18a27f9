"""Runs on the disk, written by the classes that write those of users, and a client of the server that shows them."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rllib.cli.run_directory import RunDirectory
from rllib.cli.spec import RunSpec
from rllib.runs.files import ResultFiles, write_params


class RunOnDisk:
    """A run of `rllib train` as its process would write it.

    Attributes:
        path: its directory.
    """

    def __init__(self, results: Path, name: str, stop=None, algorithm="PPO", env="CartPole-v1", **settings):
        self.spec = RunSpec(algorithm=algorithm, env=env, config=settings, stop=stop or {}, name=name, seed=3)
        self._directory = RunDirectory.new(results, self.spec)
        self.path = self._directory.path
        write_params(self.path, {"env": env, "lr": 5e-05, "gamma": 0.99, "seed": 3, **settings})
        self._files = ResultFiles(self.path)
        self._iteration = 0

    def report(self, *returns: float | None, **more) -> None:
        """Writes results with these returns, 100 steps and half a second each."""
        for value in returns:
            self._iteration += 1
            steps, seconds = 100 * self._iteration, 0.5 * self._iteration
            learner = {"default_policy": {"learner_stats": {"kl": 0.01 * self._iteration, "entropy": 0.5}}}
            self._files.on_result(
                {"episode_reward_mean": value, "episode_len_mean": 7.0, "training_iteration": self._iteration,
                 "timesteps_total": steps, "time_total_s": seconds, "info": {"learner": learner}, **more}
            )  # fmt: skip

    def save(self) -> None:
        (self.path / f"checkpoint_{self._iteration:06}").mkdir()
        (self.path / f"checkpoint_{self._iteration:06}" / "weights").write_bytes(b"x" * 500)

    def end(self) -> None:
        """As if its process had ended: the lock is free."""
        self._files.close()
        self._directory.log.close()


class Client:
    """Asks a server on this machine, with any headers."""

    def __init__(self, server):
        self.server = server

    def request(self, address: str, headers=(), method: str = "GET", stream: bool = False):
        """The answer with its `text`; with `stream` the answer while it comes, to be closed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        connection.putrequest(method, address, skip_host=True)
        headers = dict(headers)
        headers.setdefault("Host", f"127.0.0.1:{self.server.port}")
        for key, value in headers.items():
            connection.putheader(key, value)
        connection.endheaders()
        answer = connection.getresponse()
        answer.connection = connection
        if not stream:
            answer.text = answer.read().decode()
            connection.close()
        return answer

    def json(self, address: str):
        answer = self.request(address)
        assert answer.status == 200, answer.text
        return json.loads(answer.text)

    def events(self, last_event_id: str | None = None):
        """The messages of the stream, (id, content), as they come."""
        headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
        answer = self.request("/api/stream", headers, stream=True)
        assert answer.getheader("content-type").startswith("text/event-stream")
        try:
            id = None
            for line in answer:
                key, _, value = line.decode().rstrip("\n").partition(": ")
                if key == "id":
                    id = value
                elif key == "data":
                    yield id, json.loads(value)
        finally:
            answer.connection.close()


@contextmanager
def served(root: Path, **settings) -> Iterator[Client]:
    """Shows a directory, in a thread."""
    server_module = pytest.importorskip("rllib.dashboard.app", reason="needs the extra dashboard")
    server = server_module.Server(root, **settings)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield Client(server)
    finally:
        server.stop()
        thread.join(30)
        assert not thread.is_alive()
