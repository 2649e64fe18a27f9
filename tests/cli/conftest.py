"""Runs the command line: in this process on a stand-in for an algorithm, and in processes of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from fake_algorithm import FakeAlgorithm, FakeConfig

from rllib.cli import command
from rllib.cli.verbs import train


@pytest.fixture
def behaviour(monkeypatch):
    """iteration (or "build") -> what happens then, in the algorithm that `rllib train` gets."""
    actions = {}
    configs = []

    def get_algorithm_config(name):
        if name != "PPO":
            raise ValueError(f"there is no algorithm {name!r}. There are: PPO.")
        configs.append(FakeConfig(actions))
        return configs[-1]

    monkeypatch.setattr(train, "get_algorithm_config", get_algorithm_config)
    monkeypatch.setattr(FakeAlgorithm, "stopped", 0)
    actions["configs"] = configs
    return actions


@pytest.fixture
def rllib_command(tmp_path, monkeypatch):
    """Runs `rllib ARGUMENTS` in an empty directory; the result has exit_code, output, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # a command that loads user code adds the directory
    return lambda *arguments: CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture
def press_ctrl_c():
    """Sends SIGINT to this process, as a terminal would."""

    def press():
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)  # a bytecode boundary, at which the handler runs; os.kill may give it to another thread, later

    return press


ROOT = Path(__file__).parents[2]


class Command:
    """Runs `rllib ARGUMENTS` in a directory."""

    def __init__(self, directory: Path):
        self.directory = directory
        self._started: list[subprocess.Popen] = []
        self.environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{directory}", "COLUMNS": "100"}

    def start(self, *arguments, **options) -> subprocess.Popen:
        """In a process group of its own, as a terminal would, so that it can be sent Ctrl-C."""
        process = subprocess.Popen(
            [sys.executable, "-m", "rllib", *map(str, arguments)],
            cwd=self.directory,
            env=self.environment,
            start_new_session=True,
            preexec_fn=_answer_ctrl_c,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options},
        )
        self._started.append(process)
        return process

    def __call__(self, *arguments) -> tuple[int, str]:
        """Exit code and output."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=100)
        return process.returncode, output

    def kill(self) -> None:
        """Ends what a failed test has left."""
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _answer_ctrl_c():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # whatever started the tests may ignore it


@pytest.fixture
def rllib(tmp_path):
    command = Command(tmp_path)
    yield command
    command.kill()
