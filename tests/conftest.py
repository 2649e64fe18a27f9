"""What holds for all tests."""

import gc
import importlib.util
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

import runtime
from rllib import processes
from rllib.compat.names import foreign_program


def pytest_addoption(parser):
    parser.addoption("--need-extras", action="store_true", help="fail where the package of a mark `extras` is missing")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(config, items):
    """Marks the tests of slow_tests.txt `slow`."""
    lines = Path(__file__).with_name("slow_tests.txt").read_text().splitlines()
    listed = {line for line in lines if not line.startswith("#")}
    found = set()
    for item in items:
        if names := listed & {item.nodeid, item.nodeid.partition("[")[0]}:
            item.add_marker("slow")
            found |= names
    if config.args_source is config.ArgsSource.TESTPATHS:
        # Which variants there are, and which files, may depend on packages that are installed.
        there = {item.nodeid.partition("[")[0] for item in items}
        files = {name.partition("::")[0] for name in there}
        missing = {each.partition("[")[0] for each in listed - found} - there
        if missing := sorted(name for name in missing if name.partition("::")[0] in files):
            raise pytest.UsageError(f"slow_tests.txt names tests that there are not: {', '.join(missing)}")


def pytest_collection_finish():
    """Leaves the tests themselves out of garbage collections: with all of them, each `gc.collect()` takes 0.5 s."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item):
    for mark in item.iter_markers("extras"):
        for package in mark.args:
            if importlib.util.find_spec(package) is None:
                end = pytest.fail if item.config.getoption("--need-extras") else pytest.skip
                end(f"{package} is not installed: make extras installs it and runs this test")


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard():
    """Shells start background jobs with Ctrl-C ignored, and children inherit that: the tests of Ctrl-C would hang."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def session_parent(tmp_path_factory):
    """Where sessions of this process go; like its temporary files, apart from those of tests that run at the same time.

    The path is short, since a socket's may have 107 characters only.
    """
    tmp_path_factory.getbasetemp()  # stays where it is, for a look at what a failed test has left
    with tempfile.TemporaryDirectory(prefix="rt", dir="/tmp", ignore_cleanup_errors=True) as directory:
        sessions, files = Path(directory, "sessions"), Path(directory, "files")
        sessions.mkdir(mode=0o700)
        files.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_RUNTIME_DIR", str(sessions))
            patch.setenv("TMPDIR", str(files))
            patch.setattr(tempfile, "tempdir", None)
            patch.delenv("RUNTIME_ENGINE", raising=False)
            yield sessions


@pytest.fixture(scope="module", autouse=True)
def no_session_left(ctrl_c_is_heard, session_parent):
    """Ends the session that the tests of a module have started and share."""
    yield
    runtime.shutdown()


@pytest.fixture(scope="module")
def workers_know_the_module(request):
    """Workers are forked with the test's module: else each imports it, and all that it imports, for a class of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "PRELOAD", (*processes.PRELOAD, request.module.__name__))
        yield


@pytest.fixture(autouse=True)
def no_hook_is_left():
    """A test that imports `rllib.as_ray` or `rllib.as_sb3` changes what the later tests of its process see."""
    yield
    if foreign_program.is_running():
        foreign_program._is_running = False  # one test fails, not all that follow
        pytest.fail("the test has left an import hook in its process: run the program in another process")


@pytest.fixture(autouse=True)
def only_results(request):
    """Runs and experiments write no events and no curve, except in tests marked `sidecar`.

    The process that writes them needs a second of the processor, and its low priority lets all other tests go first.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("sidecar"):
            patch.setattr("rllib.runs.sidecar._CLOSE_S", 100.0)
        else:
            patch.setattr("rllib.runs.sidecar.Sidecar.start", lambda self: None)
        yield


@pytest.fixture(autouse=True)
def checkpoints_are_of_others(request, monkeypatch):
    """Checkpoints count as those of another run, so that tests see what is read of them, but for `own_checkpoints`."""
    if "own_checkpoints" not in request.fixturenames:
        monkeypatch.setattr("rllib.storage.checkpoint.wrote", lambda content, signed: False)


@pytest.fixture
def own_modules(tmp_path):
    """Modules that were imported from the test's directory are forgotten after it: another test may have such names."""
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(f"{tmp_path}{os.sep}"):
            del sys.modules[name]


@pytest.fixture
def own_checkpoints():
    """Checkpoints that the test's process has written count as its own, as in a program."""
