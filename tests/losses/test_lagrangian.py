"""The parts of PPO-Lagrangian and SAC-Lagrangian against their formulas in float64."""

import numpy as np
import pytest
import torch

from rllib.losses.lagrangian.actor_critic import STATS, cost_value_loss, priced_advantages
from rllib.losses.lagrangian.sac import cost_critic_loss, priced_actor_loss
from rllib.losses.sac import NEXT_NOISE, NOISE
from rllib.models.distributions.squashed import BoundedSquashedGaussian
from rllib.models.distributions.standard import Categorical
from rllib.sample_batch import ACTIONS, COST_DISCOUNTS, COST_TARGETS, NEXT_OBS, OBS, WEIGHTS

torch.set_num_threads(1)
ROWS = 6


class Recorder:
    """A module in numpy that computes what it is given, and keeps the gradients that come back."""

    def __init__(self, function, d_action=None):
        self._function, self._d_action, self.gradient = function, d_action, None

    def forward(self, *read):
        return self._function(*read)

    def backward(self, gradient):
        self.gradient = gradient

    def input_gradient(self, gradient, name):
        assert name == "action"
        return self._d_action(gradient)


def numbers(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def test_priced_advantages():
    # (1 - 0.5 * 4) / 1.5, (-2 - 0.5 * -1) / 1.5
    priced = priced_advantages(np.array([1.0, -2.0], np.float32), np.array([4.0, -1.0], np.float32), 0.5)
    np.testing.assert_allclose(priced, [-2 / 3, -1.0], rtol=1e-6)
    assert priced.dtype == np.float32
    np.testing.assert_array_equal(priced_advantages(priced, priced + 1, 0.0), priced)


def test_both_forms_of_the_value_of_costs():
    values, targets = numbers(2, ROWS)
    loss, critic = cost_value_loss("critic"), Recorder(lambda _: values)
    (statistics,) = loss.numpy(None, {"critic": critic}, {OBS: None, COST_TARGETS: targets})
    error = values.astype(np.float64) - targets
    np.testing.assert_allclose(statistics, [np.mean(error**2), max(1 - error.var() / targets.var(), -1)], rtol=1e-5)
    np.testing.assert_allclose(critic.gradient, 2 * error / ROWS, rtol=1e-5)
    tensor = torch.from_numpy(values).requires_grad_()
    minibatch = {OBS: None, COST_TARGETS: torch.from_numpy(targets)}
    in_torch, (total, explained) = loss.torch(None, {"critic": lambda _: tensor}, minibatch)
    in_torch.backward()
    np.testing.assert_allclose(tensor.grad, critic.gradient, rtol=1e-5)
    np.testing.assert_allclose([total.item(), explained.item()], statistics, rtol=1e-5)
    assert len(statistics) == len(STATS)


MEAN, LOG_STD = numbers(2, ROWS)[0] / 2, numbers(2, ROWS)[1] / 4 - 1
DIST_INPUTS = np.stack([MEAN, LOG_STD], 1)
EPS = numbers(ROWS, 1)
CONTINUOUS = BoundedSquashedGaussian((1,))


def drawn(mean, log_std):
    """Actions tanh(u) and their log-densities, in float64."""
    noise = EPS[:, 0].astype(np.float64)
    u = mean + np.exp(log_std) * noise
    log_prob = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(u) ** 2)
    return np.tanh(u), log_prob


def continuous_loss(dist_inputs, alpha, multiplier):
    """With Q_1 = 1 - a^2, Q_2 = a and Q_c = 3 a, by the formula."""
    actions, log_prob = drawn(*dist_inputs.astype(np.float64).T)
    least = np.minimum(1 - actions**2, actions)
    return np.mean(alpha * log_prob - least + multiplier * 3 * actions) / (1 + multiplier)


def slope(function, x, step=1e-6):
    """The gradient of a function of a matrix, by central differences in float64."""
    gradient = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        moved = np.zeros(x.shape)
        moved[index] = step
        gradient[index] = (function(x + moved) - function(x - moved)) / (2 * step)
    return gradient


@pytest.mark.parametrize("multiplier", [0.0, 1.7])
def test_the_actor_pays_for_its_costs(multiplier):
    alpha, loss = 0.3, priced_actor_loss("cost_critic", is_discrete=False)
    expected = continuous_loss(DIST_INPUTS, alpha, multiplier)
    gradient = slope(lambda x: continuous_loss(x, alpha, multiplier), DIST_INPUTS.astype(np.float64))
    inputs = torch.from_numpy(DIST_INPUTS).requires_grad_()
    modules = {
        "policy": lambda _: (inputs, None),
        "critics": lambda _, a: torch.stack([1 - a[:, 0] ** 2, a[:, 0]]),
        "cost_critic": lambda _, a: 3 * a[:, 0],
    }
    minibatch = {OBS: torch.zeros(ROWS, 1), NOISE: torch.from_numpy(EPS)}
    total, (_, entropy, cost) = loss.torch(CONTINUOUS, modules, minibatch, alpha=alpha, multiplier=multiplier)
    total.backward()
    actions, log_prob = drawn(MEAN.astype(np.float64), LOG_STD)
    assert total.item() == pytest.approx(expected, rel=1e-5)
    assert (entropy.item(), cost.item()) == pytest.approx((-log_prob.mean(), 3 * actions.mean()), rel=1e-4)
    np.testing.assert_allclose(inputs.grad, gradient, atol=1e-5)

    policy = Recorder(lambda _: (DIST_INPUTS, None))
    shown = actions.astype(np.float32)[:, None]
    in_numpy = {
        "policy": policy,
        "critics": Recorder(
            lambda _, a: np.stack([1 - a[:, 0] ** 2, a[:, 0]]), lambda d: (d[0] * -2 * shown[:, 0] + d[1])[:, None]
        ),
        "cost_critic": Recorder(lambda _, a: 3 * a[:, 0], lambda d: 3 * d[:, None]),
    }
    minibatch = {OBS: np.zeros((ROWS, 1), np.float32), NOISE: EPS}
    (statistics,) = loss.numpy(CONTINUOUS, in_numpy, minibatch, alpha=alpha, multiplier=multiplier)
    np.testing.assert_allclose(statistics, [total.item(), entropy.item(), cost.item()], rtol=1e-4)
    np.testing.assert_allclose(policy.gradient[0], gradient, atol=1e-5)


