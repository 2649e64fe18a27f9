"""Shared memory under pressure: who frees what, and when; nothing is lost, mixed up, or left."""

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from runtime_support import unsettled, wait_until

import runtime
from runtime.engines.zeromq.node.shared_items import SETTLE_S

MB = 2**20


@runtime.remote
class Holder:
    def __init__(self):
        self.kept = []

    def keep(self, value):
        self.kept.append(value)

    def drop(self):
        self.kept.clear()

    def make(self, megabytes, value):
        array = runtime.empty(megabytes * MB, np.uint8)
        array[:] = value
        return array

    def put(self, megabytes, value):
        return [runtime.put(np.full(megabytes * MB, value, np.uint8))]

    def get_kept(self):
        return int(runtime.get(self.kept[-1][0])[0])

    def pid(self):
        return os.getpid()


@runtime.remote
def total(array):
    return int(array.sum())


@runtime.remote
def unwrap(refs):
    return int(runtime.get(refs[0])[0])


def full(value, megabytes=8):
    return np.full(megabytes * MB, value, np.uint8)


@runtime.remote
class Quick:
    """Replies so quickly that replies wait for one another, and kills itself while some of them wait."""

    def make(self, last):
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return runtime.empty(MB // 4, np.uint8)


def test_what_a_killed_actor_had_not_sent_yet_is_freed(fresh):
    fresh(object_store_memory=64 * MB)
    for _ in range(5):
        actor = Quick.remote()
        refs = [actor.make.remote(number == 24) for number in range(25)]
        arrived = 0
        for ref in refs:
            with contextlib.suppress(runtime.ActorDiedError):
                arrived += runtime.get(ref, timeout=60).nbytes == MB // 4
        assert arrived < 25
        del actor, ref, refs
    wait_until(lambda: not unsettled(), 30, lambda: f"left: {unsettled()}")


def test_values_outlive_the_actor_that_has_sent_them(fresh):
    fresh(object_store_memory=64 * MB)
    actor = Holder.remote()
    arrays = runtime.get([actor.make.remote(1, value) for value in range(10)])
    pid = runtime.get(actor.pid.remote())
    os.kill(pid, signal.SIGKILL)
    del actor
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
    asked_at = time.monotonic() + SETTLE_S + 1
    while time.monotonic() < asked_at:
        runtime.get(runtime.put(full(1, 1)))  # what was freed would be used again
        time.sleep(0.05)
    assert [(int(array[0]), int(array[-1])) for array in arrays] == [(value, value) for value in range(10)]
    assert unsettled()
    arrays.clear()
    wait_until(lambda: not unsettled(), 30, lambda: f"left: {unsettled()}")


def test_dropped_values_are_freed(fresh):
    fresh(object_store_memory=64 * MB, object_spilling_bytes=0)
    for i in range(40):
        assert runtime.get(runtime.put(full(i)))[0] == i


def test_dropped_arguments_and_results_are_freed(fresh):
    fresh(object_store_memory=64 * MB, object_spilling_bytes=0)
    holder = Holder.remote()
    for i in range(30):
        assert runtime.get(total.remote(full(1)), timeout=20) == 8 * MB
        assert runtime.get(holder.make.remote(8, i), timeout=20)[-1] == i


def test_nested_references_are_freed(fresh):
    fresh(object_store_memory=64 * MB, object_spilling_bytes=0)
    for i in range(25):
        outer = runtime.put({"inner": [runtime.put(full(i))]})
        assert runtime.get(unwrap.remote(runtime.get(outer)["inner"]), timeout=20) == i
        del outer


def test_references_made_by_actors_are_freed(fresh):
    fresh(object_store_memory=64 * MB, object_spilling_bytes=0)
    holder = Holder.remote()
    for i in range(25):
        [ref] = runtime.get(holder.put.remote(8, i), timeout=20)
        assert runtime.get(ref)[0] == i
        del ref


def test_what_an_actor_keeps_is_freed_when_it_drops_it(fresh):
    fresh(object_store_memory=64 * MB, object_spilling_bytes=0)
    holder = Holder.remote()
    for i in range(15):
        ref = runtime.put(full(i))
        runtime.get(holder.keep.remote([ref]), timeout=20)
        del ref
        assert runtime.get(holder.get_kept.remote(), timeout=20) == i
        runtime.get(holder.drop.remote(), timeout=20)


def test_a_killed_holder_holds_nothing(fresh):
    fresh(object_store_memory=64 * MB, object_spilling_bytes=0)
    for i in range(5):
        holder = Holder.remote()
        for _ in range(4):
            runtime.get(holder.keep.remote([runtime.put(full(i))]), timeout=20)
        os.kill(runtime.get(holder.pid.remote(), timeout=20), signal.SIGKILL)


def test_a_killed_producer_leaves_nothing(fresh):
    fresh(object_store_memory=64 * MB, object_spilling_bytes=0)
    for i in range(5):
        holder = Holder.remote()
        refs = [holder.make.remote(8, i) for _ in range(3)]
        assert [int(a[0]) for a in runtime.get(refs, timeout=20)] == [i] * 3
        os.kill(runtime.get(holder.pid.remote(), timeout=20), signal.SIGKILL)
        del refs


def test_views_outlive_everything(fresh):
    fresh(object_store_memory=64 * MB, object_spilling_bytes=0)
    holder = Holder.remote()
    result = runtime.get(holder.make.remote(8, 5), timeout=20)
    [ref] = runtime.get(holder.put.remote(8, 6), timeout=20)
    row, other = result[100:200], runtime.get(ref)[:10]
    pid = runtime.get(holder.pid.remote(), timeout=20)
    del result, ref
    os.kill(pid, signal.SIGKILL)
    del holder
    gc.collect()
    for i in range(20):
        runtime.put(full(i))
    assert (row == 5).all() and (other == 6).all()
    runtime.shutdown()
    assert (row == 5).all() and (other == 6).all()
    del row, other


def test_a_published_value_outlives_its_maker(fresh):
    fresh()
    holder = Holder.remote()
    [ref] = runtime.get(holder.put.remote(8, 9), timeout=20)
    result = holder.make.remote(8, 3)
    runtime.wait([result], timeout=20)
    os.kill(runtime.get(holder.pid.remote(), timeout=20), signal.SIGKILL)
    with pytest.raises(runtime.ActorDiedError):
        runtime.get(holder.pid.remote(), timeout=10)
    assert runtime.get(ref, timeout=10)[0] == 9
    assert runtime.get(unwrap.remote([ref]), timeout=20) == 9
    assert runtime.get(result, timeout=10)[0] == 3


def test_an_unfinished_value_of_a_dead_owner_is_an_error(fresh, tmp_path):
    @runtime.remote
    def wait_for_ever():
        import time

        time.sleep(1000)

    @runtime.remote
    class Owner:
        def start(self):
            return [wait_for_ever.remote()], os.getpid()

    fresh()
    owner = Owner.remote()
    [ref], pid = runtime.get(owner.start.remote(), timeout=20)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(runtime.OwnerDiedError):
        runtime.get(ref, timeout=10)


def test_frees_unblock_a_put(fresh):
    fresh(object_store_memory=64 * MB, object_spilling_bytes=0)
    refs = [runtime.put(full(i)) for i in range(6)]
    thread = threading.Timer(0.5, refs.clear)
    thread.start()
    kept = [runtime.put(full(i)) for i in range(6)]
    thread.join()
    assert [int(a[0]) for a in runtime.get(kept)] == list(range(6))


def test_values_held_by_reference_cycles_are_freed_when_memory_is_short(fresh):
    def make_cycle():
        gc.disable()
        node = {"ref": runtime.put(full(1))}
        node["node"] = node

    @runtime.remote
    class Maker:
        def make(self):
            make_cycle()

    fresh(object_store_memory=64 * MB, object_spilling_bytes=0)
    maker = Maker.remote()
    try:
        for _ in range(8):
            runtime.get(maker.make.remote(), timeout=20)
        for _ in range(8):
            make_cycle()
    finally:
        gc.enable()


@pytest.mark.slow
def test_a_full_store_is_an_error_and_not_a_crash(fresh):
    fresh(object_store_memory=64 * MB, object_spilling_bytes=0)
    kept = []
    with pytest.raises(runtime.ObjectStoreFullError):
        while len(kept) < 20:
            kept.append(runtime.put(full(len(kept))))
    assert len(kept) >= 4
    assert [int(a[0]) for a in runtime.get(kept)] == list(range(len(kept)))
    assert runtime.get(total.remote(np.ones(10)), timeout=20) == 10
    kept.clear()
    gc.collect()
    assert runtime.get(runtime.put(full(3)))[0] == 3


def test_what_can_never_fit_is_refused_at_once(fresh):
    fresh(object_store_memory=64 * MB, object_spilling_bytes=0)
    with pytest.raises(runtime.ObjectStoreFullError):
        runtime.put(full(1, megabytes=200))
    assert runtime.get(runtime.put(full(3)))[0] == 3


@pytest.mark.parametrize("given", [{}, {"object_spilling_bytes": 2**62}])
def test_more_than_the_disk_has_is_refused_at_once(fresh, given):
    fresh(object_store_memory=64 * MB, **given)
    started = time.monotonic()
    with pytest.raises(runtime.ObjectStoreFullError):
        runtime.empty(2**50, "uint8")
    assert time.monotonic() - started < 10


SMALL_SHM = """
import numpy as np, os, runtime
runtime.init("zeromq", num_cpus=2, object_store_memory=2**28)
@runtime.remote
class Actor:
    def echo(self, x):
        return x
actor = Actor.remote()
for i in range(5):
    x = np.full(20_000_000, i, np.uint8)
    assert (runtime.get(actor.echo.remote(x)) == x).all()
print("fine")
"""


@pytest.mark.parametrize(
    "prepare", ["mount -t tmpfs -o size=64k tmpfs /dev/shm", "mount -t tmpfs -o size=0,mode=000 tmpfs /mnt"]
)
def test_dev_shm_is_not_needed(fresh, script, tmp_path, prepare):
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("mount namespaces are not available here")
    path = tmp_path / "small_shm.py"
    path.write_text(SMALL_SHM)
    hide = "" if "shm" in prepare else " && mount --bind /mnt /dev/shm"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f"{prepare}{hide} && exec {sys.executable} {path}"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        check=False,
    )
    assert done.stdout.strip() == "fine", done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_huge_objects(fresh):
    fresh(object_store_memory=12 * 2**30)
    array = runtime.empty(4 * 2**30 + 5, np.uint8)
    array[::4096] = 7
    array[-1] = 9
    result = runtime.get(runtime.put(array))
    assert len(result) == len(array) and result[-1] == 9 and result[4096 * 12345] == 7
    del result, array
    gc.collect()
    data = bytes(2**31 + 10)
    assert len(runtime.get(runtime.put(data))) == len(data)


