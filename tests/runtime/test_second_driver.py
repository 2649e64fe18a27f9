"""A second process that joins a running session: its references and actors are its own."""

import contextlib
import fcntl
import json
import os
import signal
import time
from pathlib import Path

import pytest
from runtime_support import wait_until

import runtime
from runtime.util import get_placement_group, placement_group, remove_placement_group

JOIN = """
import os, sys, time, runtime
session = runtime.init(address=sys.argv[1])
"""
WAIT = "print('ready', flush=True)\ntime.sleep(100)\n"


@runtime.remote
class Counter:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        return self.count


def joined(script, session, source):
    """A second driver that has reached the end of its source, and still runs."""
    process = script.start(JOIN + source + WAIT, session.session_dir)
    line = process.stdout.readline()
    assert line == "ready\n", process.communicate()[1]
    return process


def test_a_second_driver_has_all_verbs(fresh, script):
    session = fresh(resources={"token": 2})
    counter = Counter.remote()
    runtime.get(counter.add.remote())
    result = script(
        JOIN
        + """
import numpy as np
@runtime.remote
class Keeper:
    def keep(self, value):
        return value
    def pid(self):
        return os.getppid()
@runtime.remote
def double(x):
    return 2 * x
keeper = Keeper.remote()
array = np.arange(100_000)
assert (runtime.get(keeper.keep.remote(runtime.put(array))) == array).all()
assert runtime.get([double.remote(double.remote(i)) for i in range(10)]) == [4 * i for i in range(10)]
assert runtime.empty(10_000).shape == (10_000,)
assert session["token"] == 2 and session.session_dir == sys.argv[1] and runtime.nodes()[0]["Resources"]["CPU"] == 2
assert runtime.get_runtime_context().get_worker_id() != "1"
print("done")
""",
        session.session_dir,
    )
    assert result.stdout == "done\n", result.stderr
    assert runtime.get(counter.add.remote(), timeout=20) == 2
    wait_until(lambda: runtime.available_resources() == runtime.cluster_resources())


def test_its_workers_have_its_namespace_and_environment(fresh, script):
    session = fresh(namespace="first", runtime_env={"env_vars": {"FIRST": "1"}})

    @runtime.remote
    def place():
        return runtime.get_runtime_context().namespace, os.environ.get("FIRST"), os.environ.get("SECOND")

    assert runtime.get(place.remote()) == ("first", "1", None)
    result = script(
        """
import os, sys, runtime
runtime.init(address=sys.argv[1], namespace="second", runtime_env={"env_vars": {"SECOND": "2"}})
@runtime.remote
def place():
    return runtime.get_runtime_context().namespace, os.environ.get("FIRST"), os.environ.get("SECOND")
@runtime.remote
class Child:
    def place(self):
        return runtime.get([place.remote(), place.options(runtime_env={"env_vars": {"SECOND": "3"}}).remote()])
print(runtime.get(place.remote()), *runtime.get(Child.remote().place.remote()))
""",
        session.session_dir,
    )
    assert result.stdout == f"{('second', None, '2')} {('second', None, '2')} {('second', None, '3')}\n", result.stderr
    assert runtime.get(place.remote()) == ("first", "1", None)


def test_names_of_placement_groups_are_those_of_its_namespace(fresh, script):
    session = fresh(namespace="first")
    group = placement_group([{"CPU": 1}], name="learners")
    result = script(
        """
import sys, runtime
from runtime.util import get_placement_group, placement_group
runtime.init(address=sys.argv[1], namespace="second")
try:
    get_placement_group("learners")
except ValueError as error:
    print("namespace 'second'" in str(error))
group = placement_group([{"CPU": 1}], name="learners")
@runtime.remote
def find():
    return get_placement_group("learners") == group
print(get_placement_group("learners") == group, runtime.get(find.options(num_cpus=0).remote()))
""",
        session.session_dir,
    )
    assert result.stdout == "True\nTrue True\n", result.stderr
    assert get_placement_group("learners") == group
    with pytest.raises(ValueError, match="named 'learners' in the namespace 'first' already"):
        placement_group([{"CPU": 1}], name="learners")
    remove_placement_group(group)


def test_idle_workers_of_the_first_driver_serve_it(fresh, script):
    session = fresh()

    @runtime.remote
    def place():
        return os.getpid()

    pid = runtime.get(place.remote())
    result = script(
        """
import os, sys, runtime
from runtime.util import list_named_actors
runtime.init(address=sys.argv[1], namespace="second")
@runtime.remote
def place():
    keeper = Keeper.options(name="keeper").remote()
    inner = runtime.get(inside.remote(), timeout=20)
    return os.getpid(), runtime.get_runtime_context().namespace, inner, runtime.get(keeper.name.remote(), timeout=20)
@runtime.remote
def inside():
    return runtime.get_runtime_context().namespace
@runtime.remote
class Keeper:
    def name(self):
        return list_named_actors(all_namespaces=True)
print(runtime.get(place.remote()))
""",
        session.session_dir,
    )
    named = [{"namespace": "second", "name": "keeper"}]
    assert result.stdout == f"{(pid, 'second', 'second', named)}\n", result.stderr


