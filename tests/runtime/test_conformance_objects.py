"""Values: put, get, wait, arrays and references, on every engine."""

import asyncio
import collections
import contextlib
import dataclasses
import datetime
import enum
import time

import numpy as np
import pytest

import runtime
from runtime import session


@runtime.remote
def identity(value):
    return value


@runtime.remote
def slow(value, seconds=0.3):
    time.sleep(seconds)
    return value


@runtime.remote
def fail(text, after_s=0.0):
    time.sleep(after_s)
    raise ValueError(text)


@dataclasses.dataclass
class Point:
    x: float
    y: object = None


class Color(enum.Enum):
    RED = 1


Named = collections.namedtuple("Named", "a b")

VALUES = {
    "none": None,
    "big int": 10**40,
    "float": float("inf"),
    "text": "äöü" * 10,
    "bytes": b"\0\xff",
    "nested": {"a": [1, (2, {3})], b"k": {"x": None}},
    "set": frozenset({1, "2"}),
    "dataclass": Point(1.0, Point(2.0)),
    "enum": Color.RED,
    "namedtuple": Named(1, [2]),
    "date": datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC),
    "class": Point,
    "builtin": len,
    "ellipsis": ...,
    "type": dict[str, int],
    "long list": list(range(50_000)),
    "empty bytes": b"",
    "complex": 1 + 2j,
    "slice": slice(1, None, 2),
    "deque": collections.deque([1, 2], maxlen=5),
    "megabyte of text": "x" * 2**20,
}