def test_an_object_beyond_4_gib(fresh):
    """Pages that nobody writes take no memory: sizes and offsets are 64 bits wide everywhere."""

    @runtime.remote
    def ends(array):
        return array.nbytes, int(array[0]), int(array[-1])

    fresh(object_store_memory=6 * 2**30)
    array = runtime.empty(4 * 2**30 + 5, np.uint8)
    array[0], array[-1] = 7, 9
    ref = runtime.put({"columns": [array, array[-3:]]})
    columns = runtime.get(ref)["columns"]
    assert columns[0].nbytes == 4 * 2**30 + 5 and list(columns[1]) == [0, 0, 9]
    assert runtime.get(ends.remote(columns[0]), timeout=30) == (4 * 2**30 + 5, 7, 9)


def test_an_owner_that_dies_while_others_wait_for_its_value(fresh, tmp_path):
    @runtime.remote
    class Owner:
        def start(self):
            @runtime.remote(num_cpus=0)
            def wait_for_ever():
                import time

                (tmp_path / "begun").touch()
                time.sleep(1000)

            return [wait_for_ever.remote()], os.getpid()

    @runtime.remote(num_cpus=0)
    def wait_for(refs):
        return runtime.get(refs[0])

    fresh()
    owner = Owner.remote()
    [ref], pid = runtime.get(owner.start.remote(), timeout=20)
    waiting = [wait_for.remote([ref]) for _ in range(2)]
    wait_until((tmp_path / "begun").exists)
    assert runtime.wait([ref, *waiting], timeout=0.3)[0] == []
    os.kill(pid, signal.SIGKILL)
    for refused in (ref, *waiting):
        with pytest.raises(runtime.OwnerDiedError):
            runtime.get(refused, timeout=10)


