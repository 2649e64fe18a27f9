"""Action masks: a masked network against closed forms, torch, and the same network without the illegal action."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rllib import sample_batch as sb
from rllib.learners.learner import make_learner
from rllib.learners.updates.objective import Objective
from rllib.losses.ppo import PPO_LOSS
from rllib.losses.td import DistributionalLoss, TDLoss, q_targets
from rllib.models.architectures import spec_from_json
from rllib.models.catalog import policy_spec
from rllib.models.distributions.q_values import QValues
from rllib.models.distributions.standard import Categorical, MultiCategorical
from rllib.models.observations.encoders import BoxEncoder, MaskedEncoder, encoder_from_json
from rllib.models.observations.masks import LOWEST, MaskedOutputs, choice_problem
from rllib.models.tensors import encoded as encoded_tensor
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch
from tests.learners.learner_support import SETTINGS

BOX = Box(-np.inf, np.inf, (4,))
THREE, CATEGORICAL = Discrete(3), Categorical(3)
LOGITS = np.array([[0.2, -1.0, 2.0]], np.float32)


def masked_space(count=3, inner=BOX):
    return Dict(action_mask=MultiBinary(count), observations=inner)


def masked_policy(action_space=THREE, space=None, seed=0, distribution=None, **model):
    space = space or masked_space()
    spec = policy_spec(space, action_space, {"fcnet_hiddens": [16], **model}, action_mask_key="action_mask")
    if distribution is not None:
        spec = replace(spec, distribution=distribution, critic=False, vf_share_layers=True)
    return Policy(spec, rng=np.random.default_rng(seed))


def masked_logits(logits, mask, distribution=CATEGORICAL):
    """By the same steps as a network's."""
    outputs = np.array(logits, np.float32)
    masks = MaskedOutputs(distribution)
    masks.write(outputs, masks.illegal(np.asarray(mask)))
    return outputs


class TestClosedForms:
    """Logits [.2, -1, 2] with the mask [1, 0, 1]: p and H of the softmax over the first and the third."""

    def test_probabilities_and_entropy(self):
        batch = Categorical(3).at(masked_logits(LOGITS, [[1, 0, 1]]))
        np.testing.assert_allclose(batch.probabilities, [[0.141851, 0, 0.858149]], atol=1e-6)
        assert batch.entropy() == pytest.approx(0.408310, abs=1e-6)

    def test_a_mask_twice_is_a_mask_once(self):
        once = masked_logits(LOGITS, [[1, 0, 1]])
        assert np.array_equal(masked_logits(once, [[1, 0, 1]]), once)

    def test_nothing_is_nan_with_a_single_legal_action(self):
        inputs = masked_logits(np.repeat(LOGITS, 3, 0), np.eye(3))
        batch = Categorical(3).at(inputs)
        log_p, entropy, kl = batch.log_prob(np.arange(3)), batch.entropy(), batch.kl_from(inputs)
        for result in (log_p, entropy, kl):
            np.testing.assert_array_equal(result, np.zeros(3))
        gradient = batch.gradient(np.ones(3, np.float32), 0.1, 0.2)
        np.testing.assert_array_equal(gradient, np.zeros((3, 3)))

    def test_the_gradient_is_that_of_torch_and_zero_where_illegal(self):
        rng = np.random.default_rng(0)
        raw, mask = rng.normal(size=(50, 5)).astype(np.float32), rng.random((50, 5)) < 0.5
        mask[np.arange(50), rng.integers(5, size=50)] = True
        actions = np.array([rng.choice(np.flatnonzero(row)) for row in mask])
        inputs, old = (masked_logits(logits, mask, Categorical(5)) for logits in (raw, raw + 0.3 * raw**2))
        batch, weight = Categorical(5).at(inputs), rng.normal(size=50).astype(np.float32)
        batch.log_prob(actions), batch.entropy(), batch.kl_from(old)
        leaf = torch.tensor(raw, requires_grad=True)
        masked = torch.where(torch.tensor(mask), leaf, float(LOWEST))
        other = Categorical(5).torch_at(masked)
        terms = torch.tensor(weight) * other.log_prob(torch.tensor(actions)) + 0.3 * other.entropy()
        (terms + 0.7 * other.kl_from(torch.tensor(old))).sum().backward()
        gradient = batch.gradient(weight, 0.3, 0.7)
        np.testing.assert_allclose(gradient, leaf.grad, atol=1e-6)
        assert not gradient[~mask].any()

    def test_each_part_has_its_own_choices(self):
        distribution = MultiCategorical((2, 3))
        inputs = masked_logits(np.zeros((1, 5)), [[0, 1, 1, 0, 1]], distribution)
        assert distribution.at(inputs).entropy() == pytest.approx(np.log(2))
        assert distribution.mode(inputs).tolist() == [[1, 0]]

    def test_a_row_without_a_legal_choice_counts_as_all_legal_and_is_known(self):
        masks = MaskedOutputs(MultiCategorical((2, 3)))
        mask = np.array([[1, 0, 0, 0, 0], [0, 1, 1, 0, 0]])
        outputs = np.zeros((2, 5), np.float32)
        masks.write(outputs, masks.illegal(mask))
        assert (outputs == LOWEST).tolist() == [[False, True, False, False, False], [True, False, False, True, True]]
        assert masks.without_choice.tolist() == [True, False]
        masks.illegal(mask[1:])
        assert masks.without_choice is None


