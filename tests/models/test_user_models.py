"""Networks of the user's by the plain contract: what they are called with, and what is refused."""

import importlib
import pickle
import sys
import threading
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from torch import nn

from rllib import register_model
from rllib.env.spaces.observations import observation_column
from rllib.learners.learner import make_learner
from rllib.losses.ppo import PPO_LOSS
from rllib.models.catalog.catalog import policy_spec
from rllib.models.distributions import names as registry
from rllib.models.observations.structure import Structure, sampled_rows
from rllib.policy import Policy
from rllib.registered import MODELS
from tests.learners.learner_support import SETTINGS, make_batch

torch.set_num_threads(1)  # operations this small are slower on several

BOX, ACTIONS = Box(-1, 1, (4,)), Discrete(3)
PIXELS = Box(0, 255, (5, 5, 1), np.uint8)
NESTED = Dict(
    {
        "camera": PIXELS,
        "numbers": Tuple([Discrete(4, start=-1), MultiDiscrete([[2, 3], [2, 2]]), MultiBinary(3)]),
        "speed": Box(-1, 1, (2, 2), np.float64),
        "count": Box(0, 9, (), np.int64),
    }
)


class Net(nn.Module):
    """Reads vectors."""

    def __init__(self, observation_space, action_space, num_outputs, width=16, frozen=False):
        super().__init__()
        self.first = nn.Linear(observation_space.shape[0], width)
        self.policy, self.value = nn.Linear(width, num_outputs), nn.Linear(width, 1)
        self.first.weight.requires_grad_(not frozen)

    def forward(self, observation):
        h = torch.tanh(self.first(observation))
        return self.policy(h), self.value(h).squeeze(-1)


def policy_of(model, space=BOX, seed=0, **config):
    spec = policy_spec(space, ACTIONS, {"custom_model": model, "custom_model_config": config})
    spec.check()
    return Policy(spec, rng=np.random.default_rng(seed))


# ---------------------------------------------------------------------- what a module gets


