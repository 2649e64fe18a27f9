"""Copies of remote folders: names that would lead elsewhere, packages that are missing, checkpoints by URL."""

import importlib.util
from types import SimpleNamespace

import fsspec
import gymnasium
import pytest
from fsspec.implementations.memory import MemoryFile

import rllib
from rllib import Algorithm, PPOConfig
from rllib.errors import CheckpointError, DamagedFileError, StorageError
from rllib.remote.download import download, folder_at, local_checkpoint
from rllib.remote.filesystem import Patience, RemoteFolder
from rllib.remote.mirror import upload, upload_checkpoint
from tests.storage_fakes import Shaky, at_once


@pytest.fixture(autouse=True)
def storage(monkeypatch):
    at_once(monkeypatch)
    Shaky.begin()


def put(url: str, content: bytes = b"{}") -> None:
    files, path = fsspec.url_to_fs(url)
    files.store[path] = MemoryFile(files, path, content)


@pytest.mark.parametrize("name", ["../outside.json", "a/../../outside.json", "a/../../../etc/passwd"])
def test_a_name_in_a_listing_cannot_leave_the_copy(tmp_path, monkeypatch, name):
    put("shaky://bucket/run/run.json")
    monkeypatch.setattr(Shaky, "find", lambda self, path, **_: ["/bucket/run/run.json", f"/bucket/run/{name}"])
    with pytest.raises(DamagedFileError, match="would lie outside of the folder"):
        download(folder_at("shaky://bucket/run"), tmp_path / "in" / "copy")
    assert [path.name for path in tmp_path.rglob("*")] == ["in"]


def test_a_listing_of_another_folder_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(Shaky, "find", lambda self, path, **_: ["/bucket/run_of_others/x"])
    with pytest.raises(StorageError, match="which is not in it"):
        download(folder_at("shaky://bucket/run"), tmp_path / "copy")


@pytest.mark.parametrize("files", [[], ["x.txt"], ["a/manifest.json"]])
def test_a_message_has_no_password(files):
    for name in files:
        put(f"shaky://me:secret@bucket/run/{name}")
    with pytest.raises(CheckpointError, match="shaky://bucket/run") as raised:
        local_checkpoint("shaky://me:secret@bucket/run")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("names", [["a", "a/b"], ["a/b", "a"], ["a/b", "a//b"]])
def test_two_files_of_one_place_are_refused(tmp_path, names):
    folder = SimpleNamespace(url="s3://bucket", names=lambda: names, copy_to=lambda name, file: None)
    with pytest.raises(DamagedFileError, match="whose place another of its files has"):
        download(folder, tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_a_copy_that_breaks_off_leaves_nothing(tmp_path, monkeypatch):
    put("shaky://bucket/run/run.json")
    folder = RemoteFolder("shaky://bucket/run", Patience(attempts=2, first_pause_s=0.0))
    monkeypatch.setattr(Shaky, "open", lambda *arguments, **options: (_ for _ in ()).throw(ConnectionError("lost")))
    with pytest.raises(StorageError, match=r"cannot be read \(run.json\): ConnectionError: lost"):
        download(folder, tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_a_protocol_that_there_is_not_is_named():
    with pytest.raises(ValueError, match=r"fsspec knows no protocol 'memry'. Did you mean memory://\?"):
        RemoteFolder("memry://runs/first")


def test_a_package_of_the_protocol_that_is_missing_is_named(monkeypatch):
    def missing(protocol):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(ImportError, match=r"s3://bucket/run needs a package in addition to fsspec: pip install s3fs"):
        RemoteFolder("s3://bucket/run")


def test_fsspec_that_is_missing_is_named(monkeypatch):
    found = importlib.util.find_spec
    without = lambda name, *more: None if name == "fsspec" else found(name, *more)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(ImportError, match=r"s3://bucket/run needs fsspec: pip install .*\[storage\]'"):
        RemoteFolder("s3://bucket/run")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Directory of a run of two iterations, and its newest checkpoint."""
    directory = tmp_path_factory.mktemp("runs") / "run"
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).debugging(seed=1)
    config.training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
    with config.reporting(log_dir=str(directory)).build() as algo:
        algo.train()
        algo.save()
        algo.train()
        return directory, algo.save()


def test_a_policy_and_an_algorithm_come_from_a_url(trained):
    directory, checkpoint = trained
    upload(directory, "shaky://bucket/run")
    Shaky.loss = 0.1
    here, there = rllib.load_policy(checkpoint), rllib.load_policy("shaky://bucket/run")
    observation = gymnasium.make("CartPole-v1").reset(seed=1)[0]
    assert there.policy_version == here.policy_version
    assert there.compute_single_action(observation, explore=False) == here.compute_single_action(
        observation, explore=False
    )
    with Algorithm.from_checkpoint("shaky://bucket/run/checkpoint_000001") as algo:
        assert algo.train()["training_iteration"] == 2
        algo.restore("shaky://bucket/run")
        assert algo.iteration == 2


def test_an_algorithm_is_saved_to_a_url(trained):
    with Algorithm.from_checkpoint(trained[1]) as algo:
        assert algo.save_to_path("shaky://bucket/saved") == "shaky://bucket/saved"
        algo.train()
        algo.save_to_path("shaky://bucket/saved")
        with pytest.raises(ValueError, match=r"save_to_path\('shaky://bucket/other'\) writes to remote storage"):
            algo.save("shaky://bucket/other")
    assert rllib.load_policy("shaky://bucket/saved").metadata["num_env_steps_sampled"] == 3 * 64
    assert Shaky.faults == []
    put("shaky://bucket/notes/todo.txt")
    with pytest.raises(ValueError, match="holds other files than a checkpoint"):
        upload_checkpoint(trained[1], "shaky://bucket/notes")


def test_a_place_without_a_checkpoint_says_what_it_holds(trained):
    with pytest.raises(CheckpointError, match="there is nothing at shaky://bucket/nothing"):
        local_checkpoint("shaky://bucket/nothing")
    put("shaky://bucket/notes/todo.txt")
    with pytest.raises(CheckpointError, match=r"no checkpoint at shaky://bucket/notes; it holds todo\.txt"):
        local_checkpoint("shaky://bucket/notes")
    upload(trained[0], "shaky://bucket/runs/first")
    with pytest.raises(CheckpointError, match="Checkpoints in it: shaky://bucket/runs/first/checkpoint_000001"):
        local_checkpoint("shaky://bucket/runs")


def test_a_copy_is_as_untrusted_as_any_checkpoint(trained):
    upload(trained[0], "shaky://bucket/run")
    put("shaky://bucket/run/checkpoint_000002/policies/default_policy/policy.json", b"{}")
    with pytest.raises(CheckpointError, match=r"policy.json: it has 2 bytes instead of"):
        rllib.load_policy("shaky://bucket/run")
