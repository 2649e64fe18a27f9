"""A policy's network of one's own, written once in torch: it acts, and PPO's loss trains it."""

import math
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from learner_support import SETTINGS, make_batch
from torch import nn

from rllib.learners.learner import make_learner
from rllib.losses.ppo import PPO_LOSS
from rllib.models.catalog import PolicySpec, policy_spec
from rllib.models.torch_network import ActingNetwork, FlatModule
from rllib.policy import Policy

WIDTH = 16


class Gated(nn.Module):
    """One gated layer, for policy and value; no closed form of it is in the library."""

    def __init__(self, num_inputs, num_outputs):
        super().__init__()
        self.features, self.gate = nn.Linear(num_inputs, WIDTH), nn.Linear(num_inputs, WIDTH)
        self.policy, self.value = nn.Linear(WIDTH, num_outputs), nn.Linear(WIDTH, 1)

    def forward(self, inputs):
        observations = inputs[:, :-1]
        h = self.features(observations).tanh() * self.gate(observations).sigmoid()
        return self.policy(h), self.value(h)[:, 0]


class InOrder:
    """Where a module's parameters lie: one after the other, as FlatModule has them."""

    def __init__(self, module, num_inputs):
        self.num_inputs = num_inputs
        self.shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
        self.size = sum(map(math.prod, self.shapes.values()))

    def named_parameters(self, flat):
        named, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            named[name], start = flat[start:stop].reshape(shape), stop
        return named


@dataclass(frozen=True)
class GatedSpec(PolicySpec):
    def make(self):
        return Gated(self.encoder.size, self.distribution.num_inputs)

    def layout(self):
        return InOrder(self.make(), self.encoder.size)

    def initialize(self, layout, weights, rng):
        weights[:] = 0.3 * rng.standard_normal(layout.size)

    def network(self, layout, weights, backend="torch"):
        return ActingNetwork(self.torch(layout, torch.from_numpy(weights), None), gives_values=True)

    def torch(self, layout, flat, acting):
        return FlatModule(self.make(), flat)


def make_policy(seed=0):
    plain = policy_spec(gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3))
    return Policy(GatedSpec(plain.encoder, plain.distribution, (), ()), rng=np.random.default_rng(seed))


def test_it_acts_by_its_weights():
    policy = make_policy()
    batch = make_batch(policy, 20)
    named = policy.parameters()
    h = np.tanh(batch["obs"] @ named["features.weight"].T + named["features.bias"])
    h /= 1 + np.exp(-(batch["obs"] @ named["gate.weight"].T + named["gate.bias"]))
    expected = h @ named["policy.weight"].T + named["policy.bias"]
    np.testing.assert_allclose(batch["action_dist_inputs"], expected, atol=1e-5)
    np.testing.assert_allclose(batch["vf_preds"], (h @ named["value.weight"].T + named["value.bias"])[:, 0], atol=1e-5)


def test_a_learner_trains_it_in_place():
    policy = make_policy()
    learner = make_learner(policy, PPO_LOSS)
    batch, before = make_batch(policy, 256), policy.weights.copy()
    told = [
        learner.update(batch, rng=np.random.default_rng(0), num_epochs=epochs, lr=lr, **SETTINGS)["total_loss"]
        for epochs, lr in ((1, 0.0), (10, 1e-2))
    ]
    assert told[1] < told[0] and (policy.weights != before).all()
    acted = make_batch(policy, 256)
    assert not np.allclose(acted["action_dist_inputs"], batch["action_dist_inputs"], atol=1e-3)
    assert policy.compute_actions(batch["obs"]).shape == (256,)
