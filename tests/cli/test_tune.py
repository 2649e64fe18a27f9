"""`rllib tune`, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rllib.cli.tune import parse_range
from rllib.tune.analysis import ExperimentAnalysis

ROOT = Path(__file__).parents[2]
QUICK = ["num_rollout_workers=0", "train_batch_size=200", "sgd_minibatch_size=100", "num_sgd_iter=1"]


def rllib_tune(tmp_path, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "rllib", "tune", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=100,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_a_grid_and_a_range_on_the_command_line(tmp_path):
    found = rllib_tune(tmp_path, "PPO", "CartPole-v1", *QUICK, "--search", "lr=log:1e-5:1e-2", "gamma=0.95,0.99",
                       "--trials", "1", "--stop", "iterations=2", "--seed", "1", "--name", "x")  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "Using FIFO scheduling algorithm." in found.stdout and "rllib evaluate" in found.stdout
    trials = ExperimentAnalysis(tmp_path / "results" / "x").trials
    assert [trial.config["gamma"] for trial in trials] == [0.95, 0.99]
    assert all(1e-5 <= trial.config["lr"] <= 1e-2 and trial.config["num_sgd_iter"] == 1 for trial in trials)
    assert all(trial.last_result["training_iteration"] == 2 and trial.checkpoint for trial in trials)


def test_a_file(tmp_path):
    (tmp_path / "search.yaml").write_text(
        "algorithm: PPO\nenv: CartPole-v1\nconfig: {num_rollout_workers: 0, train_batch_size: 200, num_sgd_iter: 1}\n"
        "search: {lr: [1e-3, 1e-4], model.fcnet_hiddens: '[8,8],[16]'}\nstop: {training_iteration: 1}\nname: y\n"
    )
    found = rllib_tune(tmp_path, "-f", "search.yaml", "-q")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("results") and "settings    lr=" in found.stdout
    trials = ExperimentAnalysis(tmp_path / "results" / "y").trials
    chosen = [(trial.config["lr"], trial.config["model"]["fcnet_hiddens"]) for trial in trials]
    assert sorted(chosen) == [(1e-4, [8, 8]), (1e-4, [16]), (1e-3, [8, 8]), (1e-3, [16])]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["PPO", "CartPole-v1", "--search", "lrr=1,2"], "no setting 'lrr'"),
        (["PPO", "CartPole-v1", "--search", "lr=lag:1:2"], "ranges are uniform, log, int"),
        (["PPO"], "rllib tune ALGO ENV"),
        (["-f", "missing.yaml"], "must be a YAML file"),
        (["PP0", "CartPole-v1", "--search", "lr=1,2"], "Did you mean 'PPO'"),
    ],
)
def test_mistakes_end_with_code_2(tmp_path, arguments, message):
    found = rllib_tune(tmp_path, *arguments)
    assert found.returncode == 2 and message in found.stderr


def test_what_values_mean():
    assert parse_range("0.95,0.99") == {"grid_search": [0.95, 0.99]}
    assert parse_range("[64,64],[32]") == {"grid_search": [[64, 64], [32]]}
    assert parse_range(3) == 3
    assert 3 <= parse_range("int:3:5").sample() < 5
