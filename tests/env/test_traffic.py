"""Traffic of policy servers: what is counted, and how a run sums it up."""

import math

import pytest

from rllib.env.traffic import RunTraffic, Traffic, TrafficCounter
from rllib.evaluation.sampling_worker import SampleReport
from rllib.metrics import Metrics


def test_counts_are_those_since_the_last_report():
    counter = TrafficCounter()
    counter.requests, counter.lost = 5, 1
    counter.acted(0.5)
    first = counter.take(2, 3, 4)
    assert first == Traffic(2, 3, 4, requests=5, episodes_lost=1, act_s=[0.5])
    counter.requests = 7
    second = counter.take(1, 1, 0)
    assert second == Traffic(1, 1, 0, requests=2)
    assert first.then(second) == Traffic(1, 1, 0, requests=7, episodes_lost=1, act_s=[0.5])


def test_a_result_has_the_traffic_of_all_workers():
    metrics = Metrics()
    metrics.add_update("default_policy")
    for worker, version in ((1, 1), (2, 0)):
        waits = [worker / 1000] * 50
        traffic = Traffic(3, 2, 1, requests=100, episodes_lost=1, act_s=waits, worker_index=worker)
        traffic.policy_versions = {"default_policy": version}
        metrics.add_sample(SampleReport(traffic=traffic))
    external = metrics.result({})["external"]
    assert (external["clients"], external["open_episodes"], external["rows_waiting"]) == (6, 4, 2)
    assert external["episodes_lost"] == 2 and external["weights_lag"] == 1 and external["requests_per_s"] > 0
    assert external["act_ms_p50"] == pytest.approx(2.0) and external["act_ms_p99"] == pytest.approx(2.0)
    metrics.start_iteration()
    external = metrics.result({})["external"]
    assert external["clients"] == 6 and external["episodes_lost"] == 2  # so far
    assert external["requests_per_s"] == 0 and math.isnan(external["act_ms_p50"]) and external["weights_lag"] == 0


def test_environments_that_are_stepped_have_none():
    assert RunTraffic().statistics(1.0) == {}
    metrics = Metrics()
    metrics.add_sample(SampleReport())
    assert "external" not in metrics.result({})
