"""Commands as Ray's tutorials type them."""

import json
import os

import numpy as np
import pytest

from rllib import PPOConfig


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    config.training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
    with config.build() as algorithm:
        return algorithm.save(tmp_path_factory.mktemp("ray") / "checkpoint")


@pytest.mark.parametrize("command", ["evaluate", "rollout"])
def test_rays_evaluation(command, rllib_command, checkpoint):
    result = rllib_command(command, checkpoint, "--run", "ppo", "--env", "CartPole-v1", "--steps", 100, "--no-render",
                           "--config", '{"num_gpus": 0}')  # fmt: skip
    assert result.exit_code == 0, result.output
    assert result.output.startswith("return  ")


def test_steps_of_an_evaluation_are_written(rllib_command, checkpoint, tmp_path):
    result = rllib_command("evaluate", checkpoint, "--steps", 50, "--out", tmp_path / "steps.npz")
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "steps.npz") as steps:
        count, is_end = len(steps["rewards"]), steps["terminateds"] | steps["truncateds"]
    assert f"rows    {count}" in result.output and count >= 50
    assert is_end[-1] and not is_end[49:-1].any()  # the last episode is played to its end


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--run", "DQN"], "is of PPO, not of DQN"),
        (["--render"], "--render is another command here: rllib play"),
        (["--video-dir", "v"], "rllib record"),
        (["--out", "rollouts.pkl"], "would be a pickle"),
        (["--out", "x.npz", "--data", "y"], "nothing to write"),
        (["--steps", 9, "--episodes", 3], "--steps and --episodes are two lengths"),
        (["--ray-address", "x:1"], "--ray-address cannot be used: RUNTIME_ENGINE=ray"),
    ],
)
def test_wrong_evaluations(arguments, message, rllib_command, checkpoint):
    result = rllib_command("evaluate", checkpoint, *arguments)
    assert result.exit_code == 2 and message in result.stderr, result.output


TRAIN = ("train", "PPO", "CartPole-v1", "--stop", "iterations=1")


def test_rays_flags_of_training(rllib_command, behaviour, monkeypatch):
    monkeypatch.setenv("RUNTIME_ENGINE", "zeromq")
    result = rllib_command(*TRAIN, "--framework", "torch", "--local-mode", "--ray-num-cpus", 4, "-vv")
    assert result.exit_code == 0, result.output
    assert behaviour["configs"][0].settings["framework"] == "torch" and os.environ["RUNTIME_ENGINE"] == "local"
    assert "--ray-num-cpus has no effect here" in result.stderr


def test_torch_is_the_framework(rllib_command, behaviour):
    assert rllib_command(*TRAIN, "--torch").exit_code == 0
    assert behaviour["configs"][0].settings["framework"] == "torch"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--upload-dir", "hf://mine/runs"], "rllib push"),
        (["--ray-address", "auto"], "--ray-address cannot be used"),
        (["--eager"], "--eager cannot be used: there is no TensorFlow"),
        (["--framework", "tf", "framework=torch"], "framework is given both"),
    ],
)
def test_what_has_no_part_here_is_refused(arguments, message, rllib_command, behaviour):
    result = rllib_command(*TRAIN, *arguments)
    assert result.exit_code == 2 and message in result.stderr


def test_the_newest_checkpoints_are_kept(rllib_command, behaviour, tmp_path):
    result = rllib_command("train", "PPO", "CartPole-v1", "--stop", "iterations=6", "--checkpoint-freq", 1,
                           "--keep-checkpoints-num", 2, "--name", "run")  # fmt: skip
    assert result.exit_code == 0, result.output
    kept = sorted(path.name for path in (tmp_path / "results" / "run").glob("checkpoint_*"))
    assert kept == ["checkpoint_000005", "checkpoint_000006"]
    assert json.loads((tmp_path / "results" / "run" / "run.json").read_text())["keep_checkpoints_num"] == 2


def test_examples_are_listed_shown_and_run(rllib_command, behaviour):
    listed = rllib_command("example", "list", "--filter", "ppo/cartpole")
    assert listed.exit_code == 0 and "ppo/cartpole " in listed.output and "PPO on CartPole-v1" in listed.output
    shown = rllib_command("example", "get", "ppo/cartpole")
    assert shown.exit_code == 0 and "algorithm: PPO" in shown.output
    run = rllib_command("example", "run", "ppo/cartpole", "lr=0.5", "--stop", "iterations=1")
    assert run.exit_code == 0, run.output
    assert behaviour["configs"][0].settings["lr"] == 0.5


def test_an_unknown_example_is_told_with_the_nearest(rllib_command):
    result = rllib_command("example", "get", "ppo/cartpol")
    assert result.exit_code == 2 and "ppo/cartpole" in result.stderr
    assert rllib_command("example", "list", "--filter", "nothing").exit_code == 2


def test_a_run_stops_within_a_long_iteration(rllib_command, tmp_path):
    result = rllib_command("train", "A2C", "CartPole-v1", "--defaults", "num_rollout_workers=0", "train_batch_size=50",
                           "model.fcnet_hiddens=[4]", "min_time_s_per_iteration=60", "--stop", "steps=200")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "timesteps_total 200 >= 200 after 1 iteration" in result.output


@pytest.mark.parametrize("flags", [(), ("--checkpoint-freq", 2)])
@pytest.mark.parametrize("kept", [1, 3])
def test_a_number_of_checkpoints_that_cannot_be_kept_is_told(rllib_command, behaviour, tmp_path, flags, kept):
    result = rllib_command("train", "PPO", "CartPole-v1", "--stop", "iterations=6", "--keep-checkpoints-num", kept,
                           "--name", "run", *flags)  # fmt: skip
    there = len(list((tmp_path / "results/run").glob("checkpoint_*")))
    assert result.exit_code == 0 and there == (kept if flags else 1)
    assert ("needs a checkpoint_freq" in result.output + result.stderr) == (there < kept)
