"""The setting time_limit_ends_episode: truncated episodes are learned from as terminated ones."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.impala import IMPALAConfig
from rllib.algorithms.ppo import PPOConfig


class Limited(gymnasium.Env):
    """A reward of 1 in each step; a time limit after four."""

    observation_space, action_space = Box(0, 9, (1,), np.float32), Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.full(1, self.time, np.float32), 1.0, False, self.time == 4, {}


def batch_of(config, **settings):
    rollouts = {"num_rollout_workers": 0, "rollout_fragment_length": 8}
    with config.environment(Limited, **settings).rollouts(**rollouts).debugging(seed=1).build() as algo:
        worker = algo.workers.local_worker()
        worker.policy.weights[:] = 0.1  # values that are not zero
        batch, report = worker.sample()
        assert [episode.length for episode in report.episodes] == [4, 4]
        return batch


def test_the_value_behind_the_limit_counts_by_default_alone():
    config = PPOConfig().training(gamma=0.5, lambda_=1.0, train_batch_size=8, sgd_minibatch_size=8)
    default, ended = batch_of(config.copy()), batch_of(config.copy(), time_limit_ends_episode=True)
    assert default["truncateds"].sum() == 2
    assert not default["terminateds"].any()
    assert not ended["truncateds"].any()
    assert list(np.flatnonzero(ended["terminateds"])) == [3, 7]
    returns = [1.875, 1.75, 1.5, 1.0]
    np.testing.assert_allclose(ended["value_targets"], 2 * returns, rtol=1e-6)
    assert abs(default["value_targets"] - ended["value_targets"]).max() > 1e-3


def test_replays_do_not_look_behind_the_limit():
    config = DQNConfig().training(gamma=0.5, n_step=2, num_steps_sampled_before_learning_starts=8)
    batch = batch_of(config, time_limit_ends_episode=True)
    last = batch["terminateds"]
    assert last.sum() == 4  # two windows of each episode reach its end
    assert (batch["discounts"][last] == 0).all()


def test_sequences_have_no_row_behind_the_limit():
    config = IMPALAConfig().training(train_batch_size=8)
    batch = batch_of(config, time_limit_ends_episode=True)
    # One row to bootstrap from, at the end of the fragment; its value has no weight behind a termination.
    assert np.count_nonzero(~batch["loss_mask"]) == 1
    assert batch["terminateds"].sum() == 2


def test_tensors_are_refused():
    config = PPOConfig().environment("rllib.env.tasks.torch_cartpole:TorchCartPole", time_limit_ends_episode=True)
    with pytest.raises(ValueError, match="time_limit_ends_episode=True is for arrays"):
        config.build()
