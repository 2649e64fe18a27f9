"""Advantages of tensors are those of arrays."""

import numpy as np
import pytest
import torch

from rllib.losses.returns import gae, standardized, torch_gae
from tests.gpu import DEVICES


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("gamma", "lambda_"), [(0.99, 0.95), (0.9, 0.0), (1.0, 1.0), (0.0, 0.5)])
def test_equals_that_of_arrays(gamma, lambda_, device):
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal((3, 40, 7)).astype(np.float32)
    flags = rng.random((2, 40, 7)) < 0.15
    assert (flags[0] & flags[1]).any()
    found = torch_gae(*torch.tensor(numbers, device=device), *torch.tensor(flags, device=device), gamma, lambda_)
    for ours, expected in zip(found, gae(*numbers, *flags, gamma, lambda_)):
        np.testing.assert_allclose(ours.cpu().numpy(), expected, rtol=1e-6, atol=1e-6)


def test_leaves_its_arguments_as_they_are():
    given = [torch.ones(5, 2) for _ in range(3)] + [torch.ones(5, 2, dtype=torch.bool) for _ in range(2)]
    before = [each.clone() for each in given]
    torch_gae(*given, 0.9, 0.9)
    assert all(torch.equal(now, old) for now, old in zip(given, before))


def test_shapes_must_agree():
    rows, flags = torch.ones(5, 2), torch.zeros(5, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"torch_gae needs arrays of one shape \[T, B\]"):
        torch_gae(rows, rows, torch.ones(5, 1), flags, flags, 0.9, 0.9)


def test_standardised_as_arrays():
    column = np.random.default_rng(0).normal(3, 2, 100).astype(np.float32)
    np.testing.assert_allclose(standardized(torch.from_numpy(column)).numpy(), standardized(column), atol=1e-5)
    assert not standardized(torch.full((4,), 2.0)).any()
