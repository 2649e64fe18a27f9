"""The programs of the source documents on tasks and actors, with another import; files are lists here."""

import numpy as np
import pytest
from runtime_support import ENGINES, wait_until

import runtime as ray


@ray.remote
def f(x):
    return x * x


@ray.remote
class Counter:
    def __init__(self):
        self.n = 0

    def increment(self):
        self.n += 1

    def inc(self):
        self.n += 1
        return self.n

    def read(self):
        return self.n


@ray.remote
def read_array(file):
    return np.array(file)


@ray.remote
def add(a, b):
    return np.add(a, b)


@ray.remote
class ParameterServer:
    def __init__(self):
        self.params = np.zeros(10)

    def get_params(self):
        return self.params

    def update_params(self, grad):
        self.params -= grad


@pytest.mark.parametrize("engine_name", ENGINES)
def test_the_programs_of_the_overview(engine_name, fresh):
    fresh(engine_name, num_cpus=4)
    futures = [f.remote(i) for i in range(4)]
    assert ray.get(futures) == [0, 1, 4, 9]
    counters = [Counter.remote() for i in range(4)]
    [c.increment.remote() for c in counters]
    futures = [c.read.remote() for c in counters]
    assert ray.get(futures) == [1, 1, 1, 1]


@pytest.mark.parametrize("engine_name", ENGINES)
def test_the_programs_of_the_table_and_the_slides(engine_name, fresh):
    fresh(engine_name)
    futures = [f.remote(3), f.remote(4)]  # each returns at once, values are had by get
    k, timeout = 2, 30
    ready_futures, others = ray.wait(futures, k, timeout)
    assert ready_futures == futures and others == []
    assert ray.get(ready_futures) == [9, 16]
    assert ray.get(f.remote(ray.put(5))) == 25  # a future is an argument like a value
    actor = Counter.remote()
    futures = [actor.inc.remote() for _ in range(5)]
    assert ray.get(futures) == [1, 2, 3, 4, 5]  # calls of one actor run one after the other, in order

    id1 = read_array.remote([5, 5])
    id2 = read_array.remote([5, 5])
    id3 = add.remote(id1, id2)
    np.testing.assert_array_equal(ray.get(id3), [10, 10])


@ray.remote(num_gpus=1)
class CounterWithGpu:
    def __init__(self):
        self.value = 0

    def inc(self):
        self.value += 1
        return self.value


@pytest.mark.parametrize("engine_name", ENGINES)
def test_the_counter_that_asks_for_a_gpu(engine_name, fresh):
    fresh(engine_name, num_gpus=1)
    c = CounterWithGpu.remote()
    id4 = c.inc.remote()
    id5 = c.inc.remote()
    assert ray.get([id4, id5]) == [1, 2]
    assert ray.available_resources().get("GPU", 0) == 0


@ray.remote(num_gpus=1)
def worker(ps):
    while True:
        params = ray.get(ps.get_params.remote())
        grad = 0.1 * (params - np.arange(10))  # of half the squared distance from 0, 1, ... 9
        ps.update_params.remote(grad)


def test_the_parameter_server(fresh):
    fresh(num_gpus=2)
    ps = ParameterServer.remote()
    workers = [worker.remote(ps) for _ in range(2)]

    def learned():
        return np.allclose(ray.get(ps.get_params.remote()), np.arange(10), atol=1e-3)

    wait_until(learned)
    for ref in workers:
        ray.cancel(ref)
    for ref in workers:
        with pytest.raises(ray.TaskCancelledError):
            ray.get(ref, timeout=30)
