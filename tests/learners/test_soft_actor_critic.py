"""Soft actor-critic (Haarnoja et al., arXiv:1812.05905) out of modules, objectives and target copies: the seam's proof.

A minimal one: twin critics that read observation and action, an actor whose Gaussian is squashed by tanh, a temperature
that is learned. Its gradients are those of a reference written out in plain torch, and it solves a probe environment.
"""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.nn import functional

from rllib.learners.learner import make_learner
from rllib.learners.updates.objective import Objective
from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.learners.updates.target_copy import TargetCopy
from rllib.losses.loss import LossOverModules
from rllib.models.catalog.catalog import policy_spec
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.dense.spec import Dense
from rllib.models.distributions.standard import DiagGaussian
from rllib.models.modules import FullyConnected, Parameter
from rllib.models.user.module import CustomModule
from rllib.policy import Policy
from rllib.sample_batch import ACTIONS, NEXT_OBS, OBS, REWARDS, TERMINATEDS, SampleBatch
from tests.gpu import DEVICES

torch.set_num_threads(1)

# Columns of standard normal numbers [B, action size], for the actions that the losses draw.
NOISE, NEXT_NOISE = "noise", "next_noise"
LOG_STD = (-5.0, 2.0)


# ---------------------------------------------------------------------- the actor


class SquashedGaussian(DiagGaussian):
    """tanh of a normal action, within -1 ... 1."""

    def sample(self, inputs, noise, out=None):
        inputs = inputs.copy()
        np.clip(inputs[:, self.size :], *LOG_STD, out=inputs[:, self.size :])
        sample = super().sample(inputs, noise, out)
        return np.tanh(sample, out=sample)

    def mode(self, inputs):
        return np.tanh(super().mode(inputs))


def squashed(dist_inputs, noise):
    """Actions [B, A] that have a gradient, and their log-probabilities [B] (appendix C of the paper)."""
    mean, log_std = dist_inputs.chunk(2, dim=-1)
    log_std = log_std.clamp(*LOG_STD)
    raw = mean + log_std.exp() * noise
    log_prob = -(0.5 * noise.square() + log_std + 0.5 * math.log(2 * math.pi))
    # log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x)), which does not overflow.
    log_prob = log_prob - 2 * (math.log(2) - raw - functional.softplus(-2 * raw))
    return raw.tanh(), log_prob.sum(-1)


# ---------------------------------------------------------------------- the three losses


def critic_loss(distribution, modules, minibatch, *, gamma):
    """Equation 5: both critics towards the soft value of the next observation, by the smaller target critic."""
    following = minibatch[NEXT_OBS]
    with torch.no_grad():
        actions, log_prob = squashed(modules["policy"](following)[0], minibatch[NEXT_NOISE])
        smaller = modules["target_q1"](following, actions).minimum(modules["target_q2"](following, actions))
        soft = smaller - modules["log_alpha"]().exp() * log_prob
        targets = minibatch[REWARDS] + gamma * ~minibatch[TERMINATEDS] * soft
    errors = [modules[name](minibatch[OBS], minibatch[ACTIONS]) - targets for name in ("q1", "q2")]
    loss = sum(error.square().mean() for error in errors)
    return loss, (loss,), (errors[0].abs().detach(),)


def actor_loss(distribution, modules, minibatch):
    """Equation 9, the smaller critic judging."""
    observations = minibatch[OBS]
    actions, log_prob = squashed(modules["policy"](observations)[0], minibatch[NOISE])
    q = modules["q1"](observations, actions).minimum(modules["q2"](observations, actions))
    loss = (modules["log_alpha"]().exp() * log_prob - q).mean()
    return loss, (loss, -log_prob.mean())


def temperature_loss(distribution, modules, minibatch, *, target_entropy):
    """Equation 18, for log alpha instead of alpha as everybody has it."""
    _, log_prob = squashed(modules["policy"](minibatch[OBS])[0], minibatch[NOISE])
    loss = -(modules["log_alpha"]() * (log_prob + target_entropy)).mean()
    return loss, (loss,)


LOSSES = {
    "critics": LossOverModules(
        (ACTIONS, REWARDS, TERMINATEDS, NEXT_OBS, NEXT_NOISE), ("critic_loss",), critic_loss, ("td_error",)
    ),
    "actor": LossOverModules((NOISE,), ("actor_loss", "entropy"), actor_loss),
    "temperature": LossOverModules((NOISE,), ("temperature_loss",), temperature_loss),
}
MOVES = {"critics": ("q1", "q2"), "actor": ("policy",), "temperature": ("log_alpha",)}
SETTINGS = {"critics": {"gamma": 0.9}, "temperature": {"target_entropy": -1.0}}
OBSERVATIONS, ACTION_SPACE = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box(-1, 1, (1,))


