"""util.queue, on every engine."""

import asyncio
import queue
import time

import pytest
from runtime_support import wait_until

import runtime
from runtime.util.queue import Empty, Full, Queue


@runtime.remote
def produce(target, items, pause_s=0.0):
    for item in items:
        time.sleep(pause_s)
        target.put(item)


@runtime.remote
def consume(source, count):
    return [source.get(timeout=20) for _ in range(count)]


def test_first_in_first_out(engine):
    items = Queue()
    for item in (1, "two", [3]):
        items.put(item)
    assert len(items) == items.qsize() == 3 and not items.empty() and not items.full()
    assert [items.get() for _ in range(3)] == [1, "two", [3]]
    assert items.empty()


def test_without_waiting(engine):
    items = Queue(maxsize=2)
    with pytest.raises(Empty):
        items.get_nowait()
    items.put_nowait(1)
    items.put_nowait(2)
    assert items.full()
    with pytest.raises(queue.Full):
        items.put_nowait(3)
    with pytest.raises(queue.Empty):
        items.get_nowait_batch(3)
    assert items.get_nowait_batch(2) == [1, 2]
    with pytest.raises(Full):
        items.put_nowait_batch(range(3))
    items.put_nowait_batch(range(2))
    assert items.size() == 2


def test_a_timeout(engine):
    items = Queue(maxsize=1)
    started = time.monotonic()
    with pytest.raises(Empty):
        items.get(timeout=0.1)
    assert time.monotonic() - started >= 0.1
    items.put(1)
    with pytest.raises(Full):
        items.put(2, timeout=0.1)
    with pytest.raises(ValueError, match="timeout"):
        items.get(timeout=-1)


def test_tasks_share_it(engine):
    items = Queue()
    produced = produce.remote(items, range(5), 0.02)
    assert runtime.get(consume.remote(items, 5), timeout=30) == list(range(5))
    runtime.get(produced)


def test_coroutines(engine):
    async def main():
        items = Queue()
        await items.put_async(1)
        return await items.get_async(timeout=20)

    assert asyncio.run(main()) == 1


@pytest.mark.parametrize("force", [False, True])
def test_shutdown(engine, force):
    items = Queue(actor_options={"num_cpus": 1})
    items.put(1)
    wait_until(lambda: runtime.available_resources()["CPU"] == 3)  # Ray's count follows later
    assert isinstance(items.actor, runtime.ActorHandle)
    items.shutdown(force=force)
    items.shutdown(force=True)
    assert items.actor is None
    with pytest.raises(runtime.ActorDiedError):
        items.size()
