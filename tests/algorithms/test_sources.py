"""Sources of samples: an algorithm trains from one that it has never heard of, and its clock goes by the rows."""

import numpy as np
import pytest

from rllib.algorithms.base import sources
from rllib.algorithms.base.sources import NoWorkers, make_source, source_kind
from rllib.algorithms.dqn import DQN, DQNConfig
from rllib.evaluation.sampling_worker import SampleReport


class Recorded:
    """A source without an environment or a worker: it hands over one batch again and again."""

    num_healthy_workers = num_restarts = num_in_flight = 0

    def __init__(self, batch):
        self.batch, self.rounds, self.restored, self.stops = batch, 0, [], 0

    def sample(self, snapshots):
        self.rounds += 1
        return [(self.batch, SampleReport(env_steps=self.batch.count, rows=self.batch.count))]

    def foreach_worker(self, function, *args, local_worker=True):
        return []

    def pop_replaced(self):
        return []

    def get_state(self):
        return [{"rounds": self.rounds}]

    def set_state(self, state, restores):
        self.restored.append((state, restores))

    def stop(self):
        self.stops += 1


class FromRecords(DQN):
    """DQN from the transitions that stand here."""

    batch = None

    def make_workers(self, **more):
        return Recorded(self.batch)


def config():
    config = DQNConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    config.training(train_batch_size=32, num_steps_sampled_before_learning_starts=64)
    return config.reporting(min_sample_timesteps_per_iteration=128)


@pytest.fixture
def records():
    with config().debugging(seed=1).build() as algo:
        FromRecords.batch = algo.sample(64)
        yield FromRecords.batch


def test_an_algorithm_trains_from_a_source_of_another_kind(records):
    with FromRecords(config()) as algo:
        before = algo.policy.weights.copy()
        result = algo.train()
        assert result["timesteps_total"] == algo.timesteps == algo.workers.rounds * records.count >= 128
        assert result["num_healthy_workers"] == 0 and not np.array_equal(before, algo.policy.weights)
        algo.learn(3 * 128)
        assert algo.timesteps >= 4 * 128
    assert algo.workers.stops == 1


def test_a_checkpoint_holds_the_state_of_the_source(records, tmp_path):
    with FromRecords(config()) as algo:
        algo.train()
        path, rounds = algo.save(tmp_path / "checkpoint"), algo.workers.rounds
        algo.restore(path)
        assert algo.workers.restored == [([{"rounds": rounds}], 1)]


def test_a_row_of_the_table_makes_a_source(monkeypatch, records):
    with config().build() as algo:
        assert source_kind(algo, algo._rollout_settings) == "workers"
        monkeypatch.setitem(sources.SOURCES, "workers", lambda algorithm, settings, **more: Recorded(records))
        assert make_source(algo, algo._rollout_settings).sample(algo.snapshots())[0][0] is records


@pytest.mark.parametrize("verb", ["sample", "begin_sampling", "request", "share_out"])
def test_without_an_environment_nothing_is_sampled(verb):
    source = NoWorkers()
    with pytest.raises(RuntimeError, match="without an environment to sample from"):
        getattr(source, verb)(None)
    assert not hasattr(source, "no_such_member") and source.foreach_worker(len) == source.get_state() == []


def test_workers_begin_afresh_from_the_state_of_another_source():
    """As a run that learned from records and goes on with an environment."""
    with config().build() as algo:
        for foreign in ([{"rounds": 3}], [[1, 2]], []):
            algo.workers.set_state(foreign, restores=1)
        assert algo.train()["training_iteration"] == 1
