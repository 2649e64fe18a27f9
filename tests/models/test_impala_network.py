"""IMPALA's residual network and BTR's parts of it beside torch.nn modules and torch's spectral normalisation."""

import json

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn
from torch.nn.utils import parametrizations

from rllib.models.architectures import spec_from_json
from rllib.models.catalog.catalog import policy_spec
from rllib.models.dense.in_torch import TorchNetwork, backward
from rllib.policy import Policy

torch.set_num_threads(1)
LAST = Box(0, 255, (13, 11, 2), np.uint8)
FIRST = Box(0, 255, (2, 13, 11), np.uint8)
IMPALA = {"conv_filters": "impala", "post_fcnet_hiddens": [24]}
CASES = {
    "plain": (LAST, IMPALA),
    "channels first": (FIRST, {**IMPALA, "conv_activation": "elu"}),
    "wide": (FIRST, {**IMPALA, "impala_width": 2}),
    "pooled": (LAST, {**IMPALA, "impala_pool": 1}),
    "spectral": (LAST, {**IMPALA, "impala_spectral_norm": True}),
    "BTR, apart": (FIRST, {**IMPALA, "impala_pool": 2, "impala_spectral_norm": True, "vf_share_layers": False}),
    "floats": (Box(-1, 1, (9, 10, 1)), IMPALA),
    "matrix": (Box(0, 1, (9, 9)), IMPALA),
    "mixed": (Dict(a=Box(-1, 1, (3,)), image=LAST), {**IMPALA, "fcnet_hiddens": [5], "impala_spectral_norm": True}),
}
each_case = pytest.mark.parametrize("name", CASES)


class Block(nn.Module):
    """Sum of the input and of two convolutions, with an activation before either."""

    def __init__(self, channels, activation, is_normal):
        super().__init__()
        wrap = parametrizations.spectral_norm if is_normal else lambda layer: layer
        self.activation = activation
        self.first, self.second = (wrap(nn.Conv2d(channels, channels, 3, padding=1)) for _ in range(2))

    def forward(self, x):
        return x + self.second(self.activation(self.first(self.activation(x))))


class Reference(nn.Module):
    """The network of figure 3 of arXiv:1802.01561, written with torch.nn alone."""

    def __init__(self, channels, width, pool, is_normal, activation):
        super().__init__()
        self.sections, self.activation = nn.ModuleList(), activation
        for wide in (16 * width, 32 * width, 32 * width):
            blocks = [Block(wide, activation, is_normal) for _ in range(2)]
            conv = nn.Conv2d(channels, wide, 3, padding=1)
            self.sections.append(nn.Sequential(conv, nn.MaxPool2d(3, 2, padding=1), *blocks))
            channels = wide
        self.pool = nn.AdaptiveMaxPool2d(pool) if pool else nn.Identity()

    def forward(self, x):
        for section in self.sections:
            x = section(x)
        return self.pool(self.activation(x)).movedim(1, -1).flatten(1)

    def convolutions(self):
        for section in self.sections:
            yield section[0]
            for block in section[2:]:
                yield from (block.first, block.second)

    def load(self, named, owner, is_normal):
        """Takes the parameters, and the vectors that one step of power iteration makes of the stored direction."""
        for index, layer in enumerate(self.convolutions()):
            name = f"{owner}.image_0_conv_{index}"
            weight, bias = (torch.tensor(named[f"{name}.{part}"]) for part in ("weight", "bias"))
            normal = layer.parametrizations.weight if is_normal and index % 5 else None
            with torch.no_grad():
                (layer.weight if normal is None else normal.original).copy_(weight)
                layer.bias.copy_(bias)
            if normal is not None:
                matrix = weight.flatten(1)
                right = nn.functional.normalize(matrix.T @ torch.tensor(named[f"{name}.direction"]), dim=0)
                normal[0]._v.copy_(right)
                normal[0]._u.copy_(nn.functional.normalize(matrix @ right, dim=0))
        return self.eval()

    def gradients(self):
        for layer in self.convolutions():
            normal = hasattr(layer, "parametrizations")
            yield (layer.parametrizations.weight.original if normal else layer.weight).grad, layer.bias.grad


