"""`util.multiprocessing.Pool`, with the behaviour of multiprocessing's. The shared session has 4 CPUs."""

import functools
import itertools
import multiprocessing
import os
import pickle
import threading
import time

import pytest
from runtime_support import wait_until

import runtime
from runtime.util.multiprocessing import AsyncResult, Pool, TimeoutError


@pytest.fixture
def pool(engine):
    with Pool(2) as pool:
        yield pool


@pytest.fixture
def processes(engine):
    if engine == "local":
        pytest.skip("the local engine runs one call at a time, in this process")


def square(x):
    return x * x


def add(x, y=0):
    return x + y


def fail_at_3(x):
    if x == 3:
        raise KeyError(x)
    return x


def test_the_verbs(pool):
    assert pool.apply(add, (1,), {"y": 2}) == 3
    assert pool.map(square, range(10)) == [x * x for x in range(10)]
    assert pool.map(square, []) == []
    assert pool.map(square, range(10), chunksize=3) == [x * x for x in range(10)]
    assert pool.starmap(add, [(1, 2), (3, 4)]) == [3, 7]
    assert list(pool.imap(square, range(20), 3)) == [x * x for x in range(20)]
    assert sorted(pool.imap_unordered(square, range(20), 3)) == [x * x for x in range(20)]
    result = pool.map_async(lambda x: x + 1, range(3))
    assert result.get(20) == [1, 2, 3] and result.ready() and result.successful()
    assert pool.starmap_async(add, [(1,), (2,)]).get(20) == [1, 2]


def test_elements_of_imap_are_taken_as_they_are_needed(pool):
    results = pool.imap(square, itertools.count())
    assert list(itertools.islice(results, 10)) == [x * x for x in range(10)]


def test_an_exception_is_the_calls_own(pool):
    for call in (
        lambda: pool.map(fail_at_3, range(5)),
        lambda: pool.apply(fail_at_3, (3,)),
        lambda: pool.map_async(fail_at_3, range(5)).get(20),
        lambda: pool.starmap(fail_at_3, [(3,)]),
    ):
        with pytest.raises(KeyError) as caught:
            call()
        assert isinstance(caught.value, runtime.TaskError)
    result = pool.apply_async(fail_at_3, (3,))
    result.wait(20)
    assert result.ready() and not result.successful()


def test_imap_goes_on_after_an_exception(pool):
    results = pool.imap(fail_at_3, range(5))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError):
        next(results)
    assert list(results) == [4]


@pytest.mark.parametrize("count", [0, 1, 7])
@pytest.mark.parametrize("chunksize", [1, 3])
def test_imap_raises_what_its_iterable_raises_after_the_results_before(pool, count, chunksize):
    def elements():
        yield from range(count)
        raise LookupError("of the iterable")

    whole = count - count % chunksize  # as multiprocessing: the chunk in which it raises is lost
    for imap in (pool.imap, pool.imap_unordered):
        results, values = imap(square, elements(), chunksize), []
        with pytest.raises(LookupError, match="of the iterable"):
            while True:
                values.append(next(results))
        if imap == pool.imap_unordered:
            values += results
        assert sorted(values) == [x * x for x in range(whole)]
        assert list(results) == []


def test_timeouts(pool, processes):
    slow = pool.apply_async(time.sleep, (1,))
    assert TimeoutError is multiprocessing.TimeoutError
    with pytest.raises(multiprocessing.TimeoutError):
        slow.get(0.05)
    with pytest.raises(ValueError, match="not ready"):
        slow.successful()
    with pytest.raises(multiprocessing.TimeoutError):
        pool.imap(time.sleep, [1]).next(timeout=0.05)
    with pytest.raises(multiprocessing.TimeoutError):
        pool.imap_unordered(time.sleep, [1]).next(timeout=0.05)


def test_callbacks_come_one_at_a_time(pool):
    values, errors, busy = [], [], threading.Lock()

    def callback(value):
        assert busy.acquire(blocking=False)
        time.sleep(0.001)
        values.append(value)
        busy.release()

    for x in range(20):
        pool.apply_async(fail_at_3, (x,), callback=callback, error_callback=errors.append)
    pool.map_async(square, range(3), callback=callback)
    wait_until(lambda: len(values) == 20 and len(errors) == 1)
    assert sorted(v for v in values if isinstance(v, int)) == [x for x in range(20) if x != 3]
    assert [0, 1, 4] in values and isinstance(errors[0], KeyError)
    pool.apply_async(square, (1,), callback=lambda value: 1 / 0)
    assert pool.apply(square, (2,)) == 4


@pytest.mark.parametrize("name", ["map_async", "starmap_async"])
def test_a_callback_of_no_calls_comes_in_a_thread_of_the_pool(pool, name):
    held, values, threads = threading.Lock(), [], []
    call = getattr(pool, name)

    def callback(value):
        with held:
            values.append(value)
            threads.append(threading.current_thread())
        if len(values) < 3:  # a callback may make further calls
            call(square, [], callback=callback)

    with held:  # the caller may hold what the callback waits for
        result = call(square, iter([]), callback=callback)
        assert result.ready() and result.get(0) == []
    wait_until(lambda: len(values) == 3)
    assert values == [[]] * 3 and threading.current_thread() not in threads


def test_a_pool_that_is_joined_has_called_the_callback_of_no_calls(engine, processes):
    values = []
    with Pool(1) as pool:
        pool.map_async(square, [], callback=values.append)
        pool.close()
        pool.join()
    assert values == [[]]