ARRAYS = {
    "zero dimensions": np.array(3.5),
    "no elements": np.empty((0, 3), np.float32),
    "no elements, inner": np.empty((3, 0, 2)),
    "small": np.arange(10),
    "large": np.arange(200_000, dtype=np.float64),
    "large int8": np.arange(200_000).astype(np.int8),
    "fortran": np.asfortranarray(np.arange(90_000.0).reshape(300, 300)),
    "strided": np.arange(200_000)[::2],
    "reversed": np.arange(100_000)[::-1],
    "transposed": np.arange(90_000).reshape(300, 300).T,
    "broadcast": np.broadcast_to(np.arange(3), (1000, 3)),
    "big endian": np.arange(50_000).astype(">i8"),
    "structured": np.array([(1, 2.5, "ab")] * 5000, dtype=[("a", "i4"), ("b", "f8"), ("c", "U3")]),
    "objects": np.array([{"a": 1}, None, "x"], dtype=object),
    "bool": np.tile([True, False], 50_000),
    "complex": np.full(20_000, 1 + 2j),
    "float16": np.ones(100_000, np.float16),
    "text": np.array(["ab", "cde"] * 10_000),
    "dates": np.arange("2000-01", "2020-01", dtype="datetime64[M]"),
    "matrix 4d": np.arange(2 * 3 * 84 * 84, dtype=np.uint8).reshape(2, 3, 84, 84),
    "masked": np.ma.masked_array([1, 2, 3], [0, 1, 0]),
    "scalar": np.float32(2.5),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_come_back_equal(engine, name):
    value = VALUES[name]
    stored, returned = runtime.get([runtime.put(value), identity.remote(value)])
    assert stored == value and type(stored) is type(value)
    assert returned == value and type(returned) is type(value)


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back_equal(engine, name):
    array = ARRAYS[name]
    for result in runtime.get([runtime.put(array), identity.remote(array)]):
        assert type(result) is type(array)
        assert result.dtype == array.dtype and result.shape == array.shape
        np.testing.assert_array_equal(result, array)


@pytest.mark.parametrize("size", [1, 10, 1000, 20_000, 1_000_000])
def test_results_are_read_only_whatever_their_size(engine, size):
    @runtime.remote
    def flags(array, container):
        return array.flags.writeable, container["a"].flags.writeable

    array = np.arange(size)
    for result in (runtime.get(runtime.put(array)), runtime.get(identity.remote(array))):
        with pytest.raises(ValueError, match="read-only"):
            result[0] = 1
        copy = result.copy()
        copy[0] = 7
        assert result[0] == 0
    assert runtime.get(flags.remote(array, {"a": array})) == (False, False)
    assert array.flags.writeable


def test_large_results_share_memory(engine):
    ref = runtime.put(np.arange(1_000_000))
    first, second = runtime.get([ref, ref])
    assert np.shares_memory(first, second) or not (first.flags.owndata or second.flags.owndata)


def test_put_copies(engine):
    array, items = np.zeros(100_000), [1]
    refs = runtime.put(array), runtime.put(items)
    array[:] = 1
    items.append(2)
    values = runtime.get(list(refs))
    assert values[0].sum() == 0 and values[1] == [1]


def test_a_dict_of_arrays(engine):
    batch = {name: np.full((1000, 8), i, np.float32) for i, name in enumerate("abcdefgh")}
    batch["small"] = np.arange(3)
    result = runtime.get(identity.remote(batch))
    assert list(result) == list(batch)
    assert all(np.array_equal(result[k], batch[k]) for k in batch)


def test_the_same_array_twice_in_a_value(engine):
    array = np.arange(50_000)
    a, b = runtime.get(identity.remote([array, array]))
    assert np.array_equal(a, array) and np.array_equal(b, array)


def test_arrays_outlive_their_references(engine):
    kept = runtime.get(runtime.put(np.full(200_000, 7)))
    part = runtime.get(identity.remote(np.arange(200_000)))[10:20]
    for i in range(20):
        runtime.put(np.full(200_000, i))
    assert (kept == 7).all() and list(part) == list(range(10, 20))


def test_memory_is_reused_without_mixing_values_up(engine):
    rng = np.random.default_rng(0)
    kept = {}
    for i in range(60):
        value = runtime.get(runtime.put(np.full(30_000 + 1000 * int(rng.integers(5)), i)))
        if rng.random() < 0.3:
            kept[i] = value
        if len(kept) > 6:
            del kept[next(iter(kept))]
    assert all((value == i).all() for i, value in kept.items())


# -- empty ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [5, (), (0, 4), (3, 4), [2, 2], (300, 300), (np.int64(7),)])
def test_empty_has_the_shape_asked_for(engine, shape):
    array = runtime.empty(shape, np.int32)
    assert array.shape == np.empty(shape).shape and array.dtype == np.int32
    array[...] = 4
    result = runtime.get(runtime.put(array))
    assert result.shape == array.shape and (result == 4).all()


def test_empty_is_float32_by_default(engine):
    assert runtime.empty(3).dtype == np.float32


@pytest.mark.parametrize("size", [10, 100_000])
def test_empty_is_written_until_it_is_put(engine, size):
    array = runtime.empty(size)
    array[:] = 1
    array += 1
    ref = runtime.put({"column": array})
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 5
    assert (runtime.get(ref)["column"] == 2).all() and (array == 2).all()


@pytest.mark.parametrize("size", [10, 100_000])
def test_writing_to_an_earlier_view_of_empty_does_not_change_what_is_stored(engine, size):
    array = runtime.empty(size)
    view, memory = array[:5], memoryview(array)
    array[:] = 1
    ref = runtime.put(array)
    view[0] = 7
    memory[1] = 8
    assert (runtime.get(ref) == 1).all() and (runtime.get(identity.remote(ref)) == 1).all()
    assert array[:3].tolist() == [7, 8, 1]
    assert runtime.get(runtime.put(array))[:3].tolist() == [7, 8, 1]
    assert runtime.get(identity.remote(view))[0] == 7
    assert (runtime.get(ref) == 1).all()


def test_an_actor_returns_columns_born_in_shared_memory(engine):
    @runtime.remote
    class Worker:
        def sample(self, value):
            columns = {"obs": runtime.empty((100, 8, 4)), "done": runtime.empty((100, 8), bool)}
            columns["obs"][:] = value
            columns["done"][:] = value % 2
            return columns

    worker = Worker.remote()
    batches = [runtime.get(worker.sample.remote(i)) for i in range(5)]
    for i, batch in enumerate(batches):
        assert (batch["obs"] == i).all() and (batch["done"] == i % 2).all()
        assert not batch["obs"].flags.writeable


def test_views_of_empty_can_be_put(engine):
    array = runtime.empty((100, 1000))
    array[:] = np.arange(100)[:, None]
    rows = runtime.get(runtime.put(array[10:20]))
    assert rows.shape == (10, 1000) and (rows[:, 0] == np.arange(10, 20)).all()
    flat = runtime.get(runtime.put(array.reshape(-1)))
    assert flat.shape == (100_000,)


def test_two_of_empty_do_not_overlap(engine):
    arrays = [runtime.empty(1000) for _ in range(50)]
    for i, array in enumerate(arrays):
        array[:] = i
    assert all((array == i).all() for i, array in enumerate(arrays))


@pytest.mark.parametrize(
    "shape, dtype, error",
    [
        ((-1,), "f4", ValueError),
        (2**62, "f4", ValueError),
        ((2**40, 2**40), "f4", ValueError),
        ((0, 2**70), "f4", ValueError),
        ("3", "f4", TypeError),
        (2.0, "f4", TypeError),
        (3, object, TypeError),
        (3, "no", TypeError),
    ],
)
def test_empty_refuses_what_cannot_be(engine, shape, dtype, error):
    with pytest.raises(error):
        runtime.empty(shape, dtype)


# -- references -------------------------------------------------------------------------------------------------------


def test_a_reference_in_a_value_stays_the_same(engine):
    ref = runtime.put(1)
    result = runtime.get(runtime.put({"r": [ref]}))["r"][0]
    assert result == ref and hash(result) == hash(ref) and {ref: "x"}[result] == "x"
    assert runtime.get(result) == 1


def test_references_are_different(engine):
    assert runtime.put(1) != runtime.put(1)
    assert runtime.put(1) != 1


def test_a_nested_reference_keeps_its_value_alive(engine):
    outer = runtime.put([[runtime.put(np.arange(100_000))]])
    for i in range(5):
        runtime.put(np.full(100_000, i))
    assert runtime.get(runtime.get(outer)[0][0])[-1] == 99_999


def test_a_reference_travels_through_tasks(engine):
    ref = runtime.put("far")
    [result] = runtime.get(identity.remote([ref]))
    assert runtime.get(result) == "far"
    for _ in range(4):
        [result] = runtime.get(identity.remote([result]))
    assert result == ref and runtime.get(result) == "far"


def test_an_unfinished_reference_inside_a_value(engine):
    @runtime.remote
    def unwrap(refs):
        return runtime.get(refs[0])

    assert runtime.get(unwrap.remote([slow.remote(5, 0.1)]), timeout=30) == 5


def test_many_references_in_one_value(engine):
    refs = [runtime.put(i) for i in range(500)]
    assert runtime.get(runtime.get(runtime.put(refs))) == list(range(500))


def test_references_in_cycles(engine):
    class Node:
        pass

    for _ in range(20):
        node = Node()
        node.self, node.ref = node, runtime.put(np.zeros(20_000))
        del node


def test_references_are_not_their_values(engine):
    with pytest.raises(TypeError, match=r"runtime\.get"):
        _, _ = identity.remote((1, 2))


def test_a_reference_cannot_be_put(engine):
    with pytest.raises(TypeError, match="reference already"):
        runtime.put(runtime.put(1))


# -- get --------------------------------------------------------------------------------------------------------------


def test_get_keeps_order_and_repetitions(engine):
    a, b = runtime.put("a"), runtime.put("b")
    assert runtime.get([b, a, b]) == ["b", "a", "b"]
    assert runtime.get((a, b)) == ["a", "b"]
    assert runtime.get([]) == []


def test_get_twice(engine):
    ref = identity.remote([1, 2])
    assert runtime.get(ref) == runtime.get(ref) == [1, 2]


@pytest.mark.parametrize(
    "wrong", [1, None, "x", {"a": 1}, [1], [None], object()], ids=lambda wrong: type(wrong).__name__
)
def test_get_of_something_else(engine, wrong):
    with pytest.raises(TypeError, match=r"get\(\) takes"):
        runtime.get(wrong)


def test_get_of_a_handle_says_what_to_do(engine):
    @runtime.remote
    class Actor:
        pass

    with pytest.raises(TypeError, match="call one of its methods"):
        runtime.get(Actor.remote())


@pytest.mark.parametrize(
    "timeout, error", [(-1, ValueError), (float("nan"), ValueError), ("1", TypeError), (True, TypeError)]
)
def test_wrong_timeouts(engine, timeout, error):
    ref = runtime.put(1)
    with pytest.raises(error, match="timeout"):
        runtime.get(ref, timeout=timeout)
    with pytest.raises(error, match="timeout"):
        runtime.wait([ref], timeout=timeout)


@pytest.mark.parametrize("number", [np.float32, np.float64, np.int64])
def test_numbers_of_numpy_are_numbers(engine, number):
    refs = [runtime.put(1), runtime.put(2)]
    assert runtime.get(refs, timeout=number(5)) == [1, 2]
    assert runtime.wait(refs, num_returns=np.int64(2), timeout=number(5)) == (refs, [])
    assert list(runtime.as_completed(refs, timeout=number(5))) == refs


def test_a_timeout_that_suffices(engine):
    assert runtime.get(identity.remote(1), timeout=30) == 1
    assert runtime.get(runtime.put(1), timeout=0) == 1


def test_get_raises_the_first_error_in_order(engine):
    refs = [identity.remote(1), fail.remote("first", after_s=0.3), fail.remote("second")]
    with pytest.raises(ValueError, match="first"):
        runtime.get(refs)


# -- wait -------------------------------------------------------------------------------------------------------------


def test_wait_for_all(engine):
    refs = [identity.remote(i) for i in range(10)]
    assert runtime.wait(refs, num_returns=10, timeout=30) == (refs, [])


def test_wait_gives_no_more_than_asked_for(engine):
    refs = [runtime.put(i) for i in range(5)]
    done, rest = runtime.wait(refs, num_returns=2)
    assert done == refs[:2] and rest == refs[2:]
    done, rest = runtime.wait(refs)
    assert done == refs[:1] and rest == refs[1:]


def test_wait_counts_errors_as_done(engine):
    ref = fail.remote("x")
    assert runtime.wait([ref], timeout=30) == ([ref], [])


def test_wait_in_a_loop(engine):
    pending, seen = [identity.remote(i) for i in range(20)], []
    while pending:
        done, pending = runtime.wait(pending, timeout=30)
        seen += runtime.get(done)
    assert sorted(seen) == list(range(20))


def test_wait_with_no_time(engine):
    ref = runtime.put(1)
    assert runtime.wait([ref], timeout=0) == ([ref], [])


def test_wait_for_nothing(engine):
    assert runtime.wait([]) == ([], [])
    assert runtime.wait([], num_returns=3, timeout=1) == ([], [])


def test_wait_takes_rays_fetch_local(engine):
    ref = runtime.put(1)
    assert runtime.wait([ref], fetch_local=False) == ([ref], [])


def test_wait_refuses_what_cannot_be(engine):
    refs = [runtime.put(i) for i in range(3)]
    with pytest.raises(TypeError, match="list of references"):
        runtime.wait(refs[0])
    with pytest.raises(TypeError, match="element 1"):
        runtime.wait([refs[0], 5])
    with pytest.raises(ValueError, match="different references"):
        runtime.wait([refs[0], refs[0]])
    for num_returns in (0, -1, 4):
        with pytest.raises(ValueError, match="between 1 and the number of references"):
            runtime.wait(refs, num_returns=num_returns)
    with pytest.raises(TypeError, match="num_returns"):
        runtime.wait(refs, num_returns=1.0)


def test_as_completed(engine):
    refs = [identity.remote(i) for i in range(30)]
    assert sorted(runtime.get(list(runtime.as_completed(refs, timeout=30)))) == list(range(30))
    assert list(runtime.as_completed([])) == []
    with pytest.raises(ValueError, match="different"):
        runtime.as_completed([refs[0], refs[0]])


def test_arrivals_give_each_reference_once(engine):
    arrivals, dropped, failed = session.engine().arrivals(), identity.remote(0), fail.remote("bad")
    refs = [*(identity.remote(i) for i in range(3)), failed]
    for ref in (dropped, *refs):
        arrivals.add(ref)
    arrivals.discard(dropped)
    assert len(arrivals) == 4
    found = arrivals.take(30)
    refs.append(identity.remote(3))  # others are added while some are waited for
    arrivals.add(refs[-1])
    while len(arrivals):
        found += arrivals.take(30)
    assert sorted(map(refs.index, found)) == list(range(5))
    assert arrivals.take(0.0) == []
    with pytest.raises(ValueError, match="bad"):
        runtime.get(failed)


def test_the_id_of_a_reference(engine):
    a, b = runtime.put(1), runtime.put(1)
    assert a.binary() != b.binary() and a.binary().hex() == a.hex()


def test_a_future_gets_the_value(engine):
    assert runtime.put(5).future().result(20) == 5
    futures = [slow.remote(i).future() for i in range(3)]
    assert [future.result(20) for future in futures] == [0, 1, 2]
    with pytest.raises(ValueError, match="bad"):
        fail.remote("bad").future().result(20)


def test_references_can_be_awaited(engine):
    async def values():
        return await asyncio.gather(slow.remote(1), runtime.put(2))

    assert asyncio.run(values()) == [1, 2]


def test_a_wait_for_a_reference_can_be_cancelled(engine):
    async def gives_up():
        ref = slow.remote(1)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(ref), 0.01)
        return await ref

    assert asyncio.run(gives_up()) == 1


def test_a_long_chain_of_values_that_hold_one_another(engine):
    links = 100 if engine == "ray" else 1500  # more than frames fit on the stack
    ref = runtime.put(0)
    for _ in range(links):
        ref = runtime.put([ref])

    @runtime.remote
    def depth(held):
        found = 0
        while held != 0:
            found, held = found + 1, runtime.get(held[0], timeout=30)
        return found

    assert runtime.get(depth.remote([ref]), timeout=60) == links + 1
    del ref
    assert runtime.get(depth.remote(0), timeout=30) == 0
