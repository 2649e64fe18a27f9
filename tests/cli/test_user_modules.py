"""Environments in modules of the user's, and settings under the names of other versions."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
QUICK = ("num_rollout_workers=1", "train_batch_size=64", "sgd_minibatch_size=64", "num_sgd_iter=1")
MODULE = """
import gymnasium


class Mine(gymnasium.Wrapper):
    def __init__(self, config):
        super().__init__(gymnasium.make("CartPole-v1"))
"""


def test_the_installed_command_finds_modules_of_the_directory_where_it_is_started(tmp_path):
    (tmp_path / "my_module.py").write_text(MODULE)
    # As the script that pip installs: Python itself does not add the present directory (-P).
    rllib = (sys.executable, "-P", "-c", "from rllib.cli import main; main()")
    found = subprocess.run(
        [*rllib, "train", "PPO", "my_module:Mine", *QUICK, "--stop", "iterations=1"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr


def test_an_error_of_the_environment_in_a_worker_is_shown_once_and_from_its_own_lines_on(tmp_path):
    step = "    def step(self, action):\n        raise RuntimeError('the motor is off')\n"
    (tmp_path / "my_module.py").write_text(f"{MODULE}\n{step}")
    settings = (*QUICK, "disable_env_checking=true")
    failed = subprocess.run(
        [sys.executable, "-m", "rllib", "train", "PPO", "my_module:Mine", *settings, "--stop", "iterations=1"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert failed.returncode == 1 and "worker 1 (CartPoleEnv) raised in step()" in failed.stderr, failed.stderr
    assert failed.stderr.count("raised in step()") == 1
    assert failed.stderr.count('  File "') == 1 and "my_module.py" in failed.stderr


def test_config_shows_and_finds_other_names_of_a_setting(rllib_command):
    result = rllib_command("config", "PPO", "num_epochs")
    assert result.exit_code == 0
    assert "num_sgd_iter: int = 30" in result.output and "(also: num_epochs)" in result.output
    assert "lr:" not in result.output