# ---------------------------------------------------------------------- masked = without the action

EXTRA = 40.0  # what the illegal action would be worth: far more than the others


def without_and_with(kind, seed=0):
    """A policy for two actions, and a masked one for three: its first two have the same weights, the third others."""
    distributions = {
        "policy": (None, None),
        "q": (QValues(2), QValues(3, masked=True)),
        "dueling": (QValues(2, True), QValues(3, True, masked=True)),
        "distributional": (QValues(2, True, 5), QValues(3, True, 5, masked=True)),
    }[kind]
    shared = {"vf_share_layers": kind != "policy"}
    spec = policy_spec(BOX, Discrete(2), {"fcnet_hiddens": [16], **shared})
    if distributions[0] is not None:
        spec = replace(spec, distribution=distributions[0], critic=False)
    plain = Policy(spec, rng=np.random.default_rng(seed))
    masked = masked_policy(distribution=distributions[1], seed=seed + 1, **shared)
    atoms = getattr(spec.distribution, "num_atoms", 1)
    for name, array in masked.parameters().items():
        own = plain.parameters()[name]
        if name.startswith("policy.head"):
            array[: 2 * atoms] = own[: 2 * atoms]
            array[3 * atoms :] = own[2 * atoms :]
            array[2 * atoms : 3 * atoms] += EXTRA
        else:
            array[...] = own
    return plain, masked


def with_mask(observations):
    """The same observations, the third action illegal."""
    return np.concatenate([np.tile(np.float32([1, 1, 0]), (len(observations), 1)), observations], axis=1)


def observations_of(rows, seed=3):
    return np.random.default_rng(seed).standard_normal((rows, 4), dtype=np.float32)


@pytest.mark.parametrize("kind", ["policy", "q", "dueling", "distributional"])
def test_the_outputs_are_those_of_a_network_without_the_action(kind):
    plain, masked = without_and_with(kind)
    rows = observations_of(20)
    if kind == "policy":
        own, other = (p.distribution.at(p.dist_inputs(o)) for p, o in ((plain, rows), (masked, with_mask(rows))))
        np.testing.assert_allclose(other.log_probabilities[:, :2], own.log_probabilities, atol=1e-6)
        np.testing.assert_allclose(other.entropy(), own.entropy(), atol=1e-6)
        np.testing.assert_allclose(masked.values(with_mask(rows)), plain.values(rows), atol=1e-6)
    else:
        own, other = plain.action_values(rows).q_values(), masked.action_values(with_mask(rows)).q_values()
        np.testing.assert_allclose(other[:, :2], own, atol=1e-5)
        assert (other[:, 2] < -1e38).all()


def columns_of(plain, rows, seed=5):
    """A batch for the policy without the third action."""
    rng, observations = np.random.default_rng(seed), observations_of(rows)
    distribution, dist_inputs = plain.distribution, plain.dist_inputs(observations)
    actions = distribution.sample(dist_inputs, plain.noise(rng, rows))
    batch = {sb.OBS: observations, sb.ACTIONS: actions, sb.WEIGHTS: rng.random(rows, dtype=np.float32)}
    if not distribution.has_log_prob:
        following, rewards = observations_of(rows, 9), rng.standard_normal(rows, dtype=np.float32)
        return batch | {sb.NEXT_OBS: following, sb.REWARDS: rewards}
    advantages, targets = rng.standard_normal((2, rows), dtype=np.float32)
    return batch | {
        sb.ACTION_DIST_INPUTS: dist_inputs,
        sb.ACTION_LOGP: plain.log_prob(dist_inputs, actions),
        sb.VF_PREDS: plain.values(observations),
        sb.ADVANTAGES: advantages,
        sb.VALUE_TARGETS: targets,
    }


