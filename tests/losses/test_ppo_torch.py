"""The PPO loss for autograd, and its agreement with the closed form."""

import numpy as np
import pytest
import torch
from ppo_support import DISTRIBUTIONS, SETTINGS, make_minibatch

from rllib.losses.ppo import PPO_LOSS
from rllib.models.distributions.standard import Categorical


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
@pytest.mark.parametrize("vf_clip_param", [0.4, None, float("inf")])
@pytest.mark.parametrize("standardize_advantages", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_statistics_and_gradients_agree(distribution, vf_clip_param, standardize_advantages, seed):
    outputs, minibatch = make_minibatch(distribution, 128, seed)
    settings = {**SETTINGS, "vf_clip_param": vf_clip_param, "standardize_advantages": standardize_advantages}
    expected, gradients = PPO_LOSS.numpy(distribution, outputs, minibatch, **settings)
    tensors = [torch.from_numpy(output).requires_grad_() for output in outputs]
    columns = {name: torch.from_numpy(column) for name, column in minibatch.items()}
    loss, statistics = PPO_LOSS.torch(distribution, tensors, columns, **settings)
    loss.backward()
    np.testing.assert_allclose(torch.stack(statistics).detach(), expected, atol=2e-6, rtol=1e-5)
    for tensor, gradient in zip(tensors, gradients, strict=True):
        np.testing.assert_allclose(gradient, tensor.grad, atol=1e-6)


def test_identity_error_takes_tensors():
    outputs, minibatch = make_minibatch(Categorical(3), moved=0.2)
    tensors = [torch.from_numpy(output) for output in outputs]
    columns = {name: torch.from_numpy(column) for name, column in minibatch.items()}
    error = PPO_LOSS.identity_error(Categorical(3).torch_at, tensors, columns)
    assert float(error) == pytest.approx(PPO_LOSS.identity_error(Categorical(3).at, outputs, minibatch), abs=1e-6)


def test_a_column_vector_of_values_is_refused():
    outputs, minibatch = make_minibatch(Categorical(2))
    columns = {name: torch.from_numpy(column) for name, column in minibatch.items()}
    dist_inputs, values = (torch.from_numpy(output) for output in outputs)
    with pytest.raises(ValueError, match=r"must all be \[B\]"):
        PPO_LOSS.torch(Categorical(2), (dist_inputs, values[:, None]), columns, **SETTINGS)
