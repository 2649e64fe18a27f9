"""Columns that the library does not know: one that the environment gives, one that is computed in the worker."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from rllib import PPO, AlgorithmConfig, IMPALAConfig, PPOConfig
from rllib import sample_batch as sb
from rllib.evaluation.callbacks import DefaultCallbacks
from rllib.evaluation.postprocess.advantages import AdvantageEstimator
from rllib.sample_batch import Column
from tests.envs import CountingEnv


class Costly(CountingEnv):
    """Says in its info what a step costs, and beforehand how many are left."""

    def left(self) -> int:
        return self.lengths[self.episode % len(self.lengths)] - self.t

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset(seed=seed)
        return observation, {"left": self.left(), "cost": np.zeros(2)}

    def step(self, action):
        *result, _ = super().step(action)
        return *result, {"left": self.left(), "cost": np.array([result[1], 7.0]), "advantages": 0.0}


class Collect(DefaultCallbacks):
    """Keeps the train batches."""

    batches: ClassVar[list] = []

    def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs):
        Collect.batches.append(train_batch)


def train_batch(config) -> sb.SampleBatch:
    Collect.batches.clear()
    with config.callbacks(Collect).build() as algo:
        algo.train()
    return Collect.batches[0]


@pytest.mark.parametrize("batch_mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("config_class", [PPOConfig, IMPALAConfig])
def test_a_column_that_the_environment_gives(config_class, num_workers, batch_mode):
    columns = {"cost": {"shape": [2]}, "left": {"dtype": "int64", "before_action": True}}
    config = config_class().environment(Costly, info_columns=columns)
    config.rollouts(num_rollout_workers=num_workers, num_envs_per_worker=2, batch_mode=batch_mode)
    config.rollouts(rollout_fragment_length=8).training(train_batch_size=32, model={"fcnet_hiddens": [8]})
    if config_class is PPOConfig:
        config.training(sgd_minibatch_size=16)
    batch = train_batch(config.reporting(min_time_s_per_iteration=0))
    steps = batch.get(sb.LOSS_MASK, np.ones(batch.count, bool))
    assert batch["cost"].dtype == np.float32 and batch["left"].dtype == np.int64
    np.testing.assert_array_equal(batch["cost"][steps, 0], batch[sb.REWARDS][steps])
    assert (batch["cost"][steps, 1] == 7).all() and not batch["cost"][~steps].any()
    ends = batch[sb.TERMINATEDS] | batch[sb.TRUNCATEDS]
    assert ((batch["left"] == 1) == ends)[steps].all()


@dataclass(frozen=True)
class WithSquares(AdvantageEstimator):
    """Adds the squares of the advantages."""

    columns = (*AdvantageEstimator.columns, Column("squares"))

    def __call__(self, fragment, policy):
        super().__call__(fragment, policy)
        np.square(fragment[sb.ADVANTAGES], out=fragment["squares"])


class PPOWithSquares(PPO):
    def make_postprocess(self, policy_id):
        config = self.config
        return WithSquares(config.gamma, config.lambda_)


def test_a_column_that_is_computed_in_the_worker():
    config = AlgorithmConfig(algo_class=PPOWithSquares).environment(CountingEnv).rollouts(num_rollout_workers=2)
    config.training(train_batch_size=32, sgd_minibatch_size=16, standardize_advantages=False)
    batch = train_batch(config.training(model={"fcnet_hiddens": [8]}))
    np.testing.assert_array_equal(batch["squares"], batch[sb.ADVANTAGES] ** 2)
    assert batch["squares"].any()


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"cost": {"kind": "float32"}}, "unexpected keyword argument 'kind'"),
        ({"cost": {"dtype": "flaot32"}}, "data type 'flaot32' not understood"),
        ({"cost": 3}, "info_columns="),
    ],
)
def test_columns_that_are_none_are_refused(columns, complaint):
    with pytest.raises(ValueError, match=complaint):
        PPOConfig().environment(Costly, info_columns=columns).validate()


@pytest.mark.parametrize("name", ["rewards", "advantages", "price"])
def test_columns_of_the_wrong_name_are_refused_where_the_user_sits(name):
    complaint = "environment 0 has only" if name == "price" else f"two columns {name!r}"
    config = PPOConfig().environment(Costly, info_columns={name: {}})
    with pytest.raises(ValueError, match=complaint):
        config.rollouts(num_rollout_workers=0).build()
