"""Munchausen targets: the paper's equation in float64, tensors as arrays, illegal actions, and a run of DQN."""

import numpy as np
import pytest
import torch

from rllib import DQNConfig
from rllib.losses.munchausen import Munchausen
from rllib.models.distributions.q_values import QValues
from rllib.models.observations.masks import LOWEST
from rllib.sample_batch import TARGET_QUANTILES, TD_TARGETS
from tests.envs import ConstantReward

TARGETS = Munchausen(alpha=0.9, temperature=0.5, clip=-1.0)
ACTIONS = np.array([0, 2, 1])
REWARDS, DISCOUNTS = np.array([1.0, -0.5, 0.0], np.float32), np.array([0.9, 0.0, 0.81], np.float32)


def by_hand(before, later, action, reward, discount):
    """The target of one row, in float64; values [A, n]."""
    policy = np.exp(before.mean(-1) / 0.5) / np.exp(before.mean(-1) / 0.5).sum()
    bonus = 0.9 * min(max(0.5 * np.log(policy[action]), -1.0), 0.0)
    policy = np.exp(later.mean(-1) / 0.5) / np.exp(later.mean(-1) / 0.5).sum()
    soft = sum(p * (values - 0.5 * np.log(p)) for p, values in zip(policy, later))
    return reward + bonus + discount * soft


@pytest.mark.parametrize("atoms", [1, 4])
@pytest.mark.parametrize("dueling", [False, True])
def test_targets_gold(atoms, dueling):
    values = QValues(3, dueling, atoms, quantiles=atoms > 1)
    before, later = np.random.default_rng(0).normal(0, 1, (2, 3, values.num_inputs)).astype(np.float32)
    batches = values.at(before), values.at(later)
    name, targets = TARGETS.targets(values, *batches, ACTIONS, REWARDS, DISCOUNTS)
    rows = zip(*(batch.logits.transpose(2, 0, 1).astype(float) for batch in batches), ACTIONS, REWARDS, DISCOUNTS)
    expected = np.array([by_hand(*row) for row in rows])
    assert name == (TARGET_QUANTILES if atoms > 1 else TD_TARGETS)
    np.testing.assert_allclose(targets, expected if atoms > 1 else expected[:, 0], rtol=1e-5, atol=1e-6)
    tensors = (values.torch_at(torch.from_numpy(inputs)) for inputs in (before, later))
    columns = map(torch.from_numpy, (ACTIONS, REWARDS, DISCOUNTS))
    name_of_tensor, of_tensors = TARGETS.targets(values, *tensors, *columns)
    assert name_of_tensor == name and of_tensors.dtype == torch.float32
    np.testing.assert_allclose(of_tensors, targets, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [lambda values, x: values.at(x), lambda values, x: values.torch_at(torch.tensor(x))])
@pytest.mark.parametrize("atoms", [1, 2])
def test_illegal_actions_have_no_part(atoms, make):
    """Targets are those without the action; no overflow, at temperatures that are small as well."""
    legal = np.array([[1.0, 1.5, -2.0, 0.5]], np.float32)[:, : 2 * atoms]
    with_illegal = np.concatenate([legal, np.full((1, atoms), LOWEST)], 1)
    column = (np.array([0]), np.array([1.0], np.float32), np.array([0.9], np.float32))
    soft = Munchausen(0.9, 0.03, -1.0)
    two = QValues(2, num_atoms=atoms, quantiles=atoms > 1)
    three = QValues(3, num_atoms=atoms, masked=True, quantiles=atoms > 1)
    _, expected = soft.targets(two, two.at(legal), two.at(legal), *column)
    batch = make(three, with_illegal)
    if not isinstance(batch.logits, np.ndarray):
        column = tuple(map(torch.from_numpy, column))
    with np.errstate(all="raise", under="ignore"):
        _, targets = soft.targets(three, batch, batch, *column)
    np.testing.assert_allclose(targets, expected, rtol=1e-5)


@pytest.mark.parametrize("atoms", [{}, {"num_quantiles": 5}], ids=str)
def test_dqn_learns_with_them(atoms):
    """Both actions are worth 1, so that each has probability 1/2, whose scaled logarithm is added."""
    config = DQNConfig().environment(ConstantReward).training(
        munchausen_alpha=0.9, munchausen_temperature=0.03, double_q=False, lr=3e-3, hiddens=[], gamma=0.0, **atoms,
        num_steps_sampled_before_learning_starts=100, target_network_update_freq=50, model={"fcnet_hiddens": [16]},
    ).reporting(min_sample_timesteps_per_iteration=500).debugging(seed=1)  # fmt: skip
    with config.build() as algo:
        for _ in range(3):
            result = algo.train()
    stats = result["info/learner/default_policy/learner_stats"]
    assert stats["mean_q"] == pytest.approx(1 + 0.9 * 0.03 * np.log(0.5), abs=0.01)


def test_what_does_not_go_together_is_refused():
    config = DQNConfig().environment("CartPole-v1").training(munchausen_alpha=0.9)
    with pytest.raises(ValueError, match="double_q=False"):
        config.validate()
    with pytest.raises(ValueError, match="num_atoms are points of a support"):
        config.training(double_q=False, num_atoms=51).validate()
    config.training(num_atoms=1).validate()
