"""Actors that run several calls at a time, on every engine."""

import asyncio

import pytest
from ray_cluster import ray_version

import runtime


@runtime.remote(num_cpus=0)
class Async:
    def __init__(self):
        self.calls = 0

    async def add(self, a, b=1):
        await asyncio.sleep(0)
        self.calls += 1
        return a + b

    async def call(self, other, value):
        return await other.add.remote(value)

    async def fail(self):
        raise ArithmeticError("in fail")

    @runtime.method(num_returns=2)
    async def both(self):
        return self.calls, runtime.get_runtime_context().get_task_id()

    def count(self):
        return self.calls

    async def async_parts(self, n):
        for i in range(n):
            yield await self.add(i), runtime.get_runtime_context().get_actor_name()
        raise ArithmeticError("in async_parts")

    async def listed(self, n):
        return list(range(n))

    def parts(self, n):
        for i in range(n):
            yield i, runtime.get_runtime_context().get_actor_name()
        raise ArithmeticError("in parts")


def test_coroutine_methods(engine):
    actor = Async.remote()
    assert runtime.get([actor.add.remote(i) for i in range(20)]) == list(range(1, 21))
    with pytest.raises(ArithmeticError, match="in fail"):
        runtime.get(actor.fail.remote())
    assert runtime.get(actor.count.remote()) == 20
    (calls, first), (_, second) = runtime.get(actor.both.remote()), runtime.get(actor.both.remote())
    assert calls == 20 and first != second
    with pytest.raises(TypeError, match=r"Async\.add"):
        actor.add.remote()


def test_generators_beside_coroutines(engine):
    actor = Async.options(label="both").remote()
    limit = {} if ray_version() == "2.40.0" else {"_generator_backpressure_num_objects": 1}
    parts = actor.parts.options(**limit).remote(3)
    assert runtime.get(next(parts)) == (0, "both")
    assert runtime.get(actor.add.remote(1), timeout=30) == 2  # between two values
    *values, error = parts
    assert runtime.get(values) == [(1, "both"), (2, "both")]
    with pytest.raises(ArithmeticError, match="in parts"):
        runtime.get(error)
    assert [runtime.get(ref) for ref in actor.listed.options(num_returns="streaming").remote(3)] == [0, 1, 2]


@runtime.remote(num_cpus=0)
class Signal:
    """As in the documentation of Ray: what wakes a coroutine is an ordinary method."""

    def __init__(self):
        self.event, self.values, self.tasks = asyncio.Event(), asyncio.Queue(), set()

    async def wait(self):
        await self.event.wait()
        return "woken"

    def send(self):
        self.event.set()

    async def take(self):
        return await self.values.get()

    def put(self, value):
        self.values.put_nowait(value)

    def put_later(self, value):
        self.tasks.add(asyncio.create_task(self.values.put(value)))


def test_an_ordinary_method_wakes_coroutines(engine):
    if engine == "local":
        pytest.skip("one call runs after the other")
    actor = Signal.remote()
    woken, value = actor.wait.remote(), actor.take.remote()
    assert runtime.wait([woken, value], timeout=0.1)[0] == []
    runtime.get([actor.send.remote(), actor.put.remote(3)])
    assert runtime.get([woken, value], timeout=20) == ["woken", 3]
    value = actor.take.remote()
    runtime.get(actor.put_later.remote(4))
    assert runtime.get(value, timeout=20) == 4


def test_async_generators(engine):
    actor = Async.options(label="both").remote()
    *values, error = actor.async_parts.remote(3)
    assert runtime.get(values) == [(1, "both"), (2, "both"), (3, "both")]
    with pytest.raises(ArithmeticError, match="in async_parts"):
        runtime.get(error)
    assert runtime.get(next(actor.async_parts.remote(2))) == (1, "both")
    assert runtime.get(actor.add.remote(1), timeout=30) == 2
    with pytest.raises(TypeError, match="a remote function must be an ordinary one"):

        @runtime.remote
        async def task():
            yield 1


def test_coroutines_wait_for_references(engine):
    one, two = Async.remote(), Async.remote()
    assert runtime.get([one.call.remote(two, i) for i in range(5)]) == [1, 2, 3, 4, 5]


@runtime.remote(num_cpus=0, max_concurrency=3, concurrency_groups={"io": 2})
class Grouped:
    def compute(self, value):
        return value

    @runtime.method(concurrency_group="io")
    def read(self, value):
        return value

    def fail(self):
        raise ArithmeticError("in fail")


def test_groups_and_threads(engine):
    actor = Grouped.remote()
    refs = [actor.compute.remote(1), actor.read.remote(2), actor.compute.options(concurrency_group="io").remote(3)]
    assert runtime.get(refs) == [1, 2, 3]
    with pytest.raises(ArithmeticError, match="in fail"):
        runtime.get(actor.fail.remote())
    with pytest.raises(ValueError, match=r"concurrency_group='disk', but its class has the groups 'io'"):
        actor.compute.options(concurrency_group="disk")


def test_a_method_in_an_unknown_group(engine):
    @runtime.remote
    class Wrong:
        @runtime.method(concurrency_group="io")
        def read(self):
            return 1

    with pytest.raises(ValueError, match=r"Wrong\.read asks for concurrency_group='io', but its class has no"):
        Wrong.remote()