def add_targets(policy, batch):
    """Double Q-learning's targets by the policy itself."""
    judged = policy.action_values(batch.pop(sb.NEXT_OBS))
    discounts = np.full(len(batch[sb.OBS]), 0.9, np.float32)
    name, targets = q_targets(policy.distribution, judged, judged.q_values(), batch.pop(sb.REWARDS), discounts)
    batch[name] = targets


@pytest.mark.parametrize("learner", ["numpy", "torch"])
@pytest.mark.parametrize("kind", ["policy", "q", "dueling", "distributional"])
def test_updates_are_those_of_a_network_without_the_action(kind, learner):
    plain, masked = without_and_with(kind)
    batch = columns_of(plain, 96)
    masked_batch = {
        name: with_mask(column) if name in (sb.OBS, sb.NEXT_OBS) else column for name, column in batch.items()
    }
    if kind == "policy":
        inputs = masked.dist_inputs(masked_batch[sb.OBS])
        np.testing.assert_array_equal(inputs[:, 2], LOWEST)
        masked_batch[sb.ACTION_DIST_INPUTS] = inputs
        loss, settings = PPO_LOSS, SETTINGS
    else:
        add_targets(plain, batch), add_targets(masked, masked_batch)
        loss, settings = DistributionalLoss() if kind == "distributional" else TDLoss(), {}
    found = []
    for policy, columns in ((plain, batch), (masked, masked_batch)):
        made = make_learner(policy, Objective(loss, grad_clip=0.5), kind=learner)
        rng = np.random.default_rng(7)
        found.append(made.update(SampleBatch(columns), num_epochs=4, minibatch_size=32, rng=rng, lr=3e-3, **settings))
    for name, number in found[0].items():
        np.testing.assert_allclose(found[1][name], number, rtol=1e-3, atol=1e-5, err_msg=name)
    rows = observations_of(20, 11)
    own, other = plain.dist_inputs(rows), masked.dist_inputs(with_mask(rows))
    if kind == "policy":
        np.testing.assert_allclose(other[:, :2], own, atol=1e-5)
    else:
        own, other = plain.distribution.at(own).q_values(), masked.distribution.at(other).q_values()
        np.testing.assert_allclose(other[:, :2], own, atol=2e-5)


# ---------------------------------------------------------------------- action values


def test_the_target_is_the_best_legal_action_of_the_next_observation():
    policy = masked_policy(distribution=QValues(3, masked=True))
    rows = observations_of(6)
    free = np.concatenate([np.ones((6, 3), np.float32), rows], axis=1)
    q = policy.action_values(free).q_values().copy()
    best = q.argmax(1)
    following = free.copy()
    following[np.arange(6), best] = 0
    judged = policy.action_values(following)
    _, targets = q_targets(
        policy.distribution, judged, judged.q_values(), np.zeros(6, np.float32), np.ones(6, np.float32)
    )
    q[np.arange(6), best] = -np.inf
    np.testing.assert_allclose(targets, q.max(1), atol=1e-6)


@pytest.mark.parametrize("atoms", [1, 7])
def test_a_shift_of_the_legal_advantages_changes_nothing(atoms):
    values = QValues(3, True, atoms, -2.0, 5.0, masked=True)
    inputs = np.random.default_rng(0).standard_normal((values.num_inputs, 9), dtype=np.float32)
    inputs[atoms : 2 * atoms] = LOWEST
    shifted = inputs.copy()
    shifted[:atoms] += 4.5
    shifted[2 * atoms : 3 * atoms] += 4.5
    before, after = (values.at(each.T).q_values() for each in (inputs, shifted))
    np.testing.assert_allclose(after, before, atol=2e-5)
    if atoms == 1:
        np.testing.assert_allclose(before[:, [0, 2]].mean(1), inputs[3], atol=1e-6)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("atoms", [1, 7])
