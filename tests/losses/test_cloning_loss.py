"""The loss of demonstrated actions beside another one."""

import numpy as np
import torch

from rllib.losses.offline.cloning import ClonesToo
from rllib.losses.offline.imitation import BehaviorCloning
from rllib.models.distributions.standard import Categorical, DiagGaussian
from rllib.sample_batch import ACTIONS, DEMONSTRATED_ACTIONS, DEMONSTRATED_OBS


def found(distribution, actions, demonstrated):
    """The loss, its statistics and its gradient, of a linear network; and the gradients of both parts."""
    torch.manual_seed(0)
    weights = torch.randn(3, 4, requires_grad=True)
    rows, others = torch.randn(5, 3), torch.randn(5, 3)

    def network(inputs):
        return inputs @ weights, torch.zeros(0)

    minibatch = {ACTIONS: actions, DEMONSTRATED_OBS: others, DEMONSTRATED_ACTIONS: demonstrated}
    bound = ClonesToo(BehaviorCloning()).bind(network)
    loss, statistics = bound.torch(distribution, network(rows), minibatch, bc_coeff=0.5)
    gradient = torch.autograd.grad(loss, weights)[0]
    alone = BehaviorCloning().torch(distribution, network(rows), {ACTIONS: actions})[0]
    is_squared = isinstance(distribution, DiagGaussian)
    term = BehaviorCloning(is_squared=is_squared).torch(distribution, network(others), {ACTIONS: demonstrated})[0]
    parts = [torch.autograd.grad(part, weights)[0] for part in (alone, term)]
    return loss, dict(zip(bound.stats, statistics, strict=True)), gradient, (alone, term), parts


def check(distribution, actions, demonstrated):
    loss, stats, gradient, (alone, term), (own, cloned) = found(distribution, actions, demonstrated)
    torch.testing.assert_close(loss, alone + 0.5 * term)
    torch.testing.assert_close(gradient, own + 0.5 * cloned)
    np.testing.assert_allclose([stats["total_loss"], stats["bc_loss"]], [loss.item(), term.item()], rtol=1e-6)
    return cloned


def test_choices_are_cloned_by_their_likelihood():
    cloned = check(Categorical(4), torch.tensor([0, 1, 2, 3, 0]), torch.tensor([3, 3, 3, 3, 3]))
    assert (cloned[:, 3] != 0).all()


def test_of_numbers_the_mean_is_fitted_and_the_deviation_left_alone():
    cloned = check(DiagGaussian((2,)), torch.zeros(5, 2), torch.ones(5, 2))
    assert (cloned[:, :2] != 0).all() and (cloned[:, 2:] == 0).all()
