"""Several critics side by side: numpy's values and gradients are torch's."""

import numpy as np
import pytest
import torch

from rllib.models.dense.in_torch import backward
from rllib.models.modules import FullyConnected

ROWS, WIDTHS = 33, {"observation": 4, "action": 2}  # the column of ones behind an observation is not counted


@pytest.mark.parametrize("copies", [None, 1, 2, 5])
@pytest.mark.parametrize("num_outputs", [None, 1, 3])
@pytest.mark.parametrize("hiddens", [(), (7,), (6, 8)])
def test_numpy_and_torch_agree(hiddens, num_outputs, copies):
    module = FullyConnected(hiddens=hiddens, num_outputs=num_outputs, copies=copies)
    layout, rng = module.layout(WIDTHS), np.random.default_rng(0)
    weights = rng.normal(0, 0.5, layout.size).astype(np.float32)
    in_numpy, in_torch = module.numpy(layout, weights), module.torch(layout, torch.from_numpy(weights.copy()))
    observations, actions = (rng.standard_normal((ROWS, n), np.float32) for n in (5, 2))
    observations[:, -1] = 1

    acted = torch.from_numpy(actions).requires_grad_()
    expected = in_torch(torch.from_numpy(observations), acted)
    shape = (ROWS,) if num_outputs is None else (ROWS, num_outputs)
    assert expected.shape == (shape if copies is None else (copies, *shape))
    np.testing.assert_allclose(in_numpy.forward(observations, actions), expected.detach(), atol=1e-5)

    d_outputs = rng.standard_normal(expected.shape, np.float32) / ROWS
    objective = (expected * torch.from_numpy(d_outputs)).sum()
    of_actions = torch.autograd.grad(objective, acted, retain_graph=True)[0]
    np.testing.assert_allclose(in_numpy.input_gradient(d_outputs, "action"), of_actions, atol=1e-5)
    backward(objective, [in_torch])
    in_numpy.backward(d_outputs)
    np.testing.assert_allclose(in_numpy.gradient, in_torch.flat.grad, atol=1e-5)
