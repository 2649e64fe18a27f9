"""The wrapper that adds past actions to observations."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from rllib import PPOConfig
from rllib.env.factories.past_actions import PastActions


class World(gymnasium.Env):
    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def test_a_row_gets_the_last_actions_between_minus_one_and_one():
    own = Box(0, 5, (2,), np.float32)
    env = PastActions(World(own, Box(-2, 6, (1,), np.float32)), number=3)
    assert env.observation_space.shape == (5,) and env.observation_space.high.tolist()[:2] == [5, 5]
    for _ in range(2):
        assert env.reset(seed=0)[0][2:].tolist() == [0, 0, 0], "none of the episode before"
        seen = [env.step(np.float32([action]))[0] for action in (-2, 6, 2, 0)]
        assert [each[2:].tolist() for each in seen] == [[0, 0, -1], [0, -1, 1], [-1, 1, 0], [1, 0, -0.5]]
        assert all(each in env.observation_space for each in seen)


@pytest.mark.parametrize(
    ("own", "keys"),
    [(Dict({"at": Discrete(3)}), {"at", "past_actions"}), (Discrete(3), {"observations", "past_actions"})],
)
def test_other_observations_get_a_key(own, keys):
    env = PastActions(World(own, Discrete(3, start=1)), number=2)
    env.reset(seed=0)
    env.step(3)
    seen = env.step(1)[0]
    assert set(seen) == keys and seen in env.observation_space
    assert seen["past_actions"].tolist() == [0, 0, 1, 1, 0, 0]


@pytest.mark.parametrize("number", [0, -1, 1.5, True])
def test_a_number_of_actions_below_one_is_refused(number):
    with pytest.raises(ValueError, match="number of actions >= 1"):
        PastActions(World(Discrete(2), Discrete(2)), number=number)


def test_it_is_named_in_files_and_checkpoints(tmp_path):
    config = PPOConfig().environment("CartPole-v1", env_wrappers=[{"PastActions": {"number": 2}}])
    config.rollouts(num_rollout_workers=0).training(train_batch_size=40, sgd_minibatch_size=20, num_sgd_iter=1)
    with config.build() as algo:
        assert algo.observation_space.shape == (8,)
        path = algo.save(tmp_path / "by name")
    with type(algo).from_checkpoint(path) as algo:
        algo.train()
    with PPOConfig().environment("CartPole-v1", env_wrappers=[PastActions]).build() as algo:
        path = algo.save(tmp_path / "by class")
    with type(algo).from_checkpoint(path) as algo:
        assert algo.observation_space.shape == (6,)


def test_a_slip_of_its_name_is_understood():
    with pytest.raises(ValueError, match="Did you mean 'PastActions'"):
        PPOConfig().environment("CartPole-v1", env_wrappers=["PastAction"]).validate()
