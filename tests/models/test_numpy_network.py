"""The numpy network against the textbook formula in float64, and its gradients against finite differences."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from rllib.models.arithmetic import activations, kernels
from rllib.models.dense.in_numpy import NumpyNetwork
from rllib.models.dense.in_torch import ACTIVATIONS as torch_activations
from rllib.models.dense.initializers import orthogonal
from rllib.models.dense.layout import LayersLayout

ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0),
    "swish": lambda z: z / (1 + np.exp(-z)),
    "linear": lambda z: z,
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "elu": lambda z: np.where(z > 0, z, np.exp(np.minimum(z, 0)) - 1),
    "leaky_relu": lambda z: np.maximum(z, 0.01 * z),
    "gelu": lambda z: z * 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2))),
}
# Layers take them in turn: each kind comes first, and beside another one.
PAIRS = [
    *(("tanh", "relu"), ("relu", "linear"), ("swish", "tanh"), ("linear", "swish")),
    *(("sigmoid", "elu"), ("leaky_relu", "gelu"), ("gelu", "sigmoid"), ("elu", "leaky_relu")),
]
HEADS = {"policy": 2, "value": 1}
CASES = [
    (
        LayersLayout(4, hiddens, {"policy": outputs, "value": 1}, shared, log_std, layer_norm),
        (*names, *names)[: len(hiddens)],
    )
    for (hiddens, shared), (outputs, log_std), names, layer_norm in itertools.product(
        [((), "shared"), ((8,), "shared"), ((8,), None), ((8, 6, 5), "shared"), ((8, 6, 5), None)],
        [(2, 0), (3, 3)],
        PAIRS,
        [False, True],
    )
    if hiddens or not layer_norm
]
each_case = pytest.mark.parametrize(("layout", "activations"), CASES, ids=str)


def slow_forward(layout, activations, flat, observations):
    """Layer by layer, as in any textbook, in the precision of the arguments."""
    named = layout.named_parameters(flat)
    results = []
    for head, owner in (("policy", "policy"), ("value", "value")):
        h, owner = observations, owner if layout.num_towers == 2 else "shared"
        for index in range(len(layout.hiddens)):
            weight, bias = named[f"{owner}.hidden_{index}.weight"], named[f"{owner}.hidden_{index}.bias"]
            z = h @ weight.T + bias
            if layout.layer_norm:
                scale, shift = named[f"{owner}.norm_{index}.weight"], named[f"{owner}.norm_{index}.bias"]
                z = (z - z.mean(1, keepdims=True)) / np.sqrt(z.var(1, keepdims=True) + 1e-5) * scale + shift
            h = ACTIVATIONS[activations[index]](z)
        results.append(h @ named[f"{head}.head.weight"].T + named[f"{head}.head.bias"])
    dist_inputs, values = results
    if layout.num_log_std:
        log_std = np.tile(named["policy.log_std"], (len(observations), 1))
        dist_inputs = np.concatenate([dist_inputs, log_std], axis=1)
    return dist_inputs, values[:, 0]


def make(layout, activations, rows, seed=0):
    rng = np.random.default_rng(seed)
    weights = (0.5 * rng.standard_normal(layout.size)).astype(np.float32)
    inputs = np.ones((rows, layout.num_inputs + 1), np.float32)
    inputs[:, :-1] = rng.standard_normal((rows, layout.num_inputs))
    return NumpyNetwork(layout, activations, weights), weights, inputs


@each_case
def test_forward(layout, activations):
    network, weights, inputs = make(layout, activations, 7)
    dist_inputs, values = network.forward(inputs)
    expected = slow_forward(layout, activations, weights.astype(np.float64), inputs[:, :-1].astype(np.float64))
    assert dist_inputs.shape == (7, layout.heads["policy"] + layout.num_log_std)
    np.testing.assert_allclose(dist_inputs, expected[0], atol=1e-5)
    np.testing.assert_allclose(values, expected[1], atol=1e-5)


@each_case
def test_acting_computes_the_same(layout, activations):
    network, _, inputs = make(layout, activations, 7)
    dist_inputs, values = network.forward(inputs)
    np.testing.assert_allclose(network.forward_policy(inputs), dist_inputs, atol=1e-6)
    np.testing.assert_allclose(network.forward_value(inputs), values, atol=1e-6)
    assert network.gives_values == (layout.num_towers == 1)
    if network.gives_values:
        beside = np.full(7, np.nan, np.float32)
        np.testing.assert_allclose(network.forward_policy(inputs, beside), dist_inputs, atol=1e-6)
        np.testing.assert_allclose(beside, values, atol=1e-6)


@each_case
def test_backward_by_finite_differences(layout, activations):
    network, weights, inputs = make(layout, activations, 5, seed=1)
    rng = np.random.default_rng(2)
    d_dist_inputs = rng.standard_normal((5, layout.heads["policy"] + layout.num_log_std)).astype(np.float32)
    d_values = rng.standard_normal(5).astype(np.float32)
    network.forward(inputs)
    gradient = network.backward((d_dist_inputs, d_values))

    def objective(flat):
        dist_inputs, values = slow_forward(layout, activations, flat, inputs[:, :-1].astype(np.float64))
        return np.sum(dist_inputs * d_dist_inputs) + np.sum(values * d_values)

    step, exact = 1e-6, weights.astype(np.float64)
    for index in range(layout.size):
        up, down = exact.copy(), exact.copy()
        up[index] += step
        down[index] -= step
        assert gradient[index] == pytest.approx((objective(up) - objective(down)) / (2 * step), abs=2e-5)


@pytest.mark.parametrize("shared", ["shared", None])
@pytest.mark.parametrize("num_inputs", [4, 80])
def test_products_in_blocks_give_the_same_passes(num_inputs, shared, monkeypatch):
    layout, rows = LayersLayout(num_inputs, (14, 6), HEADS, shared), 6 * kernels.FEWEST_ROWS
    rng = np.random.default_rng(2)
    gradients = rng.standard_normal((rows, 2), np.float32), rng.standard_normal(rows, np.float32)
    passes = []
    # Whole matrices; blocks of all products; of the narrow ones.
    for most in (0, 14 * 81 * 64, 6 * 15 * 128):
        monkeypatch.setattr(kernels, "most_unpacked", lambda most=most: most)
        network, _, inputs = make(layout, ("tanh", "relu"), rows)
        outputs = network.forward(inputs)
        network.backward(gradients)
        passes.append([*outputs, network.gradient, network.forward_policy(inputs), network.forward_value(inputs)])
    for other in passes[1:]:
        for found, expected in zip(other, passes[0], strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_batches_of_several_sizes_do_not_disturb_each_other(layer_norm):
    layout = LayersLayout(4, (8, 6), HEADS, None, layer_norm=layer_norm)
    network, _, inputs = make(layout, ("tanh", "tanh"), 40)
    whole = network.forward(inputs)[1].copy()
    for rows in (1, 2, 3, 5, 8, 13, 21, 34, 7, 1, 40):
        np.testing.assert_allclose(network.forward(inputs[:rows])[1], whole[:rows], atol=1e-6)
        np.testing.assert_allclose(network.forward_value(inputs[:rows]), whole[:rows], atol=1e-6)


def test_the_network_reads_the_weights_where_they_lie():
    layout = LayersLayout(4, (8,), HEADS, None)
    network, weights, inputs = make(layout, ("tanh",), 3)
    before = network.forward(inputs)[0].copy()
    weights[:] = 0
    assert not np.array_equal(network.forward(inputs)[0], before)
    assert np.array_equal(network.forward_policy(inputs), np.zeros((3, 2)))


@pytest.mark.parametrize(("size", "dtype"), [(3, np.float32), (None, np.float64)])
def test_other_weights_are_refused(size, dtype):
    layout = LayersLayout(4, (8,), HEADS, None)
    with pytest.raises(ValueError, match="float32 weights"):
        NumpyNetwork(layout, ("tanh",), np.zeros(size or layout.size, dtype))


@pytest.mark.parametrize("layer_norm", [False, True])
def test_initial_weights(layer_norm):
    layout = LayersLayout(4, (64, 32), HEADS, None, layer_norm=layer_norm)
    weights = np.empty(layout.size, np.float32)
    orthogonal(layout, weights, np.random.default_rng(0))
    named = layout.named_parameters(weights)
    for name, parameter in named.items():
        if name.endswith("bias"):
            assert not parameter.any()
            continue
        if "norm" in name:
            assert (parameter == 1).all()
            continue
        gain = {"policy.head.weight": 0.01, "value.head.weight": 1.0}.get(name, np.sqrt(2))
        small = parameter if parameter.shape[0] <= parameter.shape[1] else parameter.T
        np.testing.assert_allclose(small @ small.T, gain**2 * np.eye(len(small)), atol=1e-5)
    assert not np.array_equal(named["policy.hidden_0.weight"], named["value.hidden_0.weight"])


def test_equal_seeds_give_equal_weights():
    layout = LayersLayout(4, (16,), HEADS, None)
    vectors = [np.empty(layout.size, np.float32) for _ in range(3)]
    for vector, seed in zip(vectors, (1, 1, 2)):
        orthogonal(layout, vector, np.random.default_rng(seed))
    assert np.array_equal(vectors[0], vectors[1])
    assert not np.array_equal(vectors[0], vectors[2])


REFERENCES = {
    "tanh": torch.tanh,
    "relu": functional.relu,
    "swish": functional.silu,
    "sigmoid": torch.sigmoid,
    "elu": functional.elu,
    "leaky_relu": functional.leaky_relu,
    "gelu": functional.gelu,
    "linear": lambda z: z,
}


@pytest.mark.parametrize("name", sorted(activations.ACTIVATIONS))
def test_activations_and_their_derivatives_are_torch_s_in_both_forms(name):
    """Against float64, far beyond what exp can take; a derivative that reads h alone may find its gradient in z."""
    z = np.concatenate([np.linspace(-12, 12, 4001), [-1e30, -100, -0.0, 0.0, 100, 1e30]]).astype(np.float32)
    exact = torch.from_numpy(z).double().requires_grad_()
    expected = REFERENCES[name](exact)
    (slopes,) = torch.autograd.grad(expected.sum(), exact)
    np.testing.assert_array_equal(torch_activations[name](torch.from_numpy(z)), REFERENCES[name](torch.from_numpy(z)))

    h, scratch, gradient = np.empty_like(z), np.empty_like(z), np.full_like(z, 3.0)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        activations.ACTIVATIONS[name].apply(z, h)
        if activations.ACTIVATIONS[name].keeps_input:
            activations.ACTIVATIONS[name].multiply_derivative(gradient, h, z, scratch)
        else:
            activations.ACTIVATIONS[name].multiply_derivative(gradient, h, gradient, scratch)
    np.testing.assert_allclose(h, expected.detach(), rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(gradient, 3 * slopes, rtol=2e-6, atol=6e-6)