def test_a_raising_callback_does_not_stop_the_pool(pool, caplog):
    pool.apply_async(square, (1,), callback=lambda value: 1 / 0).wait(20)
    wait_until(lambda: "a callback of a pool raised" in caplog.text)
    assert pool.map(square, range(4)) == [0, 1, 4, 9]


def test_two_chunks_that_fail_at_once_are_reported_once(monkeypatch):
    class SecondFailure(threading.Event):
        """Lets the second chunk fail in the moment in which the first one's failure becomes known."""

        def set(self):
            result.part_came(1, None, KeyError(1))
            super().set()

    monkeypatch.setattr("runtime.util.multiprocessing.threading.Event", SecondFailure)
    errors = []
    result = AsyncResult(3, list, error_callback=errors.append)
    result.part_came(0, None, KeyError(0))
    assert [error.args for error in errors] == [(0,)]


def test_functions_by_value_see_what_the_initializer_has_set(engine, processes):
    def set_offset(value):
        global offset
        offset = value

    def shifted(value):
        return offset + value

    class Shift:
        def method(self, value):
            return shifted(value)

        def __call__(self, value):
            return shifted(value)

    with Pool(1, initializer=set_offset, initargs=(5,)) as pool:
        for function in (shifted, functools.partial(shifted), lambda value: offset + value, Shift().method, Shift()):
            assert pool.map(function, [1, 2]) == [6, 7]
    assert "offset" not in globals()


class Model:
    """A global object that an initializer loads, and that may be called."""

    weight = 0

    def __call__(self, value):
        return self.weight + value


filled, model = {}, Model()


def test_functions_by_value_see_what_the_initializer_has_filled(engine, processes):
    def fill(value):
        filled["offset"] = model.weight = value

    with Pool(1, initializer=fill, initargs=(5,)) as pool:
        assert pool.map(lambda value: (filled["offset"] + value, model(value)), [1, 2]) == [(6, 6), (7, 7)]
    assert not filled and model.weight == 0


def test_initializer_and_max_tasks(engine, processes):
    def initialize(value):
        os.environ["POOL_VALUE"] = value

    with Pool(1, initialize, ("x",), maxtasksperchild=2) as pool:
        seen = [pool.apply(lambda: (os.environ["POOL_VALUE"], os.getpid())) for _ in range(4)]
    assert {value for value, _ in seen} == {"x"}
    pids = [pid for _, pid in seen]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_work_goes_to_whoever_is_free(pool, processes, tmp_path):
    def work(number):
        (tmp_path / str(number)).touch()
        until = time.monotonic() + 60
        # The first call is done when all others have begun, but for one that may wait behind it.
        while number == 0 and len(os.listdir(tmp_path)) < 15 and time.monotonic() < until:
            time.sleep(0.01)
        return os.getpid()

    pids = pool.map(work, range(16), chunksize=1)
    assert pids.count(pids[0]) <= 2, "the process that is busy gets no more to do"


def test_a_process_that_dies_fails_its_call_and_is_replaced(pool, processes):
    with pytest.raises(runtime.ActorDiedError):
        pool.apply(os._exit, (3,))
    assert pool.map(square, range(8), chunksize=1) == [x * x for x in range(8)]


def test_close_and_join_let_the_calls_end(engine):
    pool = Pool(2)
    result = pool.map_async(square, range(50), chunksize=1)
    with pytest.raises(ValueError, match="still running"):
        pool.join()
    pool.close()
    pool.join()
    assert result.get(0) == [x * x for x in range(50)]
    for call in (lambda: pool.map(square, [1]), lambda: pool.imap(square, [1]), pool.__enter__):
        with pytest.raises(ValueError, match="not running"):
            call()


def test_terminate_fails_what_has_not_ended(engine, processes):
    pool = Pool(1)
    results = [pool.apply_async(time.sleep, (100,)) for _ in range(3)]
    time.sleep(0.1)
    pool.terminate()
    pool.join()
    for result in results:
        with pytest.raises(runtime.ActorDiedError):
            result.get(20)


def test_a_pool_that_is_dropped_ends(engine):
    pool = Pool(1)
    assert pool.apply(square, (3,)) == 9
    thread = pool._processes[0].thread
    del pool
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"processes": 0}, ValueError),
        ({"processes": 1.5}, TypeError),
        ({"processes": 1, "initializer": 3}, TypeError),
        ({"processes": 1, "maxtasksperchild": 0}, ValueError),
    ],
)
def test_wrong_arguments(engine, arguments, error):
    with pytest.raises(error):
        Pool(**arguments)


def test_wrong_calls(pool):
    with pytest.raises(TypeError, match="must be callable"):
        pool.map(3, [1])
    with pytest.raises(ValueError, match="chunksize"):
        pool.map(square, [1], chunksize=0)
    with pytest.raises(NotImplementedError):
        pickle.dumps(pool)


def test_the_default_is_one_process_per_cpu(engine):
    with Pool() as pool:
        assert len(pool._processes) == 4


@pytest.mark.extras("joblib")
@pytest.mark.parametrize("name", ["runtime", "ray"])
def test_joblib(engine, name):
    import joblib

    from runtime.util import joblib as backend

    getattr(backend, f"register_{name}")()
    with joblib.parallel_config(backend=name, n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(square)(x) for x in range(20)) == [x * x for x in range(20)]
        with pytest.raises(KeyError):
            joblib.Parallel()(joblib.delayed(fail_at_3)(x) for x in range(5))
    with joblib.parallel_config(backend=name, n_jobs=1):
        assert joblib.Parallel()(joblib.delayed(square)(x) for x in range(3)) == [0, 1, 4]
