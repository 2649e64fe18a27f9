"""Networks of groups against the members' own networks, their spaces, and mixers against the paper's formula."""

import json

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rllib.models.architectures import spec_from_json
from rllib.models.catalog.catalog import policy_spec
from rllib.models.catalog.groups import group_spec, member_spaces, read_by_member
from rllib.models.dense.in_numpy import NumpyNetwork
from rllib.models.distributions.joint_q_values import JointQValues
from rllib.models.groups.in_torch import MonotonicMixing
from rllib.models.groups.mixer import MonotonicMixer
from rllib.models.observations.masks import LOWEST
from rllib.policy import Policy

PART = Dict(action_mask=MultiBinary(3), obs=Box(-np.inf, np.inf, (4,), np.float32), state=Box(-1, 1, (2,), np.float32))
PARTS = {
    "numbers": Box(-np.inf, np.inf, (4,), np.float32),
    "one of n": Discrete(5),
    "parts": Dict(a=Discrete(3), b=Box(-1, 1, (2,), np.float32)),
    "state": Dict(obs=Box(-1, 1, (4,), np.float32), state=Box(-1, 1, (2,), np.float32)),
    "state in the middle": Dict(obs=Box(-1, 1, (4,)), state=Box(-1, 1, (2,)), time=Box(0, 1, (1,))),
    "mask and state": PART,
}


def spec_of(part=PART, count=2, actions=3, ids=True, observation_filter="NoFilter", **model):
    found = member_spaces(Tuple([part] * count), MultiDiscrete([actions] * count))
    model = {"fcnet_hiddens": [8], **model}
    read = read_by_member(part, "action_mask", "state")
    alone = policy_spec(read, Discrete(actions), model, observation_filter=observation_filter)
    return group_spec(alone, found, model, mask_key="action_mask", state_key="state", ids=ids)


def drawn(part, rows, count=2):
    """Rows as they are stored, and the members' parts of each."""
    space = Tuple([part] * count)
    space.seed(3)
    samples = [space.sample() for _ in range(rows)]
    return np.array([spaces.flatten(space, each) for each in samples], np.float32), samples


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("name", PARTS)
def test_each_member_is_judged_by_the_shared_network_from_its_own_part(name, ids):
    part = PARTS[name]
    spec = spec_of(part, count=3, ids=ids)
    policy = Policy(spec, rng=np.random.default_rng(0))
    network = NumpyNetwork(policy.layout, spec.activations, policy.weights)
    rows, samples = drawn(part, 6, count=3)
    expected = np.empty((6, 3, 3))
    for row, sample in enumerate(samples):
        for member, seen in enumerate(sample):
            read = seen
            if isinstance(part, Dict):
                kept = [key for key in part.spaces if key not in ("action_mask", "state")]
                read = np.concatenate([spaces.flatten(part[key], seen[key]) for key in kept])
            else:
                read = spaces.flatten(part, seen)
            number = np.eye(3)[member] if ids else []
            inputs = np.concatenate([read, number, [1]]).astype(np.float32)
            expected[row, member] = network.forward_policy(inputs[None])[0]
            if name == "mask and state" and seen["action_mask"].any():
                expected[row, member, seen["action_mask"] == 0] = LOWEST
    np.testing.assert_allclose(policy.action_values(rows).q_values(), expected, rtol=1e-5, atol=1e-6)
    module = spec.masked_torch(policy.layout, torch.from_numpy(policy.weights), policy.network)
    outputs, no_values = module(torch.from_numpy(policy.encode(rows)))
    np.testing.assert_allclose(outputs.detach().reshape(6, 3, 3), expected, rtol=1e-5, atol=1e-6)
    assert not len(no_values)


@pytest.mark.parametrize("name", PARTS)
def test_a_mixer_reads_the_state_or_what_all_members_read(name):
    part = PARTS[name]
    spec = spec_of(part)
    rows, samples = drawn(part, 4)
    encoded = Policy(spec).encode(rows)
    ranges = spec.architecture.members.mixed_by(spec.encoder.num_choices if spec.is_masked else 0)
    found = np.concatenate([encoded[:, start:stop] for start, stop in ranges], 1)
    has_state = isinstance(part, Dict) and "state" in part.spaces
    expected = [sample[0]["state"] if has_state else spaces.flatten(Tuple([part] * 2), sample) for sample in samples]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


@pytest.mark.parametrize("name", PARTS)
def test_the_description_is_read_back(name):
    spec = spec_of(PARTS[name], observation_filter="MeanStdFilter" if name == "numbers" else "NoFilter")
    assert spec_from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_a_filter_leaves_the_masks_of_all_members():
    spec = spec_of(observation_filter="MeanStdFilter")
    rows, _ = drawn(PART, 50)
    filtered = Policy(spec).filter(rows, update=True)
    for mask in (slice(0, 3), slice(9, 12)):
        np.testing.assert_array_equal(filtered[:, mask], rows[:, mask])
    assert abs(filtered[:, 3:7].mean()) < 1e-3 < abs(rows[:, 3:7].mean())


# ---------------------------------------------------------------------- spaces that are none of a group

