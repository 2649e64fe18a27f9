"""Initial weights: against torch's own layers, and that value-based algorithms begin like these."""

import math

import numpy as np
import pytest
import torch

from rllib.algorithms.dqn import DQNConfig
from rllib.models.dense.initializers import INITIALIZERS, uniform
from rllib.models.dense.layout import LayersLayout
from rllib.models.model_settings import ModelSettings


def test_uniform_begins_like_torch_layers():
    layout = LayersLayout(50, (300, 200), {"policy": 10})
    weights = np.zeros(layout.size, np.float32)
    uniform(layout, weights, np.random.default_rng(0))
    torch.manual_seed(0)
    layers = {"shared.hidden_0": (50, 300), "shared.hidden_1": (300, 200), "policy.head": (200, 10)}
    for name, (fan_in, width) in layers.items():
        linear = torch.nn.Linear(fan_in, width)
        for kind, theirs in (("weight", linear.weight), ("bias", linear.bias)):
            ours, theirs = layout.named_parameters(weights)[f"{name}.{kind}"], theirs.detach().numpy()
            assert ours.shape == theirs.shape
            assert abs(ours).max() <= 1 / math.sqrt(fan_in)
            np.testing.assert_allclose(ours.std(), theirs.std(), rtol=0.05 if kind == "weight" else 0.6)


@pytest.mark.parametrize("name", ["xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal"])
def test_hidden_layers_begin_like_the_functions_of_torch(name):
    layout = LayersLayout(50, (300, 200), {"policy": 10})
    weights = np.zeros(layout.size, np.float32)
    INITIALIZERS[name](layout, weights, np.random.default_rng(0))
    named, theirs = layout.named_parameters(weights), torch.empty(200, 300)
    torch.manual_seed(0)
    given = {"nonlinearity": "relu"} if name.startswith("kaiming") else {}
    getattr(torch.nn.init, f"{name}_")(theirs, **given)
    np.testing.assert_allclose(named["shared.hidden_1.weight"].std(), theirs.std(), rtol=0.02)
    if name.endswith("uniform"):
        np.testing.assert_allclose(abs(named["shared.hidden_1.weight"]).max(), theirs.abs().max(), rtol=0.01)
    assert not named["shared.hidden_1.bias"].any() and named["policy.head.bias"].any()


def test_initializers_are_named_as_in_torch():
    zeros = {"fcnet_bias_initializer": torch.nn.init.constant_, "fcnet_bias_initializer_kwargs": {"val": 0.0}}
    given = {"fcnet_kernel_initializer": torch.nn.init.xavier_uniform_, **zeros}
    assert ModelSettings(given)["fcnet_weights_initializer"] == "xavier_uniform"
    with pytest.raises(ValueError, match=r"fcnet_bias_initializer.*is not available"):
        ModelSettings(zeros)
    with pytest.raises(ValueError, match=r"'fcnet_bias_initializer'.*is not available"):
        ModelSettings({**given, "fcnet_bias_initializer": torch.nn.init.ones_})
    with pytest.raises(ValueError, match="there are orthogonal, uniform, xavier_uniform"):
        ModelSettings({"fcnet_kernel_initializer": torch.nn.init.dirac_})


@pytest.mark.parametrize("name", INITIALIZERS)
def test_seeds(name):
    layout, drawn = LayersLayout(4, (8,), {"policy": 2, "value": 1}, None), []
    for seed in (0, 0, 1):
        weights = np.zeros(layout.size, np.float32)
        INITIALIZERS[name](layout, weights, np.random.default_rng(seed))
        drawn.append(weights)
    assert np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[0], drawn[2])


@pytest.mark.parametrize(("model", "has_bias"), [({}, True), ({"fcnet_weights_initializer": "orthogonal"}, False)])
def test_action_values_begin_uniformly_unless_told_otherwise(model, has_bias):
    with DQNConfig().environment("CartPole-v1").training(model=model).build() as algo:
        assert algo.policy.parameters()["policy.head.bias"].any() == has_bias
        assert np.array_equal(algo.policy.weights, algo.trainee.target.weights)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="fcnet_weights_initializer='xavier' must be"):
        DQNConfig().environment("CartPole-v1").training(model={"fcnet_weights_initializer": "xavier"}).build()