def leaves_of(value):
    """The leaves of nested dicts and tuples, keys in order."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves_of(value[key])]
    return [leaf for part in value for leaf in leaves_of(part)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("space", [BOX, PIXELS, Discrete(5, start=2), MultiDiscrete([3, 2]), NESTED], ids=str)
def test_observations_come_back_in_the_form_of_their_space(space):
    space.seed(3)
    samples = [space.sample() for _ in range(6)]
    rows = np.stack([observation_column(space).row(sample) for sample in samples])
    found = Structure(space).of_rows(torch.from_numpy(rows))
    for index, sample in enumerate(samples):
        for expected, tensor in zip(leaves_of(sample), leaves_of(found), strict=True):
            expected = np.asarray(expected)
            np.testing.assert_array_equal(tensor[index].numpy(), expected.astype(tensor.numpy().dtype))
            assert tensor.dtype == (torch.float32 if expected.dtype.kind == "f" else torch.from_numpy(expected).dtype)


def test_one_hot_structures_are_floats():
    rows = torch.from_numpy(sampled_rows(NESTED, 3, filtered=False))
    leaves = leaves_of(Structure(NESTED, one_hot=True).of_rows(rows))
    assert {leaf.dtype for leaf in leaves} == {torch.float32}
    assert [tuple(leaf.shape[1:]) for leaf in leaves] == [(5, 5, 1), (), (4,), (9,), (3,), (2, 2)]
    numbers = torch.tensor([2, 4])
    assert Structure(Discrete(5, start=2), one_hot=True).of_rows(numbers).argmax(1).tolist() == [0, 2]


@pytest.mark.parametrize("space", [BOX, PIXELS, Discrete(5, start=2), MultiBinary(3), NESTED], ids=str)
def test_made_up_rows_are_stored_as_real_ones(space):
    column = observation_column(space)
    rows = sampled_rows(space, 2, filtered=False)
    assert rows.shape == (2, *column.shape) and rows.dtype == column.dtype
    np.testing.assert_array_equal(rows, sampled_rows(space, 2, filtered=False))


class OfNested(nn.Module):
    """Reads NESTED: every leaf in its form."""

    def __init__(self, observation_space, action_space, num_outputs):
        super().__init__()
        self.camera, self.choice = nn.Linear(25, 8), nn.Embedding(4, 8)
        self.rest = nn.Linear(4 + 3 + 4 + 1, 8)
        self.policy, self.value = nn.Linear(8, num_outputs), nn.Linear(8, 1)

    def forward(self, observation):
        choice, grid, bits = observation["numbers"]
        numbers = [grid.flatten(1), bits, observation["speed"].flatten(1), observation["count"][:, None]]
        h = self.camera(observation["camera"].flatten(1) / 255) + self.choice(choice + 1)
        h = torch.tanh(h + self.rest(torch.cat([part.float() for part in numbers], dim=1)))
        return self.policy(h), self.value(h)[:, 0]


def test_a_nested_observation_is_acted_upon_and_learned_from():
    policy = policy_of(OfNested, NESTED)
    batch = rows_batch(policy, sampled_rows(NESTED, 64, filtered=False))
    stats = make_learner(policy, PPO_LOSS).update(batch, rng=np.random.default_rng(0), lr=1e-2, **SETTINGS)
    assert np.isfinite(stats["total_loss"]) and stats["grad_gnorm"] > 0


def rows_batch(policy, rows):
    batch = make_batch(policy_of(Net), len(rows))
    dist_inputs = policy.dist_inputs(rows)
    batch["obs"], batch["action_dist_inputs"] = rows, dist_inputs
    batch["action_logp"], batch["vf_preds"] = policy.log_prob(dist_inputs, batch["actions"]), policy.values(rows)
    return batch


# ---------------------------------------------------------------------- weights


def test_the_constructor_draws_the_weights_by_the_seed_of_the_run():
    first, again, other = policy_of(Net).weights, policy_of(Net).weights, policy_of(Net, seed=1).weights
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


def test_torch_s_generator_is_left_as_it_was():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    policy_of(Net)
    assert torch.equal(torch.rand(1), expected)


def test_frozen_parameters_stay():
    policy = policy_of(Net, frozen=True)
    before = {name: array.copy() for name, array in policy.parameters().items()}
    make_learner(policy, PPO_LOSS).update(make_batch(policy, 64), rng=np.random.default_rng(0), lr=1e-2, **SETTINGS)
    for name, array in policy.parameters().items():
        assert (array != before[name]).any() == (name != "first.weight"), name


def test_constant_buffers_agree_between_processes_whatever_their_generator_has_drawn():
    class WithFeatures(Net):
        def __init__(self, *args):
            super().__init__(*args)
            self.register_buffer("features", torch.randn(4, 4))

        def forward(self, observation):
            return super().forward(observation @ self.features)

    policy = policy_of(WithFeatures)
    torch.manual_seed(99)
    other = Policy(policy.spec, policy.weights.copy())
    rows = sampled_rows(BOX, 5, filtered=False)
    np.testing.assert_array_equal(policy.dist_inputs(rows), other.dist_inputs(rows))


# ---------------------------------------------------------------------- the built-in network, written as a module


class Copy(nn.Module):
    """Two towers of two tanh layers, as the built-in network has them, with its names of parameters."""

    def __init__(self, observation_space, action_space, num_outputs):
        super().__init__()

        def tower(outputs):
            sizes = (("hidden_0", observation_space.shape[0], 16), ("hidden_1", 16, 16), ("head", 16, outputs))
            return nn.ModuleDict({name: nn.Linear(before, after) for name, before, after in sizes})

        self.policy, self.value = tower(num_outputs), tower(1)

    def forward(self, observation):
        return self.through(self.policy, observation), self.through(self.value, observation).squeeze(-1)

    def through(self, tower, h):
        h = torch.tanh(tower["hidden_1"](torch.tanh(tower["hidden_0"](h))))
        return tower["head"](h)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_copy_of_the_built_in_network_acts_and_learns_like_it(kind):
    spec = policy_spec(BOX, ACTIONS, {"fcnet_hiddens": [16, 16], "vf_share_layers": False})
    built_in, own = Policy(spec, rng=np.random.default_rng(0)), policy_of(Copy)
    for name, array in own.parameters().items():
        array[...] = built_in.parameters()[name]
    batch = make_batch(built_in, 256)
    np.testing.assert_allclose(own.dist_inputs(batch["obs"]), batch["action_dist_inputs"], atol=1e-6)
    np.testing.assert_allclose(own.values(batch["obs"]), batch["vf_preds"], atol=1e-6)
    learners = make_learner(built_in, PPO_LOSS, kind=kind), make_learner(own, PPO_LOSS)
    for learner in learners:
        learner.update(batch, rng=np.random.default_rng(1), num_epochs=5, minibatch_size=64, lr=1e-3, **SETTINGS)
    for name, array in own.parameters().items():
        np.testing.assert_allclose(array, built_in.parameters()[name], atol=1e-5, err_msg=name)


# ---------------------------------------------------------------------- what is refused


class Wrong(Net):
    """Net with one thing wrong."""

    def __init__(self, *args, wrong, **kwargs):
        super().__init__(*args, **kwargs)
        self.wrong = wrong
        self.norm, self.drop = nn.BatchNorm1d(16), nn.Dropout(0.5)

    def forward(self, observation):
        h = torch.tanh(self.first(observation))
        if self.wrong == "BatchNorm":
            h = self.norm(h)
        if self.wrong == "Dropout":
            h = self.drop(h)
        dist_inputs, values = self.policy(h), self.value(h).squeeze(-1)
        return {
            "values alone": values,
            "three outputs": (dist_inputs, values, values),
            "wide": (torch.cat([dist_inputs, dist_inputs], dim=1), values),
            "value column": (dist_inputs, values[:, None]),
            "double": (dist_inputs, values.double()),
            "nan": (dist_inputs * float("nan"), values),
            "-inf": (dist_inputs.where(dist_inputs == dist_inputs.amax(-1, keepdim=True), -torch.inf), values),
            "mixed rows": (dist_inputs - dist_inputs.mean(0), values),
        }.get(self.wrong, (dist_inputs, values))


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ("values alone", r"must return \(dist_inputs, values\), but returned float32\[2\]"),
        ("three outputs", r"returned \(float32\[2, 3\], float32\[2\], float32\[2\]\)"),
        ("wide", r"dist_inputs must be float32\[2, 3\] .* returned float32\[2, 6\]"),
        ("value column", r"values must be float32\[2\] .* returned float32\[2, 1\]\. Return values\.squeeze\(-1\)"),
        ("double", r"returned float64\[2\]\. Return values\.float\(\)"),
        ("nan", "not finite, such as nan"),
        ("-inf", r"such as -inf\..*torch\.finfo\(torch\.float32\)\.min"),
        ("mixed rows", "it mixes rows"),
        ("BatchNorm", r"changes its buffer 'norm\.running_mean'"),
        ("Dropout", r"other results for the same observations.*It has drop\."),
    ],
)
def test_a_network_that_breaks_the_contract_is_refused(wrong, match):
    with pytest.raises(ValueError, match=f"(?s)the custom model Wrong cannot be used: .*{match}"):
        policy_of(Wrong, wrong=wrong)


def test_other_networks_that_cannot_be_used():
    class Double(Net):
        def __init__(self, *args):
            super().__init__(*args)
            self.double()

    class Lazy(Net):
        def __init__(self, *args):
            super().__init__(*args)
            self.first = nn.LazyLinear(16)

    class Empty(Net):
        def __init__(self, *args):
            super().__init__(*args)
            self.requires_grad_(False)

    with pytest.raises(ValueError, match=r"'first\.weight' is torch\.float64"):
        policy_of(Double)
    with pytest.raises(ValueError, match=r"'first\.weight' has no shape yet"):
        policy_of(Lazy)
    with pytest.raises(ValueError, match="no parameters to train"):
        policy_of(Empty)
    with pytest.raises(TypeError, match=r"is no torch\.nn\.Module"):
        policy_of(lambda *args: 5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'widht'") as raised:
        policy_of(Net, widht=3)
    assert "custom_model_config={'widht': 3}" in "".join(raised.value.__notes__)
    with pytest.raises(RuntimeError) as raised:
        policy_of(Net, PIXELS)  # Net reads vectors
    assert "made-up observations of Box(0, 255, (5, 5, 1), uint8): uint8[2, 5, 5, 1]" in "".join(raised.value.__notes__)


def test_names_and_settings():
    register_model("net", Net)
    assert policy_of("net").spec.architecture.model is Net
    with pytest.raises(ValueError, match=r"'nett' is no registered name; .* Did you mean net\?"):
        policy_of("nett")
    with pytest.raises(ValueError, match="must be a class, or a registered name"):
        policy_of(5)
    with pytest.raises(ValueError, match=r"custom_model_config.* must be a dict"):
        policy_spec(BOX, ACTIONS, {"custom_model": Net, "custom_model_config": ["width"]})
    with pytest.raises(TypeError, match="needs a string"):
        register_model(Net, "net")


def test_what_was_registered_is_registered_in_another_process(monkeypatch):
    register_model("sent", Net)
    register_model("stays", ThreadLock())
    sent = pickle.dumps(MODELS.entries())
    monkeypatch.setattr(MODELS, "_values", {})
    for entry in pickle.loads(sent):
        entry.register()
    assert registry.resolved("custom_model", "sent") is Net
    with pytest.raises(ValueError, match=r"'stays' was registered in another process and cannot be sent here \(Type"):
        registry.resolved("custom_model", "stays")


def test_another_process_imports_no_module_for_a_registered_network_that_it_does_not_use(monkeypatch, tmp_path):
    Path(tmp_path, "large_module.py").write_text("class Net: ...")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(MODELS, "_values", {})
    register_model("unused", importlib.import_module("large_module").Net)
    sent = pickle.dumps(MODELS.entries())
    del sys.modules["large_module"]
    for entry in pickle.loads(sent):
        entry.register()
    assert "large_module" not in sys.modules
    assert registry.resolved("custom_model", "unused").__module__ in sys.modules


class ThreadLock:
    """Something that can be called, but not pickled."""

    def __init__(self):
        self.lock = threading.Lock()

    def __call__(self, *args): ...


class Remembers(Net):
    """A network with a memory, of which one thing may be wrong."""

    def __init__(self, *args, initial=None, returned=None):
        super().__init__(*args)
        self.initial = [torch.zeros(2), torch.zeros(3, 2)] if initial is None else initial
        self.returned = returned

    def initial_state(self):
        return self.initial

    def forward(self, observation, state):
        return *super().forward(observation), state if self.returned is None else self.returned(state)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"initial": [torch.ones(2)]}, r"must be float32 zeros.* but is \[float32\[2\]\]"),
        ({"initial": [torch.zeros(2, dtype=torch.float64)]}, "must be float32 zeros"),
        ({"initial": torch.zeros(2)}, "must be a list of tensors"),
        ({"returned": lambda state: state[0]}, r"must be a list of 2 tensors .* but is float32\[2, 2\]"),
        ({"returned": lambda state: [state[0], state[1][:, 0]]}, r"state\[1\] must be float32\[2, 3, 2\]"),
        ({"returned": lambda state: [state[0] * torch.nan, state[1]]}, r"state\[0\] of made-up .* not finite"),
    ],
)
def test_a_state_that_breaks_the_contract_is_refused(wrong, match):
    with pytest.raises(ValueError, match=match):
        policy_of(Remembers, **wrong)


def test_a_state_is_a_list_outside_and_flat_inside():
    policy = policy_of(Remembers)
    assert [part.shape for part in policy.get_initial_state()] == [(2,), (3, 2)] and policy.state_size == 8
    state = np.arange(16, dtype=np.float32).reshape(2, 8)
    following = np.empty_like(state)
    policy.network.step(sampled_rows(BOX, 2, filtered=False), state, following)
    np.testing.assert_array_equal(following, state)


def test_settings_that_a_custom_model_does_not_read_are_named(caplog):
    policy_spec(BOX, ACTIONS, {"custom_model": Net, "fcnet_hiddens": [32], "vf_share_layers": False})
    assert "model settings ['fcnet_hiddens'] have no part in the custom model" in caplog.text


def test_the_distribution_follows_the_settings():
    model = {"custom_model": Net, "squash_actions": True}
    spec = policy_spec(BOX, Box(-1, 1, (2,)), model)
    assert spec.distribution.kind == "squashed_gaussian"
    with pytest.raises(ValueError, match="needs continuous actions"):
        policy_spec(BOX, ACTIONS, model)


def test_a_filter_cannot_standardise_choices():
    with pytest.raises(ValueError, match="would standardise the choices"):
        policy_spec(NESTED, ACTIONS, {"custom_model": OfNested}, observation_filter="MeanStdFilter")
    spec = policy_spec(BOX, ACTIONS, {"custom_model": Net}, observation_filter="MeanStdFilter")
    assert Policy(spec).filters_observations
    assert gym.spaces.flatdim(BOX) == spec.encoder.size
