"""Generators whose callers are slow, gone or killed, and those that are interrupted or whose processes die."""

import os
import signal
import time

import pytest
from runtime_support import wait_until

import runtime


@runtime.remote
def recorded(directory, n=10**9, pause_s=0.0):
    """Yields numbers, and writes down how far it has got; the file `closed` says that it has ended."""
    try:
        for i in range(n):
            (directory / "yielded").write_text(f"{i} {os.getpid()}")
            yield i
            time.sleep(pause_s)
    finally:
        (directory / "closed").touch()


@runtime.remote
class Producer:
    def recorded(self, directory):
        yield from recorded.__wrapped__(directory)

    def alive(self):
        return True


@runtime.remote
class AsyncProducer:
    async def recorded(self, directory):
        for value in recorded.__wrapped__(directory):
            yield value


def yielded(directory):
    text = (directory / "yielded").read_text() if (directory / "yielded").exists() else ""
    return int(text.split()[0]) if text.strip() else -1


def producer(directory):
    return wait_until(lambda: int((directory / "yielded").read_text().split()[1]))


@pytest.mark.parametrize("limit", [1, 3])
def test_a_slow_consumer_bounds_the_producer(fresh, tmp_path, limit):
    fresh(num_cpus=1)
    generator = recorded.options(_generator_backpressure_num_objects=limit).remote(tmp_path)
    for taken in range(10):
        wait_until(lambda taken=taken: yielded(tmp_path) == taken + limit - 1)
        time.sleep(0.02)
        assert yielded(tmp_path) == taken + limit - 1
        assert runtime.get(next(generator)) == taken
    assert runtime.get(runtime.remote(lambda: 1).remote(), timeout=10) == 1  # it lends its CPU while it waits


@pytest.mark.parametrize("limit", [-1, 2])
def test_a_dropped_generator_of_an_actor_ends(fresh, tmp_path, limit):
    fresh(num_cpus=1)
    actor = Producer.remote()
    generator = actor.recorded.options(_generator_backpressure_num_objects=limit).remote(tmp_path)
    assert runtime.get(next(generator)) == 0
    generator.close()
    assert runtime.get(actor.alive.remote(), timeout=10)
    assert (tmp_path / "closed").exists()


def test_a_dropped_generator_that_waits_never_runs(fresh, tmp_path):
    fresh(num_cpus=1)
    running = recorded.options(_generator_backpressure_num_objects=1).remote(tmp_path, pause_s=0.01)
    runtime.get(next(running))
    never = recorded.options(num_cpus=1, resources={}).remote(tmp_path / "never")
    del never
    running.close()
    wait_until(lambda: runtime.available_resources() == runtime.cluster_resources())
    assert not (tmp_path / "never").exists()


def test_a_generator_is_interrupted(fresh, tmp_path):
    fresh(num_cpus=1)
    generator = recorded.remote(tmp_path, pause_s=0.01)
    assert runtime.get(next(generator)) == 0
    runtime.cancel(generator)
    *_, last = generator
    with pytest.raises(runtime.TaskCancelledError):
        runtime.get(last)
    assert (tmp_path / "closed").exists()


@pytest.mark.parametrize("kind", ["task", "coroutine"])
def test_a_cancelled_generator_that_waits_for_its_caller_runs_its_end(fresh, tmp_path, kind):
    fresh(num_cpus=1)
    function = recorded if kind == "task" else AsyncProducer.remote().recorded
    generator = function.options(_generator_backpressure_num_objects=1).remote(tmp_path)
    assert runtime.get(next(generator)) == 0
    wait_until(lambda: yielded(tmp_path) == 1)
    time.sleep(0.1)  # it waits now
    runtime.cancel(generator)
    with pytest.raises(runtime.TaskCancelledError):
        runtime.get(generator.completed(), timeout=10)
    wait_until(lambda: (tmp_path / "closed").exists())


@pytest.mark.parametrize("limit", [-1, 2])
def test_a_generator_whose_process_dies_is_run_again(fresh, tmp_path, limit):
    fresh(num_cpus=1)
    generator = recorded.options(_generator_backpressure_num_objects=limit).remote(tmp_path, 300, 0.005)
    values = [runtime.get(next(generator)) for _ in range(10)]
    os.kill(producer(tmp_path), signal.SIGKILL)
    values += [runtime.get(ref) for ref in generator]
    assert values == list(range(300))


def test_a_generator_that_cannot_be_run_again_ends_with_an_error(fresh, tmp_path):
    fresh(num_cpus=1)
    generator = recorded.options(max_retries=0).remote(tmp_path, pause_s=0.01)
    runtime.get(next(generator))
    os.kill(producer(tmp_path), signal.SIGKILL)
    *_, last = generator
    with pytest.raises(runtime.WorkerCrashedError):
        runtime.get(last)


def test_a_producer_notices_that_its_caller_is_gone(fresh, tmp_path):
    @runtime.remote
    class Caller:
        def start(self, actor):
            self.generator = actor.recorded.options(_generator_backpressure_num_objects=1).remote(tmp_path)
            return runtime.get(next(self.generator))

    fresh(num_cpus=2)
    actor, caller = Producer.remote(), Caller.remote()
    assert runtime.get(caller.start.remote(actor), timeout=10) == 0
    runtime.kill(caller)
    assert runtime.get(actor.alive.remote(), timeout=10)
