"""Actors whose processes die and start again, and names that many ask for at once."""

import itertools
import os
import signal
import time

import pytest
from runtime_support import process_alive, wait_until

import runtime
from runtime.util import list_named_actors


@runtime.remote(num_cpus=0, max_restarts=1)
class Diary:
    """Writes every call of `note` into a file: life, number. In life `dies_in_life`, the call kills the process."""

    def __init__(self, path, birth_s=0.0, dies_at_birth=0):
        births = path.with_suffix(".births")
        with open(births, "a") as file:
            file.write(f"{time.monotonic()}\n")
        self.path, self.life = path, len(births.read_text().split())
        if self.life > 1:
            time.sleep(birth_s)
        if 1 < self.life <= 1 + dies_at_birth:
            os._exit(3)

    def note(self, number, dies_in_life=0):
        with open(self.path, "a") as file:
            file.write(f"{self.life} {number}\n")
        if self.life == dies_in_life:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    def pid(self):
        return os.getpid()

    def birth(self):
        return self.life


def noted(path):
    return [tuple(map(int, line.split())) for line in path.read_text().splitlines()]


def answer(actor, timeout_s=20):
    """The life in which an actor answers, when it does."""

    def ask():
        try:
            return runtime.get(actor.birth.remote(), timeout=timeout_s)
        except runtime.ActorUnavailableError:
            return None

    return wait_until(ask, timeout_s)


def test_kill9_actor_between_calls(fresh, tmp_path):
    fresh()
    actor = Diary.remote(tmp_path / "notes")
    pid = runtime.get(actor.pid.remote())
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not process_alive(pid))
    assert answer(actor) == 2 and runtime.get(actor.pid.remote()) != pid
    os.kill(runtime.get(actor.pid.remote()), signal.SIGKILL)
    with pytest.raises(runtime.ActorDiedError, match="signal SIGKILL"):
        answer(actor)


def test_kill9_actor_during_call_at_most_once(fresh, tmp_path):
    fresh()
    actor = Diary.remote(tmp_path / "notes")
    assert runtime.get([actor.note.remote(i) for i in range(3)]) == [0, 1, 2]
    deadly = actor.note.remote(3, 1)
    after = [actor.note.remote(i) for i in range(4, 10)]
    for ref in [deadly, *after]:
        with pytest.raises(runtime.ActorUnavailableError, match="SIGKILL"):
            runtime.get(ref)
    assert answer(actor) == 2 and runtime.get(actor.note.remote(10)) == 10
    assert noted(tmp_path / "notes") == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 10)]


def test_kill9_actor_at_least_once_order(fresh, tmp_path):
    """What was not answered is done again, in the order in which it was submitted, and before newer calls."""
    fresh()
    actor = Diary.options(max_restarts=2, max_task_retries=-1).remote(tmp_path / "notes")
    refs = [actor.note.remote(i, {40: 1, 45: 2}.get(i, 0)) for i in range(300)]  # more than are on their way at once
    runtime.wait(refs, num_returns=46)
    refs += [actor.note.remote(i) for i in range(300, 320)]
    assert runtime.get(refs) == list(range(320))
    notes = noted(tmp_path / "notes")
    for life in (1, 2, 3):
        numbers = [number for where, number in notes if where == life]
        assert numbers == list(range(numbers[0], numbers[-1] + 1)), f"life {life}: {numbers}"
    assert [number for life, number in notes if life == 1][-1] == 40
    assert [number for life, number in notes if life == 2][-1] == 45
    assert {number for _, number in notes} == set(range(320))


def test_retries_not_burnt_while_restarting(fresh, tmp_path):
    fresh()
    actor = Diary.options(max_restarts=-1, max_task_retries=1).remote(tmp_path / "notes", 0.5, 1)
    refs = [actor.note.remote(0, 1), actor.note.remote(1)]
    wait_until(lambda: (tmp_path / "notes").exists())
    meanwhile = actor.note.remote(2)
    plain = actor.note.options(max_task_retries=0)
    wait_until(lambda: len((tmp_path / "notes.births").read_text().split()) == 2)
    with pytest.raises(runtime.ActorUnavailableError):  # it is being born
        runtime.get(plain.remote(3))
    assert runtime.get([*refs, meanwhile]) == [0, 1, 2]
    assert noted(tmp_path / "notes") == [(1, 0), (3, 0), (3, 1), (3, 2)]