BOX, TWO = Box(-1, 1, (2,), np.float32), Discrete(2)
REFUSED = {
    "one agent": (BOX, TWO, r"the action space is Discrete\(2\), of one agent. Group agents .* or use DQN"),
    "one agent of numbers": (BOX, Box(-1, 1, (2,)), r"of one agent. Group agents"),
    "no parts": (BOX, Tuple([TWO, TWO]), r"a Tuple or Dict of 2, but it is Box.*Group agents"),
    "other numbers of parts": (Tuple([BOX]), MultiDiscrete([2, 2]), r"a Tuple or Dict of 2, but it is Tuple"),
    "continuous": (Tuple([BOX] * 2), Tuple([TWO, Box(-1, 1, (1,))]), r"members need Discrete actions, but 1 has Box"),
    "other actions": (Tuple([BOX] * 2), Tuple([TWO, Discrete(3)]), r"equal numbers of actions, but .* has 2, 3.*mask"),
    "other observations": (
        Tuple([BOX, Box(-1, 1, (3,))]),
        MultiDiscrete([2, 2]),
        r"equal observation spaces, but 0 has Box.*\(2,\).* and 1 has Box.*\(3,\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_spaces_of_no_group_are_refused(name):
    observation, action, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        member_spaces(observation, action)


def test_parts_that_no_network_reads_are_refused():
    image = Box(0, 255, (84, 84, 3), np.uint8)
    with pytest.raises(ValueError, match="its members observe images"):
        spec_of(image)
    with pytest.raises(ValueError, match="its members observe images"):
        spec_of(Dict(obs=BOX, state=image))
    with pytest.raises(ValueError, match=r"nothing that its network reads.*Add a part 'obs'"):
        spec_of(Dict(action_mask=MultiBinary(3), state=BOX))
    with pytest.raises(ValueError, match=r"'action_mask' is MultiBinary.*2 numbers, but the actions have 3 choices"):
        spec_of(Dict(action_mask=MultiBinary(2), obs=BOX))


# ---------------------------------------------------------------------- actions


def test_members_explore_independently_of_one_another():
    joint, rng = JointQValues(2, 4), np.random.default_rng(0)
    values = np.tile(np.array([9, 0, 0, 0, 0, 0, 9, 0], np.float32), (20_000, 1))
    actions = joint.sample(values, joint.noise(rng, 20_000, epsilon=0.4))
    other = actions != [0, 2]
    # A member takes another action than its best with probability .4 * 3/4, and both do so with the square of it.
    np.testing.assert_allclose(other.mean(0), 0.3, atol=0.02)
    assert other.all(1).mean() == pytest.approx(0.09, abs=0.01)
    assert (joint.mode(values) == [0, 2]).all()


def test_epsilon_may_differ_from_step_to_step():
    joint = JointQValues(3, 2)
    noise = joint.noise(np.random.default_rng(0), 2, 500, epsilon=np.array([[0.0], [1.0]]))
    assert noise.shape == (2, 500, 3, 2)
    assert not noise[0].any() and np.isinf(noise[1]).any(-1).all()


@pytest.mark.parametrize("exploration", [{"epsilon": 1.0}, {"temperature": 5.0}])
def test_illegal_actions_are_never_taken(exploration):
    joint = JointQValues(2, 3, masked=True)
    values = np.tile(np.array([0, LOWEST, 1, LOWEST, 2, LOWEST], np.float32), (2000, 1))
    actions = joint.sample(values, joint.noise(np.random.default_rng(0), 2000, **exploration))
    assert set(actions[:, 0]) == {0, 2} and set(actions[:, 1]) == {1}


# ---------------------------------------------------------------------- the mixer


def mixing(members=3, state=((1, 3),), embed_dim=5, seed=0):
    torch.manual_seed(seed)
    return MonotonicMixing(members, state, embed_dim)


@pytest.mark.parametrize("seed", range(10))
def test_the_mixed_value_never_falls_when_a_members_value_rises(seed):
    mixer, rng = mixing(seed=seed), np.random.default_rng(seed)
    values = torch.from_numpy(rng.normal(0, 10, (64, 3)).astype(np.float32))
    inputs = torch.from_numpy(rng.normal(0, 3, (64, 4)).astype(np.float32))
    raised = values + torch.from_numpy(rng.exponential(2, (64, 3)).astype(np.float32))
    assert (mixer(raised, inputs) >= mixer(values, inputs) - 1e-3).all()
    values.requires_grad_()
    (slopes,) = torch.autograd.grad(mixer(values, inputs).sum(), values)
    assert (slopes >= 0).all() and (slopes > 0).any()


def test_the_mixer_is_the_papers_formula():
    mixer = mixing()
    weights = {name: each.detach().numpy().astype(np.float64) for name, each in mixer.named_parameters()}

    def linear(name, rows):
        return rows @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    rng = np.random.default_rng(1)
    values, inputs = rng.normal(0, 1, (6, 3)), rng.normal(0, 1, (6, 4))
    state, expected = inputs[:, 1:3], []
    for row, s in zip(values, state):
        hidden = row @ abs(linear("hidden_weights", s)).reshape(3, 5) + linear("hidden_bias", s)
        hidden = np.where(hidden > 0, hidden, np.exp(hidden) - 1)
        last = linear("final_bias.2", np.maximum(linear("final_bias.0", s), 0))
        expected.append(hidden @ abs(linear("final_weights", s)) + last[0])
    with torch.no_grad():
        found = mixer(torch.from_numpy(values).float(), torch.from_numpy(inputs).float())
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_mixers_weights_lie_in_the_flat_vector():
    described = MonotonicMixer(2, ((0, 3),), 4)
    layout = described.layout({})
    weights = np.zeros(layout.size, np.float32)
    described.initialize(layout, weights, np.random.default_rng(0))
    again = np.zeros_like(weights)
    described.initialize(layout, again, np.random.default_rng(0))
    np.testing.assert_array_equal(weights, again)
    module = described.torch(layout, torch.from_numpy(weights))
    values, state = torch.ones(1, 2), torch.ones(1, 3)
    before = float(module(values, state).detach())
    weights[:] = 0
    assert before != 0 == float(module(values, state).detach())
