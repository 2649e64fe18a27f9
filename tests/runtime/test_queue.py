"""util.queue, on every engine."""

import asyncio
import queue
import threading
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
    with pytest.raises(Empty, match="the queue is empty"):
        items.get_nowait()
    items.put_nowait(1)
    items.put_nowait(2)
    assert items.full()
    with pytest.raises(queue.Full):
        items.put_nowait(3)
    with pytest.raises(queue.Empty, match="fewer than 3 items"):
        items.get_nowait_batch(3)
    assert items.get_nowait_batch(2) == [1, 2]
    with pytest.raises(Full, match="no room for 3 more in a queue of at most 2 items"):
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


def ended(main):
    """What a coroutine returns. A loop that does not end must not keep the test from its end."""
    found = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(main())), daemon=True)
    thread.start()
    thread.join(20)
    assert found, "the loop has not ended"
    return found[0]


def test_coroutines(engine):
    async def main():
        items = Queue()
        await items.put_async(1)
        return await items.get_async(timeout=20)

    assert asyncio.run(main()) == 1


def test_many_coroutines_wait_at_once(engine):
    async def main():
        items, full = Queue(), Queue(maxsize=1)
        full.put(-1)
        waiting = [asyncio.create_task(items.get_async()) for _ in range(100)]
        waiting += [asyncio.create_task(full.put_async(item)) for item in range(3)]
        await asyncio.sleep(0.1)
        for item in range(100):
            await items.put_async(item)
        taken = [await full.get_async() for _ in range(4)]
        return sorted(await asyncio.gather(*waiting[:100])), sorted(taken)

    assert ended(main) == (list(range(100)), [-1, 0, 1, 2])


def test_cancelled_coroutines_take_no_items(engine):
    async def main():
        items, taken = Queue(), []

        async def get():
            taken.append(await items.get_async())

        tasks = []
        for item in range(60):  # some are cancelled before, in and after their call of the actor
            tasks.append(asyncio.create_task(get()))
            items.put(item)
            for _ in range(item % 6):
                await asyncio.sleep(0)
            tasks[-1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while len(taken) < 60:
            taken.append(await items.get_async(timeout=5))
        return sorted(taken), items.size()

    assert ended(main) == (list(range(60)), 0)


def test_a_loop_ends_while_an_item_is_waited_for(engine):
    items = Queue()

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(items.get_async(), 0.1)
        items.put(1)
        await asyncio.sleep(0.2)
        return items.get_nowait()

    assert ended(main) == 1


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
