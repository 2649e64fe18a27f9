"""Optimizers and clipping on the flat vector."""

import numpy as np
import pytest
import torch

from rllib.algorithms.base.wiring import optimizer_settings
from rllib.algorithms.ppo import PPOConfig
from rllib.algorithms.sac import SACConfig
from rllib.learners.in_torch.descent import MEMORY, _make_optimizer
from rllib.learners.updates.optimizers import (
    NAMES,
    SGD,
    Adam,
    OptimizerSettings,
    RAdam,
    RMSprop,
    clip_gradient,
    global_norm,
)
from rllib.models.arithmetic.kernels import SLICED


def slow_adam(weights, gradients, lr, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """arXiv:1412.6980, algorithm 1, in float64."""
    m, v, weights = np.zeros_like(weights), np.zeros_like(weights), weights.copy()
    for t, g in enumerate(gradients, 1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        weights -= lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
    return weights


@pytest.mark.parametrize("size", [1, 1000, SLICED + 17])
def test_adam_is_the_paper_s_algorithm(size):
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(size)
    gradients = rng.standard_normal((10, size))
    ours, adam = weights.astype(np.float32), Adam(size)
    for gradient in gradients:
        adam.step(ours, gradient.astype(np.float32), 1e-2)
    np.testing.assert_allclose(ours, slow_adam(weights, gradients, 1e-2), atol=2e-6)


def test_adam_s_first_step_is_lr_against_the_sign():
    weights = np.zeros(3, np.float32)
    Adam(3).step(weights, np.array([5, -0.01, 0], np.float32), 0.1)
    np.testing.assert_allclose(weights, [-0.1, 0.1, 0], atol=1e-6)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3])
@pytest.mark.parametrize("size", [1000, SLICED + 17])
def test_radam_is_torch_s(epsilon, size):
    """Through the first five steps, which are those of momentum alone, and far beyond."""
    rng = np.random.default_rng(0)
    ours = rng.standard_normal(size, dtype=np.float32)
    theirs = torch.from_numpy(ours.copy()).requires_grad_()
    reference = torch.optim.RAdam([theirs], lr=2.5e-4, eps=epsilon)
    radam = RAdam(size, epsilon=epsilon)
    for _ in range(100 if size == 1000 else 10):
        gradient = rng.standard_normal(size, dtype=np.float32)
        theirs.grad = torch.from_numpy(gradient)
        reference.step()
        radam.step(ours, gradient, 2.5e-4)
    np.testing.assert_allclose(ours, theirs.detach(), atol=1e-6)


def test_radam_s_first_step_is_lr_along_the_gradient():
    weights = np.zeros(2, np.float32)
    RAdam(2).step(weights, np.array([2, -4], np.float32), 0.1)
    np.testing.assert_allclose(weights, [-0.2, 0.4], atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
def test_rmsprop_is_torch_s(momentum, epsilon):
    rng = np.random.default_rng(0)
    ours = rng.standard_normal(1000, dtype=np.float32)
    theirs = torch.from_numpy(ours.copy()).requires_grad_()
    reference = torch.optim.RMSprop([theirs], lr=7e-4, alpha=0.99, eps=epsilon, momentum=momentum)
    rmsprop = RMSprop(1000, decay=0.99, momentum=momentum, epsilon=epsilon)
    for _ in range(100):
        gradient = rng.standard_normal(1000, dtype=np.float32)
        theirs.grad = torch.from_numpy(gradient)
        reference.step()
        rmsprop.step(ours, gradient, 7e-4)
    np.testing.assert_allclose(ours, theirs.detach(), atol=1e-6)


def test_rmsprop_s_first_step_by_hand():
    weights = np.zeros(2, np.float32)
    RMSprop(2, decay=0.75, epsilon=1.0).step(weights, np.array([2, -4], np.float32), 0.1)
    np.testing.assert_allclose(weights, [-0.1 * 2 / (1 + 1), 0.1 * 4 / (2 + 1)], atol=1e-7)


def test_sgd():
    weights = np.ones(2, np.float32)
    SGD(2).step(weights, np.array([1, -2], np.float32), 0.5)
    np.testing.assert_allclose(weights, [0.5, 2])


GRADIENT = np.array([3, 4, 0.1, 0.2], np.float32)


@pytest.mark.parametrize(
    ("limit", "by", "expected"),
    [
        (None, "global_norm", GRADIENT),
        (100.0, "global_norm", GRADIENT),
        (1.0, "global_norm", GRADIENT / np.linalg.norm(GRADIENT)),
        (1.0, "norm", [0.6, 0.8, 0.1, 0.2]),
        (0.15, "value", [0.15, 0.15, 0.1, 0.15]),
    ],
)
def test_clipping(limit, by, expected):
    gradient = GRADIENT.copy()
    clip_gradient(gradient, [gradient[:2], gradient[2:]], global_norm(gradient), limit, by)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)


