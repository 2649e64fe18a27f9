"""DQN's and C51's targets and losses: gold vectors, and closed forms against autograd."""

import numpy as np
import pytest
import torch

from rllib.losses.quantiles import QuantileLoss
from rllib.losses.td import (
    DistributionalLoss,
    TDLoss,
    bootstrapped,
    next_values,
    project,
    project_by_pairs,
    q_targets,
    rescaled,
    torch_project,
    unrescaled,
)
from rllib.models.distributions.q_values import QValues
from rllib.sample_batch import ACTIONS, TARGET_PROBABILITIES, TARGET_QUANTILES, TD_TARGETS, WEIGHTS
from tests.gpu import DEVICES

Z = np.array([-2, -1, 0, 1, 2], np.float32)
P = np.array([0.1, 0.2, 0.4, 0.2, 0.1], np.float32)
# (reward, gamma, terminal) -> projected P; the integer rows catch the mass that is lost where an atom lands on another.
GOLD = [
    ((0.0, 1.0, 0), [0.1, 0.2, 0.4, 0.2, 0.1]),
    ((1.0, 1.0, 0), [0, 0.1, 0.2, 0.4, 0.3]),
    ((0.5, 0.9, 0), [0.03, 0.15, 0.32, 0.32, 0.18]),
    ((0.3, 0.9, 1), [0, 0, 0.7, 0.3, 0]),
    ((2.0, 0.9, 1), [0, 0, 0, 0, 1]),
    ((5.0, 0.9, 1), [0, 0, 0, 0, 1]),
]