def test_masked_values_in_numpy_and_torch_agree(dueling, atoms):
    values = QValues(3, dueling, atoms, -2.0, 5.0, masked=True)
    inputs = np.random.default_rng(0).standard_normal((values.num_inputs, 9), dtype=np.float32)
    inputs[:atoms, :4] = LOWEST
    inputs, actions = inputs.T, np.array([1, 2, 1, 2, 0, 1, 2, 0, 1])
    leaf = torch.tensor(inputs.copy(), requires_grad=True)
    batch, reference = values.at(inputs), values.torch_at(leaf)
    np.testing.assert_allclose(batch.q_values(), reference.q_values().detach(), atol=1e-5)
    chosen = reference.chosen(torch.from_numpy(actions))
    np.testing.assert_allclose(batch.chosen(actions), chosen.detach(), atol=1e-6)
    weights = np.random.default_rng(1).standard_normal(chosen.shape).astype(np.float32)
    (chosen * torch.from_numpy(weights)).sum().backward()
    np.testing.assert_allclose(batch.gradient(weights), leaf.grad, atol=1e-6)


def test_random_actions_are_legal_and_equally_frequent():
    """Chi-square with two degrees of freedom: below 13.8 in 999 of 1,000."""
    values, count = QValues(4, masked=True), 30_000
    inputs = np.tile(np.float32([900, LOWEST, -900, 5]), (count, 1))
    actions = values.sample(inputs, values.noise(np.random.default_rng(0), count, epsilon=1.0))
    counts = np.bincount(actions, minlength=4)
    assert counts[1] == 0
    assert (((counts[[0, 2, 3]] - count / 3) ** 2) / (count / 3)).sum() < 13.8


def test_only_the_share_epsilon_is_random_and_the_rest_is_the_best_legal():
    values = QValues(3, masked=True)
    inputs = np.tile(np.float32([1, 2, LOWEST]), (20_000, 1))
    actions = values.sample(inputs, values.noise(np.random.default_rng(0), 20_000, epsilon=0.3))
    assert (actions == 0).mean() == pytest.approx(0.15, abs=0.01)
    assert not (actions == 2).any()


# ---------------------------------------------------------------------- what a policy makes of a space


def test_a_mask_may_stand_in_several_ranges_of_a_row():
    encoder = MaskedEncoder(BoxEncoder((3,)), ((1, 3), (5, 6)))
    rows = np.arange(12.0, dtype=np.float32).reshape(2, 6)
    encoded = np.ones((2, 7), np.float32)
    encoder.encode(rows, encoded)
    np.testing.assert_array_equal(encoded[0], [1, 2, 5, 0, 3, 4, 1])
    np.testing.assert_array_equal(encoder.mask(rows), encoded[:, :3])
    assert torch.equal(encoded_tensor(encoder, torch.from_numpy(rows)), torch.from_numpy(encoded))
    assert encoder_from_json(encoder.to_json()) == encoder


def test_a_description_of_an_earlier_version_has_one_range():
    data = {"kind": "masked", "inner": BoxEncoder((4,)).to_json(), "start": 0, "stop": 3, "shown": False}
    assert encoder_from_json(data) == MaskedEncoder(BoxEncoder((4,)), ((0, 3),))


