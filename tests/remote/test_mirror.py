"""The copy of a run in remote storage: what it holds at any time, and what a lost connection costs."""

import json
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fsspec")

from rllib.errors import StorageError
from rllib.remote.download import download, folder_at, working_copy
from rllib.remote.filesystem import RemoteFolder
from rllib.remote.mirror import IDENTITY, Mirror, upload, upload_checkpoint
from rllib.runs.safe_files import write_whole
from rllib.storage.checkpoint import read_checkpoint, write_checkpoint
from tests.storage_fakes import Shaky, at_once, content_of

LONGEST_S = 60.0


@pytest.fixture(autouse=True)
def storage(monkeypatch):
    at_once(monkeypatch)
    Shaky.begin()
    yield
    assert Shaky.faults == []


@pytest.fixture
def run(tmp_path):
    """Directory of a run with a checkpoint, as `rllib train` writes it."""
    directory = tmp_path / "here" / "run"
    directory.mkdir(parents=True)
    (directory / "run.json").write_text('{"algorithm": "PPO"}')
    (directory / "result.json").write_text('{"training_iteration": 1}\n')
    checkpoint(directory, 1)
    return directory


def checkpoint(directory: Path, iteration: int, value: float = 0.0) -> Path:
    tree = {"algorithm.json": {"iteration": iteration}, "policies/p/weights.safetensors": {"w": np.full(8, value)}}
    return write_checkpoint(directory / f"checkpoint_{iteration:06}", tree)


def mirror(directory, url="shaky://bucket/run"):
    return Mirror(directory, url)


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def wait_until(happened) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("url", ["memory://mirrored/run", "shaky://bucket/run"])
def test_the_copy_has_every_file_of_the_run(run, url):
    copy = mirror(run, url)
    copy.start()
    checkpoint(run, 2)
    assert copy.close() is None
    assert content_of(url) == files_of(run)


def test_files_that_change_and_go_while_the_run_goes_on(run):
    copy = mirror(run)
    copy.start()
    wait_until(lambda: "checkpoint_000001/manifest.json" in content_of(copy.url))
    checkpoint(run, 2)
    shutil.rmtree(run / "checkpoint_000001")
    with open(run / "result.json", "a") as file:
        file.write('{"training_iteration": 2}\n')
    wait_until(lambda: "checkpoint_000001/manifest.json" not in content_of(copy.url))
    assert "checkpoint_000002/manifest.json" in content_of(copy.url)
    assert copy.close() is None
    assert content_of(copy.url) == files_of(run)


def test_a_checkpoint_arrives_before_the_file_that_names_it(run):
    write_whole(run / "best.json", b'{"checkpoint": "checkpoint_000001"}')
    copy = mirror(run)
    copy.start()
    assert copy.close() is None
    order = [path.removeprefix("/bucket/run/") for what, path in Shaky.changes if ".tmp" not in path]
    in_checkpoint = [name for name in order if name.startswith("checkpoint_000001/")]
    assert len(in_checkpoint) == 3 and in_checkpoint[-1].endswith("manifest.json")
    assert order.index("result.json") < order.index("checkpoint_000001/manifest.json") < order.index("best.json")


def test_a_checkpoint_that_is_replaced_is_never_half_a_copy(run):
    copy = mirror(run)
    copy.start()
    wait_until(lambda: "checkpoint_000001/manifest.json" in content_of(copy.url))
    checkpoint(run, 1, value=3.0)
    assert copy.close() is None
    assert content_of(copy.url) == files_of(run)


def test_a_connection_that_is_often_lost_costs_nothing_but_time(run):
    Shaky.begin(loss=0.0)
    copy = mirror(run)
    copy.start()
    Shaky.loss = 0.3
    for iteration in range(2, 12):
        checkpoint(run, iteration, iteration)
        with open(run / "result.json", "a") as file:
            file.write(json.dumps({"training_iteration": iteration}) + "\n")
        if iteration > 3:
            shutil.rmtree(run / f"checkpoint_{iteration - 2:06}")
    assert copy.close() is None
    assert content_of(copy.url) == files_of(run)


def test_files_that_cannot_be_sent_are_named_and_sent_later(run, monkeypatch):
    monkeypatch.setattr("rllib.remote.mirror._LAST_WAIT_S", 0.2)
    copy = mirror(run)
    copy.start()
    wait_until(lambda: "run.json" in content_of(copy.url))
    Shaky.refuses = ConnectionError("the cable is out")
    checkpoint(run, 2)
    lacking = copy.close()
    assert "3 files" in lacking and "the cable is out" in lacking
    assert lacking.endswith(f"rllib upload {run} shaky://bucket/run")
    Shaky.refuses = None
    upload(run, "shaky://bucket/run")
    assert content_of(copy.url) == files_of(run)


def test_a_request_that_never_ends_does_not_hold_the_program(run, monkeypatch):
    monkeypatch.setattr("rllib.remote.mirror._LAST_WAIT_S", 0.2)
    copy, forever = mirror(run), threading.Event()
    copy.start()
    wait_until(lambda: "run.json" in content_of(copy.url))
    monkeypatch.setattr(Shaky, "pipe_file", lambda *arguments, **options: forever.wait(LONGEST_S))
    checkpoint(run, 2)
    assert "nothing has arrived for 0.2 s" in copy.close()
    forever.set()
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "rllib upload"])
    assert "checkpoint_000002/manifest.json" not in content_of(copy.url)


