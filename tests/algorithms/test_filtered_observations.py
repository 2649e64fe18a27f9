"""Runs that normalise observations and count those of all environments together."""

import numpy as np
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
from rllib.policy import Policy
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


def small_ppo(observation_filter: str):
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    config.rollouts(observation_filter=observation_filter).debugging(seed=0)
    return config.training(train_batch_size=50, sgd_minibatch_size=50, num_sgd_iter=1, model={"fcnet_hiddens": [8]})


@pytest.mark.parametrize("door", ["set_state", "set_parameters", "from_checkpoint"])
def test_a_teachers_filter_comes_with_its_weights(door, tmp_path):
    rows = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32) * 2
    with small_ppo("MeanStdFilter").build() as teacher, small_ppo("MeanStdFilter").build() as pupil:
        teacher.train()
        path = teacher.save(tmp_path / "teacher")
        if door == "set_state":
            pupil.get_policy().set_state(teacher.get_policy().get_state())
        elif door == "set_parameters":
            pupil.set_parameters(path)
        else:
            pupil.get_policy().set_state(Policy.from_checkpoint(path)["default_policy"].get_state())
        (*_, ours), (*_, its) = (
            each.compute_actions(rows, explore=False, full_fetch=True) for each in (pupil, teacher)
        )
        np.testing.assert_array_equal(ours["action_dist_inputs"], its["action_dist_inputs"])


def test_parameters_of_a_checkpoint_need_its_filter(tmp_path):
    with small_ppo("MeanStdFilter").build() as teacher, small_ppo("NoFilter").build() as pupil:
        before = pupil.policy.weights.copy()
        with pytest.raises(ValueError, match=r"Use \.rollouts\(observation_filter='MeanStdFilter'\)"):
            pupil.set_parameters(teacher.save(tmp_path / "teacher"))
        np.testing.assert_array_equal(pupil.policy.weights, before)


@pytest.mark.parametrize(("observation_filter", "told"), [("MeanStdFilter", 1), ("NoFilter", 0)])
def test_that_set_weights_leaves_the_filter_is_told_once(observation_filter, told, caplog):
    with small_ppo(observation_filter).build() as algo:
        for _ in range(2):
            algo.set_weights(algo.get_weights())
    assert sum("leaves the observation filter" in record.message for record in caplog.records) == told
