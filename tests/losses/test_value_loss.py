"""The value loss alone: its two forms against one another and against the formula."""

import numpy as np
import pytest
import torch

from rllib.losses.value import STATS, VALUE_LOSS
from rllib.sample_batch import VALUE_TARGETS


def test_both_forms_are_the_formula():
    rng = np.random.default_rng(0)
    values, targets, dist_inputs = (rng.standard_normal(shape).astype(np.float32) for shape in (7, 7, (7, 2)))
    statistics, (d_dist_inputs, d_values) = VALUE_LOSS.numpy(None, (dist_inputs, values), {VALUE_TARGETS: targets})
    error = values.astype(np.float64) - targets
    expected = [np.mean(error**2), max(1 - error.var() / targets.astype(np.float64).var(), -1)]
    np.testing.assert_allclose(statistics, expected, rtol=1e-5)
    np.testing.assert_allclose(d_values, 2 * error / 7, rtol=1e-5)
    assert not d_dist_inputs.any()
    tensor = torch.from_numpy(values).requires_grad_()
    minibatch = {VALUE_TARGETS: torch.from_numpy(targets)}
    loss, in_torch = VALUE_LOSS.torch(None, (torch.from_numpy(dist_inputs), tensor), minibatch)
    loss.backward()
    np.testing.assert_allclose(tensor.grad, d_values, rtol=1e-5)
    np.testing.assert_allclose([float(each.detach()) for each in in_torch], statistics, rtol=1e-5)
    assert len(statistics) == len(STATS)


def test_values_of_another_shape_are_refused():
    values = np.zeros((3, 1), np.float32)
    with pytest.raises(ValueError, match="must all be"):
        VALUE_LOSS.numpy(None, (np.zeros((3, 2), np.float32), values), {VALUE_TARGETS: np.zeros(3, np.float32)})
