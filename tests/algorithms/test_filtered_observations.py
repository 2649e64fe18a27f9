"""Runs that normalise observations and count those of all environments together."""

import pytest

from rllib import (
    A3CConfig,
    ApexDDPGConfig,
    ApexDQNConfig,
    APPOConfig,
    DQNConfig,
    IMPALAConfig,
    PPOConfig,
    PQNConfig,
    SACConfig,
    TRPOConfig,
)
from tests.envs import GoalOnALine, InfiniteHorizon

MANY = 9  # more than the environments whose bits do not depend on the workers
REPLAYS = {"num_steps_sampled_before_learning_starts": 20, "train_batch_size": 8}


def trained(config, environments: int):
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=environments, observation_filter="MeanStdFilter")
    config.training(model={"fcnet_hiddens": [8]}).debugging(seed=0)
    config.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=20 * environments)
    return config.build()


@pytest.mark.parametrize("batch_mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize(
    ("kind", "environments", "settings"),
    [
        (PPOConfig, MANY, {"train_batch_size": 20 * MANY, "sgd_minibatch_size": 90, "num_sgd_iter": 1}),
        (TRPOConfig, MANY, {"train_batch_size": 20 * MANY, "sgd_minibatch_size": 90, "num_sgd_iter": 1}),
        (PQNConfig, MANY, {"train_batch_size": 20 * MANY, "sgd_minibatch_size": 90, "num_sgd_iter": 1}),
        (DQNConfig, MANY, REPLAYS),
        (SACConfig, MANY, REPLAYS),
        (IMPALAConfig, 2, {"train_batch_size": 40}),
        (APPOConfig, 2, {"train_batch_size": 40}),
        (A3CConfig, 2, {}),
        (ApexDQNConfig, 2, REPLAYS),
        (ApexDDPGConfig, 2, REPLAYS),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_episode_is_cut_before_the_first_merge(kind, environments, settings, batch_mode):
    continuous = kind in (SACConfig, ApexDDPGConfig)
    env, options = ("Pendulum-v1", {"max_episode_steps": 4}) if continuous else (InfiniteHorizon, {"length": 4})
    config = kind().environment(env, env_config=options).training(**settings)
    config.rollouts(batch_mode=batch_mode, rollout_fragment_length=10)
    with trained(config, environments) as algo:
        algo.train()
        assert algo.policy.filter.count >= algo.timesteps


def test_hindsight_of_many_environments():
    config = SACConfig().environment(GoalOnALine).training(**REPLAYS)
    config.training(replay_buffer_config={"type": "HindsightReplayBuffer", "capacity": 1000})
    with trained(config, MANY) as algo:
        algo.train()
        assert algo.policy.filter.count >= algo.timesteps
