"""The torch network on the same flat vector as the numpy network."""

import itertools

import numpy as np
import pytest
import torch

from rllib.models.acting_in_torch import ActingNetwork
from rllib.models.dense.in_numpy import NumpyNetwork
from rllib.models.dense.in_torch import TorchNetwork, backward
from rllib.models.dense.layout import LayersLayout

HEADS = {"policy": 2, "value": 1}
CASES = [
    (
        LayersLayout(4, hiddens, {"policy": outputs, "value": 1}, shared, log_std, layer_norm),
        (*names, *names)[: len(hiddens)],
    )
    for (hiddens, shared), (outputs, log_std), names, layer_norm in itertools.product(
        [((), "shared"), ((64,), None), ((64, 64), "shared"), ((64, 64), None), ((32, 48, 16), None)],
        [(2, 0), (3, 3)],
        [("tanh", "relu"), ("relu", "linear"), ("swish", "tanh"), ("linear", "swish")],
        [False, True],
    )
    if hiddens or not layer_norm
]
each_case = pytest.mark.parametrize(("layout", "activations"), CASES, ids=str)


def make(layout, rows, seed=0):
    rng = np.random.default_rng(seed)
    weights = (rng.standard_normal(layout.size) / 4).astype(np.float32)
    inputs = np.ones((rows, layout.num_inputs + 1), np.float32)
    inputs[:, :-1] = rng.standard_normal((rows, layout.num_inputs))
    return weights, inputs


@each_case
def test_outputs_and_gradients_agree(layout, activations):
    weights, inputs = make(layout, 33)
    numpy_network = NumpyNetwork(layout, activations, weights.copy())
    torch_network = TorchNetwork(layout, activations, torch.from_numpy(weights))
    dist_inputs, values = torch_network(torch.from_numpy(inputs))
    expected = numpy_network.forward(inputs)
    np.testing.assert_allclose(dist_inputs.detach(), expected[0], atol=1e-5)
    np.testing.assert_allclose(values.detach(), expected[1], atol=1e-5)

    # Gradients of the size that a mean over a batch gives.
    rng = np.random.default_rng(1)
    d_dist_inputs = (rng.standard_normal(dist_inputs.shape) / 33).astype(np.float32)
    d_values = (rng.standard_normal(33) / 33).astype(np.float32)
    objective = (dist_inputs * torch.from_numpy(d_dist_inputs)).sum() + (values * torch.from_numpy(d_values)).sum()
    gradient = numpy_network.backward((d_dist_inputs, d_values))
    backward(objective, [torch_network])
    np.testing.assert_allclose(gradient, torch_network.flat.grad, atol=1e-6, rtol=1e-5)


@each_case
def test_acting_through_torch(layout, activations):
    weights, inputs = make(layout, 8)
    plain = NumpyNetwork(layout, activations, weights)
    acting = ActingNetwork(TorchNetwork(layout, activations, torch.from_numpy(weights)), gives_values=True)
    np.testing.assert_allclose(acting.forward_policy(inputs), plain.forward_policy(inputs), atol=1e-5)
    np.testing.assert_allclose(acting.forward_value(inputs), plain.forward_value(inputs), atol=1e-5)
    beside = np.full(len(inputs), np.nan, np.float32)
    np.testing.assert_allclose(acting.forward_policy(inputs, beside), plain.forward_policy(inputs), atol=1e-5)
    np.testing.assert_allclose(beside, plain.forward_value(inputs), atol=1e-5)


def test_parameters_and_their_gradients_are_views():
    layout = LayersLayout(4, (8, 6), HEADS, None)
    weights, inputs = make(layout, 5)
    network = TorchNetwork(layout, ("tanh", "tanh"), torch.from_numpy(weights))
    assert sum(parameter.numel() for parameter in network.parameters()) == layout.size
    backward(network(torch.from_numpy(inputs))[1].sum(), [network])
    assert network.flat.grad.any()
    for name, gradient in layout.named_parameters(network.flat.grad).items():
        assert torch.equal(getattr(network, name.replace(".", "_")).grad, gradient)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    assert not weights.any()


def test_module_users_can_train_it():
    """A common optimizer over parameters() moves the flat vector."""
    layout = LayersLayout(4, (8,), HEADS, None)
    weights, inputs = make(layout, 5)
    before = weights.copy()
    network = TorchNetwork(layout, ("tanh",), torch.from_numpy(weights))
    backward(network(torch.from_numpy(inputs))[1].square().sum(), [network])
    torch.optim.SGD(network.parameters(), lr=0.5).step()
    np.testing.assert_allclose(weights, before - 0.5 * network.flat.grad.numpy(), atol=1e-6)


@pytest.mark.parametrize(("hiddens", "layer_norm"), [((), False), ((8, 6), False), ((8, 6), True)])
def test_without_a_value_head(hiddens, layer_norm):
    """Both networks: the distribution inputs of the same weights, empty values, and equal gradients."""
    layout = LayersLayout(4, hiddens, {"policy": 3}, layer_norm=layer_norm)
    activations = ("relu",) * len(hiddens)
    weights, inputs = make(layout, 9)
    numpy_network = NumpyNetwork(layout, activations, weights.copy())
    torch_network = TorchNetwork(layout, activations, torch.from_numpy(weights))
    dist_inputs, values = torch_network(torch.from_numpy(inputs))
    expected, none = numpy_network.forward(inputs)
    assert values.shape == none.shape == (0,)
    np.testing.assert_allclose(dist_inputs.detach(), expected, atol=1e-5)
    np.testing.assert_allclose(numpy_network.forward_policy(inputs), expected, atol=1e-6)

    d_dist_inputs = (np.random.default_rng(1).standard_normal((9, 3)) / 9).astype(np.float32)
    gradient = numpy_network.backward((d_dist_inputs, none))
    objective = (dist_inputs * torch.from_numpy(d_dist_inputs)).sum()
    backward(objective, [torch_network])
    np.testing.assert_allclose(gradient, torch_network.flat.grad, atol=1e-6)
