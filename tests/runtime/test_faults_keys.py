"""The session's key: a process that has not read it cannot act on the session (RUNTIME.md, faults 52 and 57)."""

import os
import pickle
import re
import stat
import time
from pathlib import Path

import pytest
import zmq
from runtime_support import wait_until

import runtime
from runtime.engines.zeromq.transport import session_key, wire


@runtime.remote
class Counter:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        return self.count


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mknod, (self.path,)


def inject(directory, frames):
    """Sends frames into every mailbox of a session, as a process of the same user can."""
    context = zmq.Context()
    for name in os.listdir(directory):
        if re.fullmatch("[0-9a-f]+", name):
            socket = context.socket(zmq.PUSH)
            socket.connect(f"ipc://{directory}/{name}")
            for frame in frames:
                socket.send(frame)
            socket.close(2000)
    context.term()


def everything(seal, path):
    """A frame of each kind, under every process's name, with a pickle that would run code."""
    value = wire.value(pickle.dumps(Trap(path)))
    for kind in range(1, wire.LAST_KIND + 1):
        for source in range(5):
            name = b"add".ljust(16, b"\0") if kind == wire.CALL else b""
            head = wire.HEADER.pack(bytes(18), kind, 0, source, 65536, 3 if name else 1, 1, 1)
            yield seal + head[len(seal) :] + name + value


@pytest.mark.parametrize("seal", ["no key", "wrong key", "version 1"])
def test_without_the_key_nothing_is_delivered(fresh, tmp_path, seal):
    fresh.malformed = None
    fresh()
    counter = Counter.remote()
    assert runtime.get(counter.add.remote()) == 1
    engine = runtime.context.current_engine()
    right = wire.seal()
    wrong = {"no key": wire.MAGIC + bytes(16), "wrong key": right[:-1] + bytes([right[-1] ^ 1]), "version 1": b"R1"}
    before = engine.malformed
    inject(engine.session, list(everything(wrong[seal], tmp_path / "trap")))
    assert runtime.get([counter.add.remote() for _ in range(20)], timeout=20) == list(range(2, 22))
    assert runtime.get(runtime.remote(lambda: 3).remote(), timeout=20) == 3
    wait_until(lambda: runtime.available_resources() == runtime.cluster_resources())
    assert not (tmp_path / "trap").exists()
    deadline = time.monotonic() + 5
    while engine.malformed < before + 300:
        assert time.monotonic() < deadline, f"{engine.malformed} frames were counted as malformed"
        runtime.get(counter.add.remote())


def test_with_the_key_such_a_frame_is_a_call(fresh, tmp_path):
    """What the test above injects would do harm, were the key right: it is the key that protects."""
    fresh.malformed = None
    fresh()
    counter = Counter.remote()
    assert runtime.get(counter.add.remote()) == 1
    frames = [f for f in everything(wire.seal(), tmp_path / "trap") if f[wire.KIND_AT] == wire.CALL]
    inject(runtime.context.current_engine().session, frames)
    wait_until((tmp_path / "trap").exists)


def test_the_key_is_a_file_that_only_its_user_reads(fresh):
    fresh()
    session = Path(runtime.context.current_engine().session)
    status = (session / "key").stat()
    assert stat.S_IMODE(status.st_mode) == 0o600 and status.st_size == wire.SESSION_KEY_BYTES
    assert stat.S_IMODE(session.stat().st_mode) == 0o700
    with pytest.raises(FileExistsError):
        session_key.create_key(str(session))
    key = (session / "key").read_bytes()
    for pid in fresh.processes():
        command = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        assert key not in command and key.hex().encode() not in command


@pytest.mark.parametrize("damage", ["others may read", "too short", "a link", "nothing"])
def test_a_key_that_is_none_is_refused(tmp_path, damage):
    session_key.create_key(str(tmp_path))
    path, before = tmp_path / "key", wire.seal()
    if damage == "others may read":
        path.chmod(0o640)
    elif damage == "too short":
        path.write_bytes(b"short")
    elif damage == "a link":
        path.rename(tmp_path / "other")
        path.symlink_to(tmp_path / "other")
    else:
        path.unlink()
    with pytest.raises((OSError, ValueError)):
        session_key.use_key(str(tmp_path))
    assert wire.seal() == before


def test_two_sessions_of_one_user_do_not_touch_each_other(fresh, script):
    """Fault 57: frames of one session, injected into another, are dropped, whatever they ask for."""
    fresh.malformed = None
    fresh()
    counter = Counter.remote()
    assert runtime.get(counter.add.remote()) == 1
    result = script(
        """
import os, re, sys, zmq, runtime
from runtime.engines.zeromq.transport import wire
runtime.init("zeromq", num_cpus=1)
other = sys.argv[1]
context = zmq.Context()
for name in filter(re.compile("[0-9a-f]+").fullmatch, os.listdir(other)):
    socket = context.socket(zmq.PUSH)
    socket.connect(f"ipc://{other}/{name}")
    for kind in (wire.SHUTDOWN, wire.STOP, wire.KILL, wire.LEAVING, wire.GOODBYE, wire.GONE):
        for source in range(5):
            socket.send(wire.message(kind, source, 65536, 1))
    socket.close(2000)
context.term()
print(runtime.get(runtime.remote(lambda: "own").remote()))
""",
        runtime.context.current_engine().session,
    )
    assert result.stdout == "own\n", result.stderr
    assert runtime.get(counter.add.remote(), timeout=20) == 2
    assert runtime.get(runtime.remote(lambda: 3).remote(), timeout=20) == 3


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_cannot_reach_the_session(fresh, script):
    fresh()
    result = script(
        """
import os, socket, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
for attempt in (lambda: os.listdir(sys.argv[1]), lambda: open(sys.argv[1] + "/key", "rb"),
                lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect(sys.argv[1] + "/0"),
                lambda: os.open(f"/proc/{sys.argv[2]}/fd/3", os.O_RDONLY)):
    try:
        attempt()
    except PermissionError:
        print("refused")
""",
        runtime.context.current_engine().session,
        runtime.context.current_engine().node_pid,
    )
    assert result.stdout.split() == ["refused"] * 4, result.stdout + result.stderr