def make(name, rows):
    space, model = CASES[name]
    policy = Policy(policy_spec(space, Discrete(3), model), rng=np.random.default_rng(0))
    rng = np.random.default_rng(1)
    policy.weights[:] += 0.05 * rng.standard_normal(len(policy.weights)).astype(np.float32)
    shape = policy.spec.encoder.shape
    if name in ("floats", "matrix", "mixed"):
        return policy, rng.standard_normal((rows, *shape), dtype=np.float32)
    return policy, rng.integers(0, 255, (rows, *shape), dtype=np.uint8)


def references(policy, model):
    """A reference for each tower, with its parameters, by the name of the tower's owner."""
    named = {name: np.array(part) for name, part in policy.parameters().items()}
    owners = ("policy", "value") if model.get("vf_share_layers") is False else ("shared",)
    activation = {"elu": nn.ELU()}.get(model.get("conv_activation"), nn.ReLU())
    is_normal = bool(model.get("impala_spectral_norm"))
    channels = policy.spec.torso.images[0].pixels[2]
    sizes = channels, model.get("impala_width", 1), model.get("impala_pool"), is_normal, activation
    return {owner: Reference(*sizes).load(named, owner, is_normal) for owner in owners}, named


def outputs(policy, found, named, rows):
    """Distribution inputs and values by the references' features."""
    spec = policy.spec
    image, flat = spec.torso.images[0], torch.from_numpy(rows.reshape(len(rows), -1)).float()
    pixels = flat[:, image.start : image.start + image.size].reshape(len(rows), *image.shape) * image.scale
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    pixels = pixels if image.channels_first else pixels.movedim(-1, 1)
    results = []
    for head in ("policy", "value"):
        owner = head if head in found else "shared"
        x = torch.cat([found[owner](pixels), *(flat[:, a:b] * scale for a, b, scale in spec.torso.others)], 1)
        for index, activation in enumerate(spec.activations):
            weight, bias = (torch.tensor(named[f"{owner}.hidden_{index}.{part}"]) for part in ("weight", "bias"))
            x = {"relu": torch.relu, "tanh": torch.tanh}[activation](nn.functional.linear(x, weight, bias))
        results.append(x @ torch.tensor(named[f"{head}.head.weight"]).T + torch.tensor(named[f"{head}.head.bias"]))
    return results[0], results[1][:, 0]


