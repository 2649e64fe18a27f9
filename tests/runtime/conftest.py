"""Sessions for the tests of the runtime; after every one of them the checker of runtime_support runs."""

import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import uuid

import pytest
from ray_cluster import RayCluster, ray_version
from runtime_support import (
    ENGINES,
    MARKER,
    RAY_DIFFERENCES,
    RAY_FAULTS,
    Leftovers,
    marked_processes,
    unsettled,
    wait_until,
)

import runtime

START_ONLY = ("num_cpus", "num_gpus", "resources", "object_store_memory")  # arguments of a cluster that init starts


@pytest.fixture(scope="session")
def libraries_loaded(session_parent):
    """One session before all others: what libraries keep open then belongs to the baseline."""
    runtime.init("zeromq", num_cpus=1)
    runtime.get(runtime.put(0))
    runtime.shutdown()


@pytest.fixture(scope="session")
def ray_cluster():
    """One node with the resources of a shared session, for all tests."""
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as directory:
        cluster = RayCluster(
            directory, "--include-dashboard=false", "--num-cpus=4", "--num-gpus=0", '--resources={"token": 2}'
        )
        yield cluster
        cluster.stop()


@pytest.fixture(scope="module")
def shared_session(request, session_parent, libraries_loaded):
    """Parametrise indirectly with an engine's name: one session for all tests of a module with that engine."""
    # Workers are forked with the module: else each imports it, and pytest, for a class or function of it.
    given = {"num_cpus": 4, "num_gpus": 0, "resources": {"token": 2}, "preload": [request.module.__name__]}
    if request.param == "ray":  # its processes live on: they must not have the marker
        given = {"address": request.getfixturevalue("ray_cluster").address}
    marker = os.environ[MARKER] = uuid.uuid4().hex
    leftovers = Leftovers(marker, session_parent)
    runtime.init(request.param, log_to_driver=False, **given)
    yield request.param
    runtime.shutdown()
    leftovers.check(own=request.param != "ray")


@pytest.fixture
def engine(shared_session):
    """The engine's name; afterwards all actors and tasks of the test must be gone."""
    threads = set(threading.enumerate())
    yield shared_session
    wait_until(
        lambda: runtime.available_resources() == runtime.cluster_resources(),
        10,
        lambda: f"free: {runtime.available_resources()} of {runtime.cluster_resources()}; not all came back",
    )
    started = {t for t in threading.enumerate() if t not in threads and t.is_alive() and not t.daemon}
    assert not started


@pytest.fixture
def fresh(request, session_parent, libraries_loaded):
    """Function to start a session of one's own, ended after the test if the test did not.

    On Ray it joins the cluster of all tests, unless its arguments describe one: a start takes many seconds.

    Before it is ended, everything must have come back to it (`runtime_support.unsettled`). A test that leaves work
    running sets `fresh.settles = False`; one that sends nonsense to the node, `fresh.malformed = None`.
    """
    assert not runtime.is_initialized()
    marker = os.environ[MARKER] = uuid.uuid4().hex
    leftovers = Leftovers(marker, session_parent)

    def start(engine="zeromq", **kwargs):
        if engine == "ray" and not kwargs.keys() & {"address", *START_ONLY}:
            del os.environ[MARKER]  # the cluster's processes live on
            kwargs["address"] = request.getfixturevalue("ray_cluster").address
            os.environ[MARKER] = marker
        else:
            kwargs = {"num_cpus": 2, **kwargs}
            if engine == "ray":
                kwargs = {"address": "local", "include_dashboard": False, **kwargs}
        if engine == "ray":
            expect_less()
        return runtime.init(engine, **{"log_to_driver": False, **kwargs})

    def expect_less():  # of Ray
        start.own = False  # it keeps threads and descriptors for its next connection
        start.leave_s = 60.0
        start.settles = False  # and returns resources when it likes

    start.leftovers, start.own, start.leave_s = leftovers, True, 5.0
    start.processes = lambda: marked_processes(marker)
    start.settles, start.malformed = True, 0
    yield start
    if runtime.is_initialized() and runtime.context.current_engine().name == "ray":
        expect_less()
    try:
        if runtime.is_initialized() and start.settles:
            left = functools.partial(unsettled, start.malformed)
            wait_until(lambda: not left(), 10, lambda: f"left: {left()}\nnot back")
    finally:
        runtime.shutdown()
        leftovers.check(start.leave_s, start.own)


@pytest.fixture
def script(tmp_path, fresh):
    """Function that runs Python source as a driver of its own; its processes are checked like those of the test.

    `run(source, *args, timeout_s=30)` gives the finished process; `run.start(source)` one that still runs, with pipes.
    """
    started = []

    def start(source, *args, **kwargs):
        path = tmp_path / f"driver{len(started)}.py"
        path.write_text(source)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
        process = subprocess.Popen(
            [sys.executable, str(path), *map(str, args)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **kwargs,
        )
        started.append(process)
        return process

    def run(source, *args, timeout_s=30, **kwargs):
        process = start(source, *args, **kwargs)
        out, err = process.communicate(timeout=timeout_s)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    run.start = start
    yield run
    for process in started:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)


def pytest_collection_modifyitems(items):
    """Tests of one engine after another, so that each module starts one session per engine."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
        on_ray = any(isinstance(value, str) and value == "ray" for value in parameters)
        if "engine" in getattr(item, "fixturenames", ()) and not on_ray and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(60))
        if on_ray and item.originalname in RAY_DIFFERENCES:
            item.add_marker(pytest.mark.skip(reason=RAY_DIFFERENCES[item.originalname]))
        if on_ray and (item.originalname, ray_version()) in RAY_FAULTS:
            item.add_marker(pytest.mark.skip(reason=RAY_FAULTS[item.originalname, ray_version()]))


def pytest_generate_tests(metafunc):
    """A test with the fixture `engine` runs on all engines, or on those of the module's mark `engines`."""
    if "shared_session" in metafunc.fixturenames:
        metafunc.parametrize("shared_session", ENGINES, indirect=True, scope="module")
