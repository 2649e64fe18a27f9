"""starts.json: what starts a run, on what, without logins; a damaged file is no obstacle."""

import json
import os
import subprocess

import pytest

from rllib.starts import STARTS, command_line, commit_of, note_start, read_starts


def test_a_start_says_command_machine_and_versions(tmp_path):
    note_start(tmp_path)
    (start,) = read_starts(tmp_path)
    assert start["pid"] == os.getpid() and start["cores"] >= 1 and start["memory_bytes"] > 1e8
    assert {"python", "rllib", "torch", "numpy", "gymnasium"} <= set(start["versions"])
    assert start["cpu"] and start["system"] and start["hostname"] and isinstance(start["gpus"], list)


def test_a_process_is_noted_once_and_a_later_one_below(tmp_path):
    (tmp_path / STARTS).write_text('{"pid": 1, "hostname": "other", "command": "rllib train"}\n{"cut off')
    note_start(tmp_path)
    note_start(tmp_path)
    first, second = read_starts(tmp_path)
    assert first["command"] == "rllib train" and second["pid"] == os.getpid()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[1]\n3\nnull\n", b"[" * 200_000])
def test_a_damaged_file_has_no_starts(tmp_path, content):
    (tmp_path / STARTS).write_bytes(content)
    assert read_starts(tmp_path) == []


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    (tmp_path / STARTS).mkdir()
    note_start(tmp_path)
    assert "a report will not name the machine" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["/usr/bin/rllib", "train", "PPO", "lr=0.1"], "rllib train PPO lr=0.1"),
        (["/site/rllib/__main__.py", "train"], "python -m rllib train"),
        (["examples/a b.py", "--seed", "1"], "python 'examples/a b.py' --seed 1"),
        (["rllib", "train", "--token", "abc", "lr=1"], "rllib train --token ... lr=1"),
        (["rllib", "train", "--token=abc"], "rllib train --token=..."),
        (["rllib", "train", "wandb={project: a, api_key: abc}"], "rllib train 'wandb={project: a, api_key:...'"),
        (["rllib", "train", 'wandb={"api_key": "abc"}'], "rllib train 'wandb={\"api_key\":...'"),
        (["rllib", "train", "--storage-path", "s3://name:abc@bucket/x"], "rllib train --storage-path s3://bucket/x"),
        ([], ""),
    ],
)
def test_the_command_has_no_login(arguments, shown):
    assert command_line(arguments) == shown
    assert "abc" not in command_line(arguments)


def _git(directory, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *arguments], cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_commit_is_that_of_git(tmp_path):
    repository = tmp_path / "repository"
    (repository / "deep").mkdir(parents=True)
    _git(repository, "init")
    assert commit_of(repository) is None, "there is no commit yet"
    _git(repository, "commit", "--allow-empty", "-m", "one")
    commit = _git(repository, "rev-parse", "HEAD")
    assert commit_of(repository / "deep") == commit
    _git(repository, "pack-refs", "--all")
    assert commit_of(repository) == commit
    _git(repository, "worktree", "add", str(tmp_path / "other"))
    assert commit_of(tmp_path / "other") == commit
    _git(repository, "checkout", "--detach")
    assert commit_of(repository) == commit
    (repository / ".git" / "HEAD").write_text("ref: ../../../etc/passwd\n")
    assert commit_of(repository) is None


def test_experiments_note_their_starts(tmp_path):
    from rllib import tune

    for resume in (False, True):
        tune.run(lambda config: {"m": 1}, name="e", local_dir=tmp_path, resume=resume, verbose=0)
    (start,) = read_starts(tmp_path / "e")
    assert json.loads((tmp_path / "e" / STARTS).read_text()) == start