def make_policy(seed=0) -> Policy:
    plain = policy_spec(OBSERVATIONS, ACTION_SPACE)
    spec = NetworkSpec(
        plain.encoder, SquashedGaussian((1,)), (32, 32), ("relu", "relu"), critic=False, architecture=Dense()
    )
    return Policy(spec, rng=np.random.default_rng(seed))


def make(seed=0, optimizer="adam", device="cpu", **arguments):
    critic = FullyConnected(("observation", "action"), (32, 32))
    return make_learner(
        make_policy(seed),
        [Objective(LOSSES[name], MOVES[name], name, OptimizerSettings(optimizer), **arguments) for name in LOSSES],
        modules={"q1": critic, "q2": critic, "log_alpha": Parameter(math.log(0.1))},
        targets=[TargetCopy("q1", tau=0.05), TargetCopy("q2", tau=0.05)],
        device=device,
        rng=np.random.default_rng(seed),
    )


def make_batch(rows, seed=0) -> SampleBatch:
    rng = np.random.default_rng(seed)
    observations, following = rng.uniform(-1, 1, (2, rows, 2)).astype(np.float32)
    return SampleBatch(
        {
            OBS: observations,
            NEXT_OBS: following,
            ACTIONS: rng.uniform(-1, 1, (rows, 1)).astype(np.float32),
            REWARDS: rng.standard_normal(rows, np.float32),
            TERMINATEDS: rng.random(rows) < 0.3,
            NOISE: rng.standard_normal((rows, 1), np.float32),
            NEXT_NOISE: rng.standard_normal((rows, 1), np.float32),
        }
    )


def update(learner, batch, lr=3e-3, **settings):
    return learner.update(batch, rng=np.random.default_rng(0), lr=lr, **{**SETTINGS, **settings})


# ---------------------------------------------------------------------- against a reference in plain torch


class Reference:
    """The same algorithm as one would write it for itself, in float64, with plain gradient descent."""

    def __init__(self, learner):
        self.networks = {}
        for name in ("policy", "q1", "q2"):
            named = learner.vector.named_parameters(name)
            self.networks[name] = [torch.tensor(part, dtype=torch.float64) for part in named.values()]
        self.networks |= {f"target_{name}": [part.clone() for part in self.networks[name]] for name in ("q1", "q2")}
        self.networks["log_alpha"] = [torch.tensor(learner.vector["log_alpha"][0], dtype=torch.float64)]

    def compute(self, name, *read):
        x, parts = torch.cat(read, -1), self.networks[name]
        for weight, bias in zip(parts[0:4:2], parts[1:4:2]):
            x = torch.relu(x @ weight.T + bias)
        return x @ parts[4].T + parts[5]

    def descend(self, names, loss, lr):
        parameters = [part for name in names for part in self.networks[name]]
        for part in parameters:
            part.requires_grad_()
        gradients = torch.autograd.grad(loss(), parameters)
        for part, gradient in zip(parameters, gradients):
            part.requires_grad_(False).sub_(lr * gradient)

    def update(self, batch, lr, gamma, target_entropy, tau):
        data = {name: torch.tensor(column) for name, column in batch.items()}
        data = {name: column.double() for name, column in data.items()}

        def act(observations, noise):
            mean, log_std = self.compute("policy", observations).split(1, -1)
            normal = torch.distributions.Normal(mean, log_std.exp())
            raw = mean + log_std.exp() * noise
            return raw.tanh(), (normal.log_prob(raw) - (1 - raw.tanh() ** 2).log()).sum(-1)

        def critics():
            with torch.no_grad():
                actions, log_prob = act(data[NEXT_OBS], data[NEXT_NOISE])
                both = [self.compute(name, data[NEXT_OBS], actions)[:, 0] for name in ("target_q1", "target_q2")]
                soft = torch.minimum(*both) - self.networks["log_alpha"][0].exp() * log_prob
                targets = data[REWARDS] + gamma * (1 - data[TERMINATEDS]) * soft
            both = [self.compute(name, data[OBS], data[ACTIONS])[:, 0] for name in ("q1", "q2")]
            return functional.mse_loss(both[0], targets) + functional.mse_loss(both[1], targets)

        def actor():
            actions, log_prob = act(data[OBS], data[NOISE])
            both = [self.compute(name, data[OBS], actions)[:, 0] for name in ("q1", "q2")]
            return (self.networks["log_alpha"][0].exp() * log_prob - torch.minimum(*both)).mean()

        def temperature():
            _, log_prob = act(data[OBS], data[NOISE])
            return -(self.networks["log_alpha"][0] * (log_prob.detach() + target_entropy)).mean()

        for names, loss in ((("q1", "q2"), critics), (("policy",), actor), (("log_alpha",), temperature)):
            self.descend(names, loss, lr)
        for name in ("q1", "q2"):
            for target, part in zip(self.networks[f"target_{name}"], self.networks[name]):
                target.mul_(1 - tau).add_(tau * part)


