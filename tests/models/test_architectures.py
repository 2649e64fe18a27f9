"""Every architecture of the library: its JSON, of today and of earlier versions, and its two forms of network."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from rllib.models.architectures import ARCHITECTURES, described_spec, description_of, spec_from_json, spec_without_code
from rllib.models.catalog import policy_spec
from rllib.models.dense.batch_renorm import BatchRenorm
from rllib.models.dense.network_spec import Architecture, NetworkSpec, UserArchitecture
from rllib.models.dense.spec import Dense
from rllib.models.distributions.joint_q_values import JointQValues
from rllib.models.distributions.q_values import QValues
from rllib.models.groups.spec import Group
from rllib.models.implicit.spec import ImplicitQuantiles
from rllib.models.observations.encoders import BoxEncoder
from rllib.models.user.module import CustomSpec, RecurrentSpec
from rllib.policy import Policy

SPACE, WIDTH = Box(-1, 1, (6,)), 6
CHOICES = Discrete(3)


def made(action_space=CHOICES, has_value=True, **model) -> NetworkSpec:
    settings = {"fcnet_hiddens": [8, 8], "vf_share_layers": False, **model}
    return policy_spec(SPACE, action_space, settings, has_value=has_value)


SPECS = {
    "dense": made(),
    "dense, layers of the value": made(vf_hiddens=[5]),
    "dense, state-dependent noise": made(Box(-1, 1, (2,)), use_sde=True),
    "dense, batch renormalisation": dataclasses.replace(
        made().without_value(), architecture=Dense(batch_renorm=BatchRenorm())
    ),
    "noisy": dataclasses.replace(made().without_value(), noisy_layers=2),
    "lstm": made(use_lstm=True, lstm_cell_size=4, post_lstm_hiddens=[5]),
    "gru": made(use_gru=True, lstm_cell_size=4, vf_share_memory=True),
    "attention": made(use_attention=True, attention_dim=8, attention_head_dim=4),
    "residual": made(network="simba", has_value=False).without_value(),
    "implicit": made().without_value(
        distribution=QValues(3, True, 4, quantiles=True, implicit=True), architecture=ImplicitQuantiles(4, 5, 1)
    ),
    "group": NetworkSpec(
        BoxEncoder((WIDTH,)), JointQValues(2, 3), (8,), ("relu",), critic=False, architecture=Group(2, 3, ((0, 2),))
    ),
}


def earlier(spec: NetworkSpec) -> dict:
    """The JSON of a description from before `architecture`: each architecture had an attribute of its own."""
    data = json.loads(json.dumps(spec.to_json()))
    own = data.pop("architecture")
    places = {"memory": "memory", "attention": "memory", "implicit_quantiles": "implicit"}
    if own["kind"] != "dense":
        if own["kind"] == "residual":
            own["network"] = own.pop("name")
        return data | {places.get(own["kind"], own["kind"]): own}
    return data | {name: value for name, value in own.items() if name != "kind"}


def test_all_architectures_are_here():
    assert {type(spec.architecture) for spec in SPECS.values()} == set(ARCHITECTURES)
    assert len({kind.kind for kind in (*ARCHITECTURES, UserArchitecture)}) == len(ARCHITECTURES) + 1
    for name in ("layout", "network", "torch"):
        assert all(getattr(kind, name) is not getattr(Architecture, name) for kind in ARCHITECTURES)


@pytest.mark.parametrize("name", SPECS)
def test_descriptions_of_today_and_of_before_are_read(name):
    spec = SPECS[name]
    for data in (spec.to_json(), earlier(spec), {"memory": None, "members": None, **earlier(spec)}):
        read = spec_from_json(json.loads(json.dumps(data)))
        assert read == spec and hash(read) == hash(spec)


@pytest.mark.parametrize("name", SPECS)
def test_both_forms_compute_the_same(name):
    spec = SPECS[name]
    policy = Policy(spec, rng=np.random.default_rng(0))
    policy.weights[:] += np.random.default_rng(1).normal(0, 0.01, len(policy.weights)).astype(np.float32)
    observations = np.random.default_rng(2).uniform(-1, 1, (5, WIDTH)).astype(np.float32)
    rows, flat = policy.encode(observations), torch.from_numpy(policy.weights.copy())
    module = spec.masked_torch(policy.layout, flat, policy.network)
    if spec.state_shapes:
        lengths, state = np.ones(5, np.int64), np.zeros((5, spec.state_size), np.float32)
        expected = module(torch.from_numpy(rows), torch.from_numpy(lengths), torch.from_numpy(state))[0]
        found = policy.dist_inputs(observations, lengths, state)
    else:
        expected, found = module(torch.from_numpy(rows))[0], policy.dist_inputs(observations)
    np.testing.assert_allclose(found, expected.detach(), atol=1e-5)
    assert np.ptp(found, 0).max() > 1e-4


class Net(nn.Module):
    def __init__(self, num_inputs, num_outputs):
        super().__init__()
        self.policy, self.value = nn.Linear(num_inputs, num_outputs), nn.Linear(num_inputs, 1)

    def forward(self, observations):
        return self.policy(observations), self.value(observations)[:, 0]


class Mine(Dense):
    """Derived from an architecture of the library."""


@pytest.mark.parametrize(
    "kind, more",
    [(CustomSpec, {"make": Net}), (RecurrentSpec, {"make": Net, "state_size": 4, "max_seq_len": 3}), (Mine, {})],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_descriptions_of_user_s_networks_of_today_and_of_before_are_read(kind, more):
    """Their code stands beside the JSON, which without it names no architecture of the library."""
    plain = made()
    spec = dataclasses.replace(plain, architecture=kind(**more))
    today = description_of(spec)
    assert today["spec"] == {**plain.to_json(), "architecture": {"kind": "user"}}
    assert not spec.architecture.is_built_in and plain.architecture.is_built_in
    for description in (today, {"spec": earlier(plain), "custom": {"class": kind, **more}}):
        assert described_spec(description, "checkpoint") == spec
        assert spec_without_code(description).to_json() == spec.to_json()
    assert spec_from_json(today["spec"]).architecture == UserArchitecture()
