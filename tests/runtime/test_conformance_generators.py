"""Generators as tasks and methods, on every engine."""

import asyncio
import collections
import itertools
import threading

import numpy as np
import pytest
from runtime_support import wait_until

import runtime


@runtime.remote
def count_to(n):
    yield from range(n)


@runtime.remote
def fail_after(n):
    yield from range(n)
    raise KeyError(n)


@runtime.remote
def endless(path=None):
    try:
        yield from itertools.count()
    finally:
        if path is not None:
            path.touch()


@runtime.remote
class Counter:
    def __init__(self):
        self.value = 0

    def count(self, n):
        for _ in range(n):
            self.value += 1
            yield self.value

    @runtime.method(num_returns=2)
    def pair(self):
        yield 1
        yield 2

    def plain(self, n):
        return list(range(n))


@runtime.remote
class Ends:
    """Generators that yield when they are asked to."""

    def __init__(self):
        self.events = collections.defaultdict(asyncio.Event)

    async def values(self, i):
        await self.events[i].wait()
        yield i

    async def end(self, i):
        self.events[i].set()


def test_a_generator_gives_references_as_it_yields(engine):
    generator = count_to.remote(5)
    assert isinstance(generator, runtime.ObjectRefGenerator)
    assert runtime.get(next(generator)) == 0
    assert [runtime.get(ref) for ref in generator] == [1, 2, 3, 4]
    assert generator.is_finished() and list(generator) == []


def test_many_values_and_large_ones(engine):
    @runtime.remote
    def arrays(n):
        for i in range(n):
            yield np.full(100_000, i)

    assert [int(runtime.get(ref)[0]) for ref in arrays.remote(20)] == list(range(20))
    assert sum(map(runtime.get, count_to.remote(3000))) == 3000 * 2999 // 2


def test_references_of_a_generator_are_arguments(engine):
    add = runtime.remote(lambda a, b: a + b)
    assert runtime.get([add.remote(ref, 1) for ref in count_to.remote(3)]) == [1, 2, 3]
    unwrap = runtime.remote(lambda refs: runtime.get(refs))
    assert runtime.get(unwrap.remote(list(count_to.remote(3)))) == [0, 1, 2]


def test_an_error_is_the_last_value(engine):
    refs = list(fail_after.remote(2))
    assert runtime.get(refs[:2]) == [0, 1] and len(refs) == 3
    with pytest.raises(KeyError):
        runtime.get(refs[2])


def test_what_is_no_generator_is_an_error(engine):
    [ref] = runtime.remote(num_returns="streaming")(lambda: 3).remote()
    with pytest.raises(TypeError, match="generator"):
        runtime.get(ref)


def test_what_cannot_be_pickled_is_named(engine):
    @runtime.remote
    def locks():
        import threading

        yield 1
        yield threading.Lock()

    first, second = locks.remote()
    assert runtime.get(first) == 1
    with pytest.raises(TypeError, match=r"the result of .*locks\(\) cannot be pickled"):
        runtime.get(second)


def test_completed_says_how_it_ended(engine):
    good, bad = count_to.remote(2), fail_after.remote(0)
    assert len(list(good)) == 2 and runtime.get(good.completed()) is None
    [error] = bad
    for ref in (error, *([] if engine == "ray" else [bad.completed()])):  # Ray: None
        with pytest.raises(KeyError):
            runtime.get(ref)


def test_a_method_that_is_a_generator(engine):
    counter = Counter.remote()
    assert [runtime.get(ref) for ref in counter.count.remote(3)] == [1, 2, 3]
    assert [runtime.get(ref) for ref in counter.count.remote(2)] == [4, 5]
    assert runtime.get(counter.pair.remote()) == [1, 2]
    assert [runtime.get(ref) for ref in counter.plain.options(num_returns="streaming").remote(3)] == [0, 1, 2]
    assert runtime.get(counter.count.options(num_returns=2).remote(2)) == [6, 7]
    bounded = counter.count.options(_generator_backpressure_num_objects=1).remote(3)
    assert [runtime.get(ref) for ref in bounded] == [8, 9, 10]


