"""ActorPool, on every engine."""

import os
import time

import pytest

import runtime
from runtime.util import ActorPool


@runtime.remote
class Worker:
    def double(self, value):
        return 2 * value

    def divide(self, value):
        return 10 // value

    @runtime.method(num_returns=2)
    def both(self, value):
        return value, -value

    def die_at(self, value):
        if value < 0:
            os._exit(1)
        return value

    def fail_by_another(self, other):
        return runtime.get(other[0].double.remote(1))

    def wait_for(self, path):
        deadline = time.monotonic() + 20
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.005)


def double(actor, value):
    return actor.double.remote(value)


@pytest.fixture
def pool(engine):
    return ActorPool([Worker.remote() for _ in range(2)])


def test_map_keeps_the_order(pool):
    assert list(pool.map(double, range(10))) == [2 * i for i in range(10)]
    assert list(pool.map(double, range(3))) == [0, 2, 4]


def test_map_unordered(pool):
    assert sorted(pool.map_unordered(double, range(10))) == [2 * i for i in range(10)]


def test_submissions_are_fetched_one_by_one(pool):
    assert not pool.has_next() and pool.has_free()
    for value in range(5):
        pool.submit(double, value)
    assert pool.has_next() and not pool.has_free()
    assert pool.get_next_unordered(timeout=20) in range(0, 10, 2)
    rest = [pool.get_next(timeout=20) for _ in range(4)]
    assert rest == sorted(rest) and not pool.has_next() and pool.has_free()
    with pytest.raises(StopIteration):
        pool.get_next()


def test_an_error_leaves_the_pool_usable(pool):
    results = pool.map(lambda actor, value: actor.divide.remote(value), [1, 0, 2])
    assert next(results) == 10
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert pool.get_next(timeout=20) == 5


def test_map_submits_at_once(pool):
    taken = []

    def call(actor, value):
        taken.append(value)
        return actor.double.remote(value)

    results = pool.map(call, range(2))
    assert taken == [0, 1]
    assert list(results) == [0, 2]
    pool.map_unordered(call, [5])
    assert taken == [0, 1, 5]


def test_map_drops_what_was_not_fetched_before(pool):
    for value in range(5):
        pool.submit(double, value)
    assert list(pool.map(double, [10, 11])) == [20, 22]
    pool.submit(double, 1)
    assert list(pool.map_unordered(double, [12])) == [24]


def test_methods_with_several_return_values(pool):
    for value in range(5):
        pool.submit(lambda actor, value: actor.both.remote(value), value)
    assert [pool.get_next() for _ in range(4)] == [[value, -value] for value in range(4)]
    assert pool.get_next_unordered() == [4, -4]


def test_a_result_that_is_late(pool, engine, tmp_path):
    if engine == "local":
        pytest.skip("a call has ended when submit() returns")
    pool.submit(lambda actor, path: actor.wait_for.remote(path), tmp_path / "go")
    for get_next in (pool.get_next, pool.get_next_unordered):
        with pytest.raises(TimeoutError):
            get_next(timeout=0.05)
    assert pool.get_next_unordered(timeout=0.05, ignore_if_timedout=True) is None
    with pytest.raises(TimeoutError):
        pool.get_next(timeout=0.05, ignore_if_timedout=True)
    assert not pool.has_next()  # it was dropped
    (tmp_path / "go").touch()
    assert list(pool.map(double, range(3))) == [0, 2, 4]


def test_push_and_pop_idle(pool):
    first, second = pool.pop_idle(), pool.pop_idle()
    assert first != second and pool.pop_idle() is None and not pool.has_free()
    pool.submit(double, 1)
    with pytest.raises(RuntimeError, match="no actor"):
        pool.get_next()
    pool.push(first)
    assert not pool.has_free() and pool.pop_idle() is None
    with pytest.raises(ValueError, match="belongs to this pool already"):
        pool.push(first)
    pool.push(second)
    assert pool.has_free()
    with pytest.raises(ValueError, match="belongs to this pool already"):
        pool.push(second)
    assert pool.get_next() == 2


def test_a_call_that_cannot_be_made_leaves_the_pool_usable(pool):
    with pytest.raises(TypeError, match="missing a required argument"):
        pool.submit(lambda actor, value: actor.double.remote(), 1)
    with pytest.raises(TypeError, match="must return a reference"):
        pool.submit(lambda actor, value: value, 1)
    assert not pool.has_next()
    assert list(pool.map(double, range(4))) == [0, 2, 4, 6]


def outcomes(pool, take, calls):
    """The value or the class of the error of each result."""
    results = []
    while pool.has_next():
        assert len(results) < calls
        try:
            results.append(take(timeout=30))
        except Exception as error:
            results.append(type(error))
    return results


@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "as they come"])
def test_a_dead_actor_gets_no_further_calls(engine, in_order):
    if engine == "local":
        pytest.skip("an actor of the engine local cannot exit: it lives in this process")
    pool = ActorPool([Worker.remote() for _ in range(3)])
    values = [1, -1, 2, -2, 3, 4, 5, 6]
    for value in values:
        pool.submit(lambda actor, value: actor.die_at.remote(value), value)
    results = outcomes(pool, pool.get_next if in_order else pool.get_next_unordered, len(values))
    expected = [value if value > 0 else runtime.ActorDiedError for value in values]
    assert results == expected if in_order else sorted(map(str, results)) == sorted(map(str, expected))


def test_the_last_actor_fails_all_calls_when_it_is_dead(engine):
    worker = Worker.remote()
    pool = ActorPool([worker])
    runtime.get(worker.double.remote(1))
    runtime.kill(worker)
    for value in range(3):
        pool.submit(double, value)
    assert outcomes(pool, pool.get_next, 3) == [runtime.ActorDiedError] * 3


def test_an_actor_that_reports_the_death_of_another_stays_in_the_pool(engine):
    dead, workers = Worker.remote(), [Worker.remote() for _ in range(2)]
    runtime.get(dead.double.remote(1))
    runtime.kill(dead)
    pool = ActorPool(workers)
    for _ in range(2):
        pool.submit(lambda actor, other: actor.fail_by_another.remote([other]), dead)
    results = outcomes(pool, pool.get_next, 2)
    assert all(issubclass(result, runtime.ActorDiedError) for result in results)
    assert {pool.pop_idle(), pool.pop_idle()} == set(workers)
