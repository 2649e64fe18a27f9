"""init, shutdown and what lies outside them, on every engine; each test has sessions of its own."""

import asyncio
import copy
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from runtime_support import AT_START, ENGINES, effect_at_start, read_at_start, skip_where_nothing_starts

import runtime
from runtime.util import list_named_actors

each_engine = pytest.mark.parametrize("engine_name", ENGINES)


@runtime.remote
def add(a, b):
    return a + b


@runtime.remote
class Actor:
    def ping(self):
        return "pong"

    def gpus(self):
        return runtime.get_runtime_context().get_gpu_ids(), os.environ.get("CUDA_VISIBLE_DEVICES")


@each_engine
def test_init_and_shutdown(fresh, engine_name):
    assert not runtime.is_initialized()
    resources = fresh(engine_name, num_cpus=3, num_gpus=1, resources={"a": 2})
    assert runtime.is_initialized()
    assert resources["CPU"] == 3 and resources["GPU"] == 1 and resources["a"] == 2
    assert runtime.cluster_resources() == resources
    runtime.shutdown()
    assert not runtime.is_initialized()
    runtime.shutdown()


@each_engine
def test_a_session_as_a_context_manager(fresh, engine_name):
    with fresh(engine_name, num_cpus=3) as resources:
        assert resources == runtime.cluster_resources() and resources["CPU"] == 3
        assert runtime.get(add.remote(1, 2)) == 3
    assert not runtime.is_initialized()
    with pytest.raises(KeyError), fresh(engine_name):
        raise KeyError("in the block")
    assert not runtime.is_initialized()


@each_engine
def test_one_session_after_another(fresh, engine_name):
    for i in range(3):
        fresh(engine_name)
        assert runtime.get(add.remote(i, 1)) == i + 1
        assert runtime.get(Actor.remote().ping.remote()) == "pong"
        runtime.shutdown()


@each_engine
def test_a_second_init_is_refused(fresh, engine_name):
    fresh(engine_name, num_cpus=2)
    with pytest.raises(RuntimeError, match="ignore_reinit_error"):
        runtime.init(engine_name)
    assert runtime.init(engine_name, num_cpus=7, ignore_reinit_error=True)["CPU"] == 2


@each_engine
def test_the_first_use_starts_a_session(fresh, engine_name, monkeypatch):
    monkeypatch.setenv("RUNTIME_ENGINE", engine_name)
    assert runtime.get(add.remote(1, 2)) == 3
    assert runtime.is_initialized()


@each_engine
def test_the_session_ends_while_generators_are_awaited(fresh, engine_name):
    if engine_name == "local":
        pytest.skip("the local engine has each value at once")

    @runtime.remote
    class Gate:
        async def values(self):
            await asyncio.Event().wait()
            yield 1

    async def main():
        gate = Gate.options(max_concurrency=20).remote()
        generators = [gate.values.options(num_returns="streaming").remote() for _ in range(10)]
        waiting = [asyncio.create_task(anext(each)) for each in generators]
        await asyncio.sleep(0.5)
        runtime.shutdown()
        # A thread inside of Ray would end this process a little later, in most of the runs.
        assert not [thread for thread in threading.enumerate() if thread.name == "runtime-turn"]
        return await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 20)

    fresh(engine_name)
    for value in asyncio.run(main()):  # an error, or the reference of one
        with pytest.raises(runtime.exceptions.SessionClosedError):
            if isinstance(value, Exception):
                raise value
            runtime.get(value)


@each_engine
def test_references_and_handles_end_with_their_session(fresh, engine_name):
    fresh(engine_name)
    ref, actor = runtime.put(1), Actor.remote()
    runtime.get(actor.ping.remote())
    runtime.shutdown()
    for use in (
        lambda: runtime.get(ref),
        lambda: runtime.wait([ref]),
        lambda: actor.ping.remote(),
        lambda: runtime.kill(actor),
    ):
        with pytest.raises(runtime.SessionClosedError):
            use()
    assert not runtime.is_initialized()
    fresh(engine_name)
    assert (runtime.put(1), Actor.remote()) != (ref, actor) and len({ref, runtime.put(1), actor, Actor.remote()}) == 4
    for use in (lambda: runtime.get(ref), lambda: add.remote(ref, 1), lambda: runtime.get(actor.ping.remote())):
        with pytest.raises(runtime.SessionClosedError):
            use()
    assert runtime.get(add.remote(1, 2)) == 3