def test_a_reference_of_a_reference(fresh):
    @runtime.remote
    def nest(depth, ref):
        return [ref] if depth == 0 else [nest.remote(depth - 1, ref) if depth % 2 else runtime.put([ref])]

    fresh(object_store_memory=64 * MB, object_spilling_bytes=0)
    for i in range(10):
        inner = nest.options(num_cpus=0).remote(3, [runtime.put(full(i))])
        while isinstance(inner, runtime.ObjectRef | list):
            inner = runtime.get(inner, timeout=20) if isinstance(inner, runtime.ObjectRef) else inner[0]
        assert int(inner[0]) == i


def test_references_dropped_anywhere(fresh):
    fresh(object_store_memory=128 * MB)
    holder = Holder.remote()

    class Node:
        def __init__(self, ref, handle):
            self.ref, self.handle, self.self = ref, handle, self

        def __del__(self):
            pass

    def churn(n):
        for i in range(30):
            node = Node(runtime.put(np.full(200_000, n + i)), holder)
            node.more = [runtime.put(i), holder.pid.remote()]
            del node
            if i % 10 == 0:
                gc.collect()

    threads = [threading.Thread(target=churn, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    gc.collect()
    for i in range(20):
        runtime.put(full(i))


def test_references_alive_at_the_end_of_the_interpreter(fresh, script):
    done = script("""
import numpy as np, runtime
runtime.init("zeromq", num_cpus=1)
@runtime.remote
class Actor:
    def echo(self, x):
        return x
class Node:
    pass
node = Node()
node.actor = Actor.remote()
node.refs = [runtime.put(np.ones(100_000)), node.actor.echo.remote(np.ones(100_000))]
node.value = runtime.get(node.refs[1])
node.self = node
keep = [node]
""")
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_readers_never_see_a_change(fresh):
    fresh()
    holder = Holder.remote()
    value = runtime.get(holder.make.remote(2, 1), timeout=20)
    for i in range(10):
        runtime.get(holder.make.remote(2, i + 2), timeout=20)
        assert (value == 1).all()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_torch_tensors(fresh):
    torch = pytest.importorskip("torch")

    @runtime.remote
    def echo(x):
        return x

    fresh()
    tensors = [
        torch.arange(10),
        torch.ones(1000, 100, dtype=torch.bfloat16),
        torch.ones(300, 300)[::2].t(),
        torch.nn.Parameter(torch.ones(100_000)),
        torch.tensor(3.0, requires_grad=True),
        torch.empty(0),
    ]
    for tensor, result in zip(tensors, runtime.get(echo.remote(tensors), timeout=120)):
        assert type(result) is type(tensor) and result.dtype == tensor.dtype
        assert result.requires_grad == tensor.requires_grad and torch.equal(result, tensor)


def test_memory_returns_to_the_system(fresh):
    """Idle segments are given back after a while; at the latest the next session starts from nothing."""

    def shared():
        total_kb = 0
        for pid in fresh.processes():
            with open(f"/proc/{pid}/status") as file:
                total_kb += sum(int(line.split()[1]) for line in file if line.startswith("RssShmem"))
        return total_kb

    fresh(object_store_memory=256 * MB)
    holder = Holder.remote()
    for i in range(5):
        runtime.get(holder.make.remote(32, i), timeout=20)
    runtime.kill(holder)
    del holder
    wait_until(lambda: shared() < 20_000, 20, lambda: f"{shared()} KB shared")
