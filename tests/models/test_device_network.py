"""Networks that act on a device; the CPU's tensors stand for those of a GPU where there is none."""

import gymnasium as gym
import numpy as np
import pytest

from rllib.models.catalog.catalog import policy_spec
from rllib.policy import Policy
from tests.gpu import DEVICES

IMAGE = gym.spaces.Box(0, 255, (20, 20, 3), np.uint8)
ROW = gym.spaces.Box(-1, 1, (5,), np.float32)
MASKED = gym.spaces.Dict({"observations": ROW, "action_mask": gym.spaces.MultiBinary(3)})
CASES = {
    "towers": (ROW, gym.spaces.Discrete(3), {"vf_share_layers": False}),
    "shared": (ROW, gym.spaces.Box(-1, 1, (2,)), {"vf_share_layers": True, "free_log_std": True}),
    "images": (IMAGE, gym.spaces.Discrete(3), {"conv_filters": [[8, [4, 4], 2], [16, [3, 3], 2]]}),
    "masks": (MASKED, gym.spaces.Discrete(3), {}),
    "layer norm": (ROW, gym.spaces.Discrete(3), {"layer_norm": True}),
}


def acted(policy, observations, noise):
    dist_inputs = np.empty((len(observations), policy.num_dist_inputs), np.float32)
    actions = np.empty((len(observations), *policy.action_shape), policy.action_dtype)
    values = np.empty(len(observations), np.float32) if policy.gives_values else None
    policy.act(observations, noise, dist_inputs, actions, values)
    return actions, dist_inputs, policy.values(observations) if values is None else values


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_acts_as_without_a_device(case, device):
    observation_space, action_space, model = CASES[case]
    if case == "masks":
        spec = policy_spec(observation_space, action_space, {"fcnet_hiddens": [16]}, action_mask_key="action_mask")
    else:
        spec = policy_spec(observation_space, action_space, {"fcnet_hiddens": [16], **model})
    here, there = (Policy(spec, rng=np.random.default_rng(0)) for _ in range(2))
    assert there.act_on(device)
    rng = np.random.default_rng(1)
    column = rng.integers(0, 2, (7, *spec.encoder.shape)).astype(np.uint8 if case == "images" else np.float32)
    noise = here.noise(rng, 7)
    for given, expected in zip(acted(there, column, noise), acted(here, column, noise), strict=True):
        np.testing.assert_allclose(given, expected, atol=1e-5)
    # New weights reach the device.
    weights = here.weights * np.float32(0.5)
    for policy in (here, there):
        policy.set_weights(weights)
    for given, expected in zip(acted(there, column, noise), acted(here, column, noise), strict=True):
        np.testing.assert_allclose(given, expected, atol=1e-5)


def test_a_memory_stays_on_the_cpu():
    policy = Policy(policy_spec(ROW, gym.spaces.Discrete(2), {"use_lstm": True, "lstm_cell_size": 8}))
    network = policy.network
    assert not policy.act_on("cpu")
    assert policy.network is network
