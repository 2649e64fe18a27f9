"""Actors that start again, and calls that are made again, on every engine."""

import time

import pytest
from runtime_support import wait_until

import runtime


@runtime.remote(num_cpus=0)
class Lives:
    """Notes each of its lives in a file."""

    def __init__(self, path, slow_s=0.0):
        if path.exists():
            time.sleep(slow_s)
        with open(path, "a") as file:
            file.write("born\n")
        self.path, self.calls = path, 0

    def count(self):
        self.calls += 1
        return self.calls

    def life(self):
        return len(self.path.read_text().split()), runtime.get_runtime_context().was_current_actor_reconstructed

    def fail_until(self, count):
        self.calls += 1
        if self.calls < count:
            raise ConnectionError(f"attempt {self.calls}")
        return self.calls

    def exit(self):
        runtime.exit_actor()


def lives_again(actor, before=None):
    """The actor's life, as soon as it answers. On Ray the one `before` may answer until a kill has arrived there."""

    def ask():
        try:
            found = runtime.get(actor.life.remote(), timeout=30)
        except runtime.ActorUnavailableError as error:
            assert isinstance(error, runtime.ActorError)
            return None
        return None if found[0] == before else found

    return wait_until(ask, 30)


def test_kill_without_no_restart_starts_the_actor_again(engine, tmp_path):
    actor = Lives.options(max_restarts=1).remote(tmp_path / "lives")
    assert runtime.get([actor.count.remote(), actor.count.remote()]) == [1, 2]
    assert runtime.get(actor.life.remote()) == (1, False)
    runtime.kill(actor, no_restart=False)
    assert lives_again(actor, before=1 if engine == "ray" else None) == (2, True)
    assert runtime.get(actor.count.remote()) == 1
    runtime.kill(actor, no_restart=False)  # no life is left
    with pytest.raises(runtime.ActorError, match="kill") as caught:
        lives_again(actor, before=2 if engine == "ray" else None)
    assert type(caught.value) is runtime.ActorDiedError


def test_kill_ends_an_actor_with_restarts(engine, tmp_path):
    actor = Lives.options(max_restarts=-1).remote(tmp_path / "lives")
    runtime.get(actor.count.remote())
    runtime.kill(actor)
    with pytest.raises(runtime.ActorDiedError, match="kill"):
        runtime.get(actor.count.remote())
    with pytest.raises(TypeError, match="no_restart"):
        runtime.kill(actor, no_restart=None)


def test_kill_without_no_restart_ends_an_actor_that_has_no_restarts(engine, tmp_path):
    actor = Lives.remote(tmp_path / "lives")
    runtime.get(actor.count.remote())
    runtime.kill(actor, no_restart=False)
    with pytest.raises(runtime.ActorDiedError, match="kill"):
        lives_again(actor, before=1 if engine == "ray" else None)


def test_calls_of_actors_that_were_killed_long_ago(engine, tmp_path, monkeypatch):
    if engine == "ray":  # which remembers only some of them
        monkeypatch.setattr("runtime.engines.ray.engine.MOST_ENDED", 1)
    actors = [Lives.remote(tmp_path / name) for name in ("first", "second")]
    assert runtime.get([actor.count.remote() for actor in actors]) == [1, 1]
    for actor in actors:
        runtime.kill(actor)
    for actor in actors:
        with pytest.raises(runtime.ActorDiedError, match="kill"):
            lives_again(actor, before=1)


def test_an_actor_that_exits_does_not_start_again(engine, tmp_path):
    actor = Lives.options(max_restarts=-1, max_task_retries=-1).remote(tmp_path / "lives")
    with pytest.raises(runtime.ActorDiedError, match="exit_actor"):
        runtime.get(actor.exit.remote())
    assert (tmp_path / "lives").read_text() == "born\n"


def test_retry_exceptions_of_a_method(engine, tmp_path):
    actor = Lives.options(max_task_retries=2).remote(tmp_path / "lives")
    with pytest.raises(ConnectionError, match="attempt 1"):
        runtime.get(actor.fail_until.remote(2))
    retried = actor.fail_until.options(retry_exceptions=True)
    assert runtime.get(retried.remote(4)) == 4
    with pytest.raises(ConnectionError, match="attempt 7"):
        runtime.get(retried.remote(9))
    with pytest.raises(ConnectionError, match="attempt 8"):
        runtime.get(actor.fail_until.options(retry_exceptions=[ValueError]).remote(9))
    assert runtime.get(actor.fail_until.options(retry_exceptions=[OSError], max_task_retries=-1).remote(16)) == 16


def test_options_of_the_class_apply_to_its_methods(engine, tmp_path):
    @runtime.remote(num_cpus=0)
    class Retrying:
        def __init__(self):
            self.calls = 0

        @runtime.method(max_task_retries=3, retry_exceptions=[ArithmeticError])
        def work(self):
            self.calls += 1
            raise ArithmeticError(self.calls)

    actor = Retrying.remote()
    with pytest.raises(ArithmeticError, match="4"):
        runtime.get(actor.work.remote())
    with pytest.raises(ArithmeticError, match="5"):
        runtime.get(actor.work.options(retry_exceptions=False).remote())
    with pytest.raises(TypeError, match="has no options"):
        runtime.method()


def test_the_number_of_pending_calls_is_limited(engine):
    @runtime.remote(num_cpus=0)
    class Busy:
        def call_itself(self, me):
            refs = [me.nothing.remote() for _ in range(3)]
            with pytest.raises(runtime.PendingCallsLimitExceeded, match="max_pending_calls"):
                me.nothing.remote()
            return refs

        def nothing(self):
            return "nothing"

    actor = Busy.options(max_pending_calls=3).remote()
    assert runtime.get(runtime.get(actor.call_itself.remote(actor))) == ["nothing"] * 3
    assert runtime.get(actor.nothing.remote()) == "nothing"


@pytest.mark.parametrize("concurrency", [1, 2])
def test_an_attempt_without_end_makes_pauses(engine, tmp_path, concurrency):
    actor = Lives.options(max_concurrency=concurrency).remote(tmp_path / "lives")
    retried = actor.fail_until.options(retry_exceptions=True, max_task_retries=-1)
    began = time.monotonic()
    assert runtime.get(retried.remote(9), timeout=20) == 9
    assert time.monotonic() - began >= 0.12  # 0, 1, 2, 4, ... 64 ms
