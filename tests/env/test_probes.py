"""The probe environments themselves keep the API, and take a config or none."""

import logging

import pytest

from rllib.env import check_environment, resolve
from tests import envs

PROBES = [
    envs.ConstantReward,
    envs.ObservedReward,
    envs.DelayedReward,
    envs.ActionReward,
    envs.MatchObservation,
    envs.InfiniteHorizon,
    envs.CountingEnv,
    envs.BoundedAction,
    envs.HundredReward,
    envs.RaisingEnv,
    envs.SleepEnv,
]


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("config", [None, {}])
def test_probe_keeps_the_api(probe, config, caplog):
    caplog.set_level(logging.WARNING)
    probe()
    check_environment(resolve(probe), config)
    assert not caplog.records


def test_sleeping_takes_the_time_it_says(monkeypatch):
    naps = []
    monkeypatch.setattr(envs.time, "sleep", naps.append)
    check_environment(resolve(envs.SleepEnv), {"length": 3})
    assert naps and set(naps) == {0.005}
