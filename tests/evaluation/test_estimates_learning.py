"""Off-policy estimates of a policy for CartPole from 500 episodes of another one, beside its true value.

Models are fitted to 500 further episodes.
"""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib.acting.inference import ActingSettings
from rllib.evaluation.estimators.choose import estimate_all, make_estimators
from rllib.models.catalog.catalog import policy_spec
from rllib.offline.dataset import Dataset
from rllib.policy import Policy

GAMMA = 0.97
# Logit of a push to the right, by position, speed, angle and angular speed of the pole.
DIRECTION = np.array([0.0, 0.2, 1.0, 0.5])
SPACES = {"observation_space": Box(-np.inf, np.inf, (4,)), "action_space": Discrete(2)}


def play(steepness, count, seed):
    """Columns of episodes in which a push to the right has the probability sigmoid(steepness * DIRECTION @ obs)."""
    env, rng, rows = gymnasium.make("CartPole-v1"), np.random.default_rng(seed), []
    for episode in range(count):
        obs, _ = env.reset(seed=seed * 100_000 + episode)
        over = False
        while not over:
            right = 1 / (1 + np.exp(-steepness * DIRECTION @ obs))
            action = int(rng.random() < right)
            following, reward, terminated, truncated, _ = env.step(action)
            probability = right if action else 1 - right
            rows.append((obs, action, reward, following, terminated, truncated, episode, probability))
            obs, over = following, terminated or truncated
    names = "obs", "actions", "rewards", "new_obs", "terminateds", "truncateds", "eps_id", "action_prob"
    return {name: np.array(column) for name, column in zip(names, zip(*rows))}


def pole_policy(steepness):
    policy = Policy(policy_spec(*SPACES.values(), {"fcnet_hiddens": [], "vf_share_layers": False}))
    (name,) = (each for each, array in policy.parameters().items() if array.shape == (2, 4))
    policy.parameters()[name][1] = steepness * DIRECTION
    return policy


def true_value(steepness, count=40_000):
    """Mean of discounted returns and its standard error, by the equations of CartPole-v1, for all episodes at once."""
    rng = np.random.default_rng(5)
    obs, goes_on, sums = rng.uniform(-0.05, 0.05, (count, 4)), np.ones(count, bool), np.zeros(count)
    for step in range(500):
        sums += GAMMA**step * goes_on
        force = np.where(rng.random(count) < 1 / (1 + np.exp(-steepness * (obs @ DIRECTION))), 10.0, -10.0)
        _, speed, angle, turning = obs.T
        pull = (force + 0.05 * turning**2 * np.sin(angle)) / 1.1
        turned = (9.8 * np.sin(angle) - np.cos(angle) * pull) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        pushed = pull - 0.05 * turned * np.cos(angle) / 1.1
        obs = obs + 0.02 * np.stack([speed, pushed, turning, turned], 1)
        goes_on &= (np.abs(obs[:, 0]) <= 2.4) & (np.abs(obs[:, 2]) <= 12 * 2 * np.pi / 360)
        obs[~goes_on] = 0
        if not goes_on.any():
            break
    return sums.mean(), sums.std() / np.sqrt(count)


@pytest.mark.learning
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("behavior", "target"), [(2.0, 2.6), (2.6, 2.0)], ids=["to better", "to worse"])
def test_estimates_are_near_the_true_value(behavior, target):
    value, error = true_value(target)
    dataset, other = (Dataset.from_columns(play(behavior, 500, seed), **SPACES) for seed in (2, 3))
    methods = {name: {"type": name} for name in ("is", "wis", "dm", "dr")}
    methods["wis"]["carried"] = True
    estimators = make_estimators(methods, pole_policy(target), GAMMA, ActingSettings())
    found = estimate_all(estimators, *map(estimators["is"].steps, (dataset, other)))
    for name, each in found.items():
        half = (each["v_target_high"] - each["v_target_low"]) / 2
        print(f"{name} {each['v_target']:.2f} +- {half:.2f}; {value:.2f} +- {2 * error:.2f}; {each}")
        if name == "dm":
            assert each["v_target"] == pytest.approx(value, rel=0.1)
        else:
            assert abs(each["v_target"] - value) <= half + 2 * error, name
    assert abs(value - found["is"]["v_behavior"]) > 4 * error, "the two policies are worth the same"
