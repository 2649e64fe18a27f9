"""Environments that draw from the global generators of their process, instead of from `self.np_random`."""

import random
import sys

import gymnasium
import numpy as np
import pytest

from rllib import PPOConfig
from rllib import sample_batch as sb
from rllib.evaluation import seeding
from rllib.evaluation.evaluator import Duration, EvaluationWorker
from rllib.evaluation.rollout_worker import RolloutWorker
from tests.evaluation.test_rollout_worker import settings


class GlobalDraws(gymnasium.Env):
    """Observations are drawn from `random` and `numpy.random`, and from torch where the config says so."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config=None):
        self.torch = None
        if config and config.get("torch"):
            import torch

            self.torch = torch
        self.constant = np.random.random()

    def drawn(self):
        third = self.constant if self.torch is None else float(self.torch.rand(1))
        return np.array([random.random(), np.random.random(), third], np.float32)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.drawn(), {}

    def step(self, action):
        self.t += 1
        observation = self.drawn()
        return observation, float(observation.sum()), self.t == 5, False, {}


@pytest.fixture(autouse=True)
def global_state():
    with seeding.keeping_process_state():
        yield


def algorithm(num_workers: int, seed: int | None = 7, **evaluation):
    return (
        PPOConfig()
        .environment(GlobalDraws)
        .rollouts(num_rollout_workers=num_workers, rollout_fragment_length=16)
        .training(train_batch_size=32, sgd_minibatch_size=16, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
        .evaluation(evaluation_duration=4, **evaluation)
        .debugging(seed=seed)
        .build()
    )


def sampled(num_workers: int, seed: int | None = 7, evaluates: bool = False, **evaluation) -> np.ndarray:
    with algorithm(num_workers, seed, **evaluation) as algo:
        algo.train()
        rewards = algo.evaluate()["hist_stats"]["episode_reward"] if evaluates else []
        return np.concatenate([algo.sample(32)[sb.OBS].reshape(-1), rewards])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_seed_reaches_the_global_generators(num_workers):
    first, again, other = (sampled(num_workers, seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first, again)
    assert not np.isin(first, other).any()


@pytest.mark.parametrize("evaluation_num_workers", [0, 1])
def test_the_seed_reaches_evaluation(evaluation_num_workers):
    first, again = (sampled(0, evaluates=True, evaluation_num_workers=evaluation_num_workers) for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("seed", [7, None])
def test_no_two_workers_draw_the_same(seed):
    with algorithm(2, seed) as algo:
        drawn = algo.workers.foreach_worker(lambda worker: (random.random(), np.random.random()))
    assert len({number for pair in drawn for number in pair}) == 4


def test_a_worker_that_replaces_another_draws_other_numbers():
    draws = []
    for worker_index, incarnation in ((1, 0), (1, 1), (2, 0)):
        RolloutWorker(settings(GlobalDraws), worker_index, incarnation)
        draws.append(np.random.random())
    assert len(set(draws)) == 3


def test_without_a_seed_the_drivers_generators_are_left_alone():
    described = settings(GlobalDraws, num_envs=1)
    np.random.seed(5)
    expected = np.random.random(3)
    np.random.seed(5)
    RolloutWorker(described)
    assert np.random.random(2).tolist() == expected[1:].tolist(), "the environment has drawn one number"


def test_evaluation_in_this_process_changes_nothing_that_training_draws():
    np.testing.assert_array_equal(sampled(0), sampled(0, evaluates=True)[:-4])


def test_torch_is_seeded_too_where_the_environment_imports_it():
    pytest.importorskip("torch")
    draws = []
    for worker_index in (1, 1, 2):
        worker = RolloutWorker(settings(GlobalDraws, env_config={"torch": True}), worker_index)
        draws.append(worker.sample()[0][sb.OBS][:, 2].tolist())
    assert draws[0] == draws[1]
    assert not set(draws[0]) & set(draws[2])


def test_torch_that_an_environment_imports_later_is_seeded(monkeypatch):
    """The module is missing from sys.modules until the environment is made, as in a fresh worker."""
    torch = pytest.importorskip("torch")
    monkeypatch.delitem(sys.modules, "torch")

    class Importing(GlobalDraws):
        def __init__(self, config=None):
            sys.modules["torch"] = torch
            super().__init__()

    draws = []
    for _ in range(2):
        sys.modules.pop("torch", None)
        RolloutWorker(settings(Importing), worker_index=1)
        draws.append(float(torch.rand(1)))
    assert draws[0] == draws[1]


def test_each_evaluation_has_seeds_of_its_own():
    player = EvaluationWorker(settings(GlobalDraws), 1)
    first, second, again = (player.play_episodes(Duration(2), round_index) for round_index in (1, 2, 1))
    returns = [[episode.episode_return for episode in played] for played in (first, second, again)]
    assert returns[0] == returns[2] != returns[1]
