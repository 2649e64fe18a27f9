"""Losses of a discriminator and its rewards against numbers that were computed from the formulas in float64."""

import math

import numpy as np
import pytest
import torch

from rllib.losses.discriminator import (
    REWARD_FORMS,
    absorbing_bonus,
    cross_entropy,
    distance_from_unit_norm,
    entropy,
    least_squares,
    shaped,
    squared_norm,
)
from rllib.losses.returns import gae


def tensor(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize(
    "form, expected",
    [
        ("gail", [0.04858735, 0.47407698, 0.69314718, 2.12692801]),
        ("airl", [-3.0, -0.5, 0.0, 2.0]),
        ("log_d", [-3.04858735, -0.97407698, -0.69314718, -0.12692801]),
        ("fairl", [0.14936121, 0.30326533, 0.0, -14.7781122]),
        ("lsgan", [0.0, 1 - 1.5**2 / 4, 0.75, 0.75]),
    ],
)
def test_rewards_of_logits(form, expected):
    np.testing.assert_allclose(REWARD_FORMS[form](tensor(-3.0, -0.5, 0.0, 2.0)), expected, atol=1e-7)


def test_rewards_of_large_logits_are_finite():
    logits = torch.tensor([-200.0, 200.0])
    assert REWARD_FORMS["gail"](logits).tolist() == [0.0, 200.0]
    assert REWARD_FORMS["log_d"](logits).tolist() == [-200.0, 0.0]


@pytest.mark.parametrize("smoothing, expected", [(0.0, 0.60813860 + 0.58297190), (0.1, 1.25777717)])
def test_cross_entropy_of_both_sides(smoothing, expected):
    loss = cross_entropy(tensor(1.0, 0.2, -0.4), tensor(-1.5, 0.3, 0.0), smoothing)
    assert loss.item() == pytest.approx(expected, abs=1e-7)


def test_least_squares_of_both_sides():
    assert least_squares(tensor(1.0, 0.5), tensor(-1.0, 1.0)).item() == pytest.approx(0.25 / 2 + 4 / 2)


def test_penalties_of_a_network_with_one_hidden_layer():
    weights, bias = tensor([0.5, -1.0, 0.25], [1.0, 0.75, -0.5]), tensor(0.1, -0.2)
    rows = tensor([0.2, -0.4, 0.6]).requires_grad_(True)
    logits = torch.tanh(rows @ weights.T + bias) @ tensor(1.5, -0.8)
    assert logits.item() == pytest.approx(1.38236308, abs=1e-8)
    (gradients,) = torch.autograd.grad(logits.sum(), rows, create_graph=True)
    np.testing.assert_allclose(gradients.detach(), [[-0.12182285, -1.32182537, 0.50835078]], atol=1e-8)
    assert 10 * distance_from_unit_norm(gradients).item() == pytest.approx(1.77609293, abs=1e-7)
    assert 5 * squared_norm(gradients).item() == pytest.approx(10.10241818, abs=1e-7)


def test_a_penalty_has_a_gradient_where_logits_are_constant():
    gradients = torch.zeros((2, 3), requires_grad=True)
    distance_from_unit_norm(gradients).backward()
    assert torch.isfinite(gradients.grad).all()


def test_shaped_logits():
    log_probs = tensor(0.5, 0.1, 0.9).log()
    advantages = shaped(
        tensor(0.3, -1.0, 2.0), tensor(1.0, 0.0, 0.5), tensor(0.8, 0.4, 9.0), tensor(0.0, 0.0, 1.0), 0.99
    )
    np.testing.assert_allclose(advantages, [0.092, -0.604, 1.5], atol=1e-12)
    logits = advantages - log_probs
    np.testing.assert_allclose(logits, [0.78514718, 1.69858509, 1.60536052], atol=1e-8)
    np.testing.assert_allclose(logits.sigmoid(), [0.68678839, 0.84534985, 0.83276626], atol=1e-8)


def test_entropy_is_largest_where_nothing_is_told_apart():
    assert entropy(tensor(0.0, 0.0)).item() == pytest.approx(math.log(2))
    assert entropy(tensor(60.0, -60.0)).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    "absorbed, end, final, expected",
    [
        (0.0, "terminated", 99.0, [-0.0939725, -1.2795, -2.9]),
        (-0.4, "terminated", 99.0, [-2.7256625, -4.3575, -6.5]),
        (-0.4, "truncated", 2.5, [1.55083375, 0.64425, -0.65]),
    ],
)
def test_a_terminated_state_is_worth_what_the_absorbing_state_is(absorbed, end, final, expected):
    rewards, values = np.array([[0.2], [0.5], [0.1]]), np.array([[1.0], [2.0], [3.0]])
    ends = np.array([[False], [False], [True]])
    terminated, truncated = (ends & (end == name) for name in ("terminated", "truncated"))
    given = rewards + terminated * absorbing_bonus(absorbed, 0.9)
    advantages, targets = gae(given, values, np.array([[2.0], [3.0], [final]]), terminated, truncated, 0.9, 0.95)
    np.testing.assert_allclose(advantages[:, 0], expected, atol=1e-6)
    np.testing.assert_allclose(targets, advantages + values)
