"""SQIL: the halves of a batch, what is imitated, and refusals."""

import gymnasium as gym
import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.algorithms.sqil import SQILConfig, SQILDQNConfig
from rllib.config.conflicts import SettingsError
from rllib.offline.dataset import Dataset
from tests.algorithms.algorithm_support import train
from tests.imitation.demonstrations import always_left, recorded

CARTPOLE = gym.make("CartPole-v1")
SPACES = {"observation_space": CARTPOLE.observation_space, "action_space": CARTPOLE.action_space}
LEFT = Dataset.from_columns(always_left(), **SPACES)
KINDS = {"sac": SQILConfig, "dqn": SQILDQNConfig}


def make(kind, data=LEFT, env="CartPole-v1", **training):
    small = {"num_steps_sampled_before_learning_starts": 64, "train_batch_size": 32, "model": {"fcnet_hiddens": [16]}}
    return (
        KINDS[kind]()
        .environment(env)
        .rollouts(num_rollout_workers=0, num_envs_per_worker=4)
        .offline_data(input_=data)
        .training(**{**small, "replay_buffer_config": {"type": "ReplayBuffer", "capacity": 5000}, **training})
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=200)
        .debugging(seed=1)
    )


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_half_of_a_batch_is_demonstrated_and_has_the_reward_1(kind, n_step):
    with make(kind, n_step=n_step, gamma=0.5).build() as algo:
        result = train(algo, 2)
        batch = algo.trainee.replay.sample(64, algo.trainee.rng)
    demonstrated = batch[sb.RECORDED] == 1
    assert demonstrated.sum() == 32
    assert not batch[sb.REWARDS][~demonstrated].any()
    steps = {1: [1.0], 3: [1.0, 1.5, 1.75]}[n_step]  # fewer at the end of an episode
    assert set(batch[sb.REWARDS][demonstrated]) <= set(steps) and batch[sb.REWARDS].max() == steps[-1]
    assert result["episode_reward_mean"] == result["episode_len_mean"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_experts_action_is_imitated(kind):
    exploration = {"exploration_config": {"epsilon_timesteps": 1000}} if kind == "dqn" else {}
    config = make(kind, training_intensity=32, **({"lr": 1e-3} if kind == "dqn" else {})).exploration(**exploration)
    with config.build() as algo:
        while algo.timesteps < 2000:
            algo.train()
        chosen = [algo.compute_single_action(seen, explore=False) for seen in LEFT.columns["obs"][:60]]
    assert np.mean(chosen) < 0.2


def test_continuous_actions_and_files(tmp_path):
    data = Dataset.from_columns(recorded("Pendulum-v1", lambda seen: np.array([-2.0], np.float32), 1))
    paths = []
    for name in ("a.npz", "b.npz"):
        data.save(tmp_path / name)
        paths.append(str(tmp_path / name))
    for given in (paths[0], paths):
        with make("sac", given, "Pendulum-v1").build() as algo:
            train(algo, 2)
            assert len(algo.trainee.replay.recorded[0]) == 200 * (1 + (given is paths))


def test_arrays_are_taken():
    with make("sac", always_left(3)).build() as algo:
        train(algo, 2)
        assert algo.trainee.replay.sample(10, algo.trainee.rng)[sb.RECORDED].sum() == 5


def test_other_shares_are_taken_as_they_are():
    with make("dqn", {"sampler": 0.25, LEFT: 0.75}).build() as algo:
        train(algo, 1)
        batch = algo.trainee.replay.sample(64, algo.trainee.rng)
    assert batch[sb.RECORDED].sum() == 48


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "data, words",
    [("sampler", "learns from recorded data"), ({LEFT: 1.0}, "its own"), (3, "input_=3")],
)
def test_what_has_no_two_halves_is_refused(kind, data, words):
    with pytest.raises(SettingsError, match=words):
        make(kind, data).build()


def test_rewards_cannot_be_scaled():
    with pytest.raises(SettingsError, match="reward 1"):
        make("sac").offline_data(reward_scale=2.0).build()
