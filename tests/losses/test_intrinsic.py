"""Intrinsic rewards: losses against plain formulas in float64, sums against loops."""

import numpy as np
import pytest
import torch

from rllib.exploration.intrinsic.losses import (
    advantages_of_rows,
    curiosity_loss,
    discounted_sums,
    distillation_errors,
    forward_errors,
)


def test_errors_of_single_rows():
    predicted = torch.tensor([[1.0, 2.0], [0.0, 0.0]], requires_grad=True)
    target = torch.tensor([[1.0, 4.0], [3.0, 1.0]], requires_grad=True)
    assert distillation_errors(predicted, target).tolist() == [2.0, 5.0]  # means of squares
    assert forward_errors(predicted, target).tolist() == [2.0, 5.0]  # half sums of squares
    distillation_errors(predicted, target).sum().backward()
    assert target.grad is None and predicted.grad.tolist() == [[0.0, -2.0], [-3.0, -1.0]]
    forward_errors(predicted, target).sum().backward()
    assert target.grad.tolist() == [[0.0, 2.0], [3.0, 1.0]]


def test_curiosity_weighs_both_losses():
    loss, forward, inverse = curiosity_loss(torch.tensor([1.0, 3.0]), torch.tensor([10.0, 30.0]), 0.2)
    assert (forward.item(), inverse.item()) == (2.0, 20.0) and loss.item() == pytest.approx(0.8 * 20 + 0.2 * 2)


def test_sums_and_advantages_along_rows_that_are_cut():
    rng = np.random.default_rng(0)
    rewards, values, next_values = rng.standard_normal((3, 40)).astype(np.float32)
    goes_on = rng.random(40) < 0.8
    goes_on[-1] = False
    gamma, lambda_ = 0.9, 0.7
    sums = discounted_sums(rewards, goes_on, gamma)
    advantages, targets = advantages_of_rows(rewards, values, next_values, goes_on, gamma, lambda_)
    total = 0.0
    for t in range(40):
        total = float(rewards[t]) + (gamma * total if t and goes_on[t - 1] else 0.0)
        assert sums[t] == pytest.approx(total, rel=1e-5, abs=1e-5)
    following = 0.0
    for t in reversed(range(40)):
        following = rewards[t] + gamma * next_values[t] - values[t] + (gamma * lambda_ * following if goes_on[t] else 0)
        assert advantages[t] == pytest.approx(following, rel=1e-4, abs=1e-5)
    np.testing.assert_allclose(targets, advantages + values, rtol=1e-6)
    assert advantages.dtype == targets.dtype == np.float32
