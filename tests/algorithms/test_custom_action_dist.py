"""model={"custom_action_dist": ...}: distributions of the user's, in torch."""

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from rllib import DQN, PPO, ModelCatalog, Policy
from rllib.errors import CheckpointError
from rllib.models.distributions.standard import Categorical, DiagGaussian
from rllib.models.distributions.user import TorchDistribution, TorchDistributionWrapper
from tests.algorithms.test_custom_networks import PPO_SETTINGS, config
from tests.envs import BoundedAction, MatchObservation

torch.set_num_threads(1)


class Beta(TorchDistributionWrapper):
    """On [-1, 1]."""

    def __init__(self, inputs, model):
        super().__init__(inputs, model)
        a, b = (softplus(inputs) + 1).chunk(2, dim=-1)
        self.beta = torch.distributions.Beta(a, b)
        stretch = torch.distributions.AffineTransform(-1, 2)
        self.dist = torch.distributions.TransformedDistribution(self.beta, stretch)

    def deterministic_sample(self):
        return 2 * self.beta.mean - 1

    def entropy(self):
        return self.beta.entropy() + np.log(2)

    def kl(self, other):
        return torch.distributions.kl_divergence(self.beta, other.beta)

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 2 * action_space.shape[0]


class Normal(TorchDistributionWrapper):
    """As DiagGaussian."""

    def __init__(self, inputs, model):
        super().__init__(inputs, model)
        mean, log_std = inputs.chunk(2, dim=-1)
        self.dist = torch.distributions.Normal(mean, log_std.exp())

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return (2 * action_space.shape[0],)


class Choice(TorchDistributionWrapper):
    """As Categorical."""

    def __init__(self, inputs, model):
        super().__init__(inputs, model)
        self.dist = torch.distributions.Categorical(logits=inputs)

    def kl(self, other):
        raise NotImplementedError

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return action_space.n


@pytest.mark.parametrize(
    ("user_class", "space", "built_in"),
    [
        (Normal, BoundedAction.action_space, DiagGaussian((1,))),
        (Choice, MatchObservation.action_space, Categorical(2)),
    ],
)
def test_it_is_evaluated_as_a_built_in_one(user_class, space, built_in):
    own = TorchDistribution.of(user_class, space, {})
    own.check()
    assert (own.num_inputs, own.action_shape, own.action_dtype) == (2, built_in.action_shape, built_in.action_dtype)
    rng = np.random.default_rng(0)
    inputs, old = rng.standard_normal((2, 50, 2), dtype=np.float32)
    actions = own.sample(inputs, own.noise(rng, 50))
    assert actions.dtype == built_in.action_dtype
    found, expected = own.at(inputs), built_in.at(inputs)
    np.testing.assert_allclose(found.log_prob(actions), expected.log_prob(actions), atol=1e-5)
    np.testing.assert_allclose(found.entropy(), expected.entropy(), atol=1e-5)
    np.testing.assert_array_equal(own.mode(inputs), built_in.mode(inputs))
    kl = expected.kl_from(old) if user_class is Normal else np.zeros(50)
    np.testing.assert_allclose(found.kl_from(old), kl, rtol=1e-5, atol=1e-4)


def test_samples_follow_the_seeds():
    own = TorchDistribution.of(Normal, BoundedAction.action_space, {})
    inputs, rng = np.zeros((20_000, 2), np.float32), np.random.default_rng(0)
    noise = own.noise(rng, len(inputs))
    torch.manual_seed(1)
    first = own.sample(inputs, noise)
    after = torch.rand(1)
    torch.manual_seed(1)
    np.testing.assert_array_equal(own.sample(inputs, noise), first)
    assert torch.equal(torch.rand(1), after)  # the process's generator is left alone
    assert abs(first.mean()) < 0.03 and abs(first.std() - 1) < 0.03
    assert (own.sample(inputs, np.zeros_like(noise)) == 0).all()


def test_a_bounded_distribution_finds_the_best_action():
    ModelCatalog.register_custom_action_dist("beta", Beta)
    model = {"custom_action_dist": "beta", "fcnet_hiddens": [16]}
    with config(PPO, model, BoundedAction, **PPO_SETTINGS).build() as algo:
        for _ in range(20):
            algo.train()
        action = algo.compute_single_action(np.zeros(1, np.float32), explore=False)
    assert abs(float(action[0]) - 7) < 0.7


def test_checkpoints(tmp_path):
    with config(PPO, {"custom_action_dist": Beta, "fcnet_hiddens": [8]}, BoundedAction, **PPO_SETTINGS).build() as algo:
        saved = algo.save(tmp_path)
        algo.restore(saved)
    with pytest.raises(CheckpointError, match=r"action_dist=.*Beta.*load_user_code=True"):
        Policy.from_checkpoint(saved)
    (policy,) = Policy.from_checkpoint(saved, load_user_code=True).values()
    rows = np.zeros((3, 1), np.float32)
    np.testing.assert_array_equal(policy.choose(rows, explore=False), algo.policy.choose(rows, False))


class Flat(Beta):
    def deterministic_sample(self):
        return super().deterministic_sample().sum(-1)


class NoShape(TorchDistributionWrapper): ...


@pytest.mark.parametrize(
    ("algorithm", "given", "env", "match"),
    [
        (PPO, Flat, BoundedAction, r"deterministic_sample\(\) must return actions \[2, 1\] .* returned \[2\]"),
        (PPO, NoShape, BoundedAction, "NoShape needs a static method required_model_output_shape"),
        (PPO, "btea", BoundedAction, r"'btea' is no registered name"),
        (DQN, Choice, MatchObservation, "DQN learns the values of actions"),
    ],
)
def test_what_is_refused(algorithm, given, env, match):
    with pytest.raises(ValueError, match=match):
        config(algorithm, {"custom_action_dist": given}, env).build()
