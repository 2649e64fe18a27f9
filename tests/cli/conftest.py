"""Runs the command line in this process, on a stand-in for an algorithm."""

import os
import signal
import time

import pytest
from click.testing import CliRunner
from fake_algorithm import FakeAlgorithm, FakeConfig

import rllib.cli.train
from rllib.cli import command


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

    monkeypatch.setattr(rllib.cli.train, "get_algorithm_config", get_algorithm_config)
    monkeypatch.setattr(FakeAlgorithm, "stopped", 0)
    actions["configs"] = configs
    return actions


@pytest.fixture
def rllib_command(tmp_path, monkeypatch):
    """Runs `rllib ARGUMENTS` in an empty directory; the result has exit_code, output, stderr."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture
def press_ctrl_c():
    """Sends SIGINT to this process, as a terminal would."""

    def press():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)  # a bytecode boundary, at which the handler runs

    return press
