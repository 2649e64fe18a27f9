"""A Ray cluster on this machine, of one or more nodes, for tests; every process of a node can be found, and killed."""

import contextlib
import importlib.metadata
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from runtime.engines.ray import check_installed

NODE = "RAY_TEST_NODE"  # in the environment of all processes of a node: "<pid of the tests>-<number>"
START_S = 180  # Ray needs 5 s on an idle machine
ATTEMPTS = 3  # on a loaded machine a raylet gives up when its agents need more than 15 s
# One user on one machine needs no tokens, and workers no lower priority than the tests.
os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0", "RAY_agent_register_timeout_ms": "120000"}
os.environ |= {"RAY_raylet_start_wait_time_s": "120"}


def _why_not() -> str:
    try:
        check_installed()
        return ""
    except ImportError as error:
        return str(error)


def ray_version() -> str:
    """Version of the Ray that is installed; empty if there is none."""
    try:
        return importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        return ""


needs_ray = [pytest.mark.ray, pytest.mark.skipif(bool(_why_not()), reason=_why_not())]


def processes_of(node: str) -> list[int]:
    """Pids of the processes of a node."""
    return [pid for pid, theirs in _nodes_of_processes() if theirs == node]


def _nodes_of_processes():
    """(pid, node) of all processes of such clusters."""
    prefix = f"{NODE}=".encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                environment = Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue
            for variable in environment.split(b"\0"):  # none for one that has ended
                if variable.startswith(prefix):
                    yield int(entry), variable.removeprefix(prefix).decode()


def end_abandoned_nodes() -> None:
    """Kills the nodes of tests that were killed themselves, and could not end them."""
    _signal([pid for pid, node in _nodes_of_processes() if not _lives(node.split("-")[0])], signal.SIGKILL)


def _lives(pid):
    return os.path.exists(f"/proc/{pid}")


def free_port() -> int:
    """A TCP port that nobody listens on, and that neither the kernel nor Ray hands out before it is taken."""
    while True:
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("", random.SystemRandom().randrange(24_000, 32_000)))
            return listener.getsockname()[1]


class RayCluster:
    """A head node and further nodes, started by `ray start`.

    Args:
        directory: for Ray's files; short, since a socket's path may have 107 characters only.
        head: further arguments of `ray start` for the head node.

    Attributes:
        address: of the head node.
        client_address: of its server for drivers outside the cluster, "ray://...".
        nodes: what `kill` takes, the head first.

    Raises:
        ImportError: if Ray is not installed.
    """

    def __init__(self, directory, *head: str):
        check_installed()
        end_abandoned_nodes()
        port, client_port = free_port(), free_port()
        self.address, self.client_address = f"127.0.0.1:{port}", f"ray://127.0.0.1:{client_port}"
        self._directory, self.nodes, self._hosts = directory, [], iter(range(1, 255))
        ports = f"--port={port}", f"--ray-client-server-port={client_port}"
        self._start("--head", *ports, f"--temp-dir={directory}", *head)

    def add_node(self, *arguments: str) -> str:
        """Starts a node and waits until it has joined; returns what `kill` takes."""
        # Drivers of Ray 2.40 connect to the node that this file names, which started last; those of 2.60 to the head.
        chosen = Path(self._directory) / "session_latest" / "node_ip_address.json"
        head = chosen.read_text() if chosen.exists() else None
        node = self._start(f"--address={self.address}", *arguments)
        if head is not None:
            chosen.write_text(head)
        return node

    def _start(self, *arguments):
        for _ in range(ATTEMPTS):
            log = self._attempt(*arguments)
            if log is None:
                return self.nodes[-1]
            self.kill(self.nodes[-1])
        self.stop()
        raise RuntimeError(f"ray start failed:\n{log.read_text()}")

    def _attempt(self, *arguments):
        """Starts a node; the file of what Ray printed if it has failed."""
        node = f"{os.getpid()}-{uuid.uuid4().hex}"
        self.nodes.append(node)
        command = [
            *(str(Path(sys.executable).with_name("ray")), "start", "--disable-usage-stats"),
            *(f"--node-ip-address=127.0.0.{next(self._hosts)}", "--min-worker-port=0", "--max-worker-port=0"),
            *(f"--dashboard-agent-listen-port={free_port()}", f"--dashboard-agent-grpc-port={free_port()}"),
            *(f"--runtime-env-agent-port={free_port()}", f"--metrics-export-port={free_port()}"),
            *arguments,
        ]
        log = Path(self._directory) / f"start-{node}.txt"
        root = str(Path(__file__).parents[1])
        environment = {
            **os.environ,
            NODE: node,
            "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
        }
        with open(log, "w") as output:
            done = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=START_S
            )
        return log if done.returncode else None

    def kill(self, node: str) -> None:
        """Ends all processes of a node at once, as a power failure would."""
        _signal(processes_of(node), signal.SIGKILL)
        deadline = time.monotonic() + 10
        while processes_of(node):
            assert time.monotonic() < deadline, f"processes of a killed node are left: {processes_of(node)}"
            time.sleep(0.01)
        self.nodes.remove(node)

    def stop(self) -> None:
        """Ends all nodes; the workers of a node end with it."""
        while self.nodes:
            node = self.nodes[-1]
            _signal(processes_of(node), signal.SIGTERM)
            deadline = time.monotonic() + 3
            while processes_of(node) and time.monotonic() < deadline:
                time.sleep(0.05)
            self.kill(node)


def _signal(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
