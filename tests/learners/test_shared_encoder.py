"""Actor and critics on images: one update against plain torch, with one encoder for both and with separate ones."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from torch.nn import functional

from rllib.errors import NotFiniteError
from rllib.learners.learner import make_learner
from rllib.learners.updates.objective import ModuleVector, Objective
from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.learners.updates.target_copy import TargetCopy
from rllib.losses.sac import ACTOR_LOSS, CRITIC_LOSS, NEXT_NOISE, NOISE
from rllib.models.catalog.catalog import policy_spec
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.dense.spec import Dense
from rllib.models.distributions.squashed import BoundedSquashedGaussian
from rllib.models.modules import FullyConnected, Parameter
from rllib.policy import Policy
from rllib.sample_batch import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, WEIGHTS, SampleBatch
from tests.gpu import DEVICES

torch.set_num_threads(1)

ROWS, ALPHA, TAU, LR = 16, 0.2, 0.1, {"critics": 0.5, "actor": 0.25}
PICTURE = Box(0, 255, (8, 9, 2), np.uint8)
SPACES = {"picture": PICTURE, "picture and numbers": Dict(image=PICTURE, speed=Box(-1, 1, (3,), np.float32))}
FILTERS = [[4, 3, 2, "valid"], [6, 2, 1, "valid"]]
CRITIC_WIDTHS = (16, 12)


def make_policy(space) -> Policy:
    plain = policy_spec(
        space, Box(-1, 1, (2,)), {"conv_filters": FILTERS, "fcnet_hiddens": [10]}, images_skip_layers=False
    )
    spec = NetworkSpec(
        plain.encoder, BoundedSquashedGaussian((2,)), (10,), ("relu",), True, critic=False, torso=plain.torso,
        initializer="uniform", architecture=Dense(),
    )  # fmt: skip
    return Policy(spec, rng=np.random.default_rng(1))


def critics_of(policy, shares: bool) -> FullyConnected:
    return FullyConnected(hiddens=CRITIC_WIDTHS, copies=2, torso=policy.spec.torso, shares_torso=shares)


def make(space, shares: bool, optimizer="sgd", device="cpu"):
    policy = make_policy(space)
    objectives = [
        Objective(CRITIC_LOSS, ("critics",), "critics", OptimizerSettings(optimizer)),
        Objective(ACTOR_LOSS, ("policy",), "actor", OptimizerSettings(optimizer)),
    ]
    return make_learner(
        policy, objectives, modules={"critics": critics_of(policy, shares)}, targets=[TargetCopy("critics", TAU)],
        device=device, rng=np.random.default_rng(2),
    )  # fmt: skip


def make_batch(space, seed=0) -> SampleBatch:
    rng = np.random.default_rng(seed)

    def observations():
        pixels = rng.integers(0, 256, (ROWS, *PICTURE.shape), np.uint8)
        if space is PICTURE:
            return pixels
        return np.concatenate([pixels.reshape(ROWS, -1), rng.uniform(-1, 1, (ROWS, 3))], axis=1).astype(np.float32)

    normal = {name: rng.standard_normal((ROWS, 2), np.float32) for name in (ACTIONS, NOISE, NEXT_NOISE)}
    return SampleBatch(
        {
            OBS: observations(), NEXT_OBS: observations(), **normal, REWARDS: rng.standard_normal(ROWS, np.float32),
            DISCOUNTS: np.full(ROWS, 0.9, np.float32), WEIGHTS: rng.uniform(0.5, 1, ROWS).astype(np.float32),
        }
    )  # fmt: skip


# ---------------------------------------------------------------------- the reference, float64


class Reference:
    """Soft actor-critic on images as one would write it in plain torch.

    Args:
        actor, critics: parameter name -> array, of the learner.
        shares: the actor reads the critics' convolutions, without a gradient.
    """

    def __init__(self, actor, critics, shares: bool):
        leaves = [{n: torch.tensor(a, dtype=torch.float64) for n, a in each.items()} for each in (actor, critics)]
        self.actor, self.critics = leaves
        self.targets = {name: leaf.clone() for name, leaf in self.critics.items()}
        self.shares = shares
        for leaf in (*self.actor.values(), *self.critics.values()):
            leaf.requires_grad_()

    def encoded(self, parameters, prefix, rows):
        rows = torch.tensor(np.asarray(rows, np.float64)).flatten(1)
        x = rows[:, : 8 * 9 * 2].unflatten(1, (8, 9, 2)).permute(0, 3, 1, 2) / 255
        for index, stride in enumerate((2, 1)):
            name = f"{prefix}image_0_conv_{index}"
            x = functional.conv2d(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"], stride).relu()
        return torch.cat([x.permute(0, 2, 3, 1).flatten(1), rows[:, 8 * 9 * 2 :]], 1)

    def values(self, parameters, rows, actions):
        x = torch.cat([self.encoded(parameters, "encoder.", rows), actions], 1)
        return torch.stack([self.layers(parameters, f"{each}.", x)[:, 0] for each in (0, 1)])

    @staticmethod
    def layers(parameters, prefix, x, head=""):
        index = 0
        while f"{prefix}hidden_{index}.weight" in parameters:
            name = f"{prefix}hidden_{index}"
            x = functional.linear(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"]).relu()
            index += 1
        head = head or f"{prefix}head"
        return functional.linear(x, parameters[f"{head}.weight"], parameters[f"{head}.bias"])

    def drawn(self, rows, noise):
        if self.shares:
            features = self.encoded(self.critics, "encoder.", rows).detach()
        else:
            features = self.encoded(self.actor, "shared.", rows)
        mean, log_std = self.layers(self.actor, "shared.", features, "policy.head").chunk(2, 1)
        raw = mean + log_std.exp() * torch.tensor(noise, dtype=torch.float64)
        normal = torch.distributions.Normal(mean, log_std.exp())
        return raw.tanh(), (normal.log_prob(raw) - torch.log(1 - raw.tanh().square())).sum(1)

    def update(self, batch):
        """A step of the critics, then of the actor, then of the target copies."""
        columns = {n: torch.tensor(batch[n], dtype=torch.float64) for n in (ACTIONS, REWARDS, DISCOUNTS, WEIGHTS)}
        with torch.no_grad():
            actions, log_prob = self.drawn(batch[NEXT_OBS], batch[NEXT_NOISE])
            soft = self.values(self.targets, batch[NEXT_OBS], actions).amin(0) - ALPHA * log_prob
            targets = columns[REWARDS] + columns[DISCOUNTS] * soft
        values = self.values(self.critics, batch[OBS], columns[ACTIONS].tanh())
        self.step(self.critics, (columns[WEIGHTS] * 0.5 * (values - targets).square()).mean(1).sum(), LR["critics"])
        actions, log_prob = self.drawn(batch[OBS], batch[NOISE])
        loss = (ALPHA * log_prob - self.values(self.critics, batch[OBS], actions).amin(0)).mean()
        self.step(self.actor, loss, LR["actor"])
        with torch.no_grad():
            for name, target in self.targets.items():
                target += TAU * (self.critics[name] - target)

    @staticmethod
    def step(parameters, loss, lr):
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        with torch.no_grad():
            for leaf, gradient in zip(parameters.values(), gradients):
                if gradient is not None:
                    leaf -= lr * gradient


def update(learner, batch):
    learner.update(
        batch, rng=np.random.default_rng(0), lr=LR, shuffle=False, critics={"alpha": ALPHA}, actor={"alpha": ALPHA}
    )
    learner.update_targets(1)


def copied(named):
    return {name: np.array(view) for name, view in named.items()}


def is_of_encoder(name: str) -> bool:
    return "image_" in name


# ---------------------------------------------------------------------- updates


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_an_update_is_that_of_plain_torch(space, shares, device):
    learner, batch = make(space, shares, device=device), make_batch(space)
    vector = learner.vector
    reference = Reference(*(copied(vector.named_parameters(name)) for name in ("policy", "critics")), shares)
    update(learner, batch)
    reference.update(batch)
    target = vector.named_parameters("critics", learner.targets["critics"].weights)
    found = {"policy": vector.named_parameters("policy"), "critics": vector.named_parameters("critics")}
    for name, expected in reference.critics.items():
        np.testing.assert_allclose(found["critics"][name], expected.detach(), atol=2e-5, err_msg=name)
        np.testing.assert_allclose(target[name], reference.targets[name], atol=2e-5, err_msg=name)
    for name, expected in reference.actor.items():
        if shares and is_of_encoder(name):
            expected = reference.critics[name.replace("shared.", "encoder.")]
        np.testing.assert_allclose(found["policy"][name], expected.detach(), atol=2e-5, err_msg=name)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop"])
@pytest.mark.parametrize("shares", [True, False])
def test_who_trains_the_encoder(shares, optimizer):
    """The critics' steps move what they read. The actor's steps move its own convolutions, and no shared ones."""
    learner, batch = make(PICTURE, shares, optimizer), make_batch(PICTURE)

    def moved(**settings):
        before = {name: copied(learner.vector.named_parameters(name)) for name in ("policy", "critics")}
        given = {"critics": None, "actor": None, **settings}
        learner.update(batch, rng=np.random.default_rng(0), lr=1e-2, shuffle=False, **given)
        return {
            (module, is_of_encoder(name))
            for module, parameters in before.items()
            for name, value in parameters.items()
            if not np.array_equal(value, learner.vector.named_parameters(module)[name])
        }

    of_critics = {("critics", True), ("critics", False)}
    assert moved(critics={"alpha": ALPHA}) == of_critics | ({("policy", True)} if shares else set())
    assert moved(actor={"alpha": ALPHA}) == {("policy", False)} | (set() if shares else {("policy", True)})


def test_a_shared_encoder_is_the_same_memory_and_begins_as_the_policy_has_it():
    policy = make_policy(PICTURE)
    encoder = {name: np.array(view) for name, view in policy.parameters().items() if is_of_encoder(name)}
    vector = ModuleVector(
        policy, {"number": Parameter(3.0, (2,)), "critics": critics_of(policy, True)}, np.random.default_rng(0)
    )
    own, read = vector.named_parameters("policy"), vector.named_parameters("critics")
    for name, value in encoder.items():
        np.testing.assert_array_equal(own[name], value)
        assert np.shares_memory(own[name], read[name.replace("shared.", "encoder.")])
    assert np.shares_memory(policy.weights, vector.flat)
    parts = sorted((part.start, part.stop) for part in vector.moved.values())
    assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])]
    assert parts[-1][1] == len(vector.flat)
    np.testing.assert_array_equal(vector["number"], [3, 3])


def test_other_convolutions_cannot_be_shared():
    policy = make_policy(PICTURE)
    other = policy_spec(PICTURE, Box(-1, 1, (2,)), {"conv_filters": [[3, 8, 1, "valid"]]}).torso
    with pytest.raises(ValueError, match="'critics' has shares_torso=True, but other convolutions than the policy"):
        ModuleVector(policy, {"critics": FullyConnected(torso=other, shares_torso=True)})


@pytest.mark.parametrize("shares", [True, False])
def test_a_learner_goes_on_from_its_state(shares):
    first, batches = make(PICTURE, shares, "adam"), [make_batch(PICTURE, seed) for seed in range(3)]
    update(first, batches[0])
    state, weights = first.get_state(), first.policy.get_weights()
    second = make(PICTURE, shares, "adam")
    update(second, batches[2])
    second.policy.set_weights(weights)
    second.set_state(state)
    for learner in (first, second):
        update(learner, batches[1])
    np.testing.assert_array_equal(first.vector.flat, second.vector.flat)
    for name, array in first.get_state().items():
        np.testing.assert_array_equal(array, second.get_state()[name], err_msg=name)


def test_a_gradient_that_is_not_finite_names_the_module():
    learner, batch = make(PICTURE, True), make_batch(PICTURE)
    batch[REWARDS][3] = np.nan
    with pytest.raises(NotFiniteError, match="the gradient of critics is not finite"):
        update(learner, batch)
