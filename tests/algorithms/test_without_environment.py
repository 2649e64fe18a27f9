"""Algorithms that are built from spaces alone: they act, learn from batches and are saved; nothing can be sampled."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.registry import algorithm_names, get_algorithm_config
from rllib.algorithms.ppo import PPOConfig

SPACES = {"observation_space": Box(-np.inf, np.inf, (4,), np.float32), "action_space": Discrete(2)}
SMALL = {
    "ES": {"noise_size": 100_000}, "ARS": {"noise_size": 100_000}, "ApexDQN": {"num_replay_buffer_shards": 1},
    "ApexDDPG": {"num_replay_buffer_shards": 1},
    "Distillation": {"teacher": len}, "DAgger": {"teacher": len},
    "R2D2": {"model": {"use_lstm": True, "lstm_cell_size": 8}, "replay_buffer_config": {"capacity": 1000}},
}  # fmt: skip


def build(name="PPO", num_workers=0):
    boxed = ("TQC", "CrossQ", "TD3", "DDPG", "ApexDDPG")
    spaces = SPACES | ({"action_space": Box(-1, 1, (1,))} if name in boxed else {})
    if name in ("QMix", "VDN"):
        spaces = {"observation_space": Tuple([Box(-1, 1, (2,))] * 2), "action_space": Tuple([Discrete(2)] * 2)}
    config = get_algorithm_config(name).environment(**spaces).rollouts(num_rollout_workers=num_workers)
    return config.training(**SMALL.get(name, {})).debugging(seed=1).build()


# The others are built from recorded data or demonstrations, with or without an environment: see test_recorded_data.py.
SAMPLING = [
    name
    for name in algorithm_names()
    if not get_algorithm_config(name).needs_data and "demonstrations" not in get_algorithm_config(name).settings
]


@pytest.mark.parametrize("name", SAMPLING)
def test_every_algorithm_acts_and_says_why_it_does_not_train(name):
    with build(name) as algo:
        observation = algo.observation_space.sample()
        assert algo.action_space.contains(algo.make_player().act(observation))
        with pytest.raises(RuntimeError, match=r"without an environment to sample from.* \.environment\("):
            algo.train()
        with pytest.raises(RuntimeError, match="no environment to evaluate in"):
            algo.evaluate()


@pytest.mark.parametrize("name", ["PPO", "A3C", "IMPALA"])
def test_no_workers_are_made(name):
    with build(name, num_workers=2) as algo:
        assert algo.workers.num_healthy_workers == 0
        with pytest.raises(RuntimeError, match="without an environment to sample from"):
            algo.train()


def test_it_learns_from_batches_that_others_have_sampled():
    settings = {"lr": 0.01, "clip_param": 0.2, "kl_coeff": 0.0, "vf_loss_coeff": 1.0, "entropy_coeff": 0.0}
    with build() as algo, PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).build() as other:
        other.set_weights(algo.get_weights())
        batch = other.sample(256)
        algo.learn_on_batch(batch, vf_clip_param=None, **settings)
        assert not np.array_equal(algo.policy.weights, other.policy.weights)


def test_it_is_saved_and_restored(tmp_path):
    with build() as algo:
        path = algo.save(tmp_path / "checkpoint")
        with Algorithm.from_checkpoint(path) as other:
            assert np.array_equal(algo.policy.weights, other.policy.weights)
            assert other.observation_space == SPACES["observation_space"]


def test_it_evaluates_where_evaluation_has_an_environment():
    env = gym.make("CartPole-v1")
    config = PPOConfig().environment(observation_space=env.observation_space, action_space=env.action_space)
    config.evaluation(evaluation_config={"env": "CartPole-v1"})
    with config.build() as algo:
        assert algo.evaluate(2)["episode_len_mean"] > 0


@pytest.mark.parametrize("missing", SPACES)
def test_both_spaces_are_needed(missing):
    config = PPOConfig().environment(**{name: space for name, space in SPACES.items() if name != missing})
    with pytest.raises(ValueError, match=r"there is no environment.*observation_space and action_space"):
        config.build()
