"""ActorPool, on every engine."""

import pytest

import runtime
from runtime.util import ActorPool


@runtime.remote
class Worker:
    def double(self, value):
        return 2 * value

    def divide(self, value):
        return 10 // value


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
    with pytest.raises(LookupError):
        pool.get_next()


def test_an_error_leaves_the_pool_usable(pool):
    results = pool.map(lambda actor, value: actor.divide.remote(value), [1, 0, 2])
    assert next(results) == 10
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert pool.get_next(timeout=20) == 5


def test_an_empty_pool_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        ActorPool([])
