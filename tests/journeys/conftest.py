"""Commands of a journey, in this process or in their own."""

import subprocess
import sys

import pytest
from click.testing import CliRunner
from story import environment

from rllib.cli import command


@pytest.fixture
def shell(tmp_path, monkeypatch, own_modules):
    """Runs `rllib ARGUMENTS`, which have to succeed, in an empty directory; returns what was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # a command that loads user code adds the directory

    def run(line: str, code: int = 0) -> str:
        result = CliRunner().invoke(command, line.split())
        assert result.exit_code == code, f"rllib {line}\n{result.output}"
        return result.output

    return run


@pytest.fixture
def beside(tmp_path):
    """Starts `rllib ARGUMENTS` beside the test; it is ended with it."""
    started = []

    def start(line: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-m", "rllib", *line.split()], cwd=tmp_path, env=environment(), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
