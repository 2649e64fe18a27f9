"""Checkpoints with known actions, and clients of a policy server."""

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import psutil

from rllib.policy import Policy
from rllib.serving.app import App
from rllib.serving.counts import Counts
from rllib.serving.model import Model
from rllib.serving.tasks import ServingSettings
from rllib.storage.checkpoint import read_checkpoint, write_checkpoint

ROOT = Path(__file__).parents[2]
CARTPOLE = ROOT / "tests" / "checkpoints" / "format_1_ppo"
OBSERVATION = [0.0, 0.1, -0.1, 0.2]


def write_version(path: Path, version: int, action: int = 0) -> Path:
    """A checkpoint of PPO on CartPole after this number of updates, which always takes this action."""
    tree = read_checkpoint(CARTPOLE, load_user_code=True)
    directory = "policies/default_policy/"
    policy = Policy.from_files(tree[directory + "policy.json"], tree[directory + "weights.safetensors"], path)
    policy.weights[:] = 0
    policy.parameters()["policy.head.bias"][action] = 1
    tree[directory + "weights.safetensors"] = policy.get_state()
    tree["algorithm.json"]["metrics"]["counters"]["num_updates"] = version
    return write_checkpoint(path, tree)


def cartpole_rows(count: int) -> np.ndarray:
    """Observations [count, 4] for which the policy of CARTPOLE takes both actions."""
    return (np.random.default_rng(1).uniform(-0.4, 0.4, (count, 4)) * [1, 20, 1, 20]).astype(np.float32)


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self):
        return json.loads(self.body)


class AppClient:
    """Asks an App in the same event loop.

    Args:
        source: of the policy.
        settings: further ServingSettings.
    """

    def __init__(self, source: Path, **settings):
        self.counts = Counts(Counts.new(2).descriptor, 2, 0)
        settings = ServingSettings(source=str(source), **settings)
        self.model = Model(settings, self.counts)
        self.app = App(self.model, self.counts, settings)

    async def __call__(self, method: str, path: str, body=b"", *, hangs_up: bool = False, **headers: str):
        """An Answer; None if none was given, as to a client that hangs up when its request is sent.

        A body is said to be JSON, and the host to be localhost, unless `headers` say otherwise.
        """
        headers = {"host": "localhost", **({"content_type": "application/json"} if path == "/act" else {}), **headers}
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        halves = [{"body": body[:3], "more_body": True}, {"body": body[3:]}]
        messages = [{"type": "http.request", **half} for half in halves]
        messages += [{"type": "http.disconnect"}] if hangs_up else []
        sent = []

        async def receive():
            if not messages:
                await asyncio.get_running_loop().create_future()
            return messages.pop(0)

        async def send(message):
            sent.append(message)

        await self.app({"type": "http", "method": method, "path": path, "headers": named}, receive, send)
        if not sent:
            return None
        start, content = sent
        return Answer(start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, content["body"])

    async def act(self, body, **more):
        """POST /act."""
        return await self("POST", "/act", body, **more)


class Server:
    """`rllib serve` in other processes; `address` is known once it serves.

    Args:
        arguments: of the command, but for the port.
    """

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rllib", "serve", *map(str, arguments), "--port", "0"],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.said = [self.process.stdout.readline()]
        self.address = self.said[0].rstrip().rpartition("http://")[2]
        self.family = [psutil.Process(self.process.pid), *self.workers()]

    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def kill_worker(self) -> None:
        """Kills the only process that answers, and waits until it has gone."""
        (worker,) = self.workers()
        worker.kill()
        psutil.wait_procs([worker], timeout=20)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address, timeout=60)

    def ask(self, method: str, path: str, body=None, **headers) -> Answer:
        """Over a new connection."""
        connection = self.connect()
        try:
            return ask(connection, method, path, body, **headers)
        finally:
            connection.close()

    def terminate(self) -> int:
        """The exit status after SIGTERM."""
        self.family += self.workers()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def left(self) -> list[psutil.Process]:
        """Processes of this server that do not end."""
        return psutil.wait_procs(self.family, timeout=20)[1]

    def kill(self) -> None:
        """Ends what a failed test has left."""
        if self.process.poll() is None:
            self.family += self.workers()
        for each in self.family:
            if each.is_running():
                each.kill()
        self.process.wait()
        self.process.stdout.close()


def ask(connection: http.client.HTTPConnection, method: str, path: str, body=None, **headers) -> Answer:
    body = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
    headers = {"Content-Type": "application/json", **headers} if body else headers
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    return Answer(response.status, dict(response.getheaders()), response.read())


def until(condition, timeout_s: float = 60):
    """The condition's value, once it is true."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)
    return value
