"""Calls that run at the same time in one actor, on processes."""

import asyncio
import itertools
import threading
import time

import pytest

import runtime


@runtime.remote(num_cpus=0)
class Threads:
    def __init__(self, parties=2):
        self.barrier = threading.Barrier(parties)
        self.most = self.now = 0

    def meet(self):
        return self.barrier.wait(20)

    @runtime.method(concurrency_group="io")
    def answer(self):
        return threading.current_thread().name

    def work(self):
        self.now += 1
        self.most = max(self.most, self.now)
        time.sleep(0.05)
        self.now -= 1
        return self.most

    def ask(self, me):
        return runtime.get(me.answer_self.remote())

    def answer_self(self):
        return "answer"

    def leave(self):
        runtime.exit_actor()


def test_calls_run_in_threads_up_to_the_limit(fresh):
    fresh()
    actor = Threads.options(max_concurrency=3, concurrency_groups={"io": 1}).remote(3)
    assert sorted(runtime.get([actor.meet.remote() for _ in range(3)], timeout=30)) == [0, 1, 2]
    assert max(runtime.get([actor.work.remote() for _ in range(9)], timeout=30)) == 3


def test_a_group_is_not_held_up_by_other_calls(fresh):
    fresh()
    actor = Threads.options(concurrency_groups={"io": 1}).remote()
    blocked = actor.meet.remote()
    assert "io" in runtime.get(actor.answer.remote(), timeout=20)
    assert not runtime.wait([blocked], timeout=0.1)[0]
    runtime.kill(actor)


def test_an_actor_that_waits_for_itself_has_another_thread(fresh):
    fresh()
    actor = Threads.options(max_concurrency=2, concurrency_groups={"io": 1}).remote()
    assert runtime.get(actor.ask.remote(actor), timeout=20) == "answer"


def test_exit_actor_in_a_thread(fresh):
    fresh()
    actor = Threads.options(max_concurrency=2, concurrency_groups={"io": 1}).remote()
    assert runtime.get(actor.work.remote(), timeout=20) == 1
    with pytest.raises(runtime.ActorDiedError, match="exit_actor"):
        runtime.get(actor.leave.remote(), timeout=20)


@runtime.remote(num_cpus=0)
class Loop:
    def __init__(self):
        self.event = None
        self.most = self.now = 0

    async def wait(self):
        self.event = self.event or asyncio.Event()
        await self.event.wait()
        return "set"

    async def set(self):
        self.event = self.event or asyncio.Event()
        self.event.set()

    async def tick(self):
        return "tick"

    def block(self, seconds):
        self.now += 1
        self.most = max(self.most, self.now)
        time.sleep(seconds)
        self.now -= 1
        return "blocked"

    async def block_loop(self, seconds):
        return self.block(seconds)

    def most_at_a_time(self):
        return self.most

    def ask(self, me):
        return runtime.get(me.tick.remote())

    def ask_often(self, me, count):
        for _ in range(count):
            yield self.ask(me)

    async def numbers(self, pause_after=None):
        try:
            for number in itertools.count():
                self.most = number
                yield number
                if number == pause_after:
                    await asyncio.Event().wait()
        finally:
            await self.set()

    async def gather(self, me, count):
        return await asyncio.gather(*[me.tick.remote() for _ in range(count)])

    async def fail(self):
        await asyncio.sleep(0)
        raise LookupError("in fail")


def test_coroutines_run_at_the_same_time(fresh):
    fresh()
    actor = Loop.remote()
    waiting = [actor.wait.remote() for _ in range(20)]
    assert not runtime.wait(waiting, timeout=0.2)[0]
    runtime.get(actor.set.remote(), timeout=20)
    assert runtime.get(waiting, timeout=20) == ["set"] * 20


def test_an_ordinary_method_that_waits_in_get_lets_coroutines_run(fresh):
    """Its value may depend on them: here the actor asks itself, in the method and in its generator."""
    fresh()
    actor = Loop.remote()
    assert runtime.get(actor.ask.remote(actor), timeout=20) == "tick"
    assert runtime.get(list(actor.ask_often.remote(actor, 3)), timeout=20) == ["tick"] * 3


def test_an_async_generator_waits_for_its_caller_and_is_closed_with_it(fresh):
    fresh()
    actor = Loop.remote()
    closed = actor.wait.remote()
    numbers = actor.numbers.options(_generator_backpressure_num_objects=2).remote()
    assert [runtime.get(next(numbers)) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert runtime.get(actor.most_at_a_time.remote(), timeout=20) <= 7  # others run meanwhile, and it is not far ahead
    assert not runtime.wait([closed], timeout=0)[0]
    del numbers
    assert runtime.get(closed, timeout=20) == "set"


def test_an_async_generator_is_cancelled(fresh):
    fresh()
    actor = Loop.remote()
    closed, numbers = actor.wait.remote(), actor.numbers.remote(pause_after=1)
    assert [runtime.get(next(numbers)) for _ in range(2)] == [0, 1]
    runtime.cancel(numbers)
    with pytest.raises(runtime.TaskCancelledError):
        runtime.get(next(numbers), timeout=20)
    assert runtime.get(closed, timeout=20) == "set"


def test_ordinary_methods_and_coroutines_never_run_at_the_same_time(fresh):
    fresh()
    actor = Loop.remote()
    runtime.get([(actor.block, actor.block_loop)[i % 2].remote(0.001) for i in range(50)], timeout=30)
    assert runtime.get(actor.most_at_a_time.remote(), timeout=20) == 1


def test_await_many_and_async_exception(fresh):
    fresh()
    actor = Loop.remote()
    assert runtime.get(actor.gather.remote(actor, 50), timeout=30) == ["tick"] * 50
    with pytest.raises(LookupError, match="in fail"):
        runtime.get(actor.fail.remote(), timeout=20)


@pytest.mark.parametrize("count", [9, 600])
def test_a_call_that_ends_the_wait_of_many_others_goes_out(fresh, count):
    fresh()
    actor = Loop.remote()
    runtime.get(actor.tick.remote(), timeout=20)
    waiting = [actor.wait.remote() for _ in range(count)]
    actor.set.remote()
    assert waiting[0].future().result(20) == "set"  # this thread does not wait in a verb, which would send it
    assert runtime.get(waiting, timeout=20) == ["set"] * count


def test_a_thousand_awaits_start_no_thread(fresh):
    fresh()
    actor = Loop.remote()

    async def wait():
        refs = [actor.wait.remote() for _ in range(900)]
        waits = asyncio.gather(*refs, *[actor.tick.remote() for _ in range(100)])
        await actor.tick.remote()
        threads = threading.active_count()
        await actor.set.remote()
        return await waits, threads

    threads = threading.active_count()
    values, meanwhile = asyncio.run(wait())
    assert values == ["set"] * 900 + ["tick"] * 100 and meanwhile == threads


def test_awaits_and_futures_end_with_the_session(fresh):
    fresh()
    actor = Loop.remote()
    future = actor.wait.remote().future()

    async def wait():
        pending = asyncio.gather(actor.wait.remote(), return_exceptions=True)
        await actor.tick.remote()
        runtime.shutdown()
        return await pending

    [error] = asyncio.run(wait())
    assert isinstance(error, runtime.SessionClosedError)
    assert isinstance(future.exception(20), runtime.SessionClosedError)


def test_the_last_handle_lets_running_calls_end(fresh):
    fresh()
    refs = [Loop.remote().block.remote(0.2), Threads.options(concurrency_groups={"io": 1}).remote(1).meet.remote()]
    assert runtime.get(refs, timeout=20) == ["blocked", 0]
