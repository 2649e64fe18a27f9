"""The policy gradient loss: against a closed form, against autograd, and clear about shapes."""

import numpy as np
import pytest
import torch
from ppo_support import DISTRIBUTIONS, make_minibatch

from rllib import sample_batch as sb
from rllib.losses.policy_gradient import POLICY_GRADIENT_LOSS, STATS
from rllib.losses.ppo import PPO_LOSS
from rllib.models.distributions.standard import Categorical

SETTINGS = {"vf_loss_coeff": 0.5, "entropy_coeff": 0.01}

# The softmax bandit: preferences, action values, and d J / d preferences = p (Q - J) in closed form.
PREFERENCES = np.array([0.2, -0.3, 0.1])
ACTION_VALUES = np.array([1.0, 0.0, 2.0])
GRADIENT = [-0.047298, -0.270202, 0.3175]


def bandit(actions) -> np.ndarray:
    """The gradient of the expected return that the loss gives for pulls of these arms, one row a pull."""
    rows = len(actions)
    outputs = np.tile(PREFERENCES, (rows, 1)).astype(np.float32), np.zeros(rows, np.float32)
    minibatch = {
        sb.ACTIONS: actions,
        sb.ADVANTAGES: ACTION_VALUES[actions].astype(np.float32),
        sb.VALUE_TARGETS: np.zeros(rows, np.float32),
    }
    _, (d_dist_inputs, _) = POLICY_GRADIENT_LOSS.numpy(
        Categorical(3), outputs, minibatch, vf_loss_coeff=0.0, entropy_coeff=0.0
    )
    return -rows * d_dist_inputs.astype(np.float64)


def test_expected_gradient_of_the_softmax_bandit():
    probabilities = np.exp(PREFERENCES) / np.exp(PREFERENCES).sum()
    assert probabilities @ ACTION_VALUES == pytest.approx(1.118783, abs=5e-7)
    np.testing.assert_allclose(probabilities @ bandit(np.arange(3)), GRADIENT, atol=6e-7)


def test_sampled_gradient_of_the_softmax_bandit():
    rng = np.random.default_rng(0)
    noise = Categorical(3).noise(rng, 100_000)
    actions = Categorical(3).sample(np.tile(PREFERENCES, (100_000, 1)).astype(np.float32), noise)
    gradients = bandit(actions)
    standard_error = gradients.std(axis=0) / np.sqrt(len(gradients))
    assert (abs(gradients.mean(axis=0) - GRADIENT) < 4 * standard_error).all()


def test_one_row_by_hand():
    outputs = np.array([[0.0, np.log(3)]], np.float32), np.array([2.0], np.float32)
    minibatch = {
        sb.ACTIONS: np.array([1]),
        sb.ADVANTAGES: np.array([2.0], np.float32),
        sb.VALUE_TARGETS: np.array([5.0], np.float32),
    }
    statistics, (d_dist_inputs, d_values) = POLICY_GRADIENT_LOSS.numpy(
        Categorical(2), outputs, minibatch, vf_loss_coeff=0.5, entropy_coeff=0.0
    )
    named = dict(zip(STATS, statistics, strict=True))
    entropy = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    assert named["policy_loss"] == pytest.approx(-2 * np.log(0.75))
    assert named["vf_loss"] == pytest.approx(9.0)
    assert named["policy_entropy"] == pytest.approx(entropy)
    assert named["total_loss"] == pytest.approx(-2 * np.log(0.75) + 4.5)
    np.testing.assert_allclose(d_dist_inputs, [[0.5, -0.5]], atol=1e-6)
    np.testing.assert_allclose(d_values, [-3.0], atol=1e-6)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
@pytest.mark.parametrize("standardize_advantages", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_closed_form_and_autograd_agree(distribution, standardize_advantages, seed):
    outputs, minibatch = make_minibatch(distribution, 128, seed)
    settings = {**SETTINGS, "standardize_advantages": standardize_advantages}
    expected, gradients = POLICY_GRADIENT_LOSS.numpy(distribution, outputs, minibatch, **settings)
    tensors = [torch.from_numpy(output).requires_grad_() for output in outputs]
    columns = {name: torch.from_numpy(column) for name, column in minibatch.items()}
    loss, statistics = POLICY_GRADIENT_LOSS.torch(distribution, tensors, columns, **settings)
    loss.backward()
    np.testing.assert_allclose(torch.stack(statistics).detach(), expected, atol=2e-6, rtol=1e-5)
    for tensor, gradient in zip(tensors, gradients, strict=True):
        np.testing.assert_allclose(gradient, tensor.grad, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 2, 33])
def test_standardised_advantages_are_those_of_the_minibatch(rows):
    outputs, minibatch = make_minibatch(Categorical(3), rows)
    found = POLICY_GRADIENT_LOSS.numpy(Categorical(3), outputs, minibatch, **SETTINGS, standardize_advantages=True)
    advantages = minibatch[sb.ADVANTAGES].astype(np.float64)
    deviation = advantages.std() or 1.0  # the advantage of one row alone becomes zero
    minibatch[sb.ADVANTAGES] = ((advantages - advantages.mean()) / deviation).astype(np.float32)
    expected = POLICY_GRADIENT_LOSS.numpy(Categorical(3), outputs, minibatch, **SETTINGS)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-5)
    np.testing.assert_allclose(found[1][0], expected[1][0], atol=1e-6)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
def test_it_is_the_ppo_loss_of_the_policy_that_acted(distribution):
    """arXiv:2205.09123: with a ratio of one, and without clips and penalty, the gradients are the same, to the bit."""
    outputs, minibatch = make_minibatch(distribution, moved=0.0)
    _, ours = POLICY_GRADIENT_LOSS.numpy(distribution, outputs, minibatch, **SETTINGS)
    _, ppo = PPO_LOSS.numpy(distribution, outputs, minibatch, clip_param=0.2, kl_coeff=0.0, **SETTINGS)
    for gradient, expected in zip(ours, ppo, strict=True):
        np.testing.assert_array_equal(gradient, expected)


def test_a_column_vector_of_values_is_refused():
    (dist_inputs, values), minibatch = make_minibatch(Categorical(2))
    with pytest.raises(ValueError, match=r"must all be \[B\]"):
        POLICY_GRADIENT_LOSS.numpy(Categorical(2), (dist_inputs, values[:, None]), minibatch, **SETTINGS)
    columns = {name: torch.from_numpy(column) for name, column in minibatch.items()}
    outputs = torch.from_numpy(dist_inputs), torch.from_numpy(values)[:, None]
    with pytest.raises(ValueError, match=r"must all be \[B\]"):
        POLICY_GRADIENT_LOSS.torch(Categorical(2), outputs, columns, **SETTINGS)
