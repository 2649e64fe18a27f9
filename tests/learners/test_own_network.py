"""A policy's network of one's own, written once in torch: it acts, and PPO's loss trains it."""

import gymnasium as gym
import numpy as np
import pytest
from learner_support import SETTINGS, make_batch
from torch import nn

from rllib.learners.learner import make_learner
from rllib.losses.ppo import PPO_LOSS
from rllib.models.catalog.catalog import policy_spec
from rllib.models.user.module import CustomSpec
from rllib.policy import Policy

WIDTH = 16


class Gated(nn.Module):
    """One gated layer, for policy and value; no closed form of it is in the library."""

    def __init__(self, num_inputs, num_outputs):
        super().__init__()
        self.features, self.gate = nn.Linear(num_inputs, WIDTH), nn.Linear(num_inputs, WIDTH)
        self.policy, self.value = nn.Linear(WIDTH, num_outputs), nn.Linear(WIDTH, 1)

    def forward(self, observations):
        h = self.features(observations).tanh() * self.gate(observations).sigmoid()
        return self.policy(h), self.value(h)[:, 0]


class Convolution(nn.Module):
    """A module for images [8, 8, 1]."""

    def __init__(self, num_inputs, num_outputs):
        super().__init__()
        assert num_inputs == 64
        self.features, self.policy, self.value = nn.Conv2d(1, 2, 8), nn.Linear(2, num_outputs), nn.Linear(2, 1)

    def forward(self, images):
        h = self.features(images.permute(0, 3, 1, 2).float()).flatten(1)
        return self.policy(h), self.value(h)[:, 0]


VECTORS, IMAGES = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Box(0, 255, (8, 8, 1), np.uint8)
BOTH = gym.spaces.Dict({"image": IMAGES, "vector": VECTORS})  # stored as rows of 64 + 4 numbers


def make_policy(space=VECTORS, module=Gated, seed=0, **model):
    spec = CustomSpec.of(policy_spec(space, gym.spaces.Discrete(3), model), module)
    return Policy(spec, rng=np.random.default_rng(seed))


def test_it_acts_by_its_weights():
    policy = make_policy()
    batch = make_batch(policy, 20)
    named = policy.parameters()
    h = np.tanh(batch["obs"] @ named["features.weight"].T + named["features.bias"])
    h /= 1 + np.exp(-(batch["obs"] @ named["gate.weight"].T + named["gate.bias"]))
    expected = h @ named["policy.weight"].T + named["policy.bias"]
    np.testing.assert_allclose(batch["action_dist_inputs"], expected, atol=1e-5)
    np.testing.assert_allclose(batch["vf_preds"], (h @ named["value.weight"].T + named["value.bias"])[:, 0], atol=1e-5)


def test_its_constructor_draws_the_weights_by_the_seed():
    first, again, other = make_policy().weights, make_policy().weights, make_policy(seed=1).weights
    np.testing.assert_array_equal(first, again)
    assert (first != other).all() and abs(first).max() <= 0.5  # torch.nn.Linear: within 1 / sqrt(4)


@pytest.mark.parametrize(
    ("space", "module", "model"),
    [
        (VECTORS, Gated, {}),
        (IMAGES, Convolution, {"conv_filters": [[4, 8, 1]]}),
        (BOTH, Gated, {"conv_filters": [[4, 8, 1]]}),
    ],
    ids=["vectors", "images", "both"],
)
def test_a_learner_trains_it_in_place(space, module, model):
    policy = make_policy(space, module, **model)
    learner = make_learner(policy, PPO_LOSS)
    batch, before = make_batch(policy, 256), policy.weights.copy()
    losses = [
        learner.update(batch, rng=np.random.default_rng(0), num_epochs=epochs, lr=lr, **SETTINGS)["total_loss"]
        for epochs, lr in ((1, 0.0), (10, 1e-2))
    ]
    assert losses[1] < losses[0] and (policy.weights != before).all()
    acted = make_batch(policy, 256)
    assert not np.allclose(acted["action_dist_inputs"], batch["action_dist_inputs"], atol=1e-3)
    assert policy.choose(batch["obs"]).shape == (256,)
