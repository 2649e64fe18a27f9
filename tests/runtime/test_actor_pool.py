"""ActorPool, on every engine."""

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
