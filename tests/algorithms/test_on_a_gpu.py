"""Every algorithm on a GPU: it trains there, its weights move and stay finite."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple

from rllib.algorithms.base.registry import algorithm_names, get_algorithm_config
from tests.algorithms.taught_worlds import teacher_of
from tests.gpu import needs_gpu

# ES and ARS make no gradients; QMix and VDN take groups of agents.
OTHERS = ("ES", "ARS", "QMix", "VDN")
# Those that need recorded data or demonstrations have tests of their own.
NEED_DATA = [
    name
    for name in algorithm_names()
    if get_algorithm_config(name).needs_data or "demonstrations" in get_algorithm_config(name).settings
]
SAMPLING = [name for name in algorithm_names() if name not in (*OTHERS, *NEED_DATA)]
CONTINUOUS = ("SAC", "TQC", "CrossQ", "TD3", "DDPG", "ApexDDPG")
IMAGES = {"IMPALA": {}, "APPO": {}, "PPO": {}, "DQN": {}, "Rainbow": {}}


class ImageEnv(gym.Env):
    """Noise; the reward is the action."""

    observation_space, action_space = Box(0, 255, (20, 20, 3), np.uint8), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = 10
        return self.np_random.integers(0, 256, (20, 20, 3), dtype=np.uint8), {}

    def step(self, action):
        self._left -= 1
        image = self.np_random.integers(0, 256, (20, 20, 3), dtype=np.uint8)
        return image, float(action), self._left == 0, False, {}


def config_of(name, env):
    config = get_algorithm_config(name).environment(env).resources(num_gpus=1).debugging(seed=1)
    workers = 1 if name.startswith("Apex") or name == "A3C" else 0
    config.rollouts(num_rollout_workers=workers).training(learner="torch")
    if hasattr(config, "num_steps_sampled_before_learning_starts"):
        config.training(num_steps_sampled_before_learning_starts=100)
    if getattr(config, "needs_teacher", False):
        config.training(teacher=teacher_of(env))
    if name == "R2D2":
        config.training(model={"use_lstm": True, "lstm_cell_size": 8}, replay_buffer_config={"capacity": 1000})
    elif name.startswith("Apex"):
        config.training(num_replay_buffer_shards=1, replay_buffer_config={"capacity": 10_000})
    elif "replay_buffer_config" in config.to_dict():
        config.training(replay_buffer_config={"capacity": 10_000})
    return config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=400)


def trains(config):
    with config.build() as algo:
        before = algo.learner.weights.copy()
        for _ in range(20):
            if algo.train()["num_env_steps_trained"]:
                break
        assert algo.learner.device.startswith("cuda")
        assert np.isfinite(algo.learner.weights).all()
        assert not np.array_equal(algo.learner.weights, before)


@needs_gpu
@pytest.mark.parametrize("name", SAMPLING)
def test_every_algorithm_trains_on_a_gpu(name):
    trains(config_of(name, "Pendulum-v1" if name in CONTINUOUS else "CartPole-v1"))


@needs_gpu
@pytest.mark.parametrize("quantiles", [1, 5])
@pytest.mark.parametrize("munchausen", [{}, {"munchausen_alpha": 0.9, "double_q": False}], ids=["best", "munchausen"])
def test_targets_of_dqn(munchausen, quantiles):
    trains(config_of("DQN", "CartPole-v1").training(num_quantiles=quantiles, **munchausen))


@needs_gpu
@pytest.mark.parametrize("name", IMAGES)
def test_from_images(name):
    config = config_of(name, ImageEnv)
    trains(config.training(model={"conv_filters": [[8, [4, 4], 2], [16, [3, 3], 2]]}))


@needs_gpu
@pytest.mark.parametrize("name", ["QMix", "VDN"])
def test_groups_of_agents(name):
    class Team(gym.Env):
        """Two agents, whose reward is the number of ones among their actions."""

        observation_space = Tuple([Box(-1, 1, (2,))] * 2)
        action_space = Tuple([Discrete(2)] * 2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self._left = 10
            return tuple(np.zeros(2, np.float32) for _ in range(2)), {}

        def step(self, actions):
            self._left -= 1
            return tuple(np.zeros(2, np.float32) for _ in range(2)), float(sum(actions)), self._left == 0, False, {}

    trains(config_of(name, Team))
