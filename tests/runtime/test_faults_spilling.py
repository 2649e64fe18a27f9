"""Objects beyond the shared memory: they go to the disk, come back equal, and leave nothing there."""

import contextlib
import os
import signal

import numpy as np
import pytest
from runtime_support import wait_until

import runtime
from runtime import context
from runtime.engines.zeromq.transport import node_requests

MB = 2**20


def full(value, megabytes=8):
    return np.full(megabytes * MB, value, np.uint8)


def files_on_disk(place):
    """Number of files without a name in a directory that the node has open."""
    directory = f"/proc/{context.current_engine().node_pid}/fd"
    links = []
    for fd in os.listdir(directory):
        with contextlib.suppress(FileNotFoundError):  # the node has closed it meanwhile
            links.append(os.readlink(f"{directory}/{fd}"))
    return sum(link.startswith(str(place)) and link.endswith("(deleted)") for link in links)


@runtime.remote
def make(value, megabytes=8):
    return full(value, megabytes)


@runtime.remote
def read(array):
    return int(array[0]), int(array[-1]), array.flags.writeable


@runtime.remote
class Maker:
    def make(self, value, megabytes=8):
        array = runtime.empty(megabytes * MB, np.uint8)
        array[:] = value
        return array

    def pid(self):
        return os.getpid()


def test_objects_beyond_the_memory_go_to_the_disk(fresh, tmp_path):
    fresh(object_store_memory=64 * MB, object_spilling_directory=tmp_path)
    refs = [runtime.put(full(i)) for i in range(12)]
    refs += [make.remote(i) for i in range(12, 18)]
    assert [int(a[0]) for a in runtime.get(refs, timeout=60)] == list(range(18))
    assert runtime.get([read.remote(ref) for ref in refs[::4]], timeout=60) == [(i, i, False) for i in range(0, 18, 4)]
    assert files_on_disk(tmp_path) >= 10 and os.listdir(tmp_path) == []
    refs.clear()
    wait_until(lambda: files_on_disk(tmp_path) == 0)
    again = [runtime.put(full(i)) for i in range(3)]
    assert files_on_disk(tmp_path) == 0, "there is memory again"
    assert [int(a[0]) for a in runtime.get(again)] == [0, 1, 2]


def test_an_object_larger_than_the_memory(fresh):
    fresh(object_store_memory=16 * MB)
    ref = runtime.put(full(7, megabytes=100))
    assert runtime.get(read.remote(ref), timeout=30) == (7, 7, False)


def test_small_objects_go_to_the_disk_as_well(fresh, tmp_path):
    fresh(object_store_memory=4 * MB, object_spilling_directory=tmp_path)
    refs = [runtime.put(np.full(100_000, i % 256, np.uint8)) for i in range(100)]
    assert [int(a[0]) for a in runtime.get(refs)] == list(range(100))
    assert files_on_disk(tmp_path) > 0


def test_what_is_on_the_disk_outlives_its_maker_and_its_references(fresh, tmp_path):
    fresh(object_store_memory=16 * MB, object_spilling_directory=tmp_path)
    maker = Maker.remote()
    refs = [maker.make.remote(i) for i in range(6)]
    arrays = runtime.get(refs, timeout=30)
    assert files_on_disk(tmp_path) >= 4
    pid = runtime.get(maker.pid.remote())
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(runtime.ActorDiedError):
        runtime.get(maker.pid.remote(), timeout=10)
    assert runtime.get(read.remote(refs[5]), timeout=30) == (5, 5, False)
    refs.clear()
    assert [int(a.min()) for a in arrays] == [int(a.max()) for a in arrays] == list(range(6))


def test_a_full_disk_is_an_error_that_says_who_holds_what(fresh, monkeypatch):
    monkeypatch.setattr(node_requests, "STORE_FULL_S", 1.0)
    fresh(object_store_memory=32 * MB, object_spilling_bytes=32 * MB)
    maker = Maker.remote()
    kept = [maker.make.remote(1), maker.make.remote(2)]
    runtime.wait(kept, num_returns=2, timeout=30)
    with pytest.raises(runtime.ObjectStoreFullError) as caught:
        while len(kept) < 20:
            kept.append(runtime.put(full(len(kept))))
    text = str(caught.value)
    assert "of 32.0 MB of shared memory are taken" in text and "MB on the disk" in text
    assert "driver 1 has made" in text and "actor Maker (process" in text and "driver 1 holds 2 blocks" in text
    assert "object_spilling_bytes" in text and len(kept) >= 5
    assert runtime.get(read.remote(kept[0]), timeout=30) == (1, 1, False)
    kept.clear()
    assert runtime.get(runtime.put(full(3)))[0] == 3


def test_a_free_disk_unblocks_a_put(fresh):
    fresh(object_store_memory=20 * MB, object_spilling_bytes=20 * MB)
    kept = [runtime.put(full(i)) for i in range(4)]

    @runtime.remote(num_cpus=0)
    def drop_later():
        import time

        time.sleep(0.5)

    done = drop_later.remote()
    done.future().add_done_callback(lambda _: kept.clear())
    assert int(runtime.get(runtime.put(full(9, megabytes=12)))[0]) == 9


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"object_spilling_directory": "/no/such/directory"}, ValueError, "object_spilling_directory"),
        ({"object_spilling_bytes": -1}, ValueError, "object_spilling_bytes"),
        ({"object_spilling_bytes": "many"}, TypeError, "object_spilling_bytes"),
    ],
)
def test_wrong_places_are_refused(fresh, arguments, error, message):
    with pytest.raises(error, match=message):
        fresh(**arguments)
