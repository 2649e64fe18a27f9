"""Values that are known exactly: those of a random walk, which no policy changes, and of the policy on FrozenLake."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete

from rllib import (
    A2CConfig,
    A3CConfig,
    APPOConfig,
    DQNConfig,
    IMPALAConfig,
    PPOConfig,
    PQNConfig,
    RainbowConfig,
)

PPO = {"sgd_minibatch_size": 80, "num_sgd_iter": 2, "vf_clip_param": None}
ACTOR_CRITICS = [
    (config_class, {"lambda_": 0.9, **settings})
    for config_class, settings in (
        (PPOConfig, PPO), (A2CConfig, {}), (A3CConfig, {}), (IMPALAConfig, {}), (APPOConfig, {}),
    )
]  # fmt: skip
REPLAY = {"num_steps_sampled_before_learning_starts": 200, "hiddens": [], "target_network_update_freq": 100,
          "train_batch_size": 64, "training_intensity": 8}  # fmt: skip
PQN = {"sgd_minibatch_size": 80, "opt_type": "adam", "model": {"fcnet_hiddens": [], "layer_norm": False}}
Q_LEARNERS = [
    (PQNConfig, PQN),
    (DQNConfig, {**REPLAY, "n_step": 3}),
    (RainbowConfig, {**REPLAY, "noisy": False, "v_min": 0.0, "v_max": 1.0, "num_atoms": 2}),
]


class RandomWalk(gymnasium.Env):
    """Sutton and Barto, example 6.2: five states in a row, each step left or right by chance, 1 at the right end."""

    observation_space, action_space = Discrete(5), Discrete(2)

    def __init__(self, config=None):
        self.state = 2

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 2
        return self.state, {}

    def step(self, action):
        self.state += int(self.np_random.choice([-1, 1]))
        reward = float(self.state == 5)
        return min(max(self.state, 0), 4), reward, self.state in (-1, 5), False, {}


def trained(config_class, settings, env, num_steps, gamma):
    """A table, one weight per state and output, and a learning rate that goes down to nearly nothing."""
    config = config_class().environment(env).rollouts(num_rollout_workers=0, num_envs_per_worker=8)
    config.rollouts(rollout_fragment_length=4 if config_class in (DQNConfig, RainbowConfig) else 20)
    if config_class in (PPOConfig, A2CConfig, PQNConfig, IMPALAConfig, APPOConfig):
        config.training(train_batch_size=160)
    config.training(**{"gamma": gamma, "model": {"fcnet_hiddens": []}, **settings})
    config.training(lr=[[0, 0.05], [num_steps // 2, 0.005], [num_steps, 0.0002]])
    config.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=1000).debugging(seed=2)
    algo = config.build()
    while algo.timesteps < num_steps:
        algo.train()
    return algo


def name(parameter):
    return getattr(parameter, "__name__", "")


@pytest.mark.parametrize(("config_class", "settings"), ACTOR_CRITICS, ids=name)
def test_values_of_the_random_walk(config_class, settings):
    with trained(config_class, settings, RandomWalk, 30_000, gamma=1.0) as algo:
        np.testing.assert_allclose(algo.policy.values(np.arange(5)), np.arange(1, 6) / 6, atol=0.04)


@pytest.mark.parametrize(("config_class", "settings"), Q_LEARNERS, ids=name)
def test_action_values_of_the_random_walk(config_class, settings):
    """Both actions are worth the same, and what is expected of the larger estimate is hardly more."""
    with trained(config_class, settings, RandomWalk, 20_000, gamma=1.0) as algo:
        q_values = algo.policy.action_values(np.arange(5)).q_values()
        np.testing.assert_allclose(q_values, np.repeat(np.arange(1, 6)[:, None] / 6, 2, axis=1), atol=0.08)


def exact_values(probabilities: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """V of a policy on FrozenLake's table, (I - gamma P) V = r, and how often each state is visited."""
    transitions, rewards = np.zeros((16, 16)), np.zeros(16)
    for state, actions in gymnasium.make("FrozenLake-v1").unwrapped.P.items():
        for action, outcomes in actions.items():
            for chance, following, reward, is_end in outcomes:
                rewards[state] += probabilities[state, action] * chance * reward
                transitions[state, following] += probabilities[state, action] * chance * (not is_end)
    values = np.linalg.solve(np.eye(16) - gamma * transitions, rewards)
    visits = np.linalg.solve((np.eye(16) - 0.999 * transitions).T, np.eye(16)[0])
    return values, visits / visits.sum()


@pytest.mark.parametrize(("config_class", "settings"), ACTOR_CRITICS, ids=name)
def test_the_critic_knows_the_value_of_its_policy(config_class, settings):
    """Within 5 % of the values' range, over the states that the policy visits. Errors at the boundary, in gamma or in
    what belongs to which row are seen here, where returns hide them.
    """
    with trained(config_class, settings, "FrozenLake-v1", 40_000, gamma=0.95) as algo:
        scores = np.exp(algo.policy.dist_inputs(np.arange(16)))
        expected, visits = exact_values(scores / scores.sum(1, keepdims=True), 0.95)
        error = np.sqrt((visits * (algo.policy.values(np.arange(16)) - expected) ** 2).sum())
        assert error < 0.05 * np.ptp(expected), (error, expected)