@each_engine
def test_pickled_references_and_handles_end_with_their_session(fresh, engine_name):
    fresh(engine_name)
    actor = Actor.remote()
    data = pickle.dumps({"ref": runtime.put(1), "actor": actor, "method": actor.ping})
    runtime.shutdown()
    for start in (lambda: None, lambda: fresh(engine_name)):
        start()
        kept = copy.deepcopy(pickle.loads(pickle.dumps(pickle.loads(data))))
        for use, what in (
            (runtime.get, kept["ref"]),
            (runtime.wait, [kept["ref"]]),
            (kept["actor"].ping.remote, None),
            (kept["method"].remote, None),
            (runtime.kill, kept["actor"]),
        ):
            with pytest.raises(runtime.SessionClosedError):
                use(what) if what is not None else use()
    for argument in (kept["ref"], [actor]):
        with pytest.raises(runtime.SessionClosedError):
            add.remote(argument, 1)


@each_engine
def test_values_outlive_their_session(fresh, engine_name):
    fresh(engine_name)
    array = runtime.get(runtime.put(np.arange(200_000)))
    runtime.shutdown()
    assert array.sum() == 199_999 * 100_000
    del array


@each_engine
def test_shutdown_with_work_going_on(fresh, engine_name):
    fresh(engine_name)
    actors = [Actor.remote() for _ in range(3)]
    refs = [add.remote(i, 1) for i in range(50)] + [a.ping.remote() for a in actors]
    runtime.shutdown()
    del refs, actors


@runtime.remote
def slow():
    time.sleep(1000)


@runtime.remote
def keep(*values):
    return values


@runtime.remote
class Keeper:
    def __init__(self, *values):
        self.values = values

    def keep(self, *values):
        return values


@pytest.mark.parametrize(
    "submit",
    [
        pytest.param(lambda actor: keep.remote(slow.remote()), id="task"),
        pytest.param(lambda actor: keep.remote([slow.remote()]), id="task, inside a list"),
        pytest.param(lambda actor: keep.remote(keep.remote(slow.remote()), [slow.remote()]), id="chain of tasks"),
        pytest.param(lambda actor: actor.keep.remote(slow.remote()), id="call"),
        pytest.param(lambda actor: actor.keep.remote([slow.remote()]), id="call, inside a list"),
        pytest.param(lambda actor: keep.remote(actor.keep.remote(slow.remote())), id="task after a call"),
        pytest.param(lambda actor: Keeper.remote(slow.remote()), id="constructor"),
    ],
)
def test_shutdown_while_arguments_are_pending(fresh, submit):
    fresh()
    kept = submit(Keeper.remote())
    runtime.shutdown()
    assert not fresh.leftovers.found()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    del kept


def test_the_end_of_a_script_while_arguments_are_pending(fresh, script):
    done = script("""
import time, runtime
@runtime.remote
def slow():
    time.sleep(1000)
@runtime.remote
def keep(value):
    return value
runtime.init("zeromq", num_cpus=2)
kept = [keep.remote(slow.remote()), keep.remote([slow.remote()])]
""")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    fresh.leftovers.check(5, own=False)


@each_engine
def test_init_inside_a_task(fresh, engine_name):
    cpus = fresh(engine_name)["CPU"]

    @runtime.remote
    def inside():
        assert runtime.is_initialized()
        try:
            runtime.init()
        except RuntimeError:
            return runtime.init(ignore_reinit_error=True)["CPU"]

    assert runtime.get(inside.remote()) == cpus