def test_session_and_auto_mean_the_one_that_runs(fresh, script):
    session = fresh()
    result = script("""
import runtime
from runtime.util import get_placement_group, placement_group, remove_placement_group
for given in ({"address": "session"}, {"address": "auto"}, {"engine": "auto"}):
    with runtime.init(**given) as session:
        print(session.session_dir)
""")
    assert result.stdout.split() == [session.session_dir] * 3, result.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")
def test_session_passes_over_what_another_user_has_put_there(fresh, script, tmp_path, monkeypatch):
    """Whatever is newer, has a session's name and is locked as one."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    session = fresh()
    with contextlib.ExitStack() as locks:
        foreign, link = tmp_path / f"rts-{os.getuid()}-a", tmp_path / f"rts-{os.getuid()}-b"
        foreign.mkdir()
        lock = locks.enter_context(open(foreign / "lock", "w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        (foreign / "session.json").write_text((Path(session.session_dir) / "session.json").read_text())
        os.chown(foreign, 65534, -1)
        link.symlink_to(foreign)
        (tmp_path / f"rts-{os.getuid()}-c").touch()
        result = script(
            "import runtime\nwith runtime.init(address='session') as session:\n    print(session.session_dir)\n"
        )
    assert result.stdout.strip() == session.session_dir, result.stderr


ITS_OWN = """
@runtime.remote(num_cpus=1)
class Own:
    def pid(self):
        return os.getpid()
@runtime.remote(num_cpus=0)
def sleep():
    time.sleep(100)
own = Own.remote()
task = sleep.remote()
print(runtime.get(own.pid.remote()), file=sys.stderr, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_its_death_ends_what_is_its_own(fresh, script, number):
    session = fresh()
    counter = Counter.remote()
    runtime.get(counter.add.remote())
    before = set(fresh.processes())
    process = joined(script, session, ITS_OWN)
    assert runtime.available_resources()["CPU"] == 1
    process.send_signal(number)
    process.wait(10)
    wait_until(lambda: runtime.available_resources() == runtime.cluster_resources(), 5)
    wait_until(lambda: set(fresh.processes()) <= before, 5)
    assert runtime.get(counter.add.remote(), timeout=20) == 2
    assert runtime.get(runtime.remote(lambda: 3).remote(), timeout=20) == 3
    left = [name for name in os.listdir(session.session_dir) if f"-{process.pid}" in name or len(name) == 8]
    assert not left, "its mailbox and the file for its stacks have gone"


GUEST_WAITS = """
@runtime.remote(num_cpus=0)
def sleep():
    time.sleep(100)
ref = sleep.remote()
print("ready", flush=True)
for wait in (lambda: runtime.get(ref), lambda: sleep.remote()):
    try:
        wait()
    except runtime.SessionClosedError as error:
        print(error)
runtime.shutdown()
print(runtime.is_initialized())
"""


def test_the_end_of_the_first_driver_ends_the_second_with_an_error(fresh, script):
    session = fresh()
    process = script.start(JOIN + GUEST_WAITS, session.session_dir)
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    runtime.shutdown()
    out, err = process.communicate(timeout=20)
    text = f"the session has ended with the driver that started it, process {os.getpid()}"
    assert out.count(text) == 2 and out.endswith("False\n"), out + err
    assert process.returncode == 0


FIRST = """
import sys, time, runtime
session = runtime.init("zeromq", num_cpus=1)
print(session.session_dir, flush=True)
time.sleep(100)
"""


def test_the_death_of_the_first_driver_ends_the_second_with_an_error(fresh, script):
    first = script.start(FIRST)
    directory = first.stdout.readline().strip()
    second = script.start(JOIN + GUEST_WAITS, directory)
    assert second.stdout.readline() == "ready\n", second.communicate()[1]
    first.kill()
    out, err = second.communicate(timeout=20)
    assert out.count(f"process {first.pid}") == 2 and out.endswith("False\n"), out + err


def test_what_its_workers_print_is_shown_by_it(fresh, script, capfd):
    session = fresh(log_to_driver=True)
    result = script(
        JOIN + "runtime.get(runtime.remote(lambda: print('from the guest')).remote())\nruntime.shutdown()",
        session.session_dir,
    )
    assert "from the guest" in result.stdout, result.stderr
    runtime.get(runtime.remote(lambda: print("from the host")).remote())
    runtime.shutdown()
    out = capfd.readouterr().out
    assert "from the host" in out and "from the guest" not in out


PRINTS = """
import subprocess
@runtime.remote(num_cpus=0)
class Printer:
    def say(self, text, end="\\n"):
        print(text, end=end, flush=True)
@runtime.remote(num_cpus=0)
def leave_behind():
    subprocess.Popen(["sh", "-c", "sleep 1; echo left by the guest"])
@runtime.remote(num_cpus=0)
def keep_on():
    while True:
        print("still the guest", flush=True)
        time.sleep(0.05)
@runtime.remote(num_cpus=0)
def start():
    keep_on.remote()
printer = Printer.remote()
runtime.get([printer.say.remote("alike"), leave_behind.remote(), start.remote()])
time.sleep(0.5)
runtime.get(printer.say.remote("not a whole line of the guest", end=""))
"""


@pytest.mark.parametrize("end", ["runtime.shutdown()", "os.kill(os.getpid(), 9)"], ids=["leaves", "is killed"])
def test_what_its_workers_print_is_shown_by_no_other_driver(fresh, script, capfd, end):
    """Whether alike lines of another driver came before, the line is not whole, or it comes after the driver's end."""
    session = fresh(log_to_driver=True)
    say = runtime.remote(lambda: print("alike"))
    runtime.get(say.remote())
    result = script(JOIN + PRINTS + end, session.session_dir)
    time.sleep(1.0)  # the process that was left behind prints
    runtime.shutdown()
    out = capfd.readouterr().out
    assert "guest" not in out and out.count("alike") == 1
    assert ") alike" in result.stdout and "still the guest" in result.stdout, result.stderr
    assert ("not a whole line of the guest" in result.stdout) == (end == "runtime.shutdown()")


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ({"address": "/no/such/session"}, ConnectionError, "there is no session at /no/such/session"),
        ({"address": "tcp://host:1"}, ValueError, "runs on one machine; give 'session'"),
        ({"engine": "ray://host:10001"}, ValueError, r"init\(engine='ray', address='ray://host:10001'\)"),
        ({"engine": "host:6379", "address": "x"}, ValueError, "engine='host:6379' is unknown"),
        ({"address": 3}, TypeError, "address must be a string"),
        ({"address": "session", "engine": "local"}, ValueError, "cannot be joined"),
        ({"address": "session", "num_cpus": 2}, ValueError, "leave out num_cpus"),
    ],
)
def test_addresses_that_cannot_be(fresh, arguments, error, text):
    with pytest.raises(error, match=text):
        runtime.init(**arguments)
    assert not runtime.is_initialized()


