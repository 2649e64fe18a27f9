"""Starting a session: its directory beside those of others, and what is left when the start fails."""

import errno
import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading

import pytest
import zmq
from runtime_support import process_alive, wait_until

import runtime
from runtime.engines.zeromq.session import boot, launch


@runtime.remote
class Actor:
    def pid(self):
        return os.getpid()


@pytest.fixture
def base(tmp_path, monkeypatch):
    """Where session directories are made."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def create(base):
    """`launch.create_session_directory`; its locks are released at the end."""
    locks = []

    def create():
        session, lock = launch.create_session_directory()
        locks.append(lock)
        return session

    create.locks = locks
    yield create
    for lock in locks:
        os.close(lock)


def test_a_locked_directory_is_kept_and_an_unlocked_one_removed(create):
    first, second = create(), create()
    assert os.path.isdir(first)
    os.close(create.locks.pop(0))
    third = create()
    assert not os.path.exists(first) and os.path.isdir(second) and os.path.isdir(third)


def test_whether_a_session_lives_is_not_judged_by_a_pid(create, base):
    """The pid of a process in another container says nothing here."""
    session = create()
    for text in ("", "999999 1", "garbage"):
        with open(os.path.join(session, "node"), "w") as file:
            file.write(text)
        create()
        assert os.path.isdir(session)


def test_a_directory_without_a_lock_file_is_removed(create, base):
    """Its driver was killed between making and locking it."""
    left = base / f"{launch.PREFIX}{os.getuid()}-left"
    left.mkdir()
    create()
    assert not left.exists()


def test_what_belongs_to_others_is_kept(create, base):
    for name in ("something", f"{launch.PREFIX}{os.getuid() + 1}-of-another-user"):
        (base / name).mkdir()
    (base / f"{launch.PREFIX}{os.getuid()}-link").symlink_to(base / "something")
    create()
    assert len(list(base.iterdir())) == 4 and not any((base / "something").iterdir())


def test_a_directory_that_is_swept_before_it_is_locked_is_made_again(create, monkeypatch):
    mkdir, swept = os.mkdir, []

    def mkdir_and_be_swept(path, *args):
        mkdir(path, *args)
        if not swept:
            swept.append(path)
            launch._sweep(os.path.dirname(path))  # private: without a session of its own

    monkeypatch.setattr(os, "mkdir", mkdir_and_be_swept)
    session = create()
    assert swept != [session] and not os.path.exists(swept[0]) and os.path.isdir(session)


def test_sessions_that_begin_at_once_keep_their_directories(create):
    made = []
    threads = [threading.Thread(target=lambda: made.extend(create() for _ in range(30))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 240 and all(os.path.isdir(session) for session in made)


def test_a_full_or_missing_place_is_passed_over(base, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base / "missing"))
    monkeypatch.setenv("TMPDIR", str(base))
    session, lock = launch.create_session_directory()
    os.close(lock)
    assert os.path.dirname(session) == str(base)


def test_no_place_at_all_names_every_one_with_its_reason(base, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(OSError, match=f"{base}: No space left on device.*/tmp: No space left.*XDG_RUNTIME_DIR"):
        launch.create_session_directory()


def test_the_node_holds_the_lock_until_it_ends(fresh, session_parent):
    fresh()
    session, node_pid = runtime.context.current_engine().session, runtime.context.current_engine().node_pid
    with open(os.path.join(session, launch.LOCK)) as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.kill(node_pid, signal.SIGKILL)
        wait_until(lambda: not process_alive(node_pid))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


INIT = "import runtime; runtime.init('zeromq', num_cpus=1); runtime.shutdown(); print('done')"


def in_namespaces(*command):
    """Runs a command in a namespace of pids of its own, as in another container; skips where that is not permitted."""
    unshare = ["unshare", "--user", "--map-current-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare(1)")
    probe = subprocess.run([*unshare, "true"], capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(f"namespaces are not permitted: {probe.stderr.strip()}")
    return subprocess.run([*unshare, *command], capture_output=True, text=True, timeout=60)


def test_a_session_in_another_container_does_not_remove_this_one(fresh):
    fresh()
    actor = Actor.remote()
    runtime.get(actor.pid.remote(), timeout=20)
    done = in_namespaces(sys.executable, "-c", INIT)
    assert done.stdout.strip() == "done", done.stderr
    assert os.path.isdir(runtime.context.current_engine().session)
    assert runtime.get(Actor.remote().pid.remote(), timeout=20)


def fail_to_start(monkeypatch, where):
    """Has `init` fail at one of its steps."""

    def full(*args):
        raise zmq.ZMQError(errno.ENOSPC)

    def no_process(*args, **kwargs):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    if where == "process":
        monkeypatch.setattr(subprocess, "Popen", no_process)
    elif where == "pidfd":
        monkeypatch.setattr(os, "pidfd_open", no_process)
    elif where == "mailbox":
        monkeypatch.setattr(zmq.Socket, "bind", full)
    else:
        monkeypatch.setattr(boot, "command", lambda arguments: ["sh", "-c", where])


@pytest.mark.parametrize(
    "where, error, message",
    [
        ("process", OSError, "unavailable"),
        ("pidfd", OSError, "unavailable"),
        ("mailbox", OSError, "No space left on device: '/tmp/"),
        ("exit 1", RuntimeError, "did not start"),
    ],
)
def test_a_failed_init_leaves_nothing(fresh, monkeypatch, where, error, message):
    with monkeypatch.context() as patch:
        fail_to_start(patch, where)
        for _ in range(2):
            with pytest.raises(error, match=message):
                fresh()
            assert not runtime.is_initialized()
            assert not fresh.leftovers.found()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    fresh()
    assert runtime.get(Actor.remote().pid.remote(), timeout=20)


def test_a_driver_with_many_open_files(fresh):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < 2048:
        pytest.skip(f"no more than {hard} files may be open")
    script = """
import os, resource, runtime
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
task = runtime.remote(lambda: "done")
runtime.init("zeromq", num_cpus=1)
assert runtime.get(task.remote(), timeout=20) == "done"
runtime.shutdown()
"""
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)
    fresh.leftovers.check(5, own=False)


@pytest.mark.parametrize(
    "closed, closes",
    [
        *[(closed, "") for closed in ("0<&-", "0<&- 1>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-")],
        ("", "os.close(2)"),
        ("", "os.closerange(0, 3)"),
    ],
)
def test_a_driver_without_standard_streams(fresh, tmp_path, closed, closes):
    script, result = tmp_path / "driver.py", tmp_path / "result"
    script.write_text(f"""
import os, runtime
{closes}
@runtime.remote
def task():
    print("written to a stream that nobody has")
    return "done"
runtime.init("zeromq", num_cpus=1)
value = runtime.get(task.remote(), timeout=20)
runtime.shutdown()
open({str(result)!r}, "w").write(value)
""")
    subprocess.run(["sh", "-c", f'exec "$0" "$1" {closed}', sys.executable, str(script)], timeout=60, check=True)
    assert result.read_text() == "done"
    fresh.leftovers.check(5, own=False)