def test_a_call_that_kills_its_actor_again_and_again_fails(fresh, tmp_path):
    @runtime.remote(num_cpus=0, max_restarts=-1, max_task_retries=1)
    class Mine:
        def step(self):
            with open(tmp_path / "steps", "a") as file:
                file.write("x")
            os._exit(1)

    fresh()
    with pytest.raises(runtime.ActorUnavailableError, match="exit code 1"):
        runtime.get(Mine.remote().step.remote())
    assert (tmp_path / "steps").read_text() == "xx"


def test_restart_intensity(fresh, tmp_path):
    """The pauses between restarts of a crashing constructor grow; the final error names its exit code."""
    fresh()
    actor = Diary.options(max_restarts=3).remote(tmp_path / "notes", 0.0, 99)
    os.kill(runtime.get(actor.pid.remote()), signal.SIGKILL)
    with pytest.raises(runtime.ActorDiedError, match="exit code 3"):
        answer(actor)
    births = [float(line) for line in (tmp_path / "notes.births").read_text().split()]
    pauses = [after - before for before, after in itertools.pairwise(births[1:])]
    assert len(births) == 4 and pauses[0] >= 0.1 and pauses[1] >= 0.5, pauses


def test_a_restarted_constructor_that_raises_ends_the_actor(fresh, tmp_path):
    @runtime.remote(num_cpus=0, max_restarts=-1)
    class Once:
        def __init__(self):
            if runtime.get_runtime_context().was_current_actor_reconstructed:
                raise FileExistsError("only once")

        def birth(self):
            return os.getpid()

    fresh()
    actor = Once.remote()
    os.kill(runtime.get(actor.birth.remote()), signal.SIGKILL)
    with pytest.raises(FileExistsError, match="only once") as caught:
        answer(actor)
    assert isinstance(caught.value, runtime.ActorDiedError)


def test_every_holder_finds_the_restarted_actor(fresh, tmp_path):
    @runtime.remote(num_cpus=0)
    class Asker:
        def __init__(self, actor):
            self.actor = actor

        def ask(self):
            return answer(self.actor)

    fresh()
    actor = Diary.remote(tmp_path / "notes")
    askers = [Asker.remote(actor) for _ in range(2)]
    assert runtime.get([asker.ask.remote() for asker in askers]) == [1, 1]
    os.kill(runtime.get(actor.pid.remote()), signal.SIGKILL)
    assert answer(actor) == 2
    assert runtime.get([asker.ask.remote() for asker in askers]) == [2, 2]
    assert runtime.get(Asker.remote(actor).ask.remote()) == 2  # knew nothing of the first life


def test_the_last_handle_ends_a_restarted_actor(fresh, tmp_path):
    fresh()
    actor = Diary.options(num_cpus=1, max_restarts=-1).remote(tmp_path / "notes")
    os.kill(runtime.get(actor.pid.remote()), signal.SIGKILL)
    assert answer(actor) == 2
    pid = runtime.get(actor.pid.remote())
    assert runtime.available_resources()["CPU"] == 1
    del actor
    wait_until(lambda: not process_alive(pid))
    wait_until(lambda: runtime.available_resources()["CPU"] == 2)


def test_named_actor_race(fresh, tmp_path):
    """Twenty tasks ask for one name at once: there is one instance."""

    @runtime.remote(num_cpus=0)
    def ask(name):
        actor = Diary.options(name=name, get_if_exists=True, lifetime="detached").remote(tmp_path / name)
        return runtime.get(actor.pid.remote())

    fresh.settles = False  # detached actors live on
    fresh()
    for name in ("first", "second"):
        assert len(set(runtime.get([ask.remote(name) for _ in range(20)]))) == 1
        assert len((tmp_path / f"{name}.births").read_text().split()) == 1
    assert list_named_actors() == ["first", "second"]


def test_a_detached_actor_ends_with_the_session(fresh, tmp_path):
    @runtime.remote
    def create():
        actor = Diary.options(name="d", lifetime="detached").remote(tmp_path / "notes")
        return os.getpid(), runtime.get(actor.pid.remote())

    fresh()
    creator, pid = runtime.get(create.remote())
    os.kill(creator, signal.SIGKILL)
    wait_until(lambda: not process_alive(creator))
    assert runtime.get(runtime.get_actor("d").pid.remote()) == pid
    runtime.shutdown()
    wait_until(lambda: not process_alive(pid))
