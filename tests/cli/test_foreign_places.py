"""Runs and checkpoints of others write to their own folder alone, whatever links and settings in them name."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from multi_agent import BasicMultiAgent

from rllib import DQNConfig, PPOConfig
from rllib.algorithms.base.algorithm import Algorithm
from rllib.compat.methods.ray_rllib.settings import OVERRIDES
from rllib.errors import CheckpointError
from rllib.policies import PolicySpec
from rllib.storage.checkpoint import newest_checkpoint

TRAIN = ("train", "PPO", "CartPole-v1", "--defaults", "--name", "run", "num_rollout_workers=0",
         "train_batch_size=20", "sgd_minibatch_size=20", "num_sgd_iter=1", "model.fcnet_hiddens=[4]",
         "--stop", "iterations=1", "-q")  # fmt: skip


@pytest.fixture
def run(tmp_path, rllib_command):
    """The directory of a run."""
    result = rllib_command(*TRAIN, "--results-dir", str(tmp_path))
    assert result.exit_code == 0, result.output
    return tmp_path / "run"


def with_settings(checkpoint: Path, **settings) -> None:
    """Changes the settings in a checkpoint, as somebody does who wants to be believed."""
    file, manifest = checkpoint / "config.json", checkpoint / "manifest.json"
    content = json.dumps({**json.loads(file.read_text()), **settings}).encode()
    file.write_bytes(content)
    about = json.loads(manifest.read_text())
    about["files"]["config.json"] = {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest.write_text(json.dumps(about))


LINKS = {
    "videos": lambda run, other: (run / "videos").symlink_to(other),
    "a video": lambda run, other: (run / "videos").mkdir() or (run / "videos" / "1.gif").symlink_to(other / "1.gif"),
    "a checkpoint": lambda run, other: (run / "checkpoint_000009").symlink_to(
        shutil.copytree(newest_checkpoint(run), other / "checkpoint_000009")
    ),
    "a file": lambda run, other: (run / "progress.csv").unlink() or (run / "progress.csv").symlink_to(other / "new"),
}


@pytest.mark.parametrize("what", LINKS)
def test_resume_follows_no_links(run, tmp_path, rllib_command, what):
    other = tmp_path / "other"
    other.mkdir()
    LINKS[what](run, other)
    before = sorted(other.iterdir())
    result = rllib_command("train", "--resume", str(run), "--stop", "iterations=2", "-q")
    assert result.exit_code == 2 and "is a link or no regular file" in result.output, result.output
    assert sorted(other.iterdir()) == before
    if what == "a checkpoint":
        with pytest.raises(CheckpointError, match="symbolic link, which is not followed"):
            Algorithm.from_checkpoint(run)
        evaluated = rllib_command("evaluate", str(run), "--episodes", "1")
        assert evaluated.exit_code and "symbolic link" in evaluated.output and "Traceback" not in evaluated.output


PLACES = {
    "output": lambda place: {"output": place},
    "output_config": lambda place: {"output": "dataset", "output_config": {"path": place}},
    "log_dir": lambda place: {"log_dir": place},
}


@pytest.mark.parametrize("name", PLACES)
def test_settings_of_a_checkpoint_name_no_place_outside(run, tmp_path, name, caplog):
    place, checkpoint = str(tmp_path / "elsewhere"), newest_checkpoint(run)
    settings = PLACES[name](place)
    with_settings(checkpoint, **settings)
    if name == "log_dir":  # a run without files goes on as well
        with Algorithm.from_checkpoint(checkpoint) as algorithm:
            algorithm.train()
            assert algorithm.config.log_dir is None and "give log_dir for its files" in caplog.text
    else:
        with pytest.raises(CheckpointError, match=rf"has {name}=.*give {name} again, or use load_user_code"):
            Algorithm.from_checkpoint(checkpoint)
    assert not Path(place).exists()
    section = {"reporting" if name == "log_dir" else "offline_data": settings}
    caplog.clear()
    for given in ({"load_user_code": True}, {"overrides": settings}, {"overrides": section}):
        with Algorithm.from_checkpoint(checkpoint, **given) as algorithm:
            assert algorithm.config[name] == settings[name] and "give log_dir" not in caplog.text


def test_a_replay_of_a_checkpoint_lies_on_no_disk_that_it_names(tmp_path):
    (tmp_path / "disk").mkdir()
    replay = {"storage": str(tmp_path / "disk")}
    config = DQNConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    config.training(replay_buffer_config=replay, model={"fcnet_hiddens": [4]}, hiddens=[])
    with config.build() as algorithm:
        checkpoint = algorithm.save(tmp_path / "run" / "checkpoint")
    for other in ({}, {"buffer_size": 100}, {"replay_buffer_config": {"capacity": 100}}):
        with pytest.raises(CheckpointError, match=r"has replay_buffer_config=.* again"):
            Algorithm.from_checkpoint(checkpoint, other)
    size, given = {"buffer_size": 100}, {"replay_buffer_config": replay}
    for both in ({**size, **given}, {**given, **size}, {**given, "training": size}, {"training": given, **size}, given):
        with Algorithm.from_checkpoint(checkpoint, both) as algorithm:
            settings = algorithm.config.replay_buffer_config
            assert settings["storage"] == replay["storage"] and (settings["capacity"] == 100) == (both is not given)


@pytest.mark.parametrize("place", ["elsewhere", "run"])
def test_resume_writes_where_it_was_told(run, tmp_path, rllib_command, place):
    """log_dir of a checkpoint has no part in it; an output needs to be typed."""
    with_settings(newest_checkpoint(run), log_dir=str(tmp_path / place))
    result = rllib_command("train", "--resume", str(run), "--stop", "iterations=2", "-q")
    assert result.exit_code == 0, result.output
    assert not (tmp_path / "elsewhere").exists()
    with_settings(newest_checkpoint(run), output=str(tmp_path / "steps"))
    refused = rllib_command("train", "--resume", str(run), "--stop", "iterations=3", "-q")
    assert refused.exit_code == 2 and "give output again" in refused.output and not (tmp_path / "steps").exists()
    typed = rllib_command("train", "--resume", str(run), f"output={tmp_path / 'steps'}", "--stop", "iterations=3", "-q")
    assert typed.exit_code == 0 and any((tmp_path / "steps").iterdir()), typed.output


def test_a_run_goes_on_in_its_own_directory(tmp_path):
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    config.training(train_batch_size=20, sgd_minibatch_size=20, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
    config.reporting(log_dir=str(tmp_path / "run")).offline_data(output="logdir")
    with config.build() as algorithm:
        algorithm.train()
        checkpoint = algorithm.save()
    with Algorithm.from_checkpoint(checkpoint) as algorithm:
        algorithm.train()
    assert any((tmp_path / "run" / "output").iterdir())


@pytest.mark.parametrize("is_added", [False, True])
def test_policies_of_a_checkpoint_name_no_place_outside(tmp_path, is_added):
    """In their own settings, under any name."""
    (tmp_path / "disk").mkdir()
    own = {"training": {"replay_buffer_config": {"storage": str(tmp_path / "disk")}}}
    config = DQNConfig().environment(BasicMultiAgent).rollouts(num_rollout_workers=0)
    config.training(model={"fcnet_hiddens": [4]}, hiddens=[])
    policies = {"a": None if is_added else PolicySpec(config=own)}
    config.multi_agent(policies=policies, policy_mapping_fn="a")
    with config.build() as algorithm:
        if is_added:
            algorithm.add_policy("b", config=own, policies_to_train=["a", "b"])
        checkpoint = algorithm.save(tmp_path / "run" / "checkpoint")
    with pytest.raises(CheckpointError, match=r"has replay_buffer_config=.*disk.* again"):
        Algorithm.from_checkpoint(checkpoint)
    owner = "b" if is_added else "a"
    for given in (own, {"policies": {"a": None, owner: (None, None, None, own)}}, {OVERRIDES: {"a": own}}):
        with Algorithm.from_checkpoint(checkpoint, given) as algorithm:
            assert algorithm.config_of(owner).replay_buffer_config["storage"] == str(tmp_path / "disk")