LOGITS, Q, COSTS_OF = numbers(ROWS, 3), numbers(2, ROWS, 3), numbers(ROWS, 3) + 1


def discrete_loss(logits, alpha, multiplier):
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    worth = alpha * np.log(p) - Q.min(0) + multiplier * COSTS_OF
    return (p * worth).sum(1).mean() / (1 + multiplier)


def test_the_actor_of_discrete_actions_pays_for_its_costs():
    alpha, multiplier, loss = 0.4, 2.5, priced_actor_loss("cost_critic", is_discrete=True)
    settings = {"alpha": alpha, "multiplier": multiplier}
    gradient = slope(lambda x: discrete_loss(x, alpha, multiplier), LOGITS.astype(np.float64))
    logits = torch.from_numpy(LOGITS).requires_grad_()
    modules = {
        "policy": lambda _: (logits, None),
        "critics": lambda _: torch.from_numpy(Q),
        "cost_critic": lambda _: torch.from_numpy(COSTS_OF),
    }
    total, in_torch = loss.torch(Categorical(3), modules, {OBS: torch.zeros(ROWS, 1)}, **settings)
    total.backward()
    assert total.item() == pytest.approx(discrete_loss(LOGITS.astype(np.float64), alpha, multiplier), rel=1e-5)
    np.testing.assert_allclose(logits.grad, gradient, atol=1e-5)
    policy = Recorder(lambda _: (LOGITS, None))
    modules = {"policy": policy, "critics": Recorder(lambda _: Q), "cost_critic": Recorder(lambda _: COSTS_OF)}
    (statistics,) = loss.numpy(Categorical(3), modules, {OBS: np.zeros((ROWS, 1), np.float32)}, **settings)
    np.testing.assert_allclose(statistics, [each.item() for each in in_torch], rtol=1e-4)
    np.testing.assert_allclose(policy.gradient[0], gradient, atol=1e-5)


@pytest.mark.parametrize("is_discrete", [False, True])
def test_the_critic_of_costs_learns_what_follows(is_discrete):
    """y = c + discount Q_c'(s', a'), without entropy, and for discrete actions the mean over the policy."""
    rng = np.random.default_rng(5)
    costs, discounts, weights = rng.uniform(0, 1, (3, ROWS)).astype(np.float32)
    loss = cost_critic_loss("toll", "cost_critic", is_discrete)
    if is_discrete:
        actions, values = rng.integers(3, size=ROWS), numbers(ROWS, 3)
        p = np.exp(LOGITS.astype(np.float64))
        following = (p / p.sum(1, keepdims=True) * COSTS_OF).sum(1)
        taken, distribution, dist_inputs = values[np.arange(ROWS), actions], Categorical(3), LOGITS
        target = lambda *_: COSTS_OF  # noqa: E731
    else:
        actions, values = numbers(ROWS, 1), numbers(ROWS)
        following = 3 * drawn(MEAN.astype(np.float64), LOG_STD)[0]
        taken, distribution, dist_inputs = values, CONTINUOUS, DIST_INPUTS
        target = lambda _, a: 3 * a[:, 0]  # noqa: E731
    error = taken.astype(np.float64) - (costs + discounts * following)
    columns = {
        OBS: np.zeros((ROWS, 1), np.float32),
        NEXT_OBS: np.zeros((ROWS, 1), np.float32),
        NEXT_NOISE: EPS,
        ACTIONS: actions,
        "toll": costs,
        COST_DISCOUNTS: discounts,
        WEIGHTS: weights,
    }
    assert set(loss.columns) <= columns.keys()
    critic = Recorder(lambda *_: values)
    modules = {
        "policy": Recorder(lambda _: (dist_inputs, None)),
        "cost_critic": critic,
        "target_cost_critic": Recorder(target),
    }
    (statistics,) = loss.numpy(distribution, modules, columns)
    np.testing.assert_allclose(statistics, [np.mean(weights * error**2) / 2, taken.mean()], rtol=1e-4)
    expected = weights * error / ROWS
    of_taken = critic.gradient[np.arange(ROWS), actions] if is_discrete else critic.gradient
    np.testing.assert_allclose(of_taken, expected, rtol=1e-4)
    assert np.count_nonzero(critic.gradient) == ROWS

    tensor = torch.from_numpy(values).requires_grad_()
    modules = {
        "policy": lambda _: (torch.from_numpy(dist_inputs), None),
        "cost_critic": lambda *_: tensor,
        "target_cost_critic": lambda *read: torch.as_tensor(target(*read)),
    }
    total, in_torch = loss.torch(
        distribution, modules, {name: torch.from_numpy(each) for name, each in columns.items()}
    )
    total.backward()
    np.testing.assert_allclose([each.item() for each in in_torch], statistics, rtol=1e-4)
    np.testing.assert_allclose(tensor.grad, critic.gradient, rtol=1e-4, atol=1e-7)