@pytest.mark.parametrize("kind", [Adam, RAdam])
def test_moments_of_a_dead_unit_do_not_become_denormal(kind):
    """Processors compute with denormal numbers many times as slowly; relu units that never fire leave such means."""
    weights, gradient = np.ones(4, np.float32), np.array([1e-3, -1e-3, 1.0, 0.0], np.float32)
    optimizer = kind(4)
    optimizer.step(weights, gradient, lr=0.0)
    for _ in range(2000):
        optimizer.step(weights, np.zeros(4, np.float32), lr=1e-3)
    least = np.finfo(np.float32).tiny
    for _ in range(20):
        optimizer.step(weights, np.zeros(4, np.float32), lr=1e-3)
        for name in ("m", "v"):
            kept = abs(optimizer.state[f"{kind.name}.{name}"])
            assert ((kept >= least) | (kept == 0)).all(), kept
    assert weights[3] == 1.0


IN_TORCH = {
    "adam": lambda p, decay: torch.optim.Adam(p, lr=1e-2, weight_decay=decay),
    "adamw": lambda p, decay: torch.optim.AdamW(p, lr=1e-2, weight_decay=decay),
    "radam": lambda p, decay: torch.optim.RAdam(p, lr=1e-2, weight_decay=decay),
    "rmsprop": lambda p, decay: torch.optim.RMSprop(p, lr=1e-2, alpha=0.9, momentum=0.5, eps=1e-3, weight_decay=decay),
    "sgd": lambda p, decay: torch.optim.SGD(p, lr=1e-2, weight_decay=decay),
}


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("name", NAMES)
def test_weight_decay_is_torch_s_in_both_learners(name, decay):
    """AdamW shortens the weights, the others add to the gradient; the numpy learner, the torch learner and torch."""
    rng = np.random.default_rng(0)
    start = rng.standard_normal(50, dtype=np.float32)
    settings = OptimizerSettings(name, decay=0.9, momentum=0.5, rmsprop_epsilon=1e-3, weight_decay=decay)
    ours, in_numpy = start.copy(), settings.make(50)
    flat, theirs = (torch.from_numpy(start.copy()) for _ in range(2))
    flat.grad = torch.zeros(50)
    in_learner, reference = _make_optimizer(settings, [flat]), IN_TORCH[name]([theirs], decay)
    for group in in_learner.param_groups:
        group["lr"] = 1e-2
    assert set(in_numpy.state) == {MEMORY[name][key] for key in in_learner.state[flat] if key in MEMORY[name]}
    for _ in range(20):
        gradient = rng.standard_normal(50, dtype=np.float32)
        in_numpy.step(ours, given := gradient.copy(), 1e-2)
        np.testing.assert_array_equal(given, gradient, "the gradient is not the optimizer's to change")
        for tensor, optimizer in ((flat, in_learner), (theirs, reference)):
            tensor.grad = torch.from_numpy(gradient.copy())
            optimizer.step()
    np.testing.assert_allclose(ours, theirs, atol=2e-6)
    np.testing.assert_allclose(flat, theirs, atol=2e-6)
    assert (np.abs(ours).sum() < np.abs(start).sum()) or not decay


@pytest.mark.parametrize(
    ("algorithm", "settings", "decay"),
    [
        (PPOConfig, {}, 0.0),
        (PPOConfig, {"opt_type": "adamw"}, 0.01),
        (SACConfig, {"opt_type": "adamw", "weight_decay": 0.2}, 0.2),
        (SACConfig, {"weight_decay": 0.1}, 0.1),
    ],
)
def test_an_algorithm_has_the_weight_decay_of_its_settings(algorithm, settings, decay):
    config = algorithm().environment("Pendulum-v1").training(model={"fcnet_hiddens": [4]}, **settings)
    assert optimizer_settings(config).weight_decay == decay
