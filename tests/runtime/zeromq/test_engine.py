"""The whole engine where its inside matters: garbage in mailboxes, workers that cannot be forked, random traffic."""

import os
import random
import re
import sys
import threading
import time

import numpy as np
import pytest
import zmq
from runtime_support import wait_until

import runtime
from runtime.engines.zeromq.client import tasks
from runtime.engines.zeromq.transport import mailbox as mailbox_module
from runtime.engines.zeromq.transport import wire


@runtime.remote
def identity(value):
    return value


@runtime.remote
class Keeper:
    """Keeps the last values it was given."""

    def __init__(self):
        self.kept = []

    def keep(self, value):
        self.kept = [*self.kept[-2:], value]
        return value

    def columns(self, value):
        columns = {str(n): runtime.empty(n, np.int64) for n in (3, 900, 20_000)}
        for column in columns.values():
            column[:] = value
        return columns

    def pid(self):
        return os.getpid()


@pytest.fixture
def session(fresh):
    fresh(num_cpus=4)
    return fresh


def used_segments():
    """Segments that are open in the node."""
    node = runtime.context.current_engine().node_pid
    links = [os.readlink(f"/proc/{node}/fd/{fd}") for fd in os.listdir(f"/proc/{node}/fd")]
    return sum("memfd:runtime" in link for link in links)


@pytest.mark.parametrize("seed", range(2))
def test_random_traffic(session, seed):
    """Values go round between processes in many ways; none changes while somebody holds it, and all are freed."""
    rng, held, keepers = random.Random(seed), [], [Keeper.remote() for _ in range(2)]
    ways = [
        lambda a: runtime.get(runtime.put(a)),
        lambda a: runtime.get(identity.remote(a)),
        lambda a: runtime.get(identity.remote(runtime.put(a))),
        lambda a: runtime.get(identity.remote(identity.remote(a))),
        lambda a: runtime.get(keepers[0].keep.remote(keepers[1].keep.remote(a))),
        lambda a: runtime.get(runtime.get(keepers[0].keep.remote([runtime.put(a)]))[0]),
        lambda a: runtime.get(identity.remote({"a": a, "b": [a[:3], a]}))["b"][1],
        lambda a: runtime.get(runtime.put([runtime.get(keepers[1].keep.remote(a)), "x"]))[0],
    ]
    for step in range(150):
        size, value = rng.choice([3, 2000, 9000, 50_000]), rng.randrange(10**6)
        if rng.random() < 0.2:
            held += [(column, value) for column in runtime.get(keepers[0].columns.remote(value)).values()]
        else:
            held.append((rng.choice(ways)(np.full(size, value)), value))
        rng.shuffle(held)
        del held[12:]
        if step % 10 == 0:
            assert all((array == value).all() for array, value in held), f"seed {seed}, step {step}"
    assert all((array == value).all() for array, value in held)
    assert used_segments() < 60


def test_constant_shapes_need_constant_memory(session):
    keeper = Keeper.remote()
    for _ in range(10):
        runtime.get(keeper.columns.remote(1))
        runtime.get(keeper.keep.remote(np.ones(100_000)))
    before = used_segments()
    for _ in range(100):
        runtime.get(keeper.columns.remote(1))
        runtime.get(keeper.keep.remote(np.ones(100_000)))
    # A busy machine lets frees come late, and a few segments more are in use; a leak would be of 200.
    assert used_segments() <= before + 10


def test_garbage_in_every_mailbox(session):
    """Only this user can write to a mailbox; still, nothing that is written there by mistake does any harm."""
    session.malformed, rng, keeper = None, random.Random(1), Keeper.remote()
    assert runtime.get(keeper.keep.remote(1)) == 1 and runtime.get(identity.remote(2)) == 2
    directory, context = runtime.context.current_engine().session, zmq.Context()
    mailboxes = [name for name in os.listdir(directory) if re.fullmatch("[0-9a-f]+", name)]
    assert len(mailboxes) >= 4
    for name in mailboxes:
        socket = context.socket(zmq.PUSH)
        socket.connect(f"ipc://{directory}/{name}")
        for _ in range(300):
            kind = rng.randrange(wire.LAST_KIND + 2)
            if kind in (wire.SHUTDOWN, wire.STOP, wire.LEAVING, wire.START_FAILED, wire.KILL):  # these are meant
                continue
            noise = bytes(rng.randrange(256) for _ in range(rng.choice((0, 1, 48, 80))))
            numbers = rng.randrange(4), 77, *(rng.randrange(99) for _ in range(4))
            frame = wire.HEADER.pack(wire.seal(), kind, *numbers)
            socket.send(rng.choice((noise, frame + noise, frame[: rng.randrange(49)])))
        socket.close(1000)
    context.term()
    assert runtime.get([keeper.keep.remote(i) for i in range(20)], timeout=20) == list(range(20))
    assert runtime.get([identity.remote(i) for i in range(20)], timeout=20) == list(range(20))
    assert runtime.context.current_engine().held().malformed > 100