@each_engine
def test_gpus_are_handed_out(fresh, engine_name, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    fresh(engine_name, num_gpus=2)
    whole, *halves = [Actor.options(num_gpus=n).remote() for n in (1, 0.5, 0.5)]
    [one], _ = runtime.get(whole.gpus.remote(), timeout=30)
    others = [runtime.get(h.gpus.remote(), timeout=30)[0] for h in halves]
    assert others[0] == others[1] and others[0] != [one]
    assert {one, others[0][0]} == {"0", "1"}
    waiting = Actor.options(num_gpus=1).remote()
    ref = waiting.gpus.remote()
    assert runtime.wait([ref], timeout=0.2) == ([], [ref])
    runtime.kill(whole)
    assert runtime.get(ref, timeout=30)[0] == [one]


@each_engine
def test_the_visible_gpus_are_respected(fresh, engine_name, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-abc")
    resources = fresh(engine_name)
    assert resources["GPU"] == 2
    ids = runtime.get([Actor.options(num_gpus=1).remote().gpus.remote() for _ in range(1)], timeout=30)[0][0]
    assert ids in (["3"], ["GPU-abc"])


@each_engine
def test_preloaded_modules(fresh, engine_name):
    fresh(engine_name, preload=["wave", "xml.dom"])

    @runtime.remote
    def loaded():
        return "wave" in sys.modules and "xml.dom" in sys.modules

    assert runtime.get(loaded.remote(), timeout=30)


@each_engine
def test_init_in_a_thread_that_ends(fresh, engine_name):
    thread = threading.Thread(target=fresh, args=(engine_name,))
    thread.start()
    thread.join()
    assert runtime.get(add.remote(1, 1), timeout=30) == 2
    assert runtime.get(Actor.remote().ping.remote(), timeout=30) == "pong"


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"engine": "zeromqq"}, ValueError, "'zeromq', 'ray' and 'local'"),
        ({"engine": "zeromq", "local_mode": True}, ValueError, "local_mode"),
        ({"address": "host:6379"}, ValueError, "runs on one machine; give 'session'"),
        ({"include_dashboard": True}, ValueError, "no dashboard"),
        ({"namespace": 3}, TypeError, "namespace"),
        ({"namespace": ""}, ValueError, "namespace must not be the empty string"),
        ({"runtime_env": {"pip": ["x"]}}, ValueError, "env_vars"),
        ({"logging_level": "LOUD"}, ValueError, "LOUD"),
        ({"num_cpus": -1}, ValueError, "num_cpus"),
        ({"num_cpus": "4"}, TypeError, "num_cpus"),
        ({"num_gpus": 0.5}, ValueError, "whole number"),
        ({"resources": {"GPU": 1}}, ValueError, "num_gpus"),
        ({"resources": 3}, TypeError, "resources"),
        ({"object_store_memory": 10}, ValueError, "bytes"),
        ({"memory_usage_threshold": 0}, ValueError, "a share of the memory; 1 ends no process"),
        ({"memory_usage_threshold": 95}, ValueError, "at most 1"),
        ({"memory_usage_threshold": "much"}, TypeError, "memory_usage_threshold must be a number"),
        ({"memory_usage_threshold": True}, TypeError, "memory_usage_threshold must be a number"),
        ({"preload": "numpy"}, TypeError, "list of module names"),
        ({"preload": ["no_such_module_xyz"]}, ValueError, "no_such_module_xyz"),
    ],
)
def test_arguments_of_init_are_checked(fresh, arguments, error, message):
    with pytest.raises(error, match=message):
        runtime.init(**arguments)
    assert not runtime.is_initialized()


@pytest.mark.parametrize("engine_name", ENGINES)
def test_rays_defaults_may_be_given_to_init(fresh, engine_name):
    level = logging.getLogger("runtime").level
    fresh(
        engine_name,
        address="local",
        include_dashboard=False,
        namespace="mine",
        logging_level=logging.ERROR,
        runtime_env={},
    )
    assert logging.getLogger("runtime").level == logging.ERROR
    logging.getLogger("runtime").setLevel(level)


def test_the_environment_variables_are_checked(fresh, monkeypatch):
    monkeypatch.setenv("RUNTIME_MEMORY_USAGE_THRESHOLD", "2")
    with pytest.raises(ValueError, match="RUNTIME_MEMORY_USAGE_THRESHOLD='2' must be above 0 and at most 1"):
        runtime.init("zeromq")
    monkeypatch.setenv("RUNTIME_ENGINE", "nonsense")
    with pytest.raises(ValueError, match="RUNTIME_ENGINE='nonsense'"):
        runtime.init()


def test_local_mode_is_the_local_engine(fresh):
    runtime.init(local_mode=True)

    @runtime.remote
    def pid():
        return os.getpid()

    assert runtime.get(pid.remote()) == os.getpid()


