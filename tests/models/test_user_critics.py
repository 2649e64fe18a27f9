"""Critics of the user's: what they are called with, what they compute and what is refused."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from torch import nn

from rllib import register_model
from rllib.env.spaces.observations import observation_column
from rllib.models.catalog.catalog import policy_spec, user_critics
from rllib.models.observations.structure import Structure, sampled_rows
from rllib.models.tensors import decoded, encoded
from rllib.models.user.model_v2 import TorchModelV2
from tests.models.test_user_models import BOX, NESTED, PIXELS, leaves_of

torch.set_num_threads(1)

ACTIONS = Box(-2, 3, (2, 1))
# With an action mask between other parts, first, last, and beside pixels alone.
MASKED = [
    Dict(a=BOX, action_mask=MultiBinary(3), b=Discrete(4, start=2), c=PIXELS),
    Dict(action_mask=MultiBinary(3), b=BOX),
    Dict(Box=PIXELS, action_mask=Box(0, 1, (3,), np.int8)),
]
SPACES = [BOX, Box(-5, 90, (2, 3), np.int32), PIXELS, Discrete(5, start=2), NESTED, *MASKED]


class Critic(nn.Module):
    """Reads vectors."""

    def __init__(self, observation_space, action_space, num_outputs, width=8):
        super().__init__()
        num_inputs = observation_space.shape[0] + int(np.prod(action_space.shape))
        self.first, self.head = nn.Linear(num_inputs, width), nn.Linear(width, num_outputs)

    def forward(self, observation, action):
        return self.head(torch.tanh(self.first(torch.cat([observation, action.flatten(1)], 1))))


def critics_of(model, space=BOX, actions=ACTIONS, config=None, model_filter="NoFilter", num_outputs=None, copies=2):
    policy = policy_spec(
        space,
        actions,
        {"conv_filters": []} if space is PIXELS else {},
        action_mask_key="action_mask",
        observation_filter=model_filter,
    )
    given = {"custom_model": model, "custom_model_config": config or {}}
    reads = ("observation",) if isinstance(actions, Discrete) else ("observation", "action")
    return user_critics(given, space, actions, policy, reads=reads, num_outputs=num_outputs, copies=copies)


def module_of(critics):
    layout = critics.layout({})
    weights = np.empty(layout.size, np.float32)
    critics.initialize(layout, weights, np.random.default_rng(0))
    return critics.torch(layout, torch.from_numpy(weights))


# ---------------------------------------------------------------------- what a critic gets


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_what_was_encoded_is_decoded(space):
    actions = Discrete(3) if space in MASKED else ACTIONS
    encoder = policy_spec(space, actions, action_mask_key="action_mask").encoder
    rows = torch.from_numpy(sampled_rows(space, 7, filtered=False))
    found = decoded(encoder, encoded(encoder, rows))
    assert found.shape == rows.shape
    np.testing.assert_array_equal(found, rows)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_observations_and_actions_come_in_the_form_of_their_spaces(space):
    """Beside an actor of the library's, whose encoding of them is all that there is."""
    seen = []

    class Looks(nn.Module):
        def __init__(self, observation_space, action_space, num_outputs):
            super().__init__()
            self.head = nn.Linear(1, num_outputs)

        def forward(self, observation, *action):
            seen.append((observation, *action))
            rows = len(leaves_of(observation)[0]) if isinstance(observation, dict) else len(observation)
            return self.head(torch.ones(rows, 1)) + sum(each.sum((1, 2))[:, None] for each in action)

    actions = Discrete(3) if space in MASKED else ACTIONS
    critics = critics_of(Looks, space, actions, num_outputs=3 if space in MASKED else None)
    space.seed(3)
    samples = [space.sample() for _ in range(5)]
    rows = torch.from_numpy(np.stack([observation_column(space).row(sample) for sample in samples]))
    taken = [] if space in MASKED else [torch.linspace(-1, 1, 10).reshape(5, 2)]
    values = module_of(critics)(encoded(critics.encoder, rows), *taken)
    assert values.shape == ((2, 5, 3) if space in MASKED else (2, 5))
    observation, *action = seen[-1]
    for found, expected in zip(leaves_of((observation,)), leaves_of((Structure(space).of_rows(rows),)), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    assert [tuple(each.shape) for each in action] == [(5, 2, 1)] * len(taken)


def test_filtered_observations_are_floats():
    critics = critics_of(Critic, Box(0, 9, (4,), np.int64), model_filter="MeanStdFilter")
    assert module_of(critics)(torch.randn(3, 5), torch.zeros(3, 2)).shape == (2, 3)
    with pytest.raises(ValueError, match="would standardise the choices"):
        critics_of(Critic, Dict(a=BOX, b=Discrete(2)), model_filter="MeanStdFilter")


# ---------------------------------------------------------------------- what it computes


@pytest.mark.parametrize("num_outputs", [None, 5])
def test_critics_are_instances_with_weights_of_their_own(num_outputs):
    critics = critics_of(Critic, config={"width": 4}, num_outputs=num_outputs, copies=3)
    module = module_of(critics)
    rows, actions = torch.randn(6, 5), torch.rand(6, 2)
    values = module(rows, actions)
    assert values.shape == ((3, 6) if num_outputs is None else (3, 6, 5))
    for critic, found in zip(module.module, values, strict=True):
        expected = critic(rows[:, :-1], actions.reshape(6, 2, 1))
        assert torch.equal(found, expected[:, 0] if num_outputs is None else expected)
    named = critics.layout({}).named_parameters(module.flat.detach().numpy())
    assert named["0.first.weight"].shape == (4, 6)
    assert (named["0.first.weight"] != named["1.first.weight"]).all()
    assert torch.equal(module.flat.detach(), module_of(critics).flat.detach())  # a seed gives the same again


def test_a_class_is_found_by_its_name():
    register_model("critic", Critic)
    assert critics_of("critic").model is Critic
    with pytest.raises(ValueError, match="'critics' is no registered name"):
        critics_of("critics")


# ---------------------------------------------------------------------- what is refused


class Wrong(Critic):
    """Critic with one thing wrong."""

    def __init__(self, *args, wrong):
        super().__init__(*args)
        self.wrong, self.norm, self.drop = wrong, nn.BatchNorm1d(1), nn.Dropout(0.5)
        if wrong == "double":
            self.double()

    def forward(self, observation, action):
        values = super().forward(observation, action)
        wrong = {
            "column": lambda: values[:, 0],
            "pair": lambda: (values, values),
            "nan": lambda: values * torch.nan,
            "mixed rows": lambda: values - values.mean(0),
            "BatchNorm": lambda: self.norm(values),
            "Dropout": lambda: self.drop(values),
            "detached": lambda: super(Wrong, self).forward(observation, action.detach()),
            "no action": lambda: self.head(torch.tanh(observation.repeat(1, 2))),
            "no gradient": lambda: values.detach(),
        }
        return wrong[self.wrong]() if self.wrong in wrong else values


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ("column", r"values must be float32\[2, 1\] .* returned float32\[2\]\. Return values\.unsqueeze\(-1\)"),
        ("pair", r"values must be float32\[2, 1\] .* returned \(float32\[2, 1\], float32\[2, 1\]\)"),
        ("nan", "not finite, such as nan"),
        ("mixed rows", "it mixes rows"),
        ("BatchNorm", r"changes its buffer '0\.norm\.running_mean'"),
        ("Dropout", "other results for the same observations"),
        ("detached", "no finite gradient with respect to the action"),
        ("no action", "no finite gradient with respect to the action"),
        ("no gradient", "no finite gradient with respect to the action"),
        ("double", r"'0\.first\.weight' is torch\.float64"),
    ],
)
def test_a_critic_that_breaks_the_contract_is_refused(wrong, match):
    with pytest.raises(ValueError, match=f"(?s)the custom critic Wrong cannot be used: .*{match}"):
        critics_of(Wrong, config={"wrong": wrong})


