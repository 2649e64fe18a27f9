"""Every continuous distribution has one form: arrays and tensors agree, and stored actions have a unit."""

import dataclasses

import numpy as np
import pytest
import torch

from rllib.models import tensors
from rllib.models.distributions.base import ActionUnit, Distribution
from rllib.models.distributions.bounded_mean import BoundedMeanGaussian
from rllib.models.distributions.product import Product
from rllib.models.distributions.q_values import QValues
from rllib.models.distributions.squashed import BoundedSquashedGaussian, SquashedGaussian
from rllib.models.distributions.standard import Categorical, Deterministic, DiagGaussian, MultiCategorical, OfNumbers

SHAPE = (3, 2)
CONTINUOUS = [
    DiagGaussian(SHAPE),
    SquashedGaussian(SHAPE),
    BoundedSquashedGaussian(SHAPE),
    BoundedSquashedGaussian(SHAPE, mean_limit=1.0),
    BoundedMeanGaussian(SHAPE),
    Deterministic(SHAPE),
]
GAUSSIAN = [each for each in CONTINUOUS if isinstance(each, DiagGaussian)]


def kinds(of: type) -> set[type]:
    return {of}.union(*map(kinds, of.__subclasses__()))


def inputs_and_noise(distribution: Distribution, rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Inputs within and beyond all bounds of moments, away from the bounds themselves, and noise, float64."""
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-2, 2, (rows, distribution.num_inputs))
    inputs[: rows // 4, distribution.size :] *= 12
    return inputs, rng.standard_normal((rows, distribution.size)) * 0.5


def named(distribution: Distribution) -> str:
    return f"{distribution.kind} {getattr(distribution, 'mean_limit', '')}"


def test_all_continuous_kinds_are_here():
    library = {kind for kind in kinds(OfNumbers) - {OfNumbers} if kind.__module__.startswith("rllib.")}
    assert {type(each) for each in CONTINUOUS} == library


@pytest.mark.parametrize("distribution", CONTINUOUS, ids=named)
def test_the_most_probable_action_is_the_one_without_noise(distribution):
    """`mode` and `sample`, of arrays and of tensors, and `draw`, in the unit that critics read."""
    inputs = inputs_and_noise(distribution)[0].astype(np.float32)
    mode, given = distribution.mode(inputs), torch.from_numpy(inputs)
    assert mode.shape == (len(inputs), *SHAPE)
    np.testing.assert_allclose(tensors.mode(distribution, given), mode, atol=1e-6)
    zeros = np.zeros((len(inputs), distribution.size), np.float32)
    drawn = distribution.draw(inputs, zeros).actions
    np.testing.assert_allclose(drawn, distribution.for_critics(mode), atol=1e-6)
    if isinstance(distribution, DiagGaussian):
        np.testing.assert_allclose(distribution.sample(inputs, zeros), mode, atol=1e-6)


@pytest.mark.parametrize("distribution", GAUSSIAN, ids=named)
def test_draws_are_samples(distribution):
    """`draw` gives what `sample` stores, as critics read it: within [-1, 1] where it is bounded."""
    inputs, noise = (each.astype(np.float32) for each in inputs_and_noise(distribution))
    stored, actions = distribution.sample(inputs, noise), distribution.draw(inputs, noise).actions
    in_torch = torch.empty(stored.shape)
    tensors.sample(distribution, torch.from_numpy(inputs), torch.from_numpy(noise), in_torch)
    np.testing.assert_allclose(in_torch, stored, rtol=1e-5, atol=1e-6)
    read = distribution.for_critics(stored)
    clipped = read.clip(-1, 1) if isinstance(distribution, BoundedMeanGaussian) else read
    np.testing.assert_allclose(actions, clipped, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("distribution", CONTINUOUS, ids=named)
def test_draws_of_arrays_and_of_tensors_agree(distribution):
    inputs, noise = inputs_and_noise(distribution)
    slopes, weight = np.random.default_rng(1).standard_normal(noise.shape), 0.3
    given = torch.from_numpy(inputs).requires_grad_()
    actions, log_prob = distribution.torch_draw(given, torch.from_numpy(noise))
    loss = (actions * torch.from_numpy(slopes)).sum()
    drawn = distribution.draw(inputs, noise)
    np.testing.assert_allclose(drawn.actions, actions.detach(), atol=1e-12)
    if log_prob is None:
        assert drawn.log_prob is None
        weight = 0.0
    else:
        np.testing.assert_allclose(drawn.log_prob, log_prob.detach(), rtol=1e-6, atol=1e-6)
        loss = loss + weight * log_prob.sum()
    loss.backward()
    np.testing.assert_allclose(drawn.gradient(slopes, weight), given.grad, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("distribution", GAUSSIAN, ids=named)
def test_log_probabilities_are_of_the_bounded_moments(distribution):
    """`draw` and `at` agree on densities, where nothing is clipped; gradients of `at` agree with autograd's."""
    inputs, noise = inputs_and_noise(distribution)
    drawn, batch = distribution.draw(inputs, noise), distribution.at(inputs)
    stored = batch.mean + np.exp(batch.log_std) * noise
    np.testing.assert_allclose(batch.log_prob(stored), drawn.log_prob, rtol=1e-5, atol=1e-5)
    given = torch.from_numpy(inputs).requires_grad_()
    in_torch, weights = distribution.torch_at(given), np.random.default_rng(1).standard_normal(len(inputs))
    old = inputs[::-1].copy()
    batch.kl_from(old)
    loss = (in_torch.log_prob(torch.from_numpy(stored)) * torch.from_numpy(weights)).sum()
    loss = loss + 0.5 * in_torch.entropy().sum() + 0.1 * in_torch.kl_from(torch.from_numpy(old)).clamp(max=1e3).sum()
    np.testing.assert_allclose(batch.entropy(), in_torch.entropy().detach(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(batch.kl_from(old), in_torch.kl_from(torch.from_numpy(old)).detach(), rtol=1e-5)


@pytest.mark.parametrize("distribution", CONTINUOUS, ids=named)
def test_the_unit_of_stored_actions_goes_there_and_back(distribution):
    assert distribution.unit is (
        ActionUnit.BEFORE_TANH if isinstance(distribution, SquashedGaussian) else ActionUnit.NUMBER
    )
    read = np.random.default_rng(0).uniform(-0.99, 0.99, (50, *SHAPE)).astype(np.float32)
    stored = distribution.unit.stored(read)
    np.testing.assert_allclose(distribution.unit.read(stored), read, atol=1e-6)
    np.testing.assert_allclose(distribution.unit.read(torch.from_numpy(stored)), read, atol=1e-6)
    assert distribution.for_critics(stored).shape == distribution.for_critics(torch.from_numpy(stored)).shape == (50, 6)
    bounds = distribution.unit.stored(np.float32([-1, 1]))
    assert np.isfinite(bounds).all()


@pytest.mark.parametrize("distribution", [Categorical(3), MultiCategorical((2, 3), (2,)), QValues(3)])
def test_choices_have_no_draws_with_gradients(distribution):
    assert distribution.unit is ActionUnit.CHOICE
    with pytest.raises(TypeError, match=type(distribution).__name__):
        distribution.draw(np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32))


def test_a_row_of_choices_and_numbers_is_of_numbers():
    assert Product((Categorical(3), DiagGaussian((1,)))).unit is ActionUnit.NUMBER
    assert Product((Categorical(3), Categorical(2))).unit is ActionUnit.CHOICE


def test_draws_outlive_the_network_s_next_pass():
    """A network overwrites its outputs; a draw made of them before keeps its densities and gradients."""
    for distribution in GAUSSIAN:
        inputs, noise = inputs_and_noise(distribution)
        kept, overwritten = distribution.draw(inputs.copy(), noise), distribution.draw(inputs, noise)
        inputs[:] = 0
        assert np.array_equal(kept.log_prob, overwritten.log_prob)
        assert np.array_equal(kept.gradient(noise, 0.5), overwritten.gradient(noise, 0.5))
        assert dataclasses.is_dataclass(distribution)
