"""Workers for training loops of users: RolloutWorker.from_config."""

import numpy as np
import pytest
import torch

from rllib import PPOConfig, RolloutWorker
from rllib import sample_batch as sb
from tests.envs import CountingEnv


def config(**rollouts):
    rollouts = {"num_rollout_workers": 0, "num_envs_per_worker": 2, "rollout_fragment_length": 25, **rollouts}
    base = (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(**rollouts)
        .training(train_batch_size=50, sgd_minibatch_size=50, lambda_=0.9)
    )
    return base.debugging(seed=3)


def test_it_samples_what_the_algorithm_samples():
    worker = RolloutWorker.from_config(config())
    with config().build() as algo:
        np.testing.assert_array_equal(worker.get_weights()["default_policy"], algo.get_weights()["default_policy"])
        expected = algo.sample(50)
    batch, report = worker.sample()
    assert {*batch} == {*expected, sb.EPS_ID} and report.env_steps == 50
    for name, column in expected.items():
        np.testing.assert_array_equal(batch[name], column)


def test_workers_of_a_config_with_gpus_ask_for_them(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    given = config(num_rollout_workers=1).resources(num_gpus_per_worker=1)
    assert not RolloutWorker.from_config(given).acts_elsewhere
    for model in ({}, {"use_lstm": True}):
        with pytest.raises(ValueError, match=r"num_gpus_per_worker is set, but torch .* is built for CPUs"):
            RolloutWorker.from_config(given.copy().training(model=model), worker_index=1, num_workers=1)


def test_each_episode_has_an_id_of_its_own_over_workers_and_fragments():
    """CountingEnv observes the step of its episode."""
    seen = {}
    for index in (1, 2):
        worker = RolloutWorker.from_config(config(), CountingEnv, worker_index=index, num_workers=2)
        for _ in range(3):
            for part in worker.sample()[0].split_by_episode():
                seen.setdefault((index, int(part[sb.EPS_ID][0])), []).extend(part[sb.OBS].ravel().tolist())
        worker.start_over()
        for part in worker.sample()[0].split_by_episode():
            assert (index, int(part[sb.EPS_ID][0])) not in seen
    assert len({episode for _, episode in seen}) == len(seen) > 8
    for steps in seen.values():
        assert steps == list(np.arange(len(steps)) + steps[0]) and steps[0] == 0


def test_weights_and_filter_statistics_are_taken_in():
    one, other = (RolloutWorker.from_config(config(observation_filter="MeanStdFilter")) for _ in range(2))
    weights = {name: array + 1 for name, array in one.get_weights().items()}
    other.set_weights(weights)
    np.testing.assert_array_equal(other.policy.weights, weights["default_policy"])
    assert one.policy.filter.count == 0
    one.take_in(one.sample()[1])
    assert one.policy.filter.count > 50