@pytest.mark.parametrize("device", DEVICES)
def test_updates_are_those_of_a_reference(device):
    """Critics, then the actor by the new critics, then the temperature by the new actor; targets follow."""
    learner = make(optimizer="sgd", device=device)
    reference = Reference(learner)
    for seed in range(5):
        batch = make_batch(64, seed)
        update(learner, batch, lr=0.05)
        learner.update_targets(seed + 1)
        reference.update(batch, 0.05, 0.9, -1.0, 0.05)
    named = {name: learner.vector.named_parameters(name) for name in learner.vector.slices}
    named |= {f"target_{name}": learner.vector.named_parameters(name, t.weights) for name, t in learner.targets.items()}
    for name, parameters in named.items():
        for part, expected in zip(parameters.values(), reference.networks[name], strict=True):
            np.testing.assert_allclose(part, expected, atol=1e-5, err_msg=name)


def test_it_solves_a_probe():
    """One step, reward -(a - f(o))^2: the actor's mode is f, and its entropy what was asked for."""

    def best(observations):
        return 0.5 * np.sin(3 * observations[:, :1]) - 0.3 * observations[:, 1:]

    learner, rng = make(), np.random.default_rng(0)
    rows, used = np.empty((2000, 4), np.float32), 0
    while used < len(rows):
        observations = rng.uniform(-1, 1, (10, 2)).astype(np.float32)
        actions = learner.policy.choose(observations, rng=rng)
        rewards = -np.square(actions - best(observations))
        rows[used : used + 10] = np.concatenate([observations, actions, rewards], 1)
        used += 10
        for _ in range(3 if used >= 200 else 0):
            sampled = rows[rng.integers(used, size=128)]
            noise = rng.standard_normal((2, 128, 1), np.float32)
            batch = SampleBatch(
                {
                    OBS: sampled[:, :2],
                    NEXT_OBS: sampled[:, :2],
                    ACTIONS: sampled[:, 2:3],
                    REWARDS: sampled[:, 3],
                    TERMINATEDS: np.ones(128, bool),
                    NOISE: noise[0],
                    NEXT_NOISE: noise[1],
                }
            )
            rates = {"critics": 5e-3, "actor": 3e-3, "temperature": 1e-2}
            stats = update(learner, batch, rates, shuffle=False)
            learner.update_targets(used)
    fresh = np.random.default_rng(1).uniform(-1, 1, (500, 2)).astype(np.float32)
    missed = np.abs(learner.policy.choose(fresh, explore=False) - best(fresh))
    assert missed.mean() < 0.1
    assert stats["entropy"] == pytest.approx(-1, abs=0.5)


# ---------------------------------------------------------------------- what any algorithm of several objectives has


def test_every_module_is_a_slice_of_one_vector():
    learner = make()
    assert sum(learner.vector[name].size for name in ("policy", "q1", "q2", "log_alpha")) == learner.weights.size
    assert all(np.shares_memory(learner.vector[name], learner.weights) for name in learner.vector.slices)
    learner.weights[:] = 0.5
    assert (learner.policy.weights == 0.5).all() and (learner.policy.parameters()["policy.head.bias"] == 0.5).all()


def test_an_objective_can_be_left_out():
    learner = make()
    before = learner.weights.copy()
    stats = update(learner, make_batch(32), actor=None)
    assert set(stats) == {
        *("critic_loss", "critics_grad_gnorm", "td_error", "num_minibatches"),
        *("temperature_loss", "temperature_grad_gnorm"),
    }
    np.testing.assert_array_equal(learner.policy.weights, before[learner.vector.slices["policy"]])
    for name in ("q1", "q2", "log_alpha"):
        assert (learner.vector[name] != before[learner.vector.slices[name]]).any()