def test_a_preloaded_module_with_threads(session, fresh, tmp_path, monkeypatch):
    """Threads do not survive a fork: such workers are started anew, and work the same."""
    runtime.shutdown()
    (tmp_path / "thready.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    fresh(preload=["thready"])
    keeper = Keeper.remote()
    assert runtime.get(keeper.keep.remote(np.ones(50_000))).sum() == 50_000
    assert runtime.get(identity.remote(5)) == 5


def test_quick_calls_do_not_hold_back_replies_for_long(session):
    """Replies to quick calls travel together; one slow call among them must not keep those before it."""

    @runtime.remote
    class Actor:
        def work(self, seconds):
            if seconds:
                time.sleep(seconds)

    actor = Actor.remote()
    runtime.get([actor.work.remote(0) for _ in range(100)])
    *quick, slow = [actor.work.remote(0) for _ in range(20)] + [actor.work.remote(3)]
    runtime.get(quick)
    assert runtime.wait([slow], timeout=0) == ([], [slow])


def test_calls_in_flight_keep_their_order(session):
    @runtime.remote
    class Recorder:
        def __init__(self):
            self.seen = []

        def add(self, number):
            self.seen.append(number)
            return number

        def all(self):
            return self.seen

    recorder = Recorder.remote()
    refs = [recorder.add.remote(i if i % 97 else identity.remote(i)) for i in range(3000)]
    assert runtime.get(refs) == list(range(3000))
    assert runtime.get(recorder.all.remote()) == list(range(3000))


@runtime.remote
class Teller:
    """Returns, raises, and remembers what it is told."""

    def __init__(self):
        self.told = []

    def tell(self, value=None):
        self.told.append(value)
        return value

    def refuse(self, value):
        if value % 3 == 0:
            raise ValueError(f"{value} is a multiple of 3")
        return value

    def pause(self, seconds):
        time.sleep(seconds)

    def all(self):
        return self.told


IN_FLIGHT = 200  # calls, far more than are sent one by one


def test_values_of_calls_in_flight_arrive_as_they_are(session):
    values = [0, -1, 2**63, -(2**63), 2**64, -(2**80), True, False, None, 0.0, -0.0, 1.5, float("inf"), float("nan")]
    values += ["", "text", "\0", "\ud800", "ä" * 1024, "x" * 100_000, b"", b"\xff" * 1025, bytearray(b"a")]
    values += [(1, 2), [3], {"a": 4}, np.float32(0.5), np.int64(7), 1j, frozenset((1,)), range(3)]
    teller, rng = Teller.remote(), random.Random(0)
    sent = [value for _ in range(20) for value in rng.sample(values, len(values))]
    received = runtime.get([teller.tell.remote(value) for value in sent])
    assert [(type(value), repr(value)) for value in received] == [(type(value), repr(value)) for value in sent]
    assert repr(runtime.get(teller.all.remote())) == repr(sent)


def test_results_of_calls_in_flight_can_be_passed_on(session):
    teller, other = Teller.remote(), Teller.remote()
    refs = [teller.tell.remote(number) for number in range(IN_FLIGHT)]
    passed_on = [other.tell.remote(ref) for ref in refs] + [identity.remote(ref) for ref in refs[-5:]]
    in_lists = [other.tell.remote([ref]) for ref in refs]
    assert runtime.get(passed_on) == [*range(IN_FLIGHT), *range(IN_FLIGHT)[-5:]]
    assert [runtime.get(ref) for (ref,) in runtime.get(in_lists)] == list(range(IN_FLIGHT))
    assert runtime.get([identity.remote(refs[3]), identity.remote([refs[4]])]) == [3, [refs[4]]]


def test_waiting_for_some_of_many_calls_in_flight(session):
    teller = Teller.remote()
    left, seen = [teller.tell.remote(number) for number in range(IN_FLIGHT)], []
    while left:
        done, left = runtime.wait(left, num_returns=min(7, len(left)))
        seen += runtime.get(done)
    assert sorted(seen) == list(range(IN_FLIGHT))


def test_errors_of_calls_in_flight(session):
    teller = Teller.remote()
    for number, ref in enumerate([teller.refuse.remote(number) for number in range(IN_FLIGHT)]):
        if number % 3:
            assert runtime.get(ref) == number
        else:
            with pytest.raises(ValueError, match=f"{number} is a multiple"):
                runtime.get(ref)


def test_a_call_in_flight_can_be_cancelled(session):
    teller = Teller.remote()
    runtime.get(teller.tell.remote(-1))
    slow = [teller.pause.remote(0) for _ in range(8)] + [teller.pause.remote(0.3)]
    refs = [teller.tell.remote(number) for number in range(3 * IN_FLIGHT)]
    for number in (5, 70, 3 * IN_FLIGHT - 1):  # at the actor, or still here
        runtime.cancel(refs[number])
        with pytest.raises(runtime.TaskCancelledError):
            runtime.get(refs[number], timeout=10)
    left = [number for number in range(3 * IN_FLIGHT) if number not in (5, 70, 3 * IN_FLIGHT - 1)]
    assert runtime.get([refs[number] for number in left], timeout=10) == left
    assert runtime.get(teller.all.remote()) == [-1, *left]
    assert runtime.get(slow) == [None] * 9


@pytest.mark.parametrize("num_returns", [0, 1, 2])
def test_submit_waits_while_too_many_tasks_are_not_done(session, monkeypatch, tmp_path, num_returns):
    monkeypatch.setattr(tasks, "LARGEST_TASK_COUNT", 5)

    @runtime.remote(num_returns=num_returns)
    def touch(number):
        (tmp_path / str(number)).touch()
        return range(num_returns) if num_returns > 1 else None

    for number in range(30):
        touch.remote(number)
    wait_until(lambda: len(os.listdir(tmp_path)) == 30, 20)


def test_threads_that_need_the_keeper_at_once_start_one(session):
    mailbox, barrier = mailbox_module.Mailbox(runtime.context.current_engine().session, 99, print), threading.Barrier(8)

    def start():
        barrier.wait()
        mailbox.start_keeper()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    before = threading.active_count()
    threads = [threading.Thread(target=start) for _ in range(8)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert threading.active_count() == before + 1
    mailbox.close(linger_ms=0)
