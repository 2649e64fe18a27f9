"""Distributions of several parts: sums of torch's, whatever the order of the parts."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, OneOf, Tuple

from rllib.models.distributions.choose import distribution_for, distribution_from_json
from rllib.models.distributions.product import Product
from rllib.models.distributions.standard import Categorical, DiagGaussian, MultiCategorical
from rllib.models.observations.flat_spaces import action_form

PARTS = (DiagGaussian((2, 1)), Categorical(3), MultiCategorical((2, 4)))
MIXED = Product(PARTS)
ROWS = 40


def torch_parts(inputs):
    """By torch.distributions; inputs [B, 4 + 3 + 6]."""
    mean, log_std = inputs[:, :2], inputs[:, 2:4]
    return [
        torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1),
        torch.distributions.Categorical(logits=inputs[:, 4:7]),
        torch.distributions.Categorical(logits=inputs[:, 7:9]),
        torch.distributions.Categorical(logits=inputs[:, 9:]),
    ]


def drawn(distribution=MIXED, rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    inputs, old = rng.standard_normal((2, distribution.num_inputs, rows), dtype=np.float32).transpose(0, 2, 1)
    return inputs, old, distribution.sample(inputs, distribution.noise(rng, rows))


def test_log_probabilities_entropies_and_divergences_are_sums_of_torchs():
    inputs, old, actions = drawn()
    ours, (theirs, before) = MIXED.at(inputs), (torch_parts(torch.tensor(rows)) for rows in (inputs, old))
    own = [torch.tensor(actions[:, :2]), *torch.tensor(actions[:, 2:].T)]
    log_prob = sum(part.log_prob(action) for part, action in zip(theirs, own))
    np.testing.assert_allclose(ours.log_prob(actions), log_prob, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ours.entropy(), sum(part.entropy() for part in theirs), rtol=1e-5)
    kl = sum(torch.distributions.kl_divergence(p, q) for p, q in zip(before, theirs))
    np.testing.assert_allclose(ours.kl_from(old), kl, rtol=1e-4)


def test_gradients_are_those_of_autograd():
    inputs, old, actions = drawn()
    weight = np.random.default_rng(1).standard_normal(ROWS, dtype=np.float32)
    leaf = torch.tensor(inputs, requires_grad=True)
    other = MIXED.torch_at(leaf)
    terms = torch.tensor(weight) * other.log_prob(torch.tensor(actions)) + 0.3 * other.entropy()
    (terms + 0.7 * other.kl_from(torch.tensor(old))).sum().backward()
    at = MIXED.at(inputs)
    at.log_prob(actions), at.entropy(), at.kl_from(old)
    np.testing.assert_allclose(at.gradient(weight, 0.3, 0.7), leaf.grad, rtol=1e-4, atol=1e-5)


def test_the_order_of_the_parts_changes_nothing():
    inputs, old, actions = drawn()
    turned = Product((PARTS[2], PARTS[0], PARTS[1]))
    of_inputs, of_actions = np.r_[7:13, 0:7], np.r_[3:5, 0:3]
    at, other = MIXED.at(inputs), turned.at(inputs[:, of_inputs])
    np.testing.assert_allclose(other.log_prob(actions[:, of_actions]), at.log_prob(actions), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(other.kl_from(old[:, of_inputs]), at.kl_from(old), rtol=1e-5)
    weight = np.ones(ROWS, np.float32)
    np.testing.assert_array_equal(other.gradient(weight, 0.0, 0.5), at.gradient(weight, 0.0, 0.5)[:, of_inputs])
    np.testing.assert_array_equal(turned.mode(inputs[:, of_inputs]), MIXED.mode(inputs)[:, of_actions])


def test_samples_are_those_of_the_parts():
    inputs, _, _ = drawn(rows=5)
    noise = MIXED.noise(np.random.default_rng(3), 5)
    assert noise.shape == (5, MIXED.num_noise) and MIXED.noise(np.random.default_rng(3), 4, 5).shape[:2] == (4, 5)
    row = MIXED.sample(inputs, noise, np.full((5, 5), np.nan, np.float32))
    assert row.dtype == MIXED.action_dtype == np.float32 and row.shape == (5, *MIXED.action_shape)
    np.testing.assert_array_equal(row[:, :2], PARTS[0].sample(inputs[:, :4], noise[:, :2]).reshape(5, 2))
    np.testing.assert_array_equal(row[:, 2], PARTS[1].sample(inputs[:, 4:7], noise[:, 2:5]))
    np.testing.assert_array_equal(row[:, 3:], PARTS[2].sample(inputs[:, 7:], noise[:, 5:]))
    np.testing.assert_array_equal(MIXED.sample(inputs, np.zeros_like(noise)), MIXED.mode(inputs))
    assert MIXED.sample(inputs[:0], noise[:0]).shape == (0, 5)


def test_choices_alone_are_those_of_one_distribution_of_several():
    product, plain = Product((Categorical(2), MultiCategorical((3, 4)))), MultiCategorical((2, 3, 4))
    assert product.action_dtype == np.int64 and product.choices == plain.choices
    inputs, old, actions = drawn(product)
    ours, expected = product.at(inputs), plain.at(inputs)
    np.testing.assert_array_equal(actions, plain.sample(inputs, product.noise(_after_inputs(9), ROWS)))
    np.testing.assert_allclose(ours.log_prob(actions), expected.log_prob(actions), rtol=1e-5)
    np.testing.assert_allclose(ours.kl_from(old), expected.kl_from(old), rtol=1e-5)
    weight = np.ones(ROWS, np.float32)
    np.testing.assert_allclose(ours.gradient(weight, 0.0, 1.0), expected.gradient(weight, 0.0, 1.0), rtol=1e-5)


def _after_inputs(num_inputs):
    """The generator of `drawn`, when the inputs are drawn."""
    rng = np.random.default_rng(0)
    rng.standard_normal((2, num_inputs, ROWS), dtype=np.float32)
    return rng


SPACES = [
    Tuple([Discrete(3, start=7), Box(-1, 1, (2, 2))]),
    Dict(b=MultiDiscrete([2, 3]), a=Tuple([MultiBinary(2), Dict(c=Box(0, 3, (1,), np.int8))])),
    Dict(one=Box(0, 1, (1,), np.float64)),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_space_has_its_leaves_distributions_and_its_description_is_restored(space):
    distribution = distribution_for(space)
    assert (distribution.action_shape, distribution.action_dtype) == action_form(space)
    assert distribution_from_json(distribution.to_json()) == distribution


def test_parts_are_in_the_order_of_the_space():
    expected = MultiCategorical((2, 3), (2,)), MultiCategorical((2, 2), (2,)), MultiCategorical((4,), (1,))
    assert distribution_for(SPACES[1]).parts == expected


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (Tuple([]), r"needs something to choose, but Tuple\(\) has an empty part"),
        (Dict(a=Discrete(2), b=Dict(c=Tuple([]))), "has an empty part"),
        (Tuple([Discrete(2**24 + 1), Box(0, 1, (1,))]), r"cannot hold a choice among 16,777,217"),
        (Tuple([OneOf([Discrete(2)])]), r"action_space\[0\] is OneOf.*OneOf spaces are not supported"),
        (Dict(a=Box(0, 1, (0,))), "needs at least one number"),
        (Dict(a=Box(0, 20_000, (1,), np.int32)), "20,001 values"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_spaces_that_cannot_be(space, message):
    with pytest.raises(ValueError, match=message):
        distribution_for(space)


@pytest.mark.parametrize(
    "distribution", [MultiCategorical((2, 3)), Product((Categorical(2), MultiCategorical((2, 3))))]
)
@pytest.mark.parametrize("is_torch", [False, True])
def test_several_illegal_choices_have_a_finite_log_probability(distribution, is_torch):
    """Losses multiply it by the 0 of rows that do not count."""
    illegal = np.finfo(np.float32).min
    inputs = np.zeros((2, distribution.num_inputs), np.float32)
    inputs[0, ::2] = illegal
    if is_torch:
        tensor = torch.tensor(inputs, requires_grad=True)
        log_prob = distribution.torch_at(tensor).log_prob(
            torch.zeros(2, distribution.action_shape[0], dtype=torch.long)
        )
        (log_prob * torch.tensor([0.0, 1.0])).sum().backward()
        assert torch.isfinite(tensor.grad).all()
        log_prob = log_prob.detach().numpy()
    else:
        log_prob = distribution.at(inputs).log_prob(np.zeros((2, *distribution.action_shape), np.int64))
    assert np.isfinite(log_prob).all() and log_prob[0] < -1e38