@each_case
def test_acting_and_learning_compute_the_reference(name):
    policy, rows = make(name, 11)
    before = policy.weights.copy()
    found, named = references(policy, CASES[name][1])
    with torch.no_grad():
        expected = outputs(policy, found, named, rows)
        learning = TorchNetwork(policy.layout, policy.spec.activations, torch.from_numpy(policy.weights))
        for results in (policy.network.forward(rows), learning(torch.from_numpy(rows))):
            for part, wanted in zip(results, expected):
                np.testing.assert_allclose(part, wanted, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(policy.weights, before)  # directions move where gradients are taken alone


@each_case
def test_gradients_are_those_of_the_reference(name):
    policy, rows = make(name, 5)
    found, named = references(policy, CASES[name][1])
    network = TorchNetwork(policy.layout, policy.spec.activations, torch.from_numpy(policy.weights))
    rng = np.random.default_rng(2)
    d_dist_inputs, d_values = (torch.from_numpy(rng.standard_normal(shape)).float() for shape in ((5, 3), 5))

    def loss_of(dist_inputs, values):
        return (dist_inputs * d_dist_inputs).sum() + (values * d_values).sum()

    loss_of(*outputs(policy, found, named, rows)).backward()
    backward(loss_of(*network(torch.from_numpy(rows))), [network])
    gradient = policy.layout.named_parameters(network.flat.grad)
    for owner, reference in found.items():
        for index, (weight, bias) in enumerate(reference.gradients()):
            layer = f"{owner}.image_0_conv_{index}"
            for part, expected in (("weight", weight), ("bias", bias)):
                difference = gradient[f"{layer}.{part}"] - expected
                length, distance = (np.linalg.norm(each.numpy()) for each in (expected, difference))
                assert distance < 1e-4 * length, layer
            if f"{layer}.direction" in gradient:
                assert not gradient[f"{layer}.direction"].any()


def test_updates_find_the_largest_singular_value():
    """By one step of power iteration each; features are then those of kernels divided by numpy's value."""
    policy, rows = make("spectral", 3)
    network = TorchNetwork(policy.layout, policy.spec.activations, torch.from_numpy(policy.weights))
    first = network(torch.from_numpy(rows))[0].detach()
    for _ in range(300):
        network(torch.from_numpy(rows))
    last = network(torch.from_numpy(rows))[0].detach()
    assert (first - last).abs().max() > 1e-3
    named = policy.parameters()
    for index in range(15):
        layer = f"shared.image_0_conv_{index}"
        kernel = named[f"{layer}.weight"]
        if index % 5:
            direction, matrix = named[f"{layer}.direction"], kernel.reshape(len(kernel), -1)
            largest = np.linalg.norm(matrix.astype(np.float64), 2)
            assert np.linalg.norm(direction) == pytest.approx(1)
            assert np.linalg.norm(matrix.T @ direction) == pytest.approx(largest, rel=1e-3), layer
            kernel /= np.float32(largest)
        else:
            assert f"{layer}.direction" not in named
    plain = Policy(policy_spec(LAST, Discrete(3), IMPALA))
    for name, part in plain.parameters().items():
        part[...] = named[name]
    np.testing.assert_allclose(plain.network.forward_policy(rows), last, rtol=1e-3, atol=1e-3)


def test_sizes_are_those_of_btr():
    """2304 features of Atari's images: 6 x 6 places with 64 channels."""
    atari = Box(0, 255, (4, 84, 84), np.uint8)
    btr = {**IMPALA, "impala_width": 2, "impala_pool": 6, "impala_spectral_norm": True}
    torso = policy_spec(atari, Discrete(6), btr).torso
    assert torso.num_features == 2304
    assert [layer.out_shape for layer in torso.images[0].layers[::5]] == [(84, 84, 32), (42, 42, 64), (21, 21, 64)]
    plain = policy_spec(atari, Discrete(6), {"conv_filters": "impala"})
    assert plain.torso.num_features == 11 * 11 * 32 and plain.hiddens == (256,)


@each_case
def test_description_and_parameters(name):
    space, model = CASES[name]
    spec = policy_spec(space, Discrete(2), model)
    assert spec_from_json(json.loads(json.dumps(spec.to_json()))) == spec
    flat = np.zeros(spec.layout().size, np.float32)
    for parameter in spec.layout().named_parameters(flat).values():
        parameter += 1
    assert (flat == 1).all()


@pytest.mark.parametrize(
    ("space", "model", "message"),
    [
        (LAST, {"impala_width": 2}, r"impala_width=2: it is of the .* Use .*\{'conv_filters': 'impala'\}"),
        (LAST, {"conv_filters": "nature", "impala_pool": 6}, "impala_pool=6 and conv_filters='nature'"),
        (LAST, {**IMPALA, "impala_width": 1.5}, "impala_width=1.5 must be an integer >= 1"),
        (LAST, {**IMPALA, "impala_pool": 0}, "impala_pool=0 must be an integer >= 1 or None"),
        (LAST, {**IMPALA, "impala_pool": 3}, r"leaves \[2, 2\] places of an image of \[13, 11, 2\]"),
        (LAST, {**IMPALA, "impala_spectral_norm": 1}, "must be True or False"),
        (LAST, {**IMPALA, "layer_norm": True}, "has no layer normalisation"),
        (Box(-1, 1, (4,)), IMPALA, "is for images"),
    ],
    ids=str,
)
def test_wrong_settings_say_what_to_do(space, model, message):
    with pytest.raises(ValueError, match=message):
        policy_spec(space, Discrete(2), model)
