"""Which failures are tolerated, and how many."""

import pytest

from rllib.evaluation.fault_tolerance import FaultTolerance, Restarts, SilentActorError
from runtime.errors import ActorDiedError, TaskError

DEATH, EXCEPTION = ActorDiedError, TaskError
REPLACED, LEFT_OUT = True, False


def failed(restarts: Restarts, kind=DEATH, index=1, num_left=1) -> bool:
    return restarts.failed(index, kind("a reason"), num_left)


@pytest.mark.parametrize(
    ("settings", "after_death", "after_exception"),
    [
        ({}, REPLACED, "raised"),
        ({"restart": True}, REPLACED, REPLACED),
        ({"restart": True, "ignore": True}, REPLACED, REPLACED),
        ({"restart": False}, "raised", "raised"),
        ({"ignore": True}, LEFT_OUT, LEFT_OUT),
        ({"restart": False, "ignore": True}, LEFT_OUT, LEFT_OUT),
    ],
    ids=str,
)
def test_what_follows_a_failure(settings, after_death, after_exception):
    for kind, expected in ((DEATH, after_death), (EXCEPTION, after_exception)):
        restarts = Restarts(FaultTolerance(**settings), "worker")
        if expected == "raised":
            with pytest.raises(kind, match="a reason"):
                failed(restarts, kind)
        else:
            assert failed(restarts, kind) is expected
        assert restarts.count == (expected is REPLACED)


def test_failures_in_a_row_are_counted_for_each_process():
    restarts = Restarts(FaultTolerance(max_consecutive_failures=2), "worker")
    for index in (1, 2, 1, 2):
        assert failed(restarts, index=index)
    restarts.succeeded(2)
    assert failed(restarts, index=2)
    with pytest.raises(ActorDiedError) as caught:
        failed(restarts, index=1)
    (note,) = caught.value.__notes__
    assert note.startswith("worker 1 is not started again: 5 restarts in this run")
    assert "3 failures in a row without a sample (num_consecutive_worker_failures_tolerance=2)" in note


def test_restarts_of_the_whole_run_are_counted_for_all_processes():
    restarts = Restarts(FaultTolerance(max_restarts=2), "worker")
    for index in (1, 2):
        assert failed(restarts, index=index)
        restarts.succeeded(index)
    with pytest.raises(ActorDiedError):
        failed(restarts, index=3)


def test_silence_is_tolerated_once_in_a_row():
    restarts = Restarts(FaultTolerance(), "worker")
    assert failed(restarts, SilentActorError)
    with pytest.raises(SilentActorError):
        failed(restarts, SilentActorError)


def test_the_last_one_cannot_be_left_out():
    restarts = Restarts(FaultTolerance(ignore=True), "worker")
    with pytest.raises(TaskError) as caught:
        failed(restarts, EXCEPTION, num_left=0)
    assert "worker 1 was the last one that worked" in caught.value.__notes__[0]


def test_the_second_failure_in_a_row_is_waited_for():
    restarts = Restarts(FaultTolerance(delay_s=7.0), "worker")
    delays = []
    for _ in range(2):
        failed(restarts)
        delays.append(restarts.delay_s(1))
    assert delays == [0.0, 7.0]
    assert restarts.delay_s(2) == 0.0
