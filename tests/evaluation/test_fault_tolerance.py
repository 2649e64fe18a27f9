"""How many failures a group of processes may have."""

import pytest

from rllib.evaluation.fault_tolerance import FaultTolerance, Restarts
from runtime import ActorDiedError


def test_max_restarts_is_the_number_of_processes_that_are_replaced():
    restarts = Restarts(FaultTolerance(max_restarts=3, max_consecutive_failures=9), "rollout worker")
    for index in (1, 2, 1):
        assert restarts.failed(index, ActorDiedError("died"), num_left=1)
    with pytest.raises(ActorDiedError) as raised:
        restarts.failed(2, ActorDiedError("died"), num_left=1)
    assert restarts.count == 3
    assert "rollout worker 2 is not started again: 3 restarts" in raised.value.__notes__[0]


def test_no_restarts_at_all():
    restarts = Restarts(FaultTolerance(max_restarts=0), "rollout worker")
    with pytest.raises(ActorDiedError):
        restarts.failed(1, ActorDiedError("died"), num_left=1)
    assert restarts.count == 0


def test_consecutive_failures_are_counted_by_process_until_it_succeeds():
    restarts = Restarts(FaultTolerance(max_consecutive_failures=2), "rollout worker")
    for index in (1, 1, 2, 2):
        assert restarts.failed(index, ActorDiedError("died"), num_left=1)
    restarts.succeeded(1)
    assert restarts.failed(1, ActorDiedError("died"), num_left=1)
    assert restarts.delay_s(1) == 0.0 and restarts.delay_s(2) > 0.0
    with pytest.raises(ActorDiedError):
        restarts.failed(2, ActorDiedError("died"), num_left=1)
