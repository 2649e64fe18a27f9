"""What a worker's answer costs the driver, with workers that send one fragment again and again."""

from types import SimpleNamespace

import pytest
from scale import measured, without_update

from rllib.learners.learner import Learner


@pytest.mark.parametrize("algorithm", ["PPO", "IMPALA"])
def test_the_driver_is_measured_with_workers_that_only_send(monkeypatch, algorithm):
    monkeypatch.setattr(Learner, "update", without_update)
    found = measured(algorithm, 3, SimpleNamespace(width=8, rate=1000.0, answers=9, profile=0))
    assert found["run"]["answers"] >= 9 and found["run"]["cpu_s"] > 0
    counts = found["counts"]
    assert counts["sent"] > 0 and counts["received"] > 0
    # The weights are put once for all workers of a round, or for the ten answers of an update.
    assert counts["put"] <= 1