def test_a_copy_of_something_else_is_left_alone(run, tmp_path):
    upload(run, "shaky://bucket/run")
    other = tmp_path / "other"
    other.mkdir()
    before = content_of("shaky://bucket/run")
    with pytest.raises(ValueError, match="holds other files than"):
        mirror(other).start()
    assert content_of("shaky://bucket/run") == before and list(other.iterdir()) == []


def test_a_run_that_was_continued_elsewhere_is_not_overwritten(run, tmp_path):
    upload(run, "shaky://bucket/run")
    elsewhere = working_copy("shaky://bucket/run", tmp_path / "there", "run.json")
    checkpoint(elsewhere, 2)
    upload(elsewhere, "shaky://bucket/run")
    with pytest.raises(ValueError, match="another process has continued from there"):
        mirror(run).start()
    assert "checkpoint_000002/manifest.json" in content_of("shaky://bucket/run")


def test_a_directory_that_is_removed_takes_nothing_with_it(run, monkeypatch):
    monkeypatch.setattr("rllib.remote.mirror._LAST_WAIT_S", 0.2)
    copy = mirror(run)
    copy.start()
    wait_until(lambda: "checkpoint_000001/manifest.json" in content_of(copy.url))
    shutil.rmtree(run)
    assert copy.close() is not None
    assert "checkpoint_000001/manifest.json" in content_of(copy.url)


def test_checkpoints_that_are_there_are_not_sent_again(run):
    upload(run, "shaky://bucket/run")
    Shaky.changes.clear()
    upload(run, "shaky://bucket/run")
    assert not [path for _, path in Shaky.changes if "checkpoint_000001" in path]


def test_links_and_files_that_are_being_written_are_not_sent(run, tmp_path):
    (tmp_path / "secret").write_text("mine")
    (run / "link").symlink_to(tmp_path / "secret")
    (run / "folder").symlink_to(tmp_path)
    (run / ".checkpoint_000002.tmp-0a1b2c3d").mkdir()
    (run / ".checkpoint_000002.tmp-0a1b2c3d" / "w").write_text("half")
    upload(run, "shaky://bucket/run")
    names = content_of("shaky://bucket/run")
    assert not [name for name in names if "link" in name or "folder" in name or "tmp" in name]


def test_storage_that_refuses_ends_the_start(run):
    Shaky.refuses = PermissionError("not yours")
    with pytest.raises(StorageError, match="shaky://bucket/run cannot be listed: PermissionError: not yours"):
        mirror(run).start()


def test_a_file_system_of_folders_gets_whole_files(run, tmp_path):
    """A protocol that is no object store: files are written under another name first."""
    url = f"disk://{tmp_path}/disk/run"
    (tmp_path / "disk" / "run").mkdir(parents=True)
    (tmp_path / "disk" / "run" / ".run.json.tmp").write_text("half of a killed program")
    copy = mirror(run, url)
    copy.start()
    checkpoint(run, 2)
    assert copy.close() is None
    assert files_of(tmp_path / "disk" / "run") == files_of(run)
    assert sorted(RemoteFolder(url).names()) == sorted(files_of(run))


def test_a_copy_of_the_copy_is_the_run(run, tmp_path):
    upload(run, "shaky://bucket/run")
    Shaky.loss = 0.2
    download(folder_at("shaky://bucket/run"), tmp_path / "again")
    assert files_of(tmp_path / "again") == files_of(run)
    assert read_checkpoint(tmp_path / "again" / "checkpoint_000001")["algorithm.json"] == {"iteration": 1}
    assert (tmp_path / "again" / IDENTITY).exists()


def test_a_large_file_that_moves_is_waited_for(run, monkeypatch):
    """Its parts count as arrivals."""
    monkeypatch.setattr("rllib.remote.mirror._LAST_WAIT_S", 0.5)
    monkeypatch.setattr("rllib.remote.filesystem._READ_AT_ONCE_BYTES", 8)
    folder, moved = RemoteFolder("shaky://bucket/run"), []

    def put_file(self, source, path, callback):
        for _ in range(8):
            time.sleep(0.1)
            callback.relative_update(1)
            moved.append(1)
        self.pipe_file(path, Path(source).read_bytes())

    monkeypatch.setattr(Shaky, "put_file", put_file)
    copy = mirror(run)
    copy.start()
    assert copy.close() is None and len(moved) >= 8
    assert sorted(folder.names()) == sorted(files_of(run))


def test_a_checkpoint_that_broke_off_on_its_way_is_written_again(run):
    folder = RemoteFolder("shaky://bucket/saved")
    upload_checkpoint(run / "checkpoint_000001", "shaky://bucket/saved")
    folder.remove("manifest.json")
    upload_checkpoint(run / "checkpoint_000001", "shaky://bucket/saved")
    assert content_of("shaky://bucket/saved") == files_of(run / "checkpoint_000001")
