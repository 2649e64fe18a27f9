"""`cancel`, on every engine: of what waits, of what is done, and of what is no reference."""

import pytest

import runtime


@runtime.remote(resources={"token": 2})
class Holder:
    """Holds what `touch` needs."""

    def ready(self):
        return True


@runtime.remote(resources={"token": 1})
def touch(path):
    path.touch()
    return path


@runtime.remote
def identity(value):
    return value


@pytest.fixture
def holder(engine):
    holder = Holder.remote()
    runtime.get(holder.ready.remote())
    return holder


@pytest.mark.parametrize("force", [False, True])
def test_a_cancelled_task_that_waits_never_runs(engine, holder, tmp_path, force):
    cancelled, other = touch.remote(tmp_path / "cancelled"), touch.remote(tmp_path / "other")
    runtime.cancel(cancelled, force=force)
    name = "" if engine == "ray" else r"touch\(\) "  # which Ray does not know
    with pytest.raises(runtime.TaskCancelledError, match=f"{name}was cancelled"):
        runtime.get(cancelled, timeout=10)
    runtime.kill(holder)
    assert runtime.get(other, timeout=10).exists()
    assert not (tmp_path / "cancelled").exists()


def test_what_depends_on_a_cancelled_task_fails_with_it(holder, tmp_path):
    cancelled = touch.remote(tmp_path / "cancelled")
    dependent = identity.remote(identity.remote(cancelled))
    runtime.cancel(cancelled)
    with pytest.raises(runtime.TaskCancelledError):
        runtime.get(dependent, timeout=10)
    runtime.kill(holder)


def test_a_task_that_waits_for_an_argument_can_be_cancelled(holder, tmp_path):
    waited_for = touch.remote(tmp_path / "argument")
    cancelled = touch.options(resources={}).remote(waited_for)
    runtime.cancel(cancelled)
    with pytest.raises(runtime.TaskCancelledError):
        runtime.get(cancelled, timeout=10)
    runtime.kill(holder)
    assert runtime.get(waited_for, timeout=10).exists()


def test_each_result_of_a_cancelled_task_is_an_error(holder, tmp_path):
    first, second = touch.options(num_returns=2).remote(tmp_path / "two")
    runtime.cancel(second)
    for ref in (first, second):
        with pytest.raises(runtime.TaskCancelledError):
            runtime.get(ref, timeout=10)
    runtime.kill(holder)


def test_cancelling_what_is_done_has_no_effect(engine):
    done, stored, failed = identity.remote(1), runtime.put(2), runtime.remote(lambda: 1 / 0).remote()
    runtime.wait([done, failed], num_returns=2)
    for ref in (done, done, stored, failed):
        runtime.cancel(ref)
        runtime.cancel(ref, force=True, recursive=False)
    assert runtime.get([done, stored]) == [1, 2]
    with pytest.raises(ZeroDivisionError):
        runtime.get(failed)


def test_cancelling_twice(holder, tmp_path):
    ref = touch.remote(tmp_path / "twice")
    runtime.cancel(ref)
    runtime.cancel(ref)
    runtime.cancel(ref, force=True)
    with pytest.raises(runtime.TaskCancelledError):
        runtime.get(ref, timeout=10)
    runtime.kill(holder)


def test_an_error_of_cancel_is_not_logged(holder, tmp_path, caplog):
    ref = touch.remote(tmp_path / "dropped")
    runtime.cancel(ref)
    runtime.wait([ref], timeout=10)
    del ref
    assert runtime.get(identity.remote(1), timeout=10) == 1
    assert "Unhandled" not in caplog.text
    runtime.kill(holder)


@pytest.mark.parametrize("wrong", [None, 3, "ref", [], identity])
def test_cancel_takes_a_reference(engine, wrong):
    with pytest.raises(TypeError, match=r"cancel\(\) takes the reference"):
        runtime.cancel(wrong)


def test_cancel_of_a_handle_says_what_it_is(engine):
    with pytest.raises(TypeError, match="the actor handle"):
        runtime.cancel(Holder.remote())
