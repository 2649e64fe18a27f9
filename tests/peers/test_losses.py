"""Losses with their gradients, beside rlax, whose gradients are jax's; ours in numpy's closed form and in torch."""

import numpy as np
import pytest
import torch

from rllib import sample_batch as sb
from rllib.losses.policy_gradient import policy_gradient, policy_gradient_loss
from rllib.losses.ppo import ppo_gradient, ppo_loss
from rllib.losses.quantiles import fit_quantiles, fit_quantiles_in_numpy
from rllib.losses.td import bootstrapped, next_values, project, project_by_pairs, rescaled, unrescaled
from rllib.models.distributions.standard import Categorical
from tests.losses.ppo_support import make_minibatch

ROWS, ACTIONS = 64, 5
NO_VALUES = {"vf_loss_coeff": 0.0, "entropy_coeff": 0.03}


def torch_gradient(loss, outputs, minibatch, **settings):
    """The gradients by the outputs of a loss in torch."""
    tensors = [torch.as_tensor(output).requires_grad_() for output in outputs]
    columns = {name: torch.as_tensor(column) for name, column in minibatch.items()}
    loss(Categorical(ACTIONS), *tensors, columns, **settings)[0].backward()
    return [tensor.grad.numpy() for tensor in tensors]


def test_clipped_surrogate(rlax):
    outputs, minibatch = make_minibatch(Categorical(ACTIONS), ROWS)
    settings = {"clip_param": 0.2, "kl_coeff": 0.0, **NO_VALUES}
    statistics, gradient, _ = ppo_gradient(Categorical(ACTIONS), *outputs, minibatch, **settings)
    theirs = rlax.call(
        "from_rlax.surrogate", {"clip": 0.2, "entropy": NO_VALUES["entropy_coeff"]},
        logits=outputs[0], old_logits=minibatch[sb.ACTION_DIST_INPUTS], actions=minibatch[sb.ACTIONS].astype(np.int32),
        advantages=minibatch[sb.ADVANTAGES],
    )  # fmt: skip
    assert statistics[0] == pytest.approx(float(theirs["loss"]), abs=1e-5)
    np.testing.assert_allclose(gradient, theirs["gradient"], atol=1e-6)
    of_torch, _ = torch_gradient(ppo_loss, outputs, minibatch, **settings)
    np.testing.assert_allclose(of_torch, theirs["gradient"], atol=1e-6)


def test_policy_gradient(rlax):
    outputs, minibatch = make_minibatch(Categorical(ACTIONS), ROWS)
    settings = {"vf_loss_coeff": 0.0, "entropy_coeff": 0.0}
    statistics, gradient, _ = policy_gradient(Categorical(ACTIONS), *outputs, minibatch, **settings)
    theirs = rlax.call(
        "from_rlax.policy_gradient",
        logits=outputs[0], actions=minibatch[sb.ACTIONS].astype(np.int32), advantages=minibatch[sb.ADVANTAGES],
    )  # fmt: skip
    assert statistics[0] == pytest.approx(float(theirs["loss"]), abs=1e-5)
    np.testing.assert_allclose(gradient, theirs["gradient"], atol=1e-6)
    of_torch, _ = torch_gradient(policy_gradient_loss, outputs, minibatch, **settings)
    np.testing.assert_allclose(of_torch, theirs["gradient"], atol=1e-6)


def test_double_q_learning(rlax):
    rng = np.random.default_rng(0)
    q, target_q, selector = rng.normal(size=(3, ROWS, ACTIONS)).astype(np.float32)
    actions = rng.integers(ACTIONS, size=ROWS).astype(np.int32)
    rewards, discounts = rng.normal(size=(2, ROWS)).astype(np.float32)
    theirs = rlax.call(
        "from_rlax.double_q",
        q=q, actions=actions, rewards=rewards, discounts=discounts, target_q=target_q, selector=selector,
    )  # fmt: skip
    targets = bootstrapped(rewards, discounts, next_values(target_q, selector))
    np.testing.assert_allclose(targets - q[np.arange(ROWS), actions], theirs["errors"], atol=1e-5)


def test_projection_of_distributions(rlax):
    rng = np.random.default_rng(0)
    atoms = np.linspace(-5, 5, 21, dtype=np.float32)
    probabilities = rng.dirichlet(np.ones(len(atoms)), ROWS).astype(np.float32)
    rewards = rng.normal(size=ROWS).astype(np.float32) * 3
    discounts = np.where(rng.random(ROWS) < 0.2, 0, 0.9).astype(np.float32)
    support = rewards[:, None] + discounts[:, None] * atoms
    theirs = rlax.call("from_rlax.projection", support=support, probabilities=probabilities, atoms=atoms)
    ours = project(probabilities, rewards, discounts, atoms)
    np.testing.assert_allclose(ours, theirs["probabilities"], atol=1e-5)
    by_pairs = project_by_pairs(*map(torch.as_tensor, (probabilities, rewards, discounts, atoms)))
    np.testing.assert_allclose(by_pairs.numpy(), theirs["probabilities"], atol=1e-5)


def test_quantile_regression(rlax):
    rng = np.random.default_rng(0)
    quantiles, targets = rng.normal(size=(2, ROWS, 8)).astype(np.float32) * 2
    levels = ((np.arange(8) + 0.5) / 8).astype(np.float32)
    theirs = rlax.call(
        "from_rlax.quantile_regression", {"huber": 1.0},
        quantiles=quantiles, levels=np.tile(levels, (ROWS, 1)), targets=targets,
    )  # fmt: skip
    minibatch = {sb.WEIGHTS: np.ones(ROWS, np.float32)}
    (loss, *_), _, gradient = fit_quantiles_in_numpy(quantiles[None], targets, minibatch)
    # Its loss sums over quantiles and is one row's; ours is the mean over both (QR-DQN's multiplies by their number).
    assert 8 * loss == pytest.approx(float(theirs["losses"].mean()), abs=1e-5)
    np.testing.assert_allclose(8 * ROWS * gradient[0], theirs["gradients"], atol=1e-5)
    tensor = torch.as_tensor(quantiles).requires_grad_()
    fit_quantiles(tensor[None], torch.as_tensor(targets), {sb.WEIGHTS: torch.ones(ROWS)})[0].backward()
    np.testing.assert_allclose(8 * ROWS * tensor.grad.numpy(), theirs["gradients"], atol=1e-5)


def test_rescaled_returns(rlax):
    values = np.linspace(-300, 300, 101).astype(np.float32)
    theirs = rlax.call("from_rlax.signed_hyperbolic", {"epsilon": 1e-3}, values=values)
    np.testing.assert_allclose(rescaled(values, 1e-3), theirs["there"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(unrescaled(values, 1e-3), theirs["back"], rtol=1e-3, atol=1e-3)
