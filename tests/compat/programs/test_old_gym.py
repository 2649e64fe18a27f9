"""`import gym` in programs for Ray: gymnasium's environments and wrappers in gym's own API."""

import copy
import importlib
import importlib.util
import pickle
import sys

import gymnasium
import numpy as np
import pytest

from rllib import PPOConfig
from rllib.compat.programs import old_gym


@pytest.fixture
def gym(monkeypatch):
    if importlib.util.find_spec("gym") is not None:
        pytest.skip("gym itself is installed, and goes first")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    old_gym.install()
    yield importlib.import_module("gym")
    for name in [name for name in sys.modules if name.partition(".")[0] == "gym"]:
        del sys.modules[name]


class Walk(gymnasium.Env):
    """An environment of the old API: the observation is the step, the reward 1."""

    observation_space = gymnasium.spaces.Box(0.0, 99.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    length = 5

    def __init__(self, config=None):
        self.t = 0

    def reset(self):
        self.t = 0
        return self._observed()

    def step(self, action):
        self.t += 1
        return self._observed(), 1.0, self.t >= self.length, {}

    def _observed(self):
        return np.array([self.t], np.float32)


def test_what_has_no_api_is_gymnasiums(gym):
    from gym.spaces import Box
    from gym.utils import seeding

    assert gym.Env is gymnasium.Env and Box is gymnasium.spaces.Box and gym.spaces is gymnasium.spaces
    assert seeding is gymnasium.utils.seeding and gym.error.Error is gymnasium.error.Error
    assert gym.__version__ == "0.25.2" and "make" in dir(gym)


def test_made_environments_have_the_old_api(gym):
    env = gym.make("CartPole-v1")
    assert env.seed(3) == [3]
    first = env.reset()
    np.testing.assert_array_equal(first, env.reset(seed=3))
    assert env.reset(return_info=True)[1] == {}
    observation, reward, done, info = env.step(0)
    assert (observation.shape, reward, done, info) == ((4,), 1.0, False, {})
    assert env._max_episode_steps == 500 and env.gravity == 9.8  # forwarded through all wrappers
    with pytest.raises(ValueError, match=r"gym.make\(..., render_mode='rgb_array'\)"):
        env.render(mode="rgb_array")
    assert copy.deepcopy(env).reset().shape == pickle.loads(pickle.dumps(env)).reset().shape == (4,)
    assert len(gymnasium.make("CartPole-v1").reset()) == 2


def test_classes_of_environments_have_it_too(gym):
    from gym.envs.classic_control import CartPoleEnv
    from gym.envs.classic_control.cartpole import CartPoleEnv as same

    class Stateless(CartPoleEnv):
        def reset(self):
            return super().reset()[[0, 2]]

        def step(self, action):
            observation, reward, done, info = super().step(action)
            return observation[[0, 2]], reward, done, info

    assert CartPoleEnv is same and pickle.loads(pickle.dumps(same)) is same
    env = Stateless()
    assert env.reset().shape == env.step(0)[0].shape == (2,)


def test_wrappers_of_both_libraries_stand_on_each_other(gym):
    class Observations(gym.ObservationWrapper):
        def observation(self, observation):
            return 10 * observation

    class Rewards(gym.RewardWrapper):
        def reward(self, reward):
            return -reward

    class Actions(gym.ActionWrapper):
        def action(self, action):
            return 1 - action

    class Plain(gym.Wrapper):
        def reset(self):
            return self.env.reset()

        def step(self, action):
            observation, reward, done, info = self.env.step(action)
            return observation, reward, done, {**info, "seen": action}

    cut = gym.wrappers.TimeLimit(Walk(), max_episode_steps=2)
    env = Observations(Rewards(Actions(Plain(cut))))
    assert env.reset() == 0 and env.length == 5
    assert env.step(1) == (10.0, -1.0, False, {"seen": 0})
    assert env.step(1) == (20.0, -1.0, True, {"seen": 0, "TimeLimit.truncated": True})
    assert env.seed(1) == [1]


def test_an_old_environment_is_registered_and_trained_on_by_its_id(gym):
    gym.register(id="TestOldWalk-v0", entry_point=Walk, max_episode_steps=3)
    try:
        env = gym.make("TestOldWalk-v0")
        assert env.reset() == 0
        ends = [env.step(0)[2:] for _ in range(3)]
        assert ends == [(False, {}), (False, {}), (True, {"TimeLimit.truncated": True})]
        assert gymnasium.make("TestOldWalk-v0").step.__self__.reset()[1] == {}
        config = PPOConfig().environment("TestOldWalk-v0").rollouts(num_rollout_workers=0)
        config.training(train_batch_size=30, sgd_minibatch_size=30, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
        with config.build() as algorithm:
            assert algorithm.train()["episode_len_mean"] == 3
    finally:
        del gymnasium.registry["TestOldWalk-v0"]


def test_a_program_that_wraps_what_is_made_is_trained_on(gym):
    class Wrapped(gym.Env):
        def __init__(self, config):
            self.env = gym.make("CartPole-v1")
            self.observation_space, self.action_space = self.env.observation_space, self.env.action_space

        def reset(self):
            return self.env.reset()

        def step(self, action):
            observation, reward, done, info = self.env.step(action)
            return observation, reward, done, info

    config = PPOConfig().environment(Wrapped).rollouts(num_rollout_workers=0)
    config.training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
    with config.build() as algorithm:
        assert algorithm.train()["timesteps_total"] == 64


def test_vectors_of_the_old_api_are_refused_where_they_are_used(gym):
    with pytest.raises(ImportError, match="its vectors of environments"):
        gym.vector.make("CartPole-v1", 2)
