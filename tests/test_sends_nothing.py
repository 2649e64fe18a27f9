"""A training connects to nothing but this machine: SECURITY.md says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Python runs it at the start of each process that finds it: those of a run inherit the path. Nothing is sent where a
# datagram's socket is connected, by which a machine asks for its own address.
NOTES = """
import os, sys

def note(event, arguments):
    if event == "socket.connect" and arguments[0].type & 2:
        return
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
        where = arguments[event in ("socket.connect", "socket.sendto")]
        where = where[0] if isinstance(where, tuple) else where
        if not str(where).startswith(("/", "127.", "::1", "localhost", "None")):
            with open(os.environ["NOTED"], "a") as file:
                file.write(f"{event} {where!r} {sys.argv[:3]}\\n")

sys.addaudithook(note)
"""
SHORT = "train_batch_size=200 --stop iterations=2 --quiet"
COMMANDS = {
    "train": f"train PPO CartPole-v1 sgd_minibatch_size=100 num_rollout_workers=1 {SHORT}",
    "tune": f"tune PG CartPole-v1 num_rollout_workers=0 --search lr=1e-3,1e-4 {SHORT}",
}


@pytest.fixture
def noting(tmp_path):
    """Environment variables by which processes note their connections, and the file with the notes."""
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(NOTES)
    (tmp_path / "noted").touch()
    path = os.pathsep.join([str(tmp_path / "hooks"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "NOTED": str(tmp_path / "noted")}, tmp_path / "noted"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_run_connects_to_this_machine_alone(name, tmp_path, noting):
    environment, noted = noting
    command = [Path(sys.executable).with_name("rllib"), *COMMANDS[name].split(), "--results-dir", tmp_path / "results"]
    subprocess.run(command, check=True, env=environment, timeout=100)
    assert noted.read_text() == ""


def test_a_connection_to_another_machine_is_noted(noting):
    environment, noted = noting
    program = "import socket; s = socket.socket(); s.settimeout(0.01); s.connect_ex(('192.0.2.1', 9))"
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=60)
    assert "'192.0.2.1'" in noted.read_text()
