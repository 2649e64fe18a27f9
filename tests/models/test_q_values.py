"""Action values: the dueling head, acting by them, and their gradients against autograd."""

import numpy as np
import pytest
import torch

from rllib.models.distributions.choose import distribution_from_json
from rllib.models.distributions.q_values import QValues

CASES = [QValues(3, dueling, atoms, -2.0, 5.0) for dueling in (False, True) for atoms in (1, 7)]
each_case = pytest.mark.parametrize("values", CASES, ids=str)


def make_inputs(values, rows=9, seed=0):
    """Feature-major memory, as the numpy network gives them."""
    return np.random.default_rng(seed).standard_normal((values.num_inputs, rows), dtype=np.float32).T


@each_case
def test_numpy_and_torch_agree(values):
    inputs, actions = make_inputs(values), np.arange(9) % 3
    batch = values.at(inputs)
    leaf = torch.tensor(inputs.copy(), requires_grad=True)
    reference = values.torch_at(leaf)
    np.testing.assert_allclose(batch.q_values(), reference.q_values().detach(), atol=1e-5)
    chosen = reference.chosen(torch.from_numpy(actions))
    np.testing.assert_allclose(batch.chosen(actions), chosen.detach(), atol=1e-6)
    weights = np.random.default_rng(1).standard_normal(chosen.shape).astype(np.float32)
    (chosen * torch.from_numpy(weights)).sum().backward()
    np.testing.assert_allclose(batch.gradient(weights), leaf.grad, atol=1e-6)


@each_case
def test_zeros_for_noise_are_greedy(values):
    inputs = make_inputs(values, rows=50)
    best = values.at(inputs).q_values().argmax(-1)
    assert np.array_equal(values.sample(inputs, np.zeros((50, 3), np.float32)), best)
    assert np.array_equal(values.mode(inputs), best)
    assert not values.noise(np.random.default_rng(0), 20).any()


@pytest.mark.parametrize("atoms", [1, 7])
def test_a_shift_of_all_advantages_changes_nothing(atoms):
    values = QValues(3, True, atoms, -2.0, 5.0)
    inputs = make_inputs(values)
    shifted = inputs.copy()
    shifted[:, : 3 * atoms] += 4.5
    np.testing.assert_allclose(values.at(shifted).q_values(), values.at(inputs).q_values(), atol=2e-5)


def test_the_mean_of_the_dueling_q_is_the_value():
    values = QValues(3, True)
    inputs = make_inputs(values)
    np.testing.assert_allclose(values.at(inputs).q_values().mean(1), inputs[:, 3], atol=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_epsilon_is_the_share_of_random_actions(epsilon):
    """A random action is the greedy one, too, every third time."""
    values, count = QValues(3), 30_000
    inputs = np.tile(np.array([0.0, 5.0, 1.0], np.float32), (count, 1))
    actions = values.sample(inputs, values.noise(np.random.default_rng(0), count, epsilon=epsilon))
    share = np.bincount(actions, minlength=3) / count
    np.testing.assert_allclose(share, [epsilon / 3, 1 - 2 * epsilon / 3, epsilon / 3], atol=0.012)


def test_other_epsilons_leave_the_streams_in_step():
    rngs = [np.random.default_rng(3) for _ in range(2)]
    for rng, epsilon in zip(rngs, (0.1, 0.9)):
        QValues(4).noise(rng, 10, epsilon=epsilon)
    assert rngs[0].bit_generator.state == rngs[1].bit_generator.state


@each_case
def test_json(values):
    assert distribution_from_json(values.to_json()) == values