def test_rates_by_objective():
    learner = make()
    before = learner.weights.copy()
    update(learner, make_batch(32), lr={"critics": 0.0, "actor": 0.0, "temperature": 1e-2})
    assert np.flatnonzero(learner.weights != before).tolist() == [learner.vector.slices["log_alpha"].start]


def test_row_statistics_are_in_the_order_of_the_batch():
    batch = make_batch(50)
    rows = update(make(), batch, shuffle=False, lr=0.0)["td_error"]
    np.testing.assert_allclose(update(make(), batch, minibatch_size=16, lr=0.0)["td_error"], rows, atol=1e-5)


def test_microbatches_give_the_same_gradients():
    whole, parts = make(optimizer="sgd"), make(optimizer="sgd")
    batch = make_batch(50)
    assert update(whole, batch)["critic_loss"] == pytest.approx(update(parts, batch, microbatch_size=7)["critic_loss"])
    np.testing.assert_allclose(parts.weights, whole.weights, atol=1e-6)


@pytest.mark.parametrize("by", ["global_norm", "norm", "value"])
def test_each_objective_is_clipped_on_its_own(by):
    learner = make(optimizer="sgd", grad_clip=1e-3, grad_clip_by=by)
    before = learner.weights.copy()
    update(learner, make_batch(32), lr=1.0)
    for name in ("policy", "log_alpha"):
        moved = learner.vector[name] - before[learner.vector.slices[name]]
        assert 0 < np.abs(moved).max() <= 1e-3 + 1e-6
    both = slice(learner.vector.slices["q1"].start, learner.vector.slices["q2"].stop)
    if by == "global_norm":
        assert np.linalg.norm(learner.weights[both] - before[both]) == pytest.approx(1e-3, rel=1e-2)


def test_state_goes_on_to_the_bit():
    first, second = make(), make(seed=1)
    for seed in range(3):
        update(first, make_batch(32, seed))
        first.update_targets(seed)
    second.policy.set_state(first.policy.get_state())
    second.set_state(first.get_state())
    for learner in (first, second):
        update(learner, make_batch(32, 7))
        learner.update_targets(7)
    np.testing.assert_array_equal(second.weights, first.weights)
    np.testing.assert_array_equal(second.targets["q2"].weights, first.targets["q2"].weights)


def test_a_number_that_is_not_finite_is_named_by_its_module():
    learner = make()
    learner.vector["q2"][:] = np.nan
    with pytest.raises(Exception, match=r"Weights with NaN or infinity: q2\.hidden_0\.weight"):
        update(learner, make_batch(32))


class Quadratic(torch.nn.Linear):
    """A weighted sum of squares."""

    def forward(self, observations):
        return super().forward(observations.square())[:, 0]


def test_a_module_of_ones_own():
    def fit(distribution, modules, minibatch):
        loss = (modules["model"](minibatch[OBS]) - minibatch[REWARDS]).square().mean()
        return loss, (loss,)

    objective = Objective(LossOverModules((REWARDS,), ("loss",), fit), ("model",))
    model = CustomModule(lambda width: Quadratic(width, 1, bias=False))
    learner = make_learner(make_policy(), objective, modules={"model": model})
    batch = make_batch(256)
    batch[REWARDS] = (batch[OBS] ** 2 @ np.float32([2, -1])).astype(np.float32)
    for _ in range(300):
        learner.update(batch, rng=np.random.default_rng(0), lr=0.03)
    np.testing.assert_allclose(learner.vector["model"], [2, -1], atol=0.01)


def test_names_that_are_not_there():
    with pytest.raises(ValueError, match=r"no modules \['q3'\]; there are policy"):
        make_learner(make_policy(), Objective(LOSSES["critics"], ("q3",)))
    with pytest.raises(ValueError, match=r"no objectives \['critic'\]; there are critics, actor, temperature"):
        make().update(make_batch(4), rng=np.random.default_rng(0), lr=1e-3, critic={})
    for module in (FullyConnected(("action", "state")), CustomModule(torch.nn.Linear, ("action", "state"))):
        with pytest.raises(ValueError, match=r"can read observation, action of this policy.*'state' is not one of"):
            make_learner(make_policy(), [], modules={"q": module})
    with pytest.raises(ValueError, match=r"reads=\(\) was given: a module needs at least one"):
        make_learner(make_policy(), [], modules={"q": CustomModule(torch.nn.Linear, ())})
    with pytest.raises(ValueError, match="this one has critics, actor, temperature for policy, q1, q2, log_alpha"):
        make().compute_gradient(make_batch(4))