@pytest.mark.parametrize(
    ("space", "columns"),
    [
        (Dict(action_mask=MultiBinary(3), observations=BOX), (0, 3)),
        (Dict(a=BOX, action_mask=MultiBinary(3), b=Discrete(2)), (4, 7)),
        (Dict(a=Discrete(5), action_mask=MultiBinary(3)), (5, 8)),
        (Dict(action_mask=Box(0, 1, (3,), np.int8), observations=BOX), (0, 3)),
        (Dict(action_mask=Box(0, 1, (3,), np.float64), observations=BOX), (0, 3)),
        (Dict(action_mask=Tuple([MultiBinary(1), MultiBinary(2)]), observations=BOX), (0, 3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("observation_filter", ["NoFilter", "MeanStdFilter"])
def test_the_network_reads_the_other_columns(space, columns, observation_filter):
    spec = policy_spec(space, Discrete(3), observation_filter=observation_filter, action_mask_key="action_mask")
    assert spec.encoder.ranges == (columns,)
    size = spec.encoder.size
    rows = np.arange(2.0 * size, dtype=np.float32).reshape(2, size)
    encoded = np.ones((2, size + 1), np.float32)
    spec.encoder.encode(rows, encoded)
    mask, others = spec.encoder.split(encoded)
    np.testing.assert_array_equal(mask, rows[:, slice(*columns)])
    np.testing.assert_array_equal(others[:, :-1], np.delete(rows, np.r_[slice(*columns)], axis=1))
    assert (others[:, -1] == 1).all()
    assert spec_from_json(spec.to_json()) == spec


def test_a_filter_leaves_the_mask_alone():
    policy = Policy(
        policy_spec(masked_space(), Discrete(3), observation_filter="MeanStdFilter", action_mask_key="action_mask")
    )
    rows = np.concatenate([np.eye(3), 5 + np.random.default_rng(0).normal(size=(3, 4))], axis=1)
    filtered = policy.filter(rows, update=True)
    np.testing.assert_array_equal(filtered[:, :3], np.eye(3))
    assert abs(filtered[:, 3:]).max() < 5


@pytest.mark.parametrize("start", ["first", "last"])
def test_an_image_has_its_convolutions_beside_a_mask(start):
    image = Box(0, 255, (10, 10, 1), np.uint8)
    space = (
        Dict(action_mask=MultiBinary(3), image=image)
        if start == "first"
        else Dict([("image", image), ("action_mask", MultiBinary(3))])
    )
    policy = masked_policy(space=space, conv_filters=[[4, [3, 3], 2]])
    plain = Policy(policy_spec(image, Discrete(3), {"fcnet_hiddens": [16], "conv_filters": [[4, [3, 3], 2]]}))
    plain.set_weights(policy.weights)
    rng = np.random.default_rng(0)
    pixels, mask = rng.integers(0, 256, (5, 10, 10, 1), np.uint8), np.tile(np.uint8([1, 0, 1]), (5, 1))
    parts = [mask, pixels.reshape(5, -1)] if start == "first" else [pixels.reshape(5, -1), mask]
    outputs = policy.dist_inputs(np.concatenate(parts, axis=1))
    assert (outputs[:, 1] == LOWEST).all()
    np.testing.assert_allclose(outputs[:, [0, 2]], plain.dist_inputs(pixels)[:, [0, 2]], atol=1e-5)


@pytest.mark.parametrize(
    ("space", "action_space", "message"),
    [
        (masked_space(2), Discrete(3), r"'action_mask' is MultiBinary\(2\), 2 numbers, .* 3 choices.*MultiBinary\(3\)"),
        (masked_space(3), MultiDiscrete([3, 2]), r"5 choices"),
        (masked_space(2), Box(-1, 1, (2,)), "continuous actions cannot be masked"),
        (
            Dict(action_mask=Discrete(3), observations=BOX),
            Discrete(3),
            r"is Discrete\(3\), but a mask is zeros and ones",
        ),
        (Dict(action_mask=Box(-1, 1, (3,)), observations=BOX), Discrete(3), "a mask is zeros and ones"),
        (Dict(action_mask=MultiBinary(3)), Discrete(3), "hold nothing but 'action_mask'"),
    ],
)
def test_what_is_no_mask_is_refused(space, action_space, message):
    with pytest.raises(ValueError, match=message + r".*action_mask_key=None"):
        policy_spec(space, action_space, action_mask_key="action_mask")


def test_no_key_no_mask():
    for space, key in ((masked_space(), None), (masked_space(), "mask"), (BOX, "action_mask")):
        assert not isinstance(policy_spec(space, Discrete(3), action_mask_key=key).encoder, MaskedEncoder)


@pytest.mark.parametrize(
    ("masks", "acting", "row"),
    [
        ([[1, 0, 1, 0, 0], [0, 1, 0, 1, 1]], None, None),
        ([[1, 0, 1, 0, 0], [0, 0, 0, 1, 1]], None, 1),  # the first part has no choice
        ([[1, 0, 0, 0, 0], [0, 0, 0, 1, 1]], None, 0),  # the second part
        ([[1, 0, 0, 0, 0], [0, 0, 0, 1, 1]], [False, True], 1),
        ([[1, 0, 0, 0, 0], [0, 0, 0, 1, 1]], [False, False], None),
    ],
)
def test_the_first_row_without_a_choice_is_named(masks, acting, row):
    acting = None if acting is None else np.array(acting)
    problem = choice_problem(np.array(masks, bool), MultiCategorical([2, 3]), lambda row: f"row {row} is stuck", acting)
    if row is None:
        assert problem is None
    else:
        assert problem.startswith(f"row {row} is stuck: the action mask is {masks[row]}, ")