def test_dynamic_gives_one_reference_to_all(engine):
    ref = count_to.options(num_returns="dynamic").remote(4)
    assert isinstance(ref, runtime.ObjectRef)
    refs = runtime.get(ref)
    assert isinstance(refs, runtime.DynamicObjectRefGenerator) and len(refs) == 4
    assert runtime.get(list(refs)) == [0, 1, 2, 3]
    *good, bad = runtime.get(fail_after.options(num_returns="dynamic").remote(2))
    assert runtime.get(good) == [0, 1]
    with pytest.raises(KeyError):
        runtime.get(bad)
    counter = Counter.remote()
    [ref] = runtime.get(counter.count.options(num_returns="dynamic").remote(1))
    assert runtime.get(ref) == 1


def test_async_for(engine):
    async def collect():
        return [await ref async for ref in count_to.remote(4)]

    assert asyncio.run(collect()) == [0, 1, 2, 3]


def test_coroutines_share_a_generator(engine):
    async def collect(generator, values):
        async for ref in generator:
            values.append(await ref)
            await asyncio.sleep(0.001)

    async def main():
        generator, parts = count_to.remote(30), [[], [], []]
        await asyncio.gather(*(collect(generator, part) for part in parts))
        return parts

    parts = asyncio.run(main())
    assert sorted(itertools.chain(*parts)) == list(range(30)) and all(parts)


def test_many_generators_are_waited_for_at_once(engine):
    # The default executor of an event loop has few threads, and a loop does not end before them.
    if engine == "local":
        pytest.skip("the local engine runs one call at a time, in this process")

    async def main():
        ends = Ends.remote()
        waiting = [asyncio.create_task(anext(ends.values.remote(i))) for i in range(50)]
        await asyncio.sleep(0.1)
        await ends.end.remote(49)
        assert await asyncio.wait_for(waiting.pop(), 20)
        for task in waiting:
            task.cancel()

    thread = threading.Thread(target=lambda: ended.append(asyncio.run(main())), daemon=True)
    ended = []
    thread.start()
    thread.join(30)
    assert ended


def test_wait_takes_generators(engine):
    generator, ref = count_to.remote(1), runtime.put(1)
    done, pending = runtime.wait([generator, ref], num_returns=2, timeout=10)
    assert done == [generator, ref] and pending == []
    assert runtime.get(next(generator)) == 0
    assert generator.completed() is not None and list(generator) == []


def test_next_with_a_timeout_and_whether_it_is_ready(engine):
    generator = count_to.remote(1)
    wait_until(generator.next_ready)
    assert runtime.get(generator.next(timeout=5)) == 0
    with pytest.raises(StopIteration):
        generator.next(timeout=5)
    assert not generator.next_ready()


def test_a_dropped_generator_is_closed(engine, tmp_path):
    generator = endless.remote(tmp_path / "closed")
    assert [runtime.get(next(generator)) for _ in range(3)] == [0, 1, 2]
    del generator
    wait_until((tmp_path / "closed").exists)


def test_a_generator_stays_where_it_is(engine):
    with pytest.raises(TypeError, match="references"):
        count_to.remote(count_to.remote(1))
    with pytest.raises(TypeError, match="iterate over it"):
        runtime.get(count_to.remote(1))


@pytest.mark.parametrize("wrong", ["stream", "", "Dynamic"])
def test_other_words_are_refused(engine, wrong):
    with pytest.raises(TypeError, match="'dynamic' or 'streaming'"):
        count_to.options(num_returns=wrong)


@pytest.mark.parametrize("wrong, error", [(0, ValueError), (-2, ValueError), (1.5, TypeError), (2**31, ValueError)])
def test_a_wrong_limit_is_refused(engine, wrong, error):
    with pytest.raises(error, match="_generator_backpressure_num_objects"):
        count_to.options(_generator_backpressure_num_objects=wrong)