@pytest.mark.parametrize(("case", "expected"), GOLD, ids=str)
def test_projection_gold(case, expected):
    reward, gamma, terminal = case
    discount = np.float32([gamma * (1 - terminal)])
    projected = project(P[None], np.float32([reward]), discount, Z)
    np.testing.assert_allclose(projected[0], expected, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_projection_of_tensors(device):
    rng, support = np.random.default_rng(1), np.linspace(-10, 10, 51, dtype=np.float32)
    p = rng.dirichlet(np.ones(51), 200).astype(np.float32)
    rewards, discounts = rng.uniform(-12, 12, 200).astype(np.float32), rng.uniform(0, 0.9, 200).astype(np.float32)
    rewards[:40], discounts[:40] = np.arange(-20, 20), 0  # onto atoms and past the ends
    given = [torch.tensor(each, device=device) for each in (p, rewards, discounts, support)]
    for of_tensors in (torch_project, project_by_pairs):
        found = of_tensors(*given).cpu().numpy()
        np.testing.assert_allclose(found, project(p, rewards, discounts, support), atol=2e-5)


def test_projection_keeps_mass_and_the_mean_within_the_support():
    rng = np.random.default_rng(0)
    support = np.linspace(-10, 10, 51, dtype=np.float32)
    p = rng.dirichlet(np.ones(51), 200).astype(np.float32)
    rewards, discounts = rng.uniform(-1, 1, 200).astype(np.float32), rng.uniform(0, 0.9, 200).astype(np.float32)
    projected = project(p, rewards, discounts, support)
    np.testing.assert_allclose(projected.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(projected @ support, rewards + discounts * (p @ support), atol=1e-4)


def test_point_masses_give_the_targets_of_dqn():
    """With all mass of Z on one atom, and targets that fall on atoms, C51's target is DQN's."""
    support = np.linspace(-5, 5, 11, dtype=np.float32)
    atoms, rewards = np.array([0, 3, 7, 9]), np.float32([1, -2, 0, 1])
    discounts = np.float32([1, 1, 0, 1])
    projected = project(np.eye(11, dtype=np.float32)[atoms], rewards, discounts, support)
    targets = bootstrapped(rewards, discounts, support[atoms])
    assert np.array_equal(projected, np.eye(11)[(targets + 5).astype(int)])


def test_double_q_gold():
    """The nets disagree: the online one chooses action 1, which the target net says is worth 3, not its own 7."""
    target_q, online_q = np.float32([[7, 3], [1, 4]]), np.float32([[0, 2], [5, 2]])
    assert next_values(target_q).tolist() == [7, 4]
    assert next_values(target_q, online_q).tolist() == [3, 1]
    targets = bootstrapped(np.float32([1, 1]), np.float32([0.9, 0]), next_values(target_q, online_q))
    np.testing.assert_allclose(targets, [1 + 0.9 * 3, 1])


def test_shapes_that_would_broadcast_are_refused():
    with pytest.raises(ValueError, match=r"must all be \[B\]"):
        bootstrapped(np.zeros(3, np.float32), np.zeros((3, 1), np.float32), np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="must all be"):
        values = QValues(2)
        ones = np.ones(3, np.float32)
        minibatch = {ACTIONS: np.zeros(3, int), TD_TARGETS: ones[:, None], WEIGHTS: ones}
        TDLoss().numpy(values, (np.zeros((3, 2), np.float32), np.empty(0)), minibatch)


def make(values, rows=33, seed=0):
    rng = np.random.default_rng(seed)
    minibatch = {
        ACTIONS: rng.integers(values.num_actions, size=rows),
        WEIGHTS: rng.random(rows, dtype=np.float32),
        TD_TARGETS: 3 * rng.standard_normal(rows, dtype=np.float32),
        TARGET_PROBABILITIES: rng.dirichlet(np.ones(values.num_atoms), rows).astype(np.float32),
        TARGET_QUANTILES: 3 * rng.standard_normal((rows, values.num_atoms), dtype=np.float32),
    }
    return rng.standard_normal((values.num_inputs, rows), dtype=np.float32).T, minibatch


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize(
    ("loss", "atoms"),
    [(TDLoss("huber"), 1), (TDLoss("mse"), 1), (DistributionalLoss(), 7), (QuantileLoss(), 7)],
    ids=["huber", "mse", "c51", "quantiles"],
)
def test_closed_form_against_autograd(loss, atoms, dueling):
    values = QValues(3, dueling, atoms, -2.0, 5.0, quantiles=isinstance(loss, QuantileLoss))
    inputs, minibatch = make(values)
    statistics, (gradient, _), rows = loss.numpy(values, (inputs, np.empty(0, np.float32)), minibatch)
    leaf = torch.tensor(inputs.copy(), requires_grad=True)
    tensors = {name: torch.from_numpy(column) for name, column in minibatch.items()}
    value, expected, expected_rows = loss.torch(values, (leaf, None), tensors)
    value.backward()
    np.testing.assert_allclose(gradient, leaf.grad, atol=1e-6)
    np.testing.assert_allclose(statistics, torch.stack(expected).detach(), atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(rows[0], expected_rows[0], atol=1e-5)


def test_quantile_regression_gold():
    """Equation 10 of arXiv:1710.10044 by loops in float64, and the median of samples at its optimum."""
    values = QValues(2, num_atoms=3, quantiles=True)
    theta = np.array([[[0.5, -1.0, 2.0], [9.0, 9.0, 9.0]], [[7.0, 7.0, 7.0], [0.0, 0.25, 3.0]]])
    targets, weights = np.array([[1.0, -2.0, 0.4], [0.25, 5.0, -0.5]]), np.array([0.5, 2.0])
    expected = 0.0
    for row, action in enumerate((0, 1)):
        for m, level in enumerate((1 / 6, 3 / 6, 5 / 6)):
            for target in targets[row]:
                error = target - theta[row, action, m]
                huber = error**2 / 2 if abs(error) <= 1 else abs(error) - 0.5
                expected += weights[row] * abs(level - (error < 0)) * huber / 3 / 2
    minibatch = {ACTIONS: np.array([0, 1]), TARGET_QUANTILES: targets.astype(np.float32), WEIGHTS: weights.astype("f4")}
    inputs = theta.reshape(2, 6).astype(np.float32)
    (loss, mean, *_), _, (errors,) = QuantileLoss().numpy(values, (inputs, None), minibatch)
    assert loss == pytest.approx(expected, rel=1e-6) and mean == pytest.approx((1.5 + 3.25) / 6, rel=1e-6)
    np.testing.assert_allclose(errors, abs(np.array([0.5, 3.25 / 3]) - targets.mean(1)), rtol=1e-6)
    np.testing.assert_allclose(values.at(inputs).q_values(), theta.mean(-1), rtol=1e-6)
    with pytest.raises(ValueError, match=r"quantiles \(2, 3\) and targets \(3, 3\) must be"):
        QuantileLoss().numpy(values, (inputs, None), minibatch | {TARGET_QUANTILES: np.zeros((3, 3), np.float32)})


def test_targets_of_quantiles_are_those_of_the_best_action():
    values = QValues(2, num_atoms=2, quantiles=True)
    judged = values.at(np.array([[0.0, 2.0, 5.0, -5.0], [1.0, 1.0, 0.0, 4.0]], np.float32))
    rewards, discounts = np.array([1.0, 2.0], np.float32), np.array([0.5, 0.0], np.float32)
    name, targets = q_targets(values, judged, judged.q_values(), rewards, discounts)
    assert name == TARGET_QUANTILES
    np.testing.assert_allclose(targets, [[1.0, 2.0], [2.0, 2.0]])


def test_the_loss_is_a_mean():
    """The same rows twice give the same loss, and each row half the gradient."""
    values = QValues(3)
    inputs, minibatch = make(values)
    once, (gradient, _), _ = TDLoss().numpy(values, (inputs, np.empty(0)), minibatch)
    doubled = {name: np.concatenate([column, column]) for name, column in minibatch.items()}
    twice, (halved, _), _ = TDLoss().numpy(values, (np.concatenate([inputs, inputs]), np.empty(0)), doubled)
    np.testing.assert_allclose(twice, once, rtol=1e-5)
    np.testing.assert_allclose(halved[:33], gradient / 2, atol=1e-7)


def test_rescaling_and_its_inverse_gold():
    """The inverse as R2D2's appendix writes it; both ways from the smallest to the largest numbers."""
    epsilon = 1e-3
    x = np.logspace(-6, 6, 121)
    x = np.concatenate([-x, [0.0], x])
    h = rescaled(x, epsilon)
    np.testing.assert_allclose(h, np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + epsilon * x, rtol=1e-9, atol=1e-15)
    inverse = np.sign(h) * (((np.sqrt(1 + 4 * epsilon * (abs(h) + 1 + epsilon)) - 1) / (2 * epsilon)) ** 2 - 1)
    np.testing.assert_allclose(unrescaled(h, epsilon), inverse, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(unrescaled(h, epsilon), x, rtol=1e-12)
    single = unrescaled(rescaled(x.astype(np.float32), epsilon), epsilon)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, x, rtol=2e-6)
    np.testing.assert_allclose(unrescaled(rescaled(x, 0.0), 0.0), x, rtol=1e-9)


def test_targets_of_rescaled_values():
    """h(r + discount h^-1(Q)), and a terminal row is h(r)."""
    q = np.float32([[1.0, 3.0], [2.0, 0.5]])
    judged = QValues(2).at(q)
    rewards, discounts = np.float32([1.0, -4.0]), np.float32([0.9, 0.0])
    name, targets = q_targets(QValues(2), judged, q, rewards, discounts, rescaling=1e-3)
    later = 3.0 * 1.0
    u = 2 * later / (1.002 + np.sqrt(1.002**2 + 0.004 * later))
    first = 1.0 + 0.9 * u * (u + 2)
    expected = [np.sqrt(first + 1) - 1 + 1e-3 * first, -(np.sqrt(5.0) - 1) - 4e-3]
    assert name == TD_TARGETS
    np.testing.assert_allclose(targets, expected, rtol=1e-6)
