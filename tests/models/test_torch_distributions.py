"""The torch distributions against torch.distributions, and the numpy ones against both."""

import numpy as np
import pytest
import torch

from rllib.models.distributions.standard import Categorical, DiagGaussian, MultiCategorical


class _Parts:
    """Several torch Categoricals side by side."""

    def __init__(self, inputs, sizes):
        self.parts = [torch.distributions.Categorical(logits=part) for part in inputs.split(list(sizes), 1)]

    def log_prob(self, actions):
        columns = actions.reshape(len(actions), -1).T
        return sum(part.log_prob(column) for part, column in zip(self.parts, columns))

    def entropy(self):
        return sum(part.entropy() for part in self.parts)

    def kl_to(self, other):
        return sum(torch.distributions.kl_divergence(p, q) for p, q in zip(self.parts, other.parts))


class _Normal:
    def __init__(self, inputs, shape):
        mean, log_std = inputs.chunk(2, 1)
        normal = torch.distributions.Normal(mean, log_std.exp())
        self.normal, self.shape = torch.distributions.Independent(normal, 1), shape

    def log_prob(self, actions):
        return self.normal.log_prob(actions.reshape(len(actions), -1))

    def entropy(self):
        return self.normal.entropy()

    def kl_to(self, other):
        return torch.distributions.kl_divergence(self.normal, other.normal)


def reference(distribution, inputs):
    if isinstance(distribution, DiagGaussian):
        return _Normal(inputs, distribution.action_shape)
    sizes = distribution.sizes if isinstance(distribution, MultiCategorical) else (distribution.num_actions,)
    return _Parts(inputs, sizes)


@pytest.mark.parametrize(
    "distribution",
    [Categorical(2), Categorical(5), MultiCategorical((2, 3, 4)), MultiCategorical((2, 2), (1, 2)), DiagGaussian((3,))],
    ids=str,
)
def test_three_implementations_agree(distribution):
    rng = np.random.default_rng(0)
    inputs, old = (rng.standard_normal((20, distribution.num_inputs)) for _ in range(2))
    actions = distribution.sample(old, distribution.noise(rng, 20))
    x, x_old, a = torch.tensor(inputs, requires_grad=True), torch.tensor(old), torch.tensor(actions)
    expected, ours, closed = reference(distribution, x), distribution.torch_at(x), distribution.at(inputs)
    kl = reference(distribution, x_old).kl_to(expected)
    for theirs, torch_form, numpy_form in (
        (expected.log_prob(a), ours.log_prob(a), closed.log_prob(actions)),
        (expected.entropy(), ours.entropy(), closed.entropy()),
        (kl, ours.kl_from(x_old), closed.kl_from(old)),
    ):
        assert theirs.shape == torch_form.shape == numpy_form.shape == (20,)
        torch.testing.assert_close(torch_form.detach(), theirs.detach(), atol=1e-9, rtol=1e-7, check_dtype=False)
        np.testing.assert_allclose(numpy_form, theirs.detach(), atol=2e-6)


@pytest.mark.parametrize("distribution", [Categorical(3), MultiCategorical((2, 3)), DiagGaussian((2,))], ids=str)
def test_autograd_agrees_with_the_closed_form(distribution):
    rng = np.random.default_rng(1)
    inputs, old = (rng.standard_normal((10, distribution.num_inputs)) for _ in range(2))
    actions, weights = distribution.sample(old, distribution.noise(rng, 10)), rng.standard_normal(10)
    x = torch.tensor(inputs, requires_grad=True)
    at = distribution.torch_at(x)
    total = torch.tensor(weights) * at.log_prob(torch.tensor(actions))
    total = total + 0.5 * at.entropy() + 0.25 * at.kl_from(torch.tensor(old))
    total.sum().backward()
    closed = distribution.at(inputs)
    closed.log_prob(actions), closed.entropy(), closed.kl_from(old)
    np.testing.assert_allclose(closed.gradient(weights, 0.5, 0.25), x.grad, atol=1e-7)


@pytest.mark.parametrize("distribution", [Categorical(3), MultiCategorical((2, 3)), DiagGaussian((2,))], ids=str)
def test_gradcheck(distribution):
    rng = np.random.default_rng(2)
    inputs, old = (torch.tensor(rng.standard_normal((4, distribution.num_inputs))) for _ in range(2))
    actions = torch.tensor(distribution.sample(old.numpy(), distribution.noise(rng, 4)))

    def quantities(x):
        at = distribution.torch_at(x)
        return (
            at.log_prob(actions.to(x.dtype) if actions.is_floating_point() else actions),
            at.entropy(),
            at.kl_from(old),
        )

    assert torch.autograd.gradcheck(quantities, (inputs.requires_grad_(),))
