"""Replays on a disk: the bits of those in memory, no name that could stay behind, an error where there is no room."""

import errno
import os
from functools import partial
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from rllib.replay import disk
from rllib.replay.disk import can_store, directory_of
from rllib.replay.replay_buffer import ReplayBuffer
from rllib.replay.replay_settings import ReplaySettings
from rllib.sample_batch import Column

STACKED = (Column("obs", (6, 4), "uint8"), Column("new_obs", (6, 4), "uint8"), Column("rewards"))


def rows(rng, count):
    frames = rng.integers(0, 255, (count + 4, 6), np.uint8)
    stacks = np.stack([frames[t : t + 4].T for t in range(count + 1)])
    return {"obs": stacks[:-1], "new_obs": stacks[1:], "rewards": rng.random(count, np.float32)}


@pytest.mark.parametrize("frame_axis", [None, -1])
@pytest.mark.parametrize("alpha", [None, 0.6])
def test_the_bits_are_those_of_memory(tmp_path, frame_axis, alpha):
    make = partial(ReplayBuffer, STACKED, 50, frame_axis, alpha)
    buffers = make(), make(str(tmp_path)), make("disk")
    assert len({replay.size_bytes for replay in buffers}) == 1
    for seed in range(4):
        samples = []
        for replay in buffers:
            rng = np.random.default_rng(seed)
            replay.add(rows(rng, 37), rng.random(37))
            samples.append(replay.sample(64, rng, 0.4))
            replay.update_priorities(samples[-1]["batch_indexes"], rng.random(64))
        for other in samples[1:]:
            assert all(np.array_equal(samples[0][name], other[name]) for name in other)
    again = make(str(tmp_path))
    again.set_state(buffers[0].get_state())
    assert np.array_equal(*(replay.sample(64, np.random.default_rng(9))["obs"] for replay in (again, buffers[1])))
    assert os.listdir(tmp_path) == []  # nothing that a process which is killed could leave


def test_temporary_directories_in_memory_are_passed_over(tmp_path, monkeypatch):
    kinds = {"/": "ext4", "/dev/shm": "tmpfs"}
    partitions = [SimpleNamespace(mountpoint=place, fstype=kind) for place, kind in kinds.items()]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: partitions)
    monkeypatch.setenv("TMPDIR", "/dev/shm")
    monkeypatch.setattr(disk, "PLACES", ("/none", str(tmp_path)))
    assert directory_of("disk") == str(tmp_path) and directory_of("memory") is None
    assert directory_of("/dev/shm") == "/dev/shm"  # as it was asked for
    monkeypatch.setattr(disk, "PLACES", ("/dev/shm",))
    with pytest.raises(ValueError, match="needs a temporary directory on a disk, but /dev/shm, /dev/shm"):
        directory_of("disk")


def test_what_is_no_storage_is_named(tmp_path):
    assert can_store("memory") and can_store("disk") and can_store(str(tmp_path))
    assert not can_store("/none/such") and not can_store("Disk")
    for wrong in ("/none/such", "Disk", None, 3, ["disk"]):
        assert "storage=" in ReplaySettings.mistake({"storage": wrong}).problem


def test_more_than_the_disk_is_refused_with_the_size(tmp_path, monkeypatch):
    table, where = (Column("obs", (256,)),), str(tmp_path)
    with pytest.raises(ValueError, match=r"takes \d+\.\d GiB, but the disk of .* has .* free. Use .*'capacity'"):
        ReplayBuffer(table, 10**12, storage=where)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000 * 1024))
    ReplayBuffer(table, 1000, storage=where)
    with pytest.raises(ValueError, match="a replay of 1001 rows"):
        ReplayBuffer(table, 1001, storage=where)
    with pytest.raises(ValueError, match="a replay of 2000 rows"):
        ReplayBuffer.check_room(table, 1000, storage=where, copies=2)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk.os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"cannot be reserved on the disk \(No space left on device\)"):
        ReplayBuffer(table, 1000, storage=where)