def test_other_critics_that_cannot_be_used():
    class Remembers(Critic):
        def initial_state(self):
            return [torch.zeros(2)]

    class OfRLlib(TorchModelV2, nn.Module): ...

    class Policy(Critic):
        def forward(self, observation):
            return observation

    with pytest.raises(ValueError, match="it has a memory, but rows of the replay are single steps"):
        critics_of(Remembers)
    with pytest.raises(ValueError, match=r"is a network of RLlib's .* forward\(observation, action\)"):
        critics_of(OfRLlib)
    with pytest.raises(TypeError, match=r"made 5, which is no torch\.nn\.Module"):
        critics_of(lambda *args: 5)
    with pytest.raises(TypeError, match="positional argument") as raised:
        critics_of(Policy)
    note = "tried with 2 made-up observations of Box(-1.0, 1.0, (4,), float32): [float32[2, 4], float32[2, 2, 1]]"
    assert note in "".join(raised.value.__notes__)
    with pytest.raises(TypeError, match="unexpected keyword argument 'widht'") as raised:
        critics_of(Critic, config={"widht": 3})
    assert "the custom critic Critic" in "".join(raised.value.__notes__)


def test_settings_that_a_critic_does_not_read_are_named(caplog):
    policy = policy_spec(BOX, ACTIONS, {})
    given = {"custom_model": Critic, "fcnet_hiddens": [32], "layer_norm": True}
    user_critics(given, BOX, ACTIONS, policy, reads=("observation", "action"), num_outputs=None, copies=1)
    assert "model settings ['fcnet_hiddens', 'layer_norm'] have no part in the custom model" in caplog.text
