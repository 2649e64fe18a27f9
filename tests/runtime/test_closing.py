"""Actors that close what they hold before they are killed."""

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from runtime_support import wait_until
from test_fleet import make_fleet

import runtime
from runtime.host.living_process import LivingProcess
from runtime.util import closing
from runtime.util.closing import Closable, ClosingActor, close_and_kill, ends_early
from runtime.util.fleet import Fleet


class Holder(ClosingActor):
    """Holds a file, into which it writes what happens to it."""

    def __init__(self, path, how="", incarnation=0):
        self.path, self.how = path, how
        if how == "raises when made":
            raise ValueError("asked to")
        self.note(f"made {incarnation}" if incarnation else "made")

    def note(self, text):
        with open(self.path, "a") as file:
            file.write(f"{text}\n")

    def ready(self):
        return True

    @ends_early
    def wait(self):
        self.note("waits")
        threading.Event().wait()

    @ends_early
    def later(self):
        self.note("does what was asked later")

    def raise_error(self):
        raise ValueError("asked to")

    def close(self):
        self.note("closes")
        if self.how == "hangs":
            threading.Event().wait()
        if self.how == "raises":
            raise ValueError("cannot close")


def start(path, how="", incarnation=0):
    return runtime.remote(Holder).options(num_cpus=0).remote(str(path), how, incarnation)


def notes(path):
    return path.read_text().split("\n")[:-1] if path.exists() else []


def test_actors_close_before_they_are_killed(engine, tmp_path, caplog):
    actors = {f"holder {i}": Closable(start(tmp_path / str(i))) for i in range(2)}
    close_and_kill(actors)
    assert [notes(tmp_path / str(i)) for i in range(2)] == [["made", "closes"]] * 2
    assert not caplog.records
    with pytest.raises(runtime.errors.ActorDiedError):
        runtime.get(actors["holder 0"].handle.ready.remote())


@pytest.mark.parametrize("how", ["raises", "hangs"])
def test_one_that_does_not_close_is_killed_and_the_others_close(engine, tmp_path, caplog, how):
    if (engine, how) == ("local", "hangs"):
        pytest.skip("it would hang this process")
    actors = {"bad": Closable(start(tmp_path / "bad", how)), "good": Closable(start(tmp_path / "good"))}
    runtime.get([actor.handle.ready.remote() for actor in actors.values()])
    with caplog.at_level(logging.WARNING):
        close_and_kill(actors, within_s=1.0 if how == "hangs" else 10.0)
    assert notes(tmp_path / "good") == ["made", "closes"]
    [record] = caplog.records
    assert record.getMessage().startswith("bad has ")
    with pytest.raises(runtime.errors.ActorDiedError):
        runtime.get(actors["bad"].handle.ready.remote())


def test_what_an_actor_does_ends_early(engine, tmp_path, caplog):
    """A call that would never end, and those behind it."""
    if engine == "local":
        pytest.skip("it would hang this process")
    actor = Closable(start(tmp_path / "it"))
    pending = [actor.handle.wait.remote(), actor.handle.later.remote()]
    wait_until(lambda: "waits" in notes(tmp_path / "it"))
    close_and_kill({"holder": actor})
    assert notes(tmp_path / "it") == ["made", "waits", "closes"]
    assert runtime.get(pending) == [None, None] and not caplog.records


def test_the_dead_are_no_news(engine, tmp_path, caplog):
    actor = Closable(start(tmp_path / "it"))
    runtime.kill(actor.handle)
    close_and_kill({"holder": actor, "of no use": Closable(start(tmp_path / "never", "raises when made"))})
    assert not caplog.records


class TestFleets:
    def fleet(self, path, how=("", ""), **options):
        return Fleet(
            lambda index, incarnation: start(path / str(index), how[index], incarnation),
            range(2),
            ready=lambda actor: actor.ready.remote(),
            close_s=closing.CLOSE_S,
            **options,
        )

    def test_the_end(self, engine, tmp_path):
        self.fleet(tmp_path).stop()
        assert [notes(tmp_path / str(i)) for i in range(2)] == [["made", "closes"]] * 2

    def test_a_start_that_fails(self, engine, tmp_path):
        with pytest.raises(runtime.errors.ActorStartError):
            self.fleet(tmp_path, ("", "raises when made"))
        assert notes(tmp_path / "0") == ["made", "closes"]

    def test_one_that_is_replaced(self, engine, tmp_path):
        fleet = self.fleet(tmp_path, tolerance=make_fleet(0, restart=True).tolerance)
        raising = lambda actor, index: actor.raise_error.remote() if index == 0 else actor.ready.remote()  # noqa: E731
        first = fleet.members[0].handle
        with pytest.raises(ValueError, match="asked to"):
            fleet.ask_all(raising)
        assert notes(tmp_path / "0")[:3] == ["made", "closes", "made 1"] and fleet.members.get(0) is not first
        fleet.stop()
        assert all(notes(tmp_path / str(i))[-1] == "closes" for i in range(2))


def test_the_end_of_a_program_that_does_not_stop_them(tmp_path):
    here = Path(__file__).parent
    program = f"import sys; sys.path[:0] = {[str(here), str(here.parent), os.getcwd()]!r}\n" + (
        "from pathlib import Path\n"
        "from test_closing import TestFleets\n"
        f"fleet = TestFleets().fleet(Path({str(tmp_path)!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [notes(tmp_path / str(i)) for i in range(2)] == [["made", "closes"]] * 2


def test_a_signal_reaches_the_process_that_was_meant_alone():
    received = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: received.append(number))
    try:
        me = LivingProcess.this()
        me._replace(started="1").send(signal.SIGUSR1)  # an earlier process with this pid
        me._replace(where=("another machine", "")).send(signal.SIGUSR1)
        me._replace(pid=2**22 + 1).send(signal.SIGUSR1)
        assert not received
        me.send(signal.SIGUSR1)
        assert received == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)
