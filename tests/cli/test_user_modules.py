"""Environments in modules of the user's, and settings under the names of other versions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


ALGORITHM = """
from rllib import PG, PGConfig


class MineConfig(PGConfig):
    pass


class Mine(PG):
    config_class = MineConfig

    def training_step(self):
        return super().training_step()
"""
SMALL = ("CartPole-v1", "num_rollout_workers=0", "train_batch_size=64")


def test_an_algorithm_of_ones_own_is_trained_resumed_evaluated_and_searched(tmp_path, rllib):
    """Its module is imported because its name is typed; a file or a checkpoint that names it imports nothing."""
    (tmp_path / "my_module.py").write_text(ALGORITHM)
    code, output = rllib("train", "my_module:Mine", *SMALL, "--stop", "iterations=1", "--name", "x")
    assert code == 0, output
    checkpoint = "results/x/checkpoint_000001"
    assert f"rllib evaluate {checkpoint} --load-user-code" in output

    resume = ("train", "--resume", "results/x", "--stop", "iterations=2")
    code, output = rllib(*resume)
    assert code == 2 and "a class of your own is imported only where its name is typed" in output
    code, output = rllib(*resume, "--algo", "PPO")
    assert code == 2 and "goes on with the same algorithm, my_module:Mine" in output
    code, output = rllib(*resume, "--algo", "my_module:Mine")
    assert code == 0 and "checkpoint_000002" in output, output

    code, output = rllib("evaluate", checkpoint, "--episodes", "1")
    assert code == 2 and "load_user_code=True" in output, output
    code, output = rllib("evaluate", checkpoint, "--episodes", "1", "--load-user-code")
    assert code == 0, output

    code, output = rllib("tune", "my_module:Mine", *SMALL, "--search", "lr=0.1,0.2", "--stop", "iterations=1", "-q")
    assert code == 0 and "settings    lr=" in output, output


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("my_other:Mine", "names the module 'my_other', which cannot be found"),
        ("my_module:Yours", "the module 'my_module' has no class of algorithms 'Yours'. It has Mine."),
        ("my_module:settings", "the module 'my_module' has no class of algorithms 'settings'. It has Mine."),
    ],
)
@pytest.mark.parametrize("words", [("train", "CartPole-v1"), ("tune", "CartPole-v1"), ("config",)])
def test_what_is_no_algorithm_is_told(tmp_path, rllib_command, monkeypatch, words, typed, message):
    (tmp_path / "my_module.py").write_text("class Mine:\n    config_class = dict\n\ndef settings():\n    1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    result = rllib_command(words[0], typed, *words[1:])
    assert result.exit_code == 2 and message in result.stderr


def test_a_file_names_no_code(rllib_command, tmp_path, monkeypatch):
    (tmp_path / "my_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "run.yaml").write_text("algorithm: my_module:Mine\nenv: CartPole-v1\n")
    for verb in ("train", "tune"):
        result = rllib_command(verb, "-f", "run.yaml")
        assert result.exit_code == 2 and "--algo my_module:Mine" in result.stderr


@pytest.mark.parametrize(
    ("name", "instead"),
    [("BC", "offline data is not available yet"), ("ddppo", "num_learners=2"), ("TRPO", "use PPO")],
)
@pytest.mark.parametrize("words", [("train", "CartPole-v1"), ("tune", "CartPole-v1"), ("config",)])
def test_an_absent_algorithm_is_told_with_what_to_use(rllib_command, words, name, instead):
    result = rllib_command(words[0], name, *words[1:])
    assert result.exit_code == 2 and f"there is no algorithm {name!r}: " in result.stderr and instead in result.stderr