def test_an_address_that_finds_no_session_names_the_engine_of_clusters(fresh, tmp_path, monkeypatch):
    """Programs for Ray give "auto" for the cluster of their machine."""
    monkeypatch.setattr("runtime.engines.zeromq.session.joining.session_places", lambda: [str(tmp_path)])
    with pytest.raises(ConnectionError, match=f"looked in {tmp_path}.*RUNTIME_ENGINE=ray"):
        runtime.init(address="auto")


def test_a_session_that_has_ended_is_not_joined(fresh, tmp_path):
    """Its lock says so, though its number may be that of another process by now."""
    described = {"protocol": "R2", "python": "3.0", "node_pid": os.getpid(), "driver_pid": 1, "resources": {}}
    (tmp_path / "session.json").write_text(json.dumps(described))
    (tmp_path / "lock").touch()
    with pytest.raises(ConnectionError, match=f"the session at {tmp_path} has ended"):
        runtime.init(address=str(tmp_path))
    (tmp_path / "session.json").write_text("no json")
    with pytest.raises(ConnectionError, match="there is no session at"):
        runtime.init(address=str(tmp_path))


def test_another_version_is_refused_with_both_versions(fresh, script):
    """Fault 58."""
    session = fresh()
    path = Path(session.session_dir) / "session.json"
    described = json.loads(path.read_text())
    path.write_text(json.dumps({**described, "protocol": "R1", "python": "3.9"}))
    result = script(JOIN, session.session_dir)
    assert result.returncode and "runs Python 3.9 with protocol R1, and this process Python 3." in result.stderr


def test_many_join_and_leave(fresh, script):
    session = fresh()
    counter = Counter.remote()
    started = time.monotonic()
    source = JOIN + ITS_OWN.replace("num_cpus=1", "num_cpus=0")
    processes = [script.start(source, session.session_dir) for _ in range(3)]
    for process in processes:
        _, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
    assert runtime.get(counter.add.remote(), timeout=20) == 1
    wait_until(lambda: runtime.available_resources() == runtime.cluster_resources())
    assert time.monotonic() - started < 30