def test_importing_the_runtime_loads_no_heavy_library():
    code = "import runtime, sys; print([m for m in ('numpy', 'torch', 'gymnasium', 'psutil') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert out.strip() == "[]"


@pytest.mark.parametrize("name", ENGINES)
def test_no_future_of_a_reference_after_the_session(fresh, name):
    fresh(name)
    ref = runtime.put(1)
    runtime.shutdown()
    with pytest.raises(runtime.SessionClosedError):
        ref.future()


@pytest.mark.parametrize("engine_name", ENGINES)
def test_the_environment_of_a_session(fresh, tmp_path, engine_name):
    @runtime.remote
    def environment():
        return [os.environ.get(f"RUNTIME_TEST_{name}") for name in "YZ"], os.listdir()  # Ray copies the directory

    @runtime.remote
    class Reader:
        def environment(self):
            return os.environ.get("RUNTIME_TEST_Y")

    first = {"RUNTIME_TEST_Y": "1", "RUNTIME_TEST_Z": "1"}
    (tmp_path / "data.txt").touch()
    fresh(engine_name, runtime_env={"env_vars": first, "working_dir": str(tmp_path)})
    assert runtime.get(environment.remote(), timeout=20) == (["1", "1"], ["data.txt"])
    other = environment.options(runtime_env={"env_vars": {"RUNTIME_TEST_Z": "2"}})
    assert runtime.get(other.remote(), timeout=20) == (["1", "2"], ["data.txt"])
    assert runtime.get(Reader.remote().environment.remote(), timeout=20) == "1"
    assert "RUNTIME_TEST_Y" not in os.environ


@each_engine
def test_the_variables_of_a_session_have_effect(fresh, engine_name):
    skip_where_nothing_starts(engine_name)
    fresh(engine_name, runtime_env={"env_vars": AT_START})
    task, expected = runtime.remote(read_at_start), effect_at_start()
    assert runtime.get([task.remote() for _ in range(2)], timeout=20) == [expected] * 2
    other = task.options(runtime_env={"env_vars": {"TZ": "UVW-3"}})
    assert runtime.get(other.remote(), timeout=20) == {**expected, "zone": "UVW"}


THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@each_engine
@pytest.mark.parametrize("given", [None, "5"])
def test_threads_of_libraries(fresh, engine_name, given, monkeypatch):
    """As many as an actor holds CPUs, unless the driver's variables or its own say otherwise."""
    skip_where_nothing_starts(engine_name)
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)

    @runtime.remote
    class Reader:
        def read(self):
            return [os.environ.get(name) for name in THREADS]

    fresh(engine_name, num_cpus=4)
    options = [{"num_cpus": 0}, {"num_cpus": 1}, {"num_cpus": 2}]
    options.append({"num_cpus": 1, "env_vars": {"OMP_NUM_THREADS": "3"}})
    actors = [Reader.options(**each).remote() for each in options]
    numbers = ["1", "1", "2", "3"] if given is None else [given, given, given, "3"]
    read = runtime.get([actor.read.remote() for actor in actors], timeout=30)
    assert read == [[number, None, None] for number in numbers]


@pytest.mark.parametrize("count", [1, 2])
def test_threads_of_libraries_that_are_loaded_at_start(fresh, count, monkeypatch):
    """numpy's BLAS reads the variable when a new interpreter imports it, before anything of the runtime's runs."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    @runtime.remote
    class Reader:
        def first_environment(self):
            return Path("/proc/self/environ").read_text().split("\0")

    fresh("zeromq", num_cpus=2)
    actor = Reader.options(num_cpus=count, env_vars={"RUNTIME_TEST_Y": "1"}).remote()
    assert f"OMP_NUM_THREADS={count}" in runtime.get(actor.first_environment.remote(), timeout=20)


@each_engine
def test_the_namespace_of_a_session(fresh, engine_name):
    @runtime.remote
    class Named:
        pass

    fresh(engine_name, namespace="mine")
    assert runtime.get_runtime_context().namespace == "mine"
    actor = Named.options(name="a").remote()
    assert runtime.get_actor("a", namespace="mine") == actor
    assert {"namespace": "mine", "name": "a"} in list_named_actors(all_namespaces=True)
