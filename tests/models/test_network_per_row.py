"""Rows with weights of their own: the same numbers as N policies give one after the other."""

import dataclasses

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib.models.catalog.catalog import policy_spec
from rllib.models.dense.in_numpy import NetworkPerRow
from rllib.policy import Policy

OBSERVATIONS = Box(-1.0, 1.0, (5,), np.float32)


@pytest.mark.parametrize("critic", [True, False])
@pytest.mark.parametrize(
    ("actions", "model"),
    [
        (Discrete(3), {"fcnet_hiddens": []}),
        (Discrete(3), {"fcnet_hiddens": [7], "fcnet_activation": "relu"}),
        (Discrete(3), {"fcnet_hiddens": [8, 6], "vf_share_layers": True}),
        (Box(-1.0, 1.0, (2,), np.float32), {"fcnet_hiddens": [8, 6, 4], "fcnet_activation": "swish"}),
        (Box(-1.0, 1.0, (2,), np.float32), {"fcnet_hiddens": [8], "free_log_std": True}),
        (Discrete(3), {"fcnet_hiddens": [8, 6], "layer_norm": True}),
        (Discrete(3), {"fcnet_hiddens": [8], "layer_norm": True, "vf_share_layers": True}),
        (Discrete(3), {"fcnet_hiddens": [], "output_layer_use_bias": False}),
        (Discrete(3), {"fcnet_hiddens": [8], "output_layer_use_bias": False}),
    ],
)
def test_each_row_is_what_a_policy_with_its_weights_computes(actions, model, critic):
    spec = dataclasses.replace(policy_spec(OBSERVATIONS, actions, {"vf_share_layers": False, **model}), critic=critic)
    layout, rng = spec.layout(), np.random.default_rng(1)
    weights = rng.normal(size=(4, layout.size)).astype(np.float32)
    network = NetworkPerRow(layout, spec.activations, weights)
    observations = rng.normal(size=(4, 5)).astype(np.float32)
    policy = Policy(spec)
    for _ in range(2):
        inputs = policy.encode(observations)
        found = network.forward(inputs).copy()
        for row, vector in enumerate(weights):
            policy.set_weights(vector)
            expected = policy.network.forward_policy(policy.encode(observations[row : row + 1]))[0]
            np.testing.assert_allclose(found[row], expected, rtol=1e-5, atol=1e-5)
        weights[2] = rng.normal(size=layout.size)  # seen by the next pass


@pytest.mark.parametrize("hiddens", [[], [32, 32], [64, 64]])
def test_a_row_does_not_depend_on_the_others(hiddens):
    spec = policy_spec(OBSERVATIONS, Discrete(2), {"fcnet_hiddens": hiddens, "vf_share_layers": True})
    layout, rng = spec.layout(), np.random.default_rng(2)
    weights = rng.normal(size=(9, layout.size)).astype(np.float32)
    inputs = rng.normal(size=(9, 6)).astype(np.float32)
    together = NetworkPerRow(layout, spec.activations, weights).forward(inputs).copy()
    for row in range(9):
        alone = NetworkPerRow(layout, spec.activations, weights[row : row + 1].copy()).forward(inputs[row : row + 1])
        np.testing.assert_array_equal(alone[0], together[row])


def test_weights_of_another_size_are_refused():
    spec = policy_spec(OBSERVATIONS, Discrete(2), {"fcnet_hiddens": [4]})
    with pytest.raises(ValueError, match="float32 weights"):
        NetworkPerRow(spec.layout(), spec.activations, np.zeros((3, 5), np.float32))
